/* submit_batch: which records may share a statement, and their items. */
#include <stdint.h>
#include <string.h>

#include "pool/record_int.h"

/* A set of 64-bit marks. Two things with one mark only make a record wait for the next round. */
struct marks {
    uint64_t *slots;
    size_t mask;
};

/* False: was there. */
static bool add_mark(struct marks *set, uint64_t mark)
{
    mark |= 1; /* 0 is free */
    size_t at = (size_t)(mark >> 7) & set->mask;
    for (; set->slots[at] != 0; at = (at + 1) & set->mask)
        if (set->slots[at] == mark)
            return false;
    set->slots[at] = mark;
    return true;
}

static uint64_t mark_of(char kind, struct span a, struct span b)
{
    uint64_t h = UINT64_C(14695981039346656037) ^ (unsigned char)kind;
    for (size_t i = 0; i < a.n; i++)
        h = (h ^ (unsigned char)a.p[i]) * UINT64_C(1099511628211);
    h = (h ^ '/') * UINT64_C(1099511628211);
    for (size_t i = 0; i < b.n; i++)
        h = (h ^ (unsigned char)b.p[i]) * UINT64_C(1099511628211);
    return h ^ (h >> 31);
}

/* All its marks are set, also those of a record that must wait: what comes after it must not pass
 * it. */
static bool first_of_all(struct marks *set, const struct task_record *r)
{
    const struct message *m = &r->message;
    bool first = add_mark(set, mark_of('r', m->tenant_id, m->request_key));
    if (!span_is_null(m->task_id))
        first &= add_mark(set, mark_of('t', m->tenant_id, m->task_id));
    if (m->has_run) {
        struct span run = {(const char *)m->run_id.b, sizeof(m->run_id.b)};
        first &= add_mark(set, mark_of('n', m->tenant_id, run));
    }
    return first;
}

size_t round_pick(struct task_record **records, size_t n, size_t max, struct arena *arena)
{
    struct marks set = {NULL, 7};
    while (set.mask < n * 6)
        set.mask = set.mask * 2 + 1;
    set.slots = arena_array(arena, set.mask + 1, sizeof(*set.slots));
    struct task_record **rest = arena_array(arena, n + 1, sizeof(*rest));
    size_t picked = 0, rest_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (first_of_all(&set, records[i]) && picked < max)
            records[picked++] = records[i];
        else
            rest[rest_n++] = records[i];
    }
    memcpy(records + picked, rest, rest_n * sizeof(struct task_record *));
    return picked;
}

static struct db_time time_of(bool has, int64_t us)
{
    return has ? DB_TIME(us) : DB_TIME_NULL;
}

static struct uuid_opt run_of(const struct message *m)
{
    return m->has_run ? UUID_OPT(m->run_id) : UUID_OPT_NULL;
}

struct fence_submit_item submit_item(const struct task_record *r)
{
    const struct message *m = &r->message;
    bool rejected = !span_is_null(r->reject);
    struct fence_submit_item item = {
        .tenant = m->tenant_id,
        .task = m->task_id,
        .key = m->request_key,
        .own_key = m->own_key,
        .digest = m->digest,
        .source = m->source,
        .by = m->by,
        .reject = {r->reject},
        .run_id = r->run_id,
        .not_before = DB_TIME_NULL,
        .deadline = DB_TIME_NULL,
        .max_attempts = MESSAGE_DEFAULT_ATTEMPTS,
        .traceparent = m->traceparent,
        .tracestate = m->tracestate,
    };
    if (rejected)
        return item; /* what it would have run is of no interest, and may be what is wrong */
    item.handler = m->handler;
    item.input.text = m->input;
    item.priority = m->priority;
    item.not_before = time_of(m->has_not_before, m->not_before_us);
    item.deadline = time_of(m->has_deadline, m->deadline_us);
    item.max_attempts = m->max_attempts;
    item.cancel_previous = m->cancel_previous;
    item.allow_unsettled = m->allow_unsettled;
    item.labels.text = m->labels;
    return item;
}

struct fence_cancel_item cancel_item(const struct task_record *r)
{
    const struct message *m = &r->message;
    return (struct fence_cancel_item){
        .tenant = m->tenant_id,
        .task = m->task_id,
        .key = m->request_key,
        .own_key = m->own_key,
        .digest = m->digest,
        .source = m->source,
        .by = m->by,
        .run_id = run_of(m),
        .reason = m->reason,
        .record = {m->record},
    };
}

struct fence_retry_item retry_item(const struct task_record *r)
{
    const struct message *m = &r->message;
    return (struct fence_retry_item){
        .tenant = m->tenant_id,
        .task = m->task_id,
        .key = m->request_key,
        .own_key = m->own_key,
        .digest = m->digest,
        .source = m->source,
        .by = m->by,
        .run_id = run_of(m),
        .new_run_id = r->run_id,
        .fresh = m->fresh,
        .allow_unsettled = m->allow_unsettled,
        .reason = m->reason,
        .traceparent = m->traceparent,
        .tracestate = m->tracestate,
    };
}

struct fence_signal_item signal_item(const struct task_record *r)
{
    const struct message *m = &r->message;
    return (struct fence_signal_item){
        .tenant = m->tenant_id,
        .task = m->task_id,
        .key = m->request_key,
        .own_key = m->own_key,
        .digest = m->digest,
        .source = m->source,
        .by = m->by,
        .run_id = run_of(m),
        .signal_id = m->signal_id,
        .name = m->name,
        .payload = {m->payload},
        .record = {m->record},
    };
}

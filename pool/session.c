/* session: copies what an acquisition answered, and keeps the registry of all that is held. */
#include "pool/session_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/metric.h"

const char *session_stop_word(enum session_stop stop)
{
    switch (stop) {
    case SESSION_GOES:
        return "";
    case SESSION_DOUBT:
    case SESSION_DRAIN:
    case SESSION_LOST:
        return "lease_lost";
    case SESSION_CANCELLED:
        return "cancelled";
    case SESSION_DEADLINE:
        return "deadline";
    }
    return "";
}

/* ---- one session ---- */

/* Copies texts behind the struct, each with a zero behind it. */
struct packer {
    char *at;
};

static struct span pack(struct packer *p, struct span s)
{
    if (span_is_null(s))
        return SPAN_NULL;
    char *to = p->at;
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    p->at += s.n + 1;
    return (struct span){to, s.n};
}

static struct span trace_id_of(struct span traceparent)
{
    /* 00-<32 digits>-… */
    return traceparent.n >= 35 ? (struct span){traceparent.p + 3, 32} : SPAN_NULL;
}

struct session *session_new(const struct fence_acquired *row, struct span owner,
                            int64_t first_asked_us, int64_t ttl_us)
{
    const struct span texts[] = {
        owner,
        row->tenant_id,
        row->task_id,
        row->handler,
        row->traceparent,
        row->tracestate,
        row->input.text,
        row->operations.text,
        row->signals.text,
        row->earlier.text,
        row->woke_reason,
        row->checkpoint.text,
    };
    size_t size = 0;
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        size += texts[i].n + 1;
    struct session *s = memory_new(1, sizeof(*s) + size);
    struct packer p = {(char *)(s + 1)};
    s->owner = pack(&p, owner);
    s->tenant = pack(&p, row->tenant_id);
    s->task = pack(&p, row->task_id);
    s->handler = pack(&p, row->handler);
    s->traceparent = pack(&p, row->traceparent);
    s->tracestate = pack(&p, row->tracestate);
    s->input = pack(&p, row->input.text);
    s->operations = pack(&p, row->operations.text);
    s->signals = pack(&p, row->signals.text);
    s->earlier = pack(&p, row->earlier.text);
    s->woke_reason = pack(&p, row->woke_reason);
    s->checkpoint = pack(&p, row->checkpoint.text);
    s->trace_id = trace_id_of(s->traceparent);
    s->run_id = row->run_id;
    s->first_run_id = row->first_run_id;
    s->prev_run_id = row->prev_run_id;
    s->epoch = row->epoch;
    s->revision = row->revision;
    s->deadline = row->deadline;
    s->attempt = row->attempt;
    s->failures = row->failures;
    s->takeover = row->takeover;
    s->first_asked_us = first_asked_us;
    atomic_init(&s->stop, SESSION_GOES);
    atomic_init(&s->valid_until_us, first_asked_us + ttl_us);
    return s;
}

void session_free(struct session *s)
{
    if (s == NULL)
        return;
    arena_free(s->step);
    free(s->checkpoint_own);
    free(s);
}

void session_advance(struct session *s, int64_t revision, struct span checkpoint)
{
    s->revision = revision;
    if (span_is_null(checkpoint))
        return;
    char *own = memory_copy_bytes(checkpoint.p, checkpoint.n);
    free(s->checkpoint_own);
    s->checkpoint_own = own;
    s->checkpoint = (struct span){own, checkpoint.n};
}

struct arena *session_step(struct session *s)
{
    if (s->step == NULL)
        s->step = arena_new();
    else
        arena_reset(s->step);
    s->answer = SPAN_NULL;
    return s->step;
}

bool session_is_valid(const struct session *s)
{
    return clock_mono_us() < atomic_load(&s->valid_until_us);
}

/* ---- the registry ---- */

struct sessions {
    struct lock lock;
    struct condition empty;
    struct session **slots;
    size_t mask;
    struct session *first;
    size_t n;
};

struct sessions *sessions_new(size_t capacity)
{
    struct sessions *all = memory_new(1, sizeof(*all));
    lock_init(&all->lock);
    condition_init(&all->empty);
    all->mask = 63;
    while (all->mask < capacity)
        all->mask = all->mask * 2 + 1;
    all->slots = memory_new(all->mask + 1, sizeof(struct session *));
    return all;
}

void sessions_free(struct sessions *all)
{
    if (all == NULL)
        return;
    CHECK(all->n == 0);
    condition_destroy(&all->empty);
    lock_destroy(&all->lock);
    free(all->slots);
    free(all);
}

static struct session **slot_of(struct sessions *all, const struct uuid *run)
{
    uint64_t h;
    memcpy(&h, run->b + 8, sizeof(h)); /* the random half of a UUIDv7 */
    return &all->slots[(size_t)(h ^ h >> 32) & all->mask];
}

/* Raises the reason to stop; a doubt may be replaced by anything worse, nothing by a doubt. Locks:
 * all->lock. */
static bool raise_stop(struct session *s, enum session_stop stop, struct queue *wake)
{
    if (session_stopped(s) >= stop)
        return false;
    atomic_store(&s->stop, stop);
    if (s->shelved && stop != SESSION_DOUBT) {
        s->shelved = false;
        CHECK(queue_force_push(wake, s));
    }
    return true;
}

bool sessions_add(struct sessions *all, struct session *s, struct queue *wake)
{
    LOCK_SCOPE(&all->lock);
    struct session **slot = slot_of(all, &s->run_id);
    bool older = false;
    for (struct session *other = *slot; other != NULL; other = other->slot_next)
        if (uuid_eq(other->run_id, s->run_id)) {
            CHECK(other->epoch < s->epoch);
            older |= raise_stop(other, SESSION_LOST, wake);
        }
    s->slot_next = *slot;
    *slot = s;
    s->before = NULL;
    s->after = all->first;
    if (all->first != NULL)
        all->first->before = s;
    all->first = s;
    all->n++;
    metric_set(METRIC_RUNS_HELD, NO_LABELS, (double)all->n);
    return older;
}

static void unlink_session(struct sessions *all, struct session *s)
{
    struct session **at = slot_of(all, &s->run_id);
    while (*at != s)
        at = &(*at)->slot_next;
    *at = s->slot_next;
    if (s->before != NULL)
        s->before->after = s->after;
    else
        all->first = s->after;
    if (s->after != NULL)
        s->after->before = s->before;
    if (--all->n == 0)
        condition_broadcast(&all->empty);
    metric_set(METRIC_RUNS_HELD, NO_LABELS, (double)all->n);
}

void sessions_end(struct sessions *all, struct session *s)
{
    {
        LOCK_SCOPE(&all->lock);
        unlink_session(all, s);
    }
    session_free(s);
}

size_t sessions_count(struct sessions *all)
{
    LOCK_SCOPE(&all->lock);
    return all->n;
}

bool sessions_holds(struct sessions *all, struct uuid run_id, int64_t epoch)
{
    LOCK_SCOPE(&all->lock);
    for (const struct session *s = *slot_of(all, &run_id); s != NULL; s = s->slot_next)
        if (uuid_eq(s->run_id, run_id) && s->epoch >= epoch)
            return true;
    return false;
}

size_t sessions_in_doubt(struct sessions *all)
{
    LOCK_SCOPE(&all->lock);
    size_t n = 0;
    for (const struct session *s = all->first; s != NULL; s = s->after)
        n += session_stopped(s) == SESSION_DOUBT ? 1 : 0;
    return n;
}

bool sessions_shelve(struct sessions *all, struct session *s)
{
    LOCK_SCOPE(&all->lock);
    if (session_stopped(s) != SESSION_DOUBT)
        return false;
    s->shelved = true;
    return true;
}

void sessions_stop_all(struct sessions *all, enum session_stop stop, struct queue *wake)
{
    LOCK_SCOPE(&all->lock);
    for (struct session *s = all->first; s != NULL; s = s->after)
        raise_stop(s, stop, wake);
}

bool sessions_wait_empty(struct sessions *all, int64_t timeout_us)
{
    int64_t deadline_us = clock_deadline_us(timeout_us);
    LOCK_SCOPE(&all->lock);
    while (all->n > 0)
        if (!condition_wait_until(&all->empty, &all->lock, deadline_us))
            return all->n == 0;
    return true;
}

size_t sessions_leases(struct sessions *all, int64_t left_us, int64_t leaving_left_us,
                       struct arena *arena, struct fence_lease **ret, bool **ret_prefiltered)
{
    LOCK_SCOPE(&all->lock);
    int64_t now_us = clock_mono_us();
    struct fence_lease *leases = arena_array(arena, all->n + 1, sizeof(*leases));
    bool *prefiltered = arena_array(arena, all->n + 1, sizeof(*prefiltered));
    size_t n = 0;
    for (const struct session *s = all->first; s != NULL; s = s->after) {
        int64_t enough_us = atomic_load(&s->leaving) ? leaving_left_us : left_us;
        if (session_stopped(s) >= SESSION_DEADLINE ||
            atomic_load(&s->valid_until_us) - now_us >= enough_us)
            continue;
        prefiltered[n] = s->prefiltered;
        leases[n++] = (struct fence_lease){s->run_id, arena_dup(arena, s->owner), s->epoch};
    }
    *ret = leases;
    *ret_prefiltered = prefiltered;
    return n;
}

/* Locks: all->lock. */
static struct session *find(struct sessions *all, const struct fence_lease *lease)
{
    for (struct session *s = *slot_of(all, &lease->run_id); s != NULL; s = s->slot_next)
        if (uuid_eq(s->run_id, lease->run_id) && s->epoch == lease->epoch)
            return s;
    return NULL;
}

bool sessions_renewed(struct sessions *all, const struct fence_lease *lease, int64_t valid_until_us,
                      struct queue *wake)
{
    LOCK_SCOPE(&all->lock);
    struct session *s = find(all, lease);
    if (s == NULL)
        return false;
    atomic_store(&s->valid_until_us, valid_until_us);
    if (session_stopped(s) != SESSION_DOUBT)
        return false;
    atomic_store(&s->stop, SESSION_GOES);
    if (s->shelved) {
        s->shelved = false;
        CHECK(queue_force_push(wake, s));
    }
    return true;
}

bool sessions_stop(struct sessions *all, const struct fence_lease *lease, enum session_stop stop,
                   struct queue *wake)
{
    LOCK_SCOPE(&all->lock);
    struct session *s = find(all, lease);
    return s != NULL && raise_stop(s, stop, wake);
}

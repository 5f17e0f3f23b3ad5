/* commit_batch: which requests go together, and the arrays of their statement. */
#include <stdint.h>
#include <string.h>

#include "base/text.h"
#include "pool/commit_int.h"
#include "schemas/canon.h"

/* ---- identity of a write ---- */

static void add_field(struct text *t, struct span s)
{
    /* length first: no two contents give the same bytes */
    if (span_is_null(s)) {
        text_add_char(t, '-');
        return;
    }
    text_addf(t, "%zu:", s.n);
    text_add_span(t, s);
}

static void add_number(struct text *t, bool is_null, int64_t v)
{
    if (is_null)
        text_add_str(t, "-;");
    else
        text_addf(t, "%lld;", (long long)v);
}

static void add_intent(struct text *t, const struct fence_intent *i)
{
    add_field(t, i->operation_id);
    add_field(t, i->digest);
    add_field(t, i->tool);
    add_field(t, i->capability);
    add_field(t, i->declaration.text);
    add_field(t, i->external_key);
    add_field(t, i->compensates);
    add_number(t, false, i->after_settled);
}

static void add_texts(struct text *t, const struct span *texts, size_t n)
{
    add_number(t, false, (int64_t)n);
    for (size_t i = 0; i < n; i++)
        add_field(t, texts[i]);
}

void commit_prepare(struct commit_request *request)
{
    const struct decision *d = &request->decision;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    add_number(&t, false, request->revision);
    add_field(&t, d->checkpoint.text);
    add_field(&t, d->finish);
    add_field(&t, d->output.text);
    add_number(&t, false, d->release);
    add_field(&t, d->wait_mode);
    add_field(&t, d->wait_signal);
    add_number(&t, d->wait_until.is_null, d->wait_until.us);
    add_number(&t, d->retry_ms.is_null, d->retry_ms.v);
    add_number(&t, false, (int64_t)d->intent_n);
    for (size_t i = 0; i < d->intent_n; i++)
        add_intent(&t, &d->intents[i]);
    add_number(&t, false, (int64_t)d->event_n);
    for (size_t i = 0; i < d->event_n; i++) {
        add_field(&t, d->events[i].type);
        add_field(&t, d->events[i].body.text);
    }
    add_texts(&t, d->wait_for, d->wait_n);
    add_texts(&t, d->detach, d->detach_n);
    add_texts(&t, d->consume, d->consume_n);
    struct digest digest = digest_bytes(text_span(&t));
    memcpy(request->digest.text, digest.text, sizeof(digest.text));
    request->commit_id = uuid_v4();
}

/* ---- picking ---- */

static size_t size_of(const struct commit_request *r)
{
    const struct decision *d = &r->decision;
    size_t n = 512 + d->checkpoint.text.n + d->output.text.n;
    for (size_t i = 0; i < d->intent_n; i++)
        n += 512 + d->intents[i].body.text.n + d->intents[i].declaration.text.n;
    for (size_t i = 0; i < d->event_n; i++)
        n += d->events[i].body.text.n;
    return n;
}

/* Open addressing over the runs that are in the batch or waiting before the one looked at. */
struct run_set {
    const struct uuid **slots;
    size_t mask;
};

static bool run_set_add(struct run_set *set, const struct uuid *run)
{
    uint64_t h;
    memcpy(&h, run->b + 8, sizeof(h)); /* the random half of a UUIDv7 */
    size_t at = (size_t)(h ^ h >> 32) & set->mask;
    for (; set->slots[at] != NULL; at = (at + 1) & set->mask)
        if (uuid_eq(*set->slots[at], *run))
            return false;
    set->slots[at] = run;
    return true;
}

size_t commit_pick(struct commit_request **requests, size_t n, const struct commit_limits *limits,
                   struct arena *arena)
{
    struct run_set set = {NULL, 3};
    while (set.mask < n * 2)
        set.mask = set.mask * 2 + 1;
    set.slots = arena_array(arena, set.mask + 1, sizeof(*set.slots));
    struct commit_request **rest = arena_array(arena, n + 1, sizeof(*rest));
    size_t picked = 0, rest_n = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bool first_of_run = run_set_add(&set, &requests[i]->run_id);
        size_t size = size_of(requests[i]);
        bool fits = picked == 0 || (picked < limits->items && bytes + size <= limits->bytes);
        if (first_of_run && fits) {
            bytes += size;
            requests[picked++] = requests[i];
        } else {
            rest[rest_n++] = requests[i];
        }
    }
    memcpy(requests + picked, rest, rest_n * sizeof(struct commit_request *));
    return picked;
}

/* ---- the arrays ---- */

static struct fence_commit_item item_of(const struct commit_request *r)
{
    const struct decision *d = &r->decision;
    return (struct fence_commit_item){
        .run_id = r->run_id,
        .owner = r->owner,
        .epoch = r->epoch,
        .revision = r->revision,
        .commit_id = r->commit_id,
        .digest = span_of(r->digest.text),
        .checkpoint = d->checkpoint,
        .finish = d->finish,
        .output = d->output,
        .release = d->release,
        .wait_mode = d->wait_mode,
        .wait_signal = d->wait_signal,
        .wait_until = d->wait_until,
        .retry_ms = d->retry_ms,
    };
}

void commit_build(struct commit_request *const *requests, size_t n, struct arena *arena,
                  struct fence_commit_batch *ret)
{
    struct fence_commit_batch batch = {.item_n = n};
    for (size_t i = 0; i < n; i++) {
        const struct decision *d = &requests[i]->decision;
        batch.intent_n += d->intent_n;
        batch.wait_n += d->wait_n;
        batch.event_n += d->event_n;
        batch.detached_n += d->detach_n;
        batch.consumed_n += d->consume_n;
    }
    struct fence_commit_item *items = arena_array(arena, n + 1, sizeof(*items));
    struct fence_intent *intents = arena_array(arena, batch.intent_n + 1, sizeof(*intents));
    struct fence_wait *waits = arena_array(arena, batch.wait_n + 1, sizeof(*waits));
    struct fence_event *events = arena_array(arena, batch.event_n + 1, sizeof(*events));
    struct fence_detach *detached = arena_array(arena, batch.detached_n + 1, sizeof(*detached));
    struct fence_consumed *consumed = arena_array(arena, batch.consumed_n + 1, sizeof(*consumed));
    batch.items = items;
    batch.intents = intents;
    batch.waits = waits;
    batch.events = events;
    batch.detached = detached;
    batch.consumed = consumed;
    for (size_t i = 0; i < n; i++) {
        const struct decision *d = &requests[i]->decision;
        int32_t item = (int32_t)i + 1;
        items[i] = item_of(requests[i]);
        for (size_t k = 0; k < d->intent_n; k++, intents++) {
            *intents = d->intents[k];
            intents->item = item;
        }
        for (size_t k = 0; k < d->event_n; k++, events++) {
            *events = d->events[k];
            events->item = item;
        }
        for (size_t k = 0; k < d->wait_n; k++)
            *waits++ = (struct fence_wait){item, d->wait_for[k]};
        for (size_t k = 0; k < d->detach_n; k++)
            *detached++ = (struct fence_detach){item, d->detach[k]};
        for (size_t k = 0; k < d->consume_n; k++)
            *consumed++ = (struct fence_consumed){item, d->consume[k]};
    }
    *ret = batch;
}

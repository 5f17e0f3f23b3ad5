/* commit: the thread of a lane. It waits for one request, then takes all that have come, and does
 * not go on to a next step of any of them before the database has said what became of this one. */
#include "pool/commit_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/queue.h"
#include "base/stop_point.h"
#include "fence/prefilter.h"

/* A statement of this many bytes is still short. */
#define BATCH_BYTES ((size_t)8 << 20)

struct commit_lane {
    const char *name;
    struct fence *fence;
    struct prefilter *prefilter;
    struct queue *queue;
    struct commit_limits limits;
    struct commit_request **pending; /* taken from the queue and not yet answered, in order */
    size_t pending_n;
    struct arena *arena; /* of the statement under way */
    struct arena *names; /* of the batch under way */
    atomic_bool hurry, connected;
    pthread_t thread;
};

/* ---- answers ---- */

static struct span keep(struct commit_request *r, struct span s)
{
    return arena_dup(r->arena, s);
}

static void keep_answer(struct commit_request *r, const struct fence_commit_result *row)
{
    r->outcome = row->outcome;
    r->new_revision = row->revision;
    r->current_epoch = row->current_epoch;
    r->current_owner = keep(r, row->current_owner);
    r->detail = keep(r, row->detail);
    r->woke_reason = keep(r, row->woke_reason);
    r->stored.text = keep(r, row->checkpoint.text);
    r->due = row->due;
    r->adopted = row->adopted;
    if (row->adopted.n > 0) {
        struct span *adopted = arena_array(r->arena, row->adopted.n, sizeof(*adopted));
        for (size_t i = 0; i < row->adopted.n; i++)
            adopted[i] = keep(r, row->adopted.v[i]);
        r->adopted.v = adopted;
    }
}

/* The lease is gone after this: its key in Redis may go. */
static bool ends_lease(const struct commit_request *r)
{
    const struct decision *d = &r->decision;
    if (outcome_class(r->outcome) != CLASS_DONE)
        return false;
    return r->give_back || d->release || !span_is_null(d->finish) || !span_is_null(d->wait_mode);
}

/* Keys first, for `done` may send the hint that brings another pod here. */
static void answer(struct commit_lane *lane, struct commit_request **requests, size_t n)
{
    struct prefilter_key *keys = arena_array(lane->names, n + 1, sizeof(*keys));
    size_t key_n = 0;
    for (size_t i = 0; i < n; i++)
        if (requests[i]->prefiltered && ends_lease(requests[i]))
            keys[key_n++] =
                (struct prefilter_key){requests[i]->run_id, requests[i]->epoch, requests[i]->owner};
    prefilter_drop(lane->prefilter, keys, key_n);
    for (size_t i = 0; i < n; i++) {
        enum metric_id metric = requests[i]->give_back ? METRIC_RELEASE : METRIC_COMMIT;
        metric_add(metric, LABELS(outcome_word(requests[i]->outcome)), 1);
        requests[i]->done(requests[i]);
    }
}

static void answer_all(struct commit_lane *lane, struct commit_request **requests, size_t n,
                       enum outcome o)
{
    for (size_t i = 0; i < n; i++) {
        requests[i]->outcome = o;
        requests[i]->detail = keep(requests[i], span_of(fence_error(lane->fence)));
    }
    answer(lane, requests, n);
}

/* ---- one statement ---- */

static enum outcome write_once(struct commit_lane *lane, struct commit_request **requests, size_t n)
{
    struct fence_commit_batch batch;
    struct fence_commit_result *rows;
    commit_build(requests, n, lane->arena, &batch);
    int64_t start_us = clock_mono_us();
    enum outcome o = fence_commit(lane->fence, &batch, lane->arena, &rows);
    metric_observe(METRIC_COMMIT_BATCH_SECONDS, NO_LABELS,
                   (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND);
    metric_observe(METRIC_COMMIT_BATCH_ITEMS, NO_LABELS, (double)n);
    if (o != OUTCOME_OK)
        return o;
    for (size_t i = 0; i < n; i++)
        keep_answer(requests[i], &rows[i]);
    return o;
}

static enum outcome release_once(struct commit_lane *lane, struct commit_request **requests,
                                 size_t n)
{
    struct fence_lease *leases = arena_array(lane->arena, n, sizeof(*leases));
    struct fence_release_result *rows;
    for (size_t i = 0; i < n; i++)
        leases[i] =
            (struct fence_lease){requests[i]->run_id, requests[i]->owner, requests[i]->epoch};
    enum outcome o = fence_release(lane->fence, leases, n, true, lane->arena, &rows);
    for (size_t i = 0; o == OUTCOME_OK && i < n; i++) {
        requests[i]->outcome = rows[i].outcome;
        requests[i]->current_epoch = rows[i].current_epoch;
        requests[i]->due = rows[i].outcome == OUTCOME_RELEASED;
    }
    return o;
}

/* What the batch's outcome asks for. */
enum next { ANSWERED, AGAIN, SPLIT };

static enum next next_after(enum outcome o)
{
    if (o == OUTCOME_OK)
        return ANSWERED;
    switch (outcome_class(o)) {
    case CLASS_RETRY:
    case CLASS_UNKNOWN:
        return AGAIN;
    case CLASS_DONE:
    case CLASS_REFUSED:
        return SPLIT;
    case CLASS_BUG:
        /* not the items' fault, and another attempt may meet a repaired installation */
        return o == OUTCOME_DB_BUG ? SPLIT : AGAIN;
    }
    return SPLIT;
}

/* False: told to hurry, and the database is away. */
static bool wait_for_database(struct commit_lane *lane, enum outcome o)
{
    atomic_store(&lane->connected, false);
    log_event(LOG_WARN, "commit.waits", LOG_TEXT("lane", lane->name), LOG_OUTCOME(o),
              LOG_TEXT("detail", fence_error(lane->fence)));
    while (!atomic_load(&lane->hurry))
        if (fence_connect(lane->fence, CLOCK_SECOND) == OUTCOME_OK) {
            atomic_store(&lane->connected, true);
            return true;
        }
    return false;
}

/* Offers these requests until each has its answer. After an unknown outcome the very same statement
 * is offered again: its commit_ids let the database tell whose write it was. A poisonous item is
 * found by halves. */
static void offer(struct commit_lane *lane, struct commit_request **requests, size_t n)
{
    bool release = requests[0]->give_back;
    for (;;) {
        arena_reset(lane->arena);
        STOP_POINT("commit.before_write");
        enum outcome o = release ? release_once(lane, requests, n) : write_once(lane, requests, n);
        STOP_POINT("commit.after_write");
        switch (next_after(o)) {
        case ANSWERED:
            atomic_store(&lane->connected, true);
            answer(lane, requests, n);
            return;
        case AGAIN:
            if (wait_for_database(lane, o))
                continue;
            answer_all(lane, requests, n, o);
            return;
        case SPLIT:
            if (n == 1) {
                answer_all(lane, requests, 1, o);
                return;
            }
            offer(lane, requests, n / 2);
            offer(lane, requests + n / 2, n - n / 2);
            return;
        }
    }
}

/* Releases and writes are statements of their own. Sorted before either is offered: an answered
 * request is gone. */
static void offer_picked(struct commit_lane *lane, size_t n)
{
    struct commit_request **writes = arena_array(lane->names, n, sizeof(*writes));
    struct commit_request **releases = arena_array(lane->names, n, sizeof(*releases));
    size_t write_n = 0, release_n = 0;
    for (size_t i = 0; i < n; i++) {
        struct commit_request *r = lane->pending[i];
        if (r->give_back)
            releases[release_n++] = r;
        else
            writes[write_n++] = r;
    }
    if (write_n > 0)
        offer(lane, writes, write_n);
    if (release_n > 0)
        offer(lane, releases, release_n);
}

static void collect(struct commit_lane *lane)
{
    size_t room = lane->limits.items - lane->pending_n;
    /* an idle lane without its database looks for it by itself, so that the pod is ready again */
    int64_t idle_us = atomic_load(&lane->connected) ? CLOCK_FOREVER : CLOCK_SECOND;
    int64_t timeout_us = lane->pending_n > 0 ? 0 : idle_us;
    void *taken[1024];
    if (room > COUNT_OF(taken))
        room = COUNT_OF(taken);
    size_t n = room > 0 ? queue_pop_many(lane->queue, taken, room, timeout_us) : 0;
    for (size_t i = 0; i < n; i++)
        lane->pending[lane->pending_n++] = taken[i];
}

static void *run_lane(void *arg)
{
    struct commit_lane *lane = arg;
    atomic_store(&lane->connected, fence_connect(lane->fence, CLOCK_SECOND) == OUTCOME_OK);
    for (;;) {
        collect(lane);
        if (lane->pending_n == 0) {
            if (queue_is_closed(lane->queue))
                return NULL;
            if (!atomic_load(&lane->connected))
                atomic_store(&lane->connected, fence_connect(lane->fence, 0) == OUTCOME_OK);
            continue;
        }
        arena_reset(lane->names);
        size_t picked = commit_pick(lane->pending, lane->pending_n, &lane->limits, lane->names);
        offer_picked(lane, picked);
        lane->pending_n -= picked;
        memmove(lane->pending, lane->pending + picked,
                lane->pending_n * sizeof(struct commit_request *));
    }
}

/* ---- life ---- */

static void free_lane(struct commit_lane *lane)
{
    fence_close(lane->fence);
    prefilter_close(lane->prefilter);
    queue_free(lane->queue);
    arena_free(lane->arena);
    arena_free(lane->names);
    free(lane->pending);
    free(lane);
}

enum outcome commit_open(const struct config *cfg, const char *name, struct commit_lane **ret)
{
    struct commit_lane *lane = memory_new(1, sizeof(*lane));
    lane->name = name;
    lane->limits = (struct commit_limits){(size_t)cfg->pool.batch, BATCH_BYTES};
    lane->queue = queue_new((size_t)cfg->pool.max_running);
    lane->pending = memory_new(lane->limits.items, sizeof(struct commit_request *));
    lane->arena = arena_new();
    lane->names = arena_new();
    enum outcome o = fence_open(cfg, name, 0, &lane->fence);
    if (o == OUTCOME_OK)
        o = prefilter_open(cfg, &lane->prefilter);
    if (o == OUTCOME_OK && !thread_start(&lane->thread, name, run_lane, lane))
        o = OUTCOME_DB_BUG;
    if (o != OUTCOME_OK) {
        free_lane(lane);
        return o;
    }
    *ret = lane;
    return o;
}

void commit_push(struct commit_lane *lane, struct commit_request *request)
{
    /* each session has at most one request under way: their number is bounded by pool.max_running
     */
    CHECK(queue_force_push(lane->queue, request));
}

bool commit_connected(struct commit_lane *lane)
{
    return atomic_load(&lane->connected);
}

size_t commit_waiting(struct commit_lane *lane)
{
    return queue_len(lane->queue);
}

void commit_hurry(struct commit_lane *lane)
{
    atomic_store(&lane->hurry, true);
    fence_interrupt(lane->fence);
}

void commit_close(struct commit_lane *lane)
{
    if (lane == NULL)
        return;
    queue_close(lane->queue);
    thread_join(lane->thread);
    free_lane(lane);
}

/* acquire: takes leases: of runs that somebody named, and of what is ready while there is room. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "fence/prefilter.h"
#include "pool/exec_int.h"
#include "pool/pool_int.h"

/* How often an idle pod looks at what is ready; hints and the sweep make it look at once. */
#define CLAIM_IDLE_US (500 * CLOCK_MS)
#define CLAIM_REFUSED_US CLOCK_SECOND

struct acquire {
    struct pool *pool;
    struct fence *fence;
    struct prefilter *prefilter;
    struct arena *arena; /* of one round */
    size_t batch;
    int64_t claim_us; /* when to look at what is ready */
    bool gate_closed;
};

/* One call's session: its owner is new for every call, so that a repeated call meets only its own
 * answer. */
struct term {
    struct fence_session session;
    int64_t first_asked_us;
};

static struct term new_term(struct acquire *a)
{
    const struct config *cfg = a->pool->cfg;
    struct uuid token = uuid_v4();
    char text[UUID_TEXT_SIZE];
    char *owner = arena_printf(a->arena, "%s/%s", cfg->pod.name, uuid_format(token, text));
    return (struct term){
        .session =
            {
                .owner = span_of(owner),
                .token = token,
                .ttl_ms = cfg->lease.ttl_ms,
                .handlers = a->pool->handlers,
                .handler_n = a->pool->handler_n,
            },
        .first_asked_us = clock_mono_us(),
    };
}

/* ---- answers ---- */

static void begin(struct acquire *a, const struct term *term, const struct fence_acquired *row,
                  bool prefiltered)
{
    struct pool *p = a->pool;
    struct session *s = session_new(row, term->session.owner, term->first_asked_us,
                                    p->cfg->lease.ttl_ms * CLOCK_MS);
    s->pool = p;
    s->prefiltered = prefiltered;
    s->config = config_handler(p->cfg, s->handler.p);
    if (s->takeover) {
        metric_add(METRIC_TAKEOVERS, NO_LABELS, 1);
        metric_observe(METRIC_WORKFLOW_TAKEOVER_DURATION, NO_LABELS,
                       (double)row->takeover_ms / 1000.0);
        log_event(LOG_INFO, "lease.taken_over", LOG_UUID("run_id", s->run_id),
                  LOG_SPAN("task_id", s->task), LOG_SPAN("owner", s->owner),
                  LOG_INT("epoch", s->epoch), LOG_INT("revision", s->revision),
                  LOG_INT("after_ms", row->takeover_ms), LOG_SPAN("trace_id", s->trace_id));
    } else if (log_enabled(LOG_DEBUG)) {
        log_event(LOG_DEBUG, "lease.acquired", LOG_UUID("run_id", s->run_id),
                  LOG_SPAN("task_id", s->task), LOG_SPAN("owner", s->owner),
                  LOG_INT("epoch", s->epoch), LOG_SPAN("trace_id", s->trace_id));
    }
    if (sessions_add(p->sessions, s, p->steps))
        exec_nudge(p->exec); /* the older term's handler should hear it */
    STOP_POINT("acquire.held");
    step_push(p, s);
}

/* True: acquired. */
static bool take_answer(struct acquire *a, const struct term *term,
                        const struct fence_acquired *row, bool prefiltered)
{
    metric_add(METRIC_LEASE_ACQUIRE, LABELS(outcome_word(row->outcome)), 1);
    if (row->outcome == OUTCOME_ACQUIRED) {
        begin(a, term, row, prefiltered);
        return true;
    }
    if (row->outcome == OUTCOME_GATE_CLOSED) {
        if (!a->gate_closed)
            log_event(LOG_WARN, "acquire.gate_closed");
        a->gate_closed = true;
        return false;
    }
    bool ended =
        row->outcome == OUTCOME_ATTEMPTS_EXHAUSTED || row->outcome == OUTCOME_DEADLINE_EXCEEDED;
    if (ended || log_enabled(LOG_DEBUG))
        log_event(ended ? LOG_WARN : LOG_DEBUG, ended ? "run.failed" : "lease.not_acquired",
                  LOG_UUID("run_id", row->run_id), LOG_INT("epoch", row->epoch),
                  LOG_OUTCOME(row->outcome));
    return false;
}

/* Whether the same call should be made again, with the same token: an unknown outcome must be asked
 * for as long as the leases it may have taken can still be valid; after that they run out by
 * themselves. */
static bool ask_again(struct acquire *a, const struct term *term, enum outcome o)
{
    struct pool *p = a->pool;
    if (outcome_class(o) != CLASS_UNKNOWN && o != OUTCOME_DB_DOWN && o != OUTCOME_NOT_PRIMARY) {
        log_event(LOG_WARN, "acquire.failed", LOG_OUTCOME(o),
                  LOG_TEXT("detail", fence_error(a->fence)));
        pool_sleep_until(p, clock_deadline_us(o == OUTCOME_DB_RETRY ? 0 : CLOCK_SECOND));
        return false;
    }
    log_event(LOG_WARN, "acquire.waits_for_database", LOG_OUTCOME(o),
              LOG_TEXT("detail", fence_error(a->fence)));
    int64_t until_us = term->first_asked_us + p->cfg->lease.ttl_ms * CLOCK_MS;
    while (!atomic_load(&p->stopping) && clock_mono_us() < until_us)
        if (fence_connect(a->fence, CLOCK_SECOND) == OUTCOME_OK)
            return true;
    return false;
}

/* ---- by name ---- */

/* Each run once, with the highest epoch that was named, and none that a claim has brought here
 * meanwhile. */
static size_t distinct(struct acquire *a, struct hint *hints, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool again = sessions_holds(a->pool->sessions, hints[i].run_id, hints[i].epoch);
        for (size_t k = 0; k < kept && !again; k++)
            if (uuid_eq(hints[k].run_id, hints[i].run_id)) {
                again = true;
                if (hints[k].epoch < hints[i].epoch)
                    hints[k].epoch = hints[i].epoch;
            }
        if (!again)
            hints[kept++] = hints[i];
    }
    return kept;
}

/* Advice: several pods may hear of the same run. */
static size_t filtered(struct acquire *a, const struct term *term, struct hint *hints, size_t n,
                       struct prefilter_key **ret_keys)
{
    struct prefilter_key *keys = arena_array(a->arena, n + 1, sizeof(*keys));
    bool *go = arena_array(a->arena, n + 1, sizeof(*go));
    for (size_t i = 0; i < n; i++)
        keys[i] = (struct prefilter_key){hints[i].run_id, hints[i].epoch, term->session.owner};
    prefilter_take(a->prefilter, keys, n, go);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (go[i])
            keys[kept++] = keys[i];
    *ret_keys = keys;
    return kept;
}

static void acquire_named(struct acquire *a, struct hint *hints, size_t n)
{
    struct term term = new_term(a);
    struct prefilter_key *keys;
    n = filtered(a, &term, hints, distinct(a, hints, n), &keys);
    if (n == 0)
        return;
    struct uuid *runs = arena_array(a->arena, n, sizeof(*runs));
    for (size_t i = 0; i < n; i++)
        runs[i] = keys[i].run_id;
    struct fence_acquired *rows;
    enum outcome o;
    do {
        STOP_POINT("acquire.before_call");
        o = fence_acquire(a->fence, &term.session, runs, n, a->arena, &rows);
    } while (o != OUTCOME_OK && ask_again(a, &term, o));
    if (o != OUTCOME_OK)
        return;
    size_t vain = 0;
    for (size_t i = 0; i < n; i++)
        if (!take_answer(a, &term, &rows[i], true))
            keys[vain++] = keys[i];
    pool_tell_events(a->pool); /* what was taken has started, or ended */
    prefilter_drop(a->prefilter, keys, vain);
}

/* ---- from what is ready ---- */

static void claim(struct acquire *a, size_t room)
{
    size_t limit = room < a->batch ? room : a->batch;
    struct term term = new_term(a);
    struct fence_acquired *rows;
    size_t n = 0;
    enum outcome o;
    do {
        o = fence_claim(a->fence, &term.session, (int32_t)limit, a->arena, &rows, &n);
    } while (o != OUTCOME_OK && ask_again(a, &term, o));
    bool was_closed = a->gate_closed;
    a->gate_closed = false;
    for (size_t i = 0; o == OUTCOME_OK && i < n; i++)
        (void)take_answer(a, &term, &rows[i], false);
    if (n > 0)
        pool_tell_events(a->pool);
    if (was_closed && !a->gate_closed && o == OUTCOME_OK)
        log_event(LOG_INFO, "acquire.gate_open");
    int64_t pause_us = n == limit && !a->gate_closed ? 0
                       : a->gate_closed              ? CLAIM_REFUSED_US
                                                     : CLAIM_IDLE_US;
    a->claim_us = clock_deadline_us(pause_us);
}

/* ---- the thread ---- */

static size_t room_of(const struct pool *p)
{
    size_t held = sessions_count(p->sessions), max = (size_t)p->cfg->pool.max_running;
    return held < max ? max - held : 0;
}

static void look(struct acquire *a, struct hint *hints)
{
    struct pool *p = a->pool;
    size_t room = room_of(p);
    int64_t wait_us = room == 0 ? CLAIM_IDLE_US : a->claim_us - clock_mono_us();
    bool nudged;
    size_t n = hints_take(p->hints, hints, room < a->batch ? room : a->batch,
                          wait_us > 0 ? wait_us : 0, &nudged);
    if (atomic_load(&p->stopping))
        return;
    arena_reset(a->arena);
    if (n > 0)
        acquire_named(a, hints, n);
    room = room_of(p);
    if (room > 0 && (nudged || clock_mono_us() >= a->claim_us)) {
        arena_reset(a->arena);
        claim(a, room);
    }
    metric_set(METRIC_QUEUE_LENGTH, LABELS("hints"), (double)hints_len(p->hints));
}

void *acquire_run(void *pool)
{
    struct pool *p = pool;
    struct acquire a = {.pool = p, .fence = p->acquire_fence, .arena = arena_new()};
    a.batch = (size_t)p->cfg->pool.batch;
    if (prefilter_open(p->cfg, &a.prefilter) != OUTCOME_OK)
        NOT_REACHED("the address of Redis was checked at start");
    struct hint *hints = memory_new(a.batch, sizeof(*hints));
    while (!atomic_load(&p->stopping) && fence_connect(a.fence, CLOCK_SECOND) != OUTCOME_OK)
        log_event(LOG_WARN, "acquire.waits_for_database", LOG_TEXT("detail", fence_error(a.fence)));
    while (!atomic_load(&p->stopping))
        look(&a, hints);
    free(hints);
    prefilter_close(a.prefilter);
    arena_free(a.arena);
    return NULL;
}

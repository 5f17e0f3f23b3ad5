/* heart: renews what is held, on a connection and with a time-out of its own. What is not confirmed
 * in time is in doubt: its handler is told to stop and nothing new begins, until a renewal itself
 * says that the lease is still there. */
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "fence/prefilter.h"
#include "pool/exec_int.h"
#include "pool/pool_int.h"

/* A busy lease with little time left, or a lost connection: ask again this soon. */
#define SOON_US (50 * CLOCK_MS)

struct beat {
    struct pool *pool;
    struct arena *arena;
    bool changed; /* a handler should hear something */
    bool soon;    /* do not wait for the next beat */
    struct prefilter *prefilter; /* NULL: its keys do not live as long as leases */
};

static void log_lost(const struct fence_lease *lease, const struct fence_renew_result *row,
                     const char *event)
{
    log_event(row->outcome == OUTCOME_LOST ? LOG_WARN : LOG_INFO, event,
              LOG_UUID("run_id", lease->run_id), LOG_SPAN("owner", lease->owner),
              LOG_INT("epoch", lease->epoch), LOG_INT("current_epoch", row->current_epoch),
              LOG_OUTCOME(row->outcome));
}

static void take_answer(struct beat *b, const struct fence_lease *lease,
                        const struct fence_renew_result *row, int64_t asked_us)
{
    struct pool *p = b->pool;
    int64_t ttl_us = p->cfg->lease.ttl_ms * CLOCK_MS;
    metric_add(METRIC_LEASE_RENEW, LABELS(outcome_word(row->outcome)), 1);
    if (row->outcome == OUTCOME_RENEWED) {
        b->changed |= sessions_renewed(p->sessions, lease, asked_us + ttl_us, p->steps);
    } else if (row->outcome == OUTCOME_BUSY) {
        b->soon = true; /* decides nothing */
    } else if (row->outcome == OUTCOME_RELEASED) {
        /* this beat crossed the commit that gives the lease back: its answer ends the session */
    } else if (row->outcome == OUTCOME_TERMINAL) {
        if (sessions_stop(p->sessions, lease, SESSION_CANCELLED, p->steps)) {
            b->changed = true;
            log_lost(lease, row, "run.ended");
        }
    } else if (row->outcome == OUTCOME_DEADLINE) {
        if (sessions_stop(p->sessions, lease, SESSION_DEADLINE, p->steps)) {
            b->changed = true;
            log_lost(lease, row, "run.deadline");
        }
    } else if (sessions_stop(p->sessions, lease, SESSION_LOST, p->steps)) {
        b->changed = true;
        log_lost(lease, row, "lease.lost");
    }
}

static void doubt(struct beat *b, const struct fence_lease *leases, size_t n, enum outcome o)
{
    struct pool *p = b->pool;
    size_t concerned = 0;
    for (size_t i = 0; i < n; i++)
        concerned += sessions_stop(p->sessions, &leases[i], SESSION_DOUBT, p->steps) ? 1 : 0;
    metric_add(METRIC_HEARTBEATS_LATE, NO_LABELS, n);
    b->changed |= concerned > 0;
    b->soon = true;
    if (concerned > 0)
        log_event(LOG_WARN, "heartbeat.unconfirmed", LOG_OUTCOME(o), LOG_INT("leases", concerned),
                  LOG_TEXT("detail", fence_error(p->heart_fence)));
}

/* Keys that live as long as leases follow them, once PostgreSQL has said so. */
static void extend_keys(struct beat *b, const struct fence_lease *leases, const bool *prefiltered,
                        const struct fence_renew_result *rows, size_t n)
{
    struct prefilter_key *keys = arena_array(b->arena, n + 1, sizeof(*keys));
    size_t key_n = 0;
    for (size_t i = 0; i < n; i++)
        if (prefiltered[i] && rows[i].outcome == OUTCOME_RENEWED)
            keys[key_n++] =
                (struct prefilter_key){leases[i].run_id, leases[i].epoch, leases[i].owner};
    prefilter_extend(b->prefilter, keys, key_n);
}

/* Renews what has less than left_us of local validity. */
static void renew(struct beat *b, int64_t left_us)
{
    struct pool *p = b->pool;
    struct fence_lease *leases;
    bool *prefiltered;
    int64_t half_us = p->cfg->lease.ttl_ms * CLOCK_MS / 2;
    size_t n = sessions_leases(p->sessions, left_us, half_us, b->arena, &leases, &prefiltered);
    for (size_t at = 0; at < n;) {
        size_t some = n - at > FENCE_RENEW_MAX ? FENCE_RENEW_MAX : n - at;
        struct fence_renew_result *rows;
        int64_t asked_us = clock_mono_us();
        STOP_POINT("heart.before_renew");
        enum outcome o =
            fence_renew(p->heart_fence, leases + at, some, p->cfg->lease.ttl_ms, b->arena, &rows);
        atomic_store(&p->heart_away, o != OUTCOME_OK);
        if (o == OUTCOME_OK)
            for (size_t i = 0; i < some; i++)
                take_answer(b, &leases[at + i], &rows[i], asked_us);
        else
            doubt(b, leases + at, some, o);
        if (o == OUTCOME_OK && b->prefilter != NULL)
            extend_keys(b, leases + at, prefiltered + at, rows, some);
        at += some;
    }
    /* nothing is held that a renewal could speak for: the connection alone says that it is back */
    if (n == 0 && atomic_load(&p->heart_away))
        atomic_store(&p->heart_away, fence_connect(p->heart_fence, 0) != OUTCOME_OK);
    if (b->changed)
        exec_nudge(p->exec);
}

void *heart_run(void *pool)
{
    struct pool *p = pool;
    int64_t ttl_us = p->cfg->lease.ttl_ms * CLOCK_MS,
            interval_us = p->cfg->lease.heartbeat_ms * CLOCK_MS;
    /* what was asked for in the last half of an interval can wait for the next beat */
    int64_t fresh_us = ttl_us - interval_us / 2;
    struct beat b = {.pool = p, .arena = arena_new()};
    if (p->cfg->redis.key_life == REDIS_KEYS_LEASE &&
        prefilter_open(p->cfg, &b.prefilter) != OUTCOME_OK)
        NOT_REACHED("the address of Redis was checked at start");
    int64_t next_us = clock_mono_us();
    while (!atomic_load(&p->heart_over)) {
        int64_t now_us = clock_mono_us();
        if (now_us < next_us && !b.soon && !atomic_exchange(&p->heart_soon, false)) {
            pool_sleep_until(p, next_us);
            continue;
        }
        bool regular = now_us >= next_us;
        bool away = atomic_load(&p->heart_away);
        if (regular)
            next_us = now_us + interval_us;
        b.soon = b.changed = false;
        arena_reset(b.arena);
        renew(&b, regular || away ? fresh_us : ttl_us / 2);
        if (b.soon)
            pool_sleep_until(p, clock_deadline_us(SOON_US));
    }
    prefilter_close(b.prefilter);
    arena_free(b.arena);
    return NULL;
}

/* sweep: one pod at a time looks after what nobody holds: leases that ran out, times that came,
 * requests whose task never did. And what every pod looks at now and then: how much is due, what
 * the database's clock says, who is known. */
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "pool/pool_int.h"
#include "pool/record_int.h"

#define LOOK_US (2 * CLOCK_SECOND)
#define REGISTER_US (30 * CLOCK_SECOND)
/* Hints a sweep sends; a pod that hears one takes what is ready, not only that run. */
enum { HINTS_MAX = 64 };

struct sweep {
    struct pool *pool;
    struct fence *fence;
    struct arena *arena;
    struct span owner;
    int64_t epoch; /* of the service lease; 0: not held */
    int64_t look_us, register_us;
};

static const struct span service = {"sweep", 5};

/* ---- the service lease ---- */

static bool holds(struct sweep *s)
{
    int64_t ttl_ms = s->pool->cfg->sweep.ttl_ms;
    struct fence_service row;
    if (s->epoch != 0) {
        if (fence_service_renew(s->fence, service, s->owner, s->epoch, ttl_ms, s->arena, &row) ==
                OUTCOME_OK &&
            row.outcome == OUTCOME_RENEWED)
            return true;
        s->epoch = 0;
    }
    if (fence_service_acquire(s->fence, service, s->owner, ttl_ms, s->arena, &row) != OUTCOME_OK ||
        row.outcome != OUTCOME_ACQUIRED)
        return false;
    s->epoch = row.epoch;
    log_event(LOG_INFO, "sweep.acquired", LOG_SPAN("owner", s->owner), LOG_INT("epoch", s->epoch));
    return true;
}

/* ---- what a sweep found ---- */

static void count(const char *part, int32_t n)
{
    if (n > 0)
        metric_add(METRIC_SWEEP, LABELS(part), (uint64_t)n);
}

static void count_parts(const struct fence_sweep *row)
{
    count("leases_expired", row->leases_expired);
    count("timers_due", row->timers_due);
    count("deadlines", row->deadlines);
    count("exhausted", row->exhausted);
    count("claims_expired", row->claims_expired);
    count("requests_missing", row->requests_missing);
    count("tokens_pruned", row->tokens_pruned);
    if (row->escalated > 0) {
        metric_add(METRIC_ESCALATED, NO_LABELS, (uint64_t)row->escalated);
        log_event(LOG_ERROR, "operation.escalated", LOG_INT("operations", row->escalated),
                  LOG_TEXT("look", "holdfast op list"));
    }
    if (row->leases_expired > 0 || row->claims_expired > 0 || row->exhausted > 0)
        log_event(LOG_INFO, "sweep.found", LOG_INT("leases_expired", row->leases_expired),
                  LOG_INT("claims_expired", row->claims_expired),
                  LOG_INT("exhausted", row->exhausted), LOG_INT("timers_due", row->timers_due));
}

static void hint_due(struct sweep *s, const struct db_uuids *due)
{
    struct pool *p = s->pool;
    if (due->n > 0)
        hints_nudge(p->hints);
    for (size_t i = 0; i < due->n && i < HINTS_MAX; i++)
        hint_others(p, due->v[i], 0);
}

/* Controls whose task never came: {"tenant_id","task_id","source","record",…} each. */
static void letters(struct sweep *s, struct span missing)
{
    const struct json_value *list;
    struct json_error error;
    if (span_is_null(missing) || !json_parse(missing, NULL, s->arena, &list, &error))
        return;
    struct json_iter it = json_iter(list);
    while (json_next(&it))
        dead_send_control(s->pool->dead, it.value);
}

/* Whoever claimed them is gone and cannot count them. */
static void count_doubtful(const struct sweep *s, const struct db_texts *tools)
{
    for (size_t i = 0; i < tools->n; i++)
        metric_add(METRIC_TOOL_OPERATION_UNKNOWN, LABELS(arena_dup_text(s->arena, tools->v[i])), 1);
}

/* True: there is more. */
static bool sweep_once(struct sweep *s)
{
    struct pool *p = s->pool;
    int32_t limit = (int32_t)p->cfg->sweep.batch;
    struct fence_sweep row;
    STOP_POINT("sweep.before_call");
    enum outcome o = fence_sweep(s->fence, s->owner, s->epoch, limit, s->arena, &row);
    if (o != OUTCOME_OK) {
        if (o != OUTCOME_DB_DOWN)
            log_event(LOG_WARN, "sweep.failed", LOG_OUTCOME(o),
                      LOG_TEXT("detail", fence_error(s->fence)));
        return false;
    }
    if (outcome_class(row.outcome) != CLASS_DONE) {
        s->epoch = 0;
        return false;
    }
    count_parts(&row);
    count_doubtful(s, &row.doubtful);
    if (row.deadlines > 0 || row.exhausted > 0 || row.leases_expired > 0 || row.claims_expired > 0)
        pool_tell_events(p);
    hint_due(s, &row.due);
    letters(s, row.missing.text);
    return row.leases_expired >= limit || row.timers_due >= limit || row.claims_expired >= limit;
}

/* ---- what every pod looks at ---- */

static void look(struct sweep *s)
{
    struct pool *p = s->pool;
    int64_t now_us = clock_mono_us(), ready, offset_us;
    if (now_us < s->look_us)
        return;
    s->look_us = now_us + LOOK_US;
    if (p->cfg->ingest.enabled &&
        fence_backlog(s->fence, p->cfg->ingest.max_due + 1, s->arena, &ready) == OUTCOME_OK) {
        bool full = ready > p->cfg->ingest.max_due;
        if (atomic_exchange(&p->backlog_full, full) != full)
            log_event(LOG_INFO, full ? "ingest.backlog_full" : "ingest.backlog_over",
                      LOG_INT("runs_due", ready));
        metric_set(METRIC_RUNS_DUE, NO_LABELS, (double)ready);
    }
    if (fence_clock_offset(s->fence, s->arena, &offset_us) == OUTCOME_OK) {
        int64_t moved_us = offset_us - atomic_exchange(&p->clock_offset_us, offset_us);
        metric_set(METRIC_DB_CLOCK_OFFSET, NO_LABELS, (double)offset_us / (double)CLOCK_SECOND);
        if (moved_us > CLOCK_SECOND || moved_us < -CLOCK_SECOND)
            log_event(LOG_WARN, "clock.jumped", LOG_INT("offset_ms", offset_us / CLOCK_MS),
                      LOG_INT("moved_ms", moved_us / CLOCK_MS));
    }
    if (now_us >= s->register_us && names_register(p->names, s->fence) == OUTCOME_OK)
        s->register_us = now_us + REGISTER_US;
}

void *sweep_run(void *pool)
{
    struct pool *p = pool;
    struct arena *own = arena_new();
    char text[UUID_TEXT_SIZE];
    struct sweep s = {.pool = p, .fence = p->sweep_fence, .arena = arena_new()};
    s.owner = span_of(arena_printf(own, "%s/%s", p->cfg->pod.name, uuid_format(uuid_v4(), text)));
    while (!atomic_load(&p->stopping)) {
        arena_reset(s.arena);
        bool more = false;
        if (fence_connect(s.fence, CLOCK_SECOND) == OUTCOME_OK) {
            look(&s);
            more = p->cfg->sweep.enabled && holds(&s) && sweep_once(&s);
        }
        if (!more)
            pool_sleep_until(p, clock_deadline_us(p->cfg->sweep.interval_ms * CLOCK_MS));
    }
    struct fence_service row;
    if (s.epoch != 0 && fence_is_connected(s.fence) &&
        fence_service_release(s.fence, service, s.owner, s.epoch, s.arena, &row) != OUTCOME_OK)
        log_event(LOG_INFO, "sweep.not_released");
    arena_free(s.arena);
    arena_free(own);
    return NULL;
}

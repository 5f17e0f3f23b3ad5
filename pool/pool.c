/* pool: puts the threads together, and takes them apart in an order in which nothing is lost. */
#include "pool/pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "fence/prefilter.h"
#include "pool/exec_int.h"
#include "pool/pool_int.h"
#include "pool/record_int.h"

/* After the grace period: told to stop, given back. */
#define DRAIN_US (3 * CLOCK_SECOND)
enum { FLUSH_MS = 2000 };

/* ---- sleeping ---- */

void pool_sleep_until(struct pool *p, int64_t deadline_us)
{
    LOCK_SCOPE(&p->sleep_lock);
    uint64_t wakes = p->wakes;
    while (p->wakes == wakes)
        if (!condition_wait_until(&p->wake_sleepers, &p->sleep_lock, deadline_us))
            return;
}

void pool_wake_sleepers(struct pool *p)
{
    LOCK_SCOPE(&p->sleep_lock);
    p->wakes++;
    condition_broadcast(&p->wake_sleepers);
}

/* ---- telling ---- */

void pool_tell_events(const struct pool *p)
{
    if (p->told.events != NULL)
        p->told.events(p->told.opaque);
}

void pool_tell_intents(const struct pool *p)
{
    if (p->told.intents != NULL)
        p->told.intents(p->told.opaque);
}

/* ---- start ---- */

static char *topic_of(const struct config *cfg, const char *name)
{
    struct text t = TEXT_EMPTY;
    text_addf(&t, "%s%s", cfg->topics.prefix, name);
    return text_take(&t);
}

/* "holdfast." -> "holdfast-wakeups" */
static char *group_of(const struct config *cfg, const char *name)
{
    struct text t = TEXT_EMPTY;
    size_t n = strlen(cfg->topics.prefix);
    while (n > 0 && (cfg->topics.prefix[n - 1] == '.' || cfg->topics.prefix[n - 1] == '-'))
        n--;
    text_addf(&t, "%.*s-%s", (int)n, cfg->topics.prefix, name);
    return text_take(&t);
}

static void make_shared(struct pool *p)
{
    const struct config *cfg = p->cfg;
    lock_init(&p->sleep_lock);
    condition_init(&p->wake_sleepers);
    p->tasks_topic = topic_of(cfg, "tasks");
    p->intents_topic = topic_of(cfg, "intents");
    p->wakeups_topic = topic_of(cfg, "wakeups");
    p->dead_topic = topic_of(cfg, "dead-letters");
    p->wakeups_group = group_of(cfg, "wakeups");
    p->names = names_new(cfg);
    size_t tool_n;
    const struct plan_tool *tools = names_plan_tools(p->names, &tool_n);
    p->tools = memory_new(tool_n + 1, sizeof(*p->tools));
    memcpy(p->tools, tools, tool_n * sizeof(*tools));
    p->tool_n = tool_n;
    p->handlers = memory_new(cfg->n_handlers + 1, sizeof(*p->handlers));
    for (size_t i = 0; i < cfg->n_handlers; i++)
        p->handlers[p->handler_n++] = span_of(cfg->handlers[i].name);
    size_t max_running = (size_t)cfg->pool.max_running;
    p->records = queue_new((size_t)cfg->pool.queue);
    p->steps = queue_new(max_running);
    p->hints = hints_new(max_running);
    p->sessions = sessions_new(max_running);
    p->dead = dead_new(p->dead_topic, p->producer);
    p->workers = memory_new((size_t)cfg->pool.workers + 1, sizeof(*p->workers));
    atomic_init(&p->submit_away, true);
}

static enum outcome open_lanes(struct pool *p)
{
    static const char *const names[COMMIT_LANES] = {"commit-0", "commit-1"};
    const struct config *cfg = p->cfg;
    struct prefilter *probe;
    enum outcome o =
        prefilter_open(cfg, &probe); /* the address of Redis is refused here or never */
    if (o != OUTCOME_OK) {
        log_event(LOG_ERROR, "pool.bad_redis_url",
                  LOG_TEXT("detail", "redis.url names no host or path, or its port or database is "
                                     "no number"));
        return o;
    }
    prefilter_close(probe);
    if (o == OUTCOME_OK)
        o = fence_open(cfg, "submit", 0, &p->submit_fence);
    if (o == OUTCOME_OK)
        o = fence_open(cfg, "acquire", 0, &p->acquire_fence);
    if (o == OUTCOME_OK)
        o = fence_open(cfg, "heart", cfg->lease.heartbeat_timeout_ms, &p->heart_fence);
    if (o == OUTCOME_OK)
        o = fence_open(cfg, "sweep", 0, &p->sweep_fence);
    for (size_t i = 0; i < COMMIT_LANES && o == OUTCOME_OK; i++)
        o = commit_open(cfg, names[i], &p->commits[i]);
    if (o == OUTCOME_OK)
        o = exec_open(p, &p->exec);
    return o;
}

static bool start_threads(struct pool *p)
{
    const struct config *cfg = p->cfg;
    for (size_t i = 0; i < (size_t)cfg->pool.workers; i++) {
        if (!thread_start(&p->workers[p->worker_n], "worker", worker_run, p))
            return false;
        p->worker_n++;
    }
    p->heart_runs = thread_start(&p->heart, "heart", heart_run, p);
    p->sweep_runs = thread_start(&p->sweep, "sweep", sweep_run, p);
    bool fine = p->heart_runs && p->sweep_runs;
    if (cfg->pool.enabled) {
        p->acquire_runs = thread_start(&p->acquire, "acquire", acquire_run, p);
        p->wakeups_run = thread_start(&p->wakeups, "wakeups", wakeups_run, p);
        fine = fine && p->acquire_runs && p->wakeups_run;
    }
    if (cfg->ingest.enabled) {
        p->submit_runs = thread_start(&p->submit, "submit", submit_run, p);
        p->ingest_runs = thread_start(&p->ingest, "ingest", ingest_run, p);
        fine = fine && p->submit_runs && p->ingest_runs;
    }
    return fine;
}

enum outcome pool_start(const struct config *cfg, struct broker *broker,
                        const struct pool_told *told, struct pool **ret)
{
    struct pool *p = memory_new(1, sizeof(*p));
    p->cfg = cfg;
    p->broker = broker;
    if (told != NULL)
        p->told = *told;
    struct broker_error error;
    if (broker_producer_open(broker, &p->producer, &error) != BROKER_OK) {
        log_event(LOG_ERROR, "pool.no_producer", LOG_TEXT("detail", error.text));
        free(p);
        return OUTCOME_INVALID;
    }
    make_shared(p);
    enum outcome o = open_lanes(p);
    if (o == OUTCOME_OK && !start_threads(p))
        o = OUTCOME_DB_BUG;
    if (o != OUTCOME_OK) {
        pool_stop(p, 0);
        return o;
    }
    log_event(LOG_INFO, "pool.started", LOG_INT("workers", cfg->pool.workers),
              LOG_INT("max_running", cfg->pool.max_running), LOG_INT("handlers", p->handler_n),
              LOG_INT("tools", p->tool_n));
    *ret = p;
    return o;
}

/* ---- end ---- */

static void join(pthread_t thread, bool *runs)
{
    if (*runs)
        thread_join(thread);
    *runs = false;
}

static void interrupt(struct fence *f)
{
    if (f != NULL)
        fence_interrupt(f);
}

/* Nothing new is begun; what has not started is given back at once by the workers. */
static void stop_taking(struct pool *p)
{
    atomic_store(&p->stopping, true);
    pool_wake_sleepers(p);
    interrupt(p->acquire_fence);
    hints_nudge(p->hints);
    exec_nudge(p->exec);
    join(p->acquire, &p->acquire_runs);
    join(p->wakeups, &p->wakeups_run);
}

/* Handlers may finish; then they are told to stop; then the database is not waited for any longer.
 */
static void let_finish(struct pool *p, int64_t grace_us)
{
    if (sessions_wait_empty(p->sessions, grace_us))
        return;
    log_event(LOG_WARN, "pool.grace_over", LOG_INT("runs", sessions_count(p->sessions)));
    sessions_stop_all(p->sessions, SESSION_DRAIN, p->steps);
    exec_nudge(p->exec);
    if (sessions_wait_empty(p->sessions, DRAIN_US))
        return;
    atomic_store(&p->hurry, true);
    for (size_t i = 0; i < COMMIT_LANES; i++)
        if (p->commits[i] != NULL)
            commit_hurry(p->commits[i]);
    if (sessions_wait_empty(p->sessions, DRAIN_US + p->cfg->postgres.call_timeout_ms * CLOCK_MS))
        return;
    /* a thread does not come back: better gone than half alive, the leases run out */
    log_event(LOG_ERROR, "pool.runs_left_behind", LOG_INT("runs", sessions_count(p->sessions)));
    _exit(EXIT_FAILURE);
}

static void free_shared(struct pool *p)
{
    dead_free(p->dead);
    names_free(p->names);
    hints_free(p->hints);
    sessions_free(p->sessions);
    queue_free(p->records);
    queue_free(p->steps);
    condition_destroy(&p->wake_sleepers);
    lock_destroy(&p->sleep_lock);
    free(p->tasks_topic);
    free(p->intents_topic);
    free(p->wakeups_topic);
    free(p->dead_topic);
    free(p->wakeups_group);
    free(p->tools);
    free(p->handlers);
    free(p->workers);
    free(p);
}

void pool_stop(struct pool *p, int64_t grace_ms)
{
    if (p == NULL)
        return;
    int64_t started_us = clock_mono_us();
    stop_taking(p);
    let_finish(p, grace_ms * CLOCK_MS);
    atomic_store(&p->hurry, true);
    interrupt(p->submit_fence);
    interrupt(p->sweep_fence);
    pool_wake_sleepers(p);
    queue_close(p->records);
    join(p->submit, &p->submit_runs);
    join(p->ingest, &p->ingest_runs);
    join(p->sweep, &p->sweep_runs);
    queue_close(p->steps);
    for (size_t i = 0; i < p->worker_n; i++)
        thread_join(p->workers[i]);
    for (size_t i = 0; i < COMMIT_LANES; i++)
        commit_close(p->commits[i]);
    exec_close(p->exec);
    atomic_store(&p->heart_over, true);
    interrupt(p->heart_fence);
    pool_wake_sleepers(p);
    join(p->heart, &p->heart_runs);
    if (broker_flush(p->producer, FLUSH_MS) != BROKER_OK)
        log_event(LOG_WARN, "pool.hints_not_flushed");
    broker_producer_close(p->producer);
    fence_close(p->submit_fence);
    fence_close(p->acquire_fence);
    fence_close(p->heart_fence);
    fence_close(p->sweep_fence);
    log_event(LOG_INFO, "pool.stopped",
              LOG_INT("after_ms", (clock_mono_us() - started_us) / CLOCK_MS));
    free_shared(p);
}

/* ---- looking in ---- */

bool pool_ready(struct pool *p, struct text *why)
{
    const struct {
        bool bad;
        const char *words;
    } reasons[] = {
        {atomic_load(&p->stopping), "the pod is stopping"},
        {p->ingest_runs && !atomic_load(&p->ingest_ready), "the task topic is not being read"},
        {p->submit_runs && atomic_load(&p->submit_away), "PostgreSQL does not take submissions"},
        {atomic_load(&p->heart_away), "renewals are not confirmed"},
        {!commit_connected(p->commits[0]) || !commit_connected(p->commits[1]),
         "PostgreSQL does not take commits"},
        {db_waits_for_standby(), "PostgreSQL waits for a synchronous standby"},
    };
    bool ready = true;
    for (size_t i = 0; i < COUNT_OF(reasons); i++) {
        if (!reasons[i].bad)
            continue;
        ready = false;
        if (why != NULL)
            text_addf(why, "%s\n", reasons[i].words);
    }
    return ready;
}

void pool_counts(struct pool *p, struct pool_counts *ret)
{
    *ret = (struct pool_counts){
        .running = (int64_t)sessions_count(p->sessions),
        .queued = (int64_t)(queue_len(p->steps) + commit_waiting(p->commits[0]) +
                            commit_waiting(p->commits[1])),
        .in_doubt = (int64_t)sessions_in_doubt(p->sessions),
    };
}

/* fence: a lane's connection, retry budget and the verbs over it. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "fence/fence_int.h"
#include "schemas/migrate.h"

/* 40001 and 40P01 roll a short transaction back: it is offered again this often, after a short
 * random pause. */
enum { RETRY_BUDGET = 6 };
#define RETRY_PAUSE_US (INT64_C(2) * CLOCK_MS)

struct fence {
    struct db *db;
    int64_t again_us; /* when the next connection may be tried */
    char error[1024];
    struct lock lock;
    struct condition wake;
    bool interrupted; /* under lock */
};

/* What this process has seen of the database's identity: one memory for all its lanes, as long as
 * it lives. */
static struct db_history *history(void)
{
    static struct lock lock = LOCK_INIT;
    static struct db_history *only;
    LOCK_SCOPE(&lock);
    if (only == NULL)
        only = db_history_new();
    return only;
}

enum outcome fence_open(const struct config *cfg, const char *lane, int64_t call_timeout_ms,
                        struct fence **ret)
{
    struct fence *f = memory_new(1, sizeof(*f));
    char *iface = migrate_iface(cfg->postgres.schema);
    char name[64];
    (void)snprintf(name, sizeof(name), "holdfast %s %s", lane, cfg->pod.name);
    struct db_options options = {
        .dsn = cfg->postgres.dsn,
        .schema = cfg->postgres.schema,
        .iface = iface,
        .name = name,
        .connect_timeout_ms = cfg->postgres.connect_timeout_ms,
        .call_timeout_ms = call_timeout_ms > 0 ? call_timeout_ms : cfg->postgres.call_timeout_ms,
        .pooler = cfg->postgres.pooler,
        .wait_for_standby = call_timeout_ms == 0,
        .history = history(),
    };
    f->db = db_new(&options);
    free(iface);
    lock_init(&f->lock);
    condition_init(&f->wake);
    *ret = f;
    return OUTCOME_OK;
}

void fence_close(struct fence *f)
{
    if (f == NULL)
        return;
    db_free(f->db);
    condition_destroy(&f->wake);
    lock_destroy(&f->lock);
    free(f);
}

void fence_interrupt(struct fence *f)
{
    LOCK_SCOPE(&f->lock);
    f->interrupted = true;
    condition_broadcast(&f->wake);
}

/* False: interrupted. */
static bool pause_until(struct fence *f, int64_t deadline_us)
{
    LOCK_SCOPE(&f->lock);
    while (!f->interrupted)
        if (!condition_wait_until(&f->wake, &f->lock, deadline_us))
            return !f->interrupted;
    return false;
}

static void keep_error(struct fence *f)
{
    const struct db_error *e = db_error(f->db);
    (void)snprintf(f->error, sizeof(f->error), "%s%s%s%s%s%s%s", e->sqlstate,
                   e->sqlstate[0] ? ": " : "", e->message, e->detail[0] ? "; " : "", e->detail,
                   e->context[0] ? "; " : "", e->context);
}

const char *fence_error(const struct fence *f)
{
    return f->error;
}

bool fence_is_connected(const struct fence *f)
{
    return db_is_connected(f->db);
}

/* Every call of this program is compared with the database once in a process; each connection again
 * compares what it uses. */
static enum outcome check_calls(struct fence *f)
{
    static atomic_bool checked;
    if (atomic_load(&checked))
        return OUTCOME_OK;
    enum outcome o = db_check_calls(f->db, fence_calls, fence_call_n);
    if (o == OUTCOME_OK)
        atomic_store(&checked, true);
    return o;
}

static enum outcome try_connect(struct fence *f)
{
    if (db_is_connected(f->db))
        return OUTCOME_OK;
    if (clock_mono_us() < f->again_us)
        return OUTCOME_DB_DOWN;
    f->again_us = 0;
    enum outcome o = db_reconnect(f->db, &f->again_us);
    if (o == OUTCOME_OK) {
        o = check_calls(f);
        if (o == OUTCOME_OK)
            return o;
        keep_error(f);
        db_close(f->db);
        f->again_us = clock_deadline_us(CLOCK_SECOND);
        return o;
    }
    keep_error(f);
    return o;
}

enum outcome fence_connect(struct fence *f, int64_t timeout_us)
{
    int64_t deadline_us = clock_deadline_us(timeout_us);
    for (;;) {
        enum outcome o = try_connect(f);
        if (o == OUTCOME_OK)
            return o;
        int64_t now_us = clock_mono_us();
        int64_t again_us = f->again_us > now_us ? f->again_us : now_us + 100 * CLOCK_MS;
        /* waited out even when no further try fits: callers ask again in a loop */
        bool last = again_us > deadline_us;
        if (!pause_until(f, last ? deadline_us : again_us) || last)
            return o;
    }
}

/* Rolled back whole for a reason that the next attempt will hardly meet; not a lock or statement
 * time-out, which has already waited. */
static bool rolled_back(const struct fence *f, enum outcome o)
{
    const char *sqlstate = db_error(f->db)->sqlstate;
    return o == OUTCOME_DB_RETRY &&
           (strcmp(sqlstate, "40001") == 0 || strcmp(sqlstate, "40P01") == 0);
}

static int64_t retry_pause_us(int attempt)
{
    uint16_t random;
    uuid_random_bytes(&random, sizeof(random));
    return (RETRY_PAUSE_US << attempt) * (random + 1) / UINT16_MAX;
}

enum outcome fence_call(struct fence *f, const struct db_call *call, const void *scalars,
                        const struct db_group *groups, struct arena *arena, void *ret_rows,
                        size_t *ret_n)
{
    enum outcome o = try_connect(f);
    if (o != OUTCOME_OK)
        return o;
    for (int attempt = 0;; attempt++) {
        int64_t start_us = clock_mono_us();
        o = db_call(f->db, call, scalars, groups, arena, ret_rows, ret_n);
        double seconds = (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND;
        metric_observe(METRIC_DB_CALL_SECONDS, LABELS(call->name), seconds);
        metric_add(METRIC_DB_CALLS, LABELS(call->name, outcome_word(o)), 1);
        if (o == OUTCOME_OK)
            return o;
        keep_error(f);
        if (!rolled_back(f, o) || attempt == RETRY_BUDGET ||
            !pause_until(f, clock_deadline_us(retry_pause_us(attempt))))
            return o;
    }
}

enum outcome fence_check(struct fence *f, const struct db_call *const calls[], size_t n)
{
    enum outcome o = try_connect(f);
    if (o != OUTCOME_OK)
        return o;
    o = db_check_calls(f->db, calls, n);
    if (o != OUTCOME_OK)
        keep_error(f);
    return o;
}

/* ---- answers in the order of the questions ---- */

/* Every row of an answer begins with its item's 1-based ordinal. Puts row i at place i; false if
 * one is missing. */
static bool in_order(const void *rows, size_t row_n, size_t n, size_t size, struct arena *arena,
                     void **ret)
{
    const char *from = rows;
    bool ordered = row_n == n;
    for (size_t i = 0; i < row_n && ordered; i++) {
        int32_t item;
        memcpy(&item, from + i * size, sizeof(item));
        ordered = item == (int32_t)i + 1;
    }
    if (ordered) {
        memcpy(ret, &rows, sizeof(rows));
        return true;
    }
    if (row_n != n)
        return false;
    char *to = arena_array(arena, n, size);
    bool *seen = arena_array(arena, n, sizeof(*seen));
    for (size_t i = 0; i < row_n; i++) {
        int32_t item;
        memcpy(&item, from + i * size, sizeof(item));
        if (item < 1 || (size_t)item > n || seen[item - 1])
            return false;
        seen[item - 1] = true;
        memcpy(to + (size_t)(item - 1) * size, from + i * size, size);
    }
    *ret = to;
    return true;
}

static enum outcome call_items(struct fence *f, const struct db_call *call, const void *scalars,
                               const struct db_group *groups, size_t n, struct arena *arena,
                               void **ret)
{
    void *rows;
    size_t row_n;
    enum outcome o = fence_call(f, call, scalars, groups, arena, &rows, &row_n);
    if (o == OUTCOME_OK && !in_order(rows, row_n, n, call->columns[0].stride, arena, ret)) {
        (void)snprintf(f->error, sizeof(f->error),
                       "%s answered %zu rows for %zu items, or one twice", call->name, row_n, n);
        return OUTCOME_DB_BUG;
    }
    return o;
}

/* A call whose answer is one row. */
static enum outcome call_one(struct fence *f, const struct db_call *call, const void *scalars,
                             struct arena *arena, void *ret)
{
    void *rows;
    size_t row_n;
    enum outcome o = fence_call(f, call, scalars, NULL, arena, &rows, &row_n);
    if (o != OUTCOME_OK)
        return o;
    if (row_n != 1) {
        (void)snprintf(f->error, sizeof(f->error), "%s answered %zu rows instead of one",
                       call->name, row_n);
        return OUTCOME_DB_BUG;
    }
    memcpy(ret, rows, call->columns[0].stride);
    return OUTCOME_OK;
}

/* ---- verbs ---- */

enum outcome fence_submit(struct fence *f, const struct fence_submit_item *items, size_t n,
                          struct arena *arena, struct fence_submit_result **ret_results)
{
    struct db_group group = {items, n};
    void *rows;
    enum outcome o = call_items(f, &call_submit, NULL, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_cancel(struct fence *f, const struct fence_cancel_item *items, size_t n,
                          struct arena *arena, struct fence_cancel_result **ret_results)
{
    struct db_group group = {items, n};
    void *rows;
    enum outcome o = call_items(f, &call_cancel, NULL, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_signal(struct fence *f, const struct fence_signal_item *items, size_t n,
                          struct arena *arena, struct fence_signal_result **ret_results)
{
    struct db_group group = {items, n};
    void *rows;
    enum outcome o = call_items(f, &call_signal, NULL, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_retry(struct fence *f, const struct fence_retry_item *items, size_t n,
                         struct arena *arena, struct fence_retry_result **ret_results)
{
    struct db_group group = {items, n};
    void *rows;
    enum outcome o = call_items(f, &call_retry, NULL, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

static struct fence_session_in session_in(const struct fence_session *s)
{
    return (struct fence_session_in){
        .owner = s->owner,
        .token = s->token,
        .ttl_ms = s->ttl_ms,
        .handlers = {s->handlers, s->handler_n, false},
    };
}

enum outcome fence_acquire(struct fence *f, const struct fence_session *s,
                           const struct uuid *run_ids, size_t n, struct arena *arena,
                           struct fence_acquired **ret_rows)
{
    struct fence_session_in in = session_in(s);
    in.run_ids = (struct db_uuids){run_ids, n, false};
    void *rows;
    enum outcome o = call_items(f, &call_acquire, &in, NULL, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_rows = rows;
    return o;
}

enum outcome fence_claim(struct fence *f, const struct fence_session *s, int32_t limit,
                         struct arena *arena, struct fence_acquired **ret_rows, size_t *ret_n)
{
    struct fence_session_in in = session_in(s);
    in.limit = limit;
    return fence_call(f, &call_claim, &in, NULL, arena, ret_rows, ret_n);
}

enum outcome fence_renew(struct fence *f, const struct fence_lease *leases, size_t n,
                         int64_t ttl_ms, struct arena *arena,
                         struct fence_renew_result **ret_results)
{
    CHECK(n <= FENCE_RENEW_MAX);
    struct fence_renew_in in = {ttl_ms};
    struct db_group group = {leases, n};
    void *rows;
    enum outcome o = call_items(f, &call_renew, &in, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_release(struct fence *f, const struct fence_lease *leases, size_t n,
                           bool graceful, struct arena *arena,
                           struct fence_release_result **ret_results)
{
    struct fence_release_in in = {graceful};
    struct db_group group = {leases, n};
    void *rows;
    enum outcome o = call_items(f, &call_release, &in, &group, n, arena, &rows);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_commit(struct fence *f, const struct fence_commit_batch *batch,
                          struct arena *arena, struct fence_commit_result **ret_results)
{
    struct db_group groups[COMMIT_GROUPS] = {
        [COMMIT_ITEMS] = {batch->items, batch->item_n},
        [COMMIT_INTENTS] = {batch->intents, batch->intent_n},
        [COMMIT_WAITS] = {batch->waits, batch->wait_n},
        [COMMIT_EVENTS] = {batch->events, batch->event_n},
        [COMMIT_DETACHED] = {batch->detached, batch->detached_n},
        [COMMIT_CONSUMED] = {batch->consumed, batch->consumed_n},
    };
    int64_t start_us = clock_mono_us();
    void *rows;
    enum outcome o = call_items(f, &call_commit, NULL, groups, batch->item_n, arena, &rows);
    metric_observe(METRIC_LEASE_ROW_LOCK_WAIT, NO_LABELS,
                   (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND);
    if (o == OUTCOME_OK)
        *ret_results = rows;
    return o;
}

enum outcome fence_service_acquire(struct fence *f, struct span name, struct span owner,
                                   int64_t ttl_ms, struct arena *arena, struct fence_service *ret)
{
    struct fence_service_in in = {.name = name, .owner = owner, .ttl_ms = ttl_ms};
    return call_one(f, &call_service_acquire, &in, arena, ret);
}

enum outcome fence_service_renew(struct fence *f, struct span name, struct span owner,
                                 int64_t epoch, int64_t ttl_ms, struct arena *arena,
                                 struct fence_service *ret)
{
    struct fence_service_in in = {.name = name, .owner = owner, .epoch = epoch, .ttl_ms = ttl_ms};
    return call_one(f, &call_service_renew, &in, arena, ret);
}

enum outcome fence_service_release(struct fence *f, struct span name, struct span owner,
                                   int64_t epoch, struct arena *arena, struct fence_service *ret)
{
    struct fence_service_in in = {.name = name, .owner = owner, .epoch = epoch};
    return call_one(f, &call_service_release, &in, arena, ret);
}

enum outcome fence_sweep(struct fence *f, struct span owner, int64_t epoch, int32_t limit,
                         struct arena *arena, struct fence_sweep *ret)
{
    struct fence_sweep_in in = {owner, epoch, limit};
    return call_one(f, &call_sweep, &in, arena, ret);
}

enum outcome fence_register(struct fence *f, struct span pod, const struct fence_declaration *items,
                            size_t n, struct arena *arena)
{
    struct fence_register_in in = {pod};
    struct db_group group = {items, n};
    void *rows;
    return call_items(f, &call_register, &in, &group, n, arena, &rows);
}

enum outcome fence_known(struct fence *f, struct span kind, struct arena *arena,
                         struct fence_known **ret, size_t *ret_n)
{
    struct fence_known_in in = {kind};
    return fence_call(f, &call_known, &in, NULL, arena, ret, ret_n);
}

enum outcome fence_gate_status(struct fence *f, struct arena *arena, struct fence_gate *ret)
{
    return call_one(f, &call_gate_status, NULL, arena, ret);
}

enum outcome fence_backlog(struct fence *f, int64_t limit, struct arena *arena, int64_t *ret_ready)
{
    struct fence_backlog_in in = {limit};
    struct fence_backlog row;
    enum outcome o = call_one(f, &call_backlog, &in, arena, &row);
    if (o == OUTCOME_OK)
        *ret_ready = row.ready;
    return o;
}

enum outcome fence_clock_offset(struct fence *f, struct arena *arena, int64_t *ret_offset_us)
{
    struct fence_clock row;
    int64_t asked_us = clock_wall_us();
    enum outcome o = call_one(f, &call_clock, NULL, arena, &row);
    if (o == OUTCOME_OK)
        *ret_offset_us = row.clock.us - (asked_us + (clock_wall_us() - asked_us) / 2);
    return o;
}

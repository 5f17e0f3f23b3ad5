/* The gauges that come from the database: the backlog as all pods see it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "console/console_int.h"
#include "fence/fence.h"
#include "schemas/json.h"

enum { CALL_TIMEOUT_MS = 2000, FRESH_US = 1000 * 1000 };

struct backlog {
    struct fence *lane;
    struct arena *arena;
    int64_t read_us; /* monotonic; 0: never */
};

struct stats_row {
    int64_t ready, held, parked, stranded, outbox;
    double outbox_oldest_seconds;
    struct json_span tools;
};
#define STATS(member) DB_COLUMN(struct stats_row, member)
static const struct db_column stats_columns[] = {
    STATS(ready),    STATS(held),   STATS(parked),
    STATS(stranded), STATS(outbox), STATS(outbox_oldest_seconds),
    STATS(tools),
};
static const struct db_call call_stats = DB_CALL_BARE("stats", stats_columns, DB_READ);

enum outcome console_check(struct fence *lane)
{
    return fence_check(lane, (const struct db_call *const[]){&call_stats}, 1);
}

/* The first WITHOUT_LABELS have one series each, the others one a tool. */
enum { WITHOUT_LABELS = 7 };
static const enum metric_id gauges[] = {
    METRIC_RUNS_DUE,      METRIC_RUNS_HELD_ALL,      METRIC_RUNS_PARKED,
    METRIC_RUNS_STRANDED, METRIC_OUTBOX_ROWS,        METRIC_OUTBOX_OLDEST_AGE,
    METRIC_GATE_OPEN,     METRIC_OPERATIONS_UNKNOWN, METRIC_TOOL_OPERATION_UNKNOWN_OLDEST_AGE,
};

/* What is not known is left out: 0 would be a lie, and so would be the last number that was known.
 */
static void forget_all(void)
{
    for (size_t i = 0; i < COUNT_OF(gauges); i++) {
        if (i < WITHOUT_LABELS)
            metric_set(gauges[i], NO_LABELS, 0); /* only a series that is there can be hidden */
        metric_forget(gauges[i]);
    }
}

struct backlog *backlog_new(const struct config *cfg)
{
    struct backlog *backlog = memory_new(1, sizeof *backlog);
    backlog->arena = arena_new();
    if (fence_open(cfg, "console", CALL_TIMEOUT_MS, &backlog->lane) != OUTCOME_OK)
        backlog->lane = NULL;
    return backlog;
}

static void set_tools(struct backlog *backlog, struct span tools)
{
    const struct json_value *list;
    struct json_error problem;
    if (!json_parse(tools, NULL, backlog->arena, &list, &problem))
        return;
    struct json_iter it = json_iter(list);
    while (json_next(&it)) {
        struct span name = json_text(json_get(it.value, "tool"));
        if (span_is_null(name))
            continue;
        struct metric_labels labels = LABELS(arena_dup_text(backlog->arena, name));
        metric_set(METRIC_OPERATIONS_UNKNOWN, labels, json_number(json_get(it.value, "unknown")));
        metric_set(METRIC_TOOL_OPERATION_UNKNOWN_OLDEST_AGE, labels,
                   json_number(json_get(it.value, "unknown_oldest_seconds")));
    }
}

void backlog_refresh(struct backlog *backlog)
{
    int64_t now = clock_mono_us();
    if (backlog->lane == NULL || (backlog->read_us != 0 && now - backlog->read_us < FRESH_US))
        return;
    backlog->read_us = now;
    forget_all();
    struct stats_row *row;
    size_t n;
    struct fence_gate gate;
    arena_reset(backlog->arena);
    if (fence_call(backlog->lane, &call_stats, NULL, NULL, backlog->arena, &row, &n) ==
            OUTCOME_OK &&
        n == 1) {
        metric_set(METRIC_RUNS_DUE, NO_LABELS, (double)row->ready);
        metric_set(METRIC_RUNS_HELD_ALL, NO_LABELS, (double)row->held);
        metric_set(METRIC_RUNS_PARKED, NO_LABELS, (double)row->parked);
        metric_set(METRIC_RUNS_STRANDED, NO_LABELS, (double)row->stranded);
        metric_set(METRIC_OUTBOX_ROWS, NO_LABELS, (double)row->outbox);
        metric_set(METRIC_OUTBOX_OLDEST_AGE, NO_LABELS, row->outbox_oldest_seconds);
        set_tools(backlog, row->tools.text);
    }
    if (fence_gate_status(backlog->lane, backlog->arena, &gate) == OUTCOME_OK)
        metric_set(METRIC_GATE_OPEN, NO_LABELS, gate.open ? 1 : 0);
}

void backlog_free(struct backlog *backlog)
{
    if (backlog == NULL)
        return;
    fence_close(backlog->lane);
    arena_free(backlog->arena);
    free(backlog);
}

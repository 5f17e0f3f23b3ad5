// outbox/settle.c: thread `settle`. Writes into the ledger what became of each claim, many at a
// time, and keeps at it until the database has answered: a record is idempotent by its claim.
#include "outbox/dispatch_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"

enum {
    SETTLE_MAX = 256,
    CONNECT_MS = 500,
    POISON_TRIES = 3,
    LAST_TRIES_MS = 5000, // at the end: for a database that does not answer
};

struct settler {
    struct outbox *outbox;
    struct fence *lane;
    struct arena *arena;
    int64_t give_up_us;
};

static enum ledger_verb verb_of(enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_SUCCEEDED:
    case VERDICT_FAILED_FINAL:
        return LEDGER_RESULT;
    case VERDICT_NOT_SENT:
        return LEDGER_NOT_SENT;
    case VERDICT_UNKNOWN:
        return LEDGER_UNKNOWN;
    }
    CHECK(false);
    return LEDGER_UNKNOWN;
}

static struct ledger_record record_of(const struct dispatch *d)
{
    return (struct ledger_record){
        .operation_id = d->claim.operation_id,
        .owner = d->owner,
        .revision = d->claim.revision,
        .attempt = d->claim.attempt,
        .digest = d->claim.request_digest,
        .verdict = span_of(verdict_word(d->verdict)),
        .remote_id = d->remote_id,
        .result = {d->result},
        .retry_ms = d->retry_ms,
        .evidence = {d->evidence},
    };
}

// ---- what the ledger answered ----

static void count_recorded(const struct dispatch *d)
{
    const char *tool = d->tool == NULL ? "other" : d->tool->config->name;
    switch (d->verdict) {
    case VERDICT_SUCCEEDED:
    case VERDICT_FAILED_FINAL:
        metric_add(METRIC_OPERATIONS_SETTLED, LABELS(tool, verdict_word(d->verdict)), 1);
        break;
    case VERDICT_NOT_SENT:
        metric_add(METRIC_OPERATIONS_NOT_SENT, LABELS(tool), 1);
        break;
    case VERDICT_UNKNOWN:
        metric_add(METRIC_TOOL_OPERATION_UNKNOWN, LABELS(tool), 1);
        break;
    }
}

static void note_refused(const struct dispatch *d, const struct ledger_recorded *row)
{
    const char *tool = d->tool == NULL ? "other" : d->tool->config->name;
    if (row->outcome == OUTCOME_LATE) {
        metric_add(METRIC_RESULTS_LATE, LABELS(tool), 1);
    } else if (row->outcome ==
               OUTCOME_EVIDENCE_ONLY) { // a refusal, but an earlier attempt may have acted
        metric_add(METRIC_TOOL_OPERATION_UNKNOWN, LABELS(tool), 1);
    } else if (row->outcome == OUTCOME_CONTRADICTION) {
        metric_add(METRIC_CONTRADICTIONS, LABELS(tool), 1);
    }
    log_event(LOG_WARN, "dispatch.record_refused", LOG_SPAN("operation_id", d->claim.operation_id),
              LOG_UUID("run_id", d->claim.run_id), LOG_INT("revision", d->claim.revision),
              LOG_INT("attempt", d->claim.attempt), LOG_TEXT("verdict", verdict_word(d->verdict)),
              LOG_OUTCOME(row->outcome), LOG_SPAN("status", row->status));
}

// One hint for a run, however many of its results were in the call.
static bool told_before(const struct ledger_recorded *rows, const struct ledger_recorded *row)
{
    for (; rows < row; rows++) {
        if (rows->woke && uuid_eq(rows->run_id, row->run_id)) {
            return true;
        }
    }
    return false;
}

static void note_recorded(const struct dispatch *d, const struct ledger_recorded *row)
{
    if (row->outcome != OUTCOME_RECORDED) {
        note_refused(d, row);
        return;
    }
    count_recorded(d);
    log_event(d->verdict == VERDICT_UNKNOWN ? LOG_WARN : LOG_DEBUG, "dispatch.recorded",
              LOG_SPAN("operation_id", d->claim.operation_id), LOG_UUID("run_id", d->claim.run_id),
              LOG_INT("attempt", d->claim.attempt), LOG_TEXT("verdict", verdict_word(d->verdict)),
              LOG_SPAN("evidence", d->verdict == VERDICT_SUCCEEDED ? SPAN_NULL : d->evidence));
}

// ---- one call ----

static void finish(struct dispatch *const *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dispatch_free(items[i]);
    }
}

// A remote's word that came after its claim is a fact all the same: the ledger decides what it is
// worth. Best effort: what was said is in the evidence already.
static void converge_late(struct settler *s, struct dispatch *const *items, size_t n,
                          const struct ledger_recorded *rows, size_t rows_n)
{
    struct ledger_fact *facts = arena_array(s->arena, rows_n + 1, sizeof *facts);
    size_t facts_n = 0;
    for (size_t i = 0; i < rows_n; i++) {
        size_t at = (size_t)rows[i].item - 1;
        if (rows[i].outcome != OUTCOME_LATE || rows[i].item < 1 || at >= n) {
            continue;
        }
        const struct dispatch *d = items[at];
        facts[facts_n++] = (struct ledger_fact){
            .operation_id = d->claim.operation_id,
            .attempt = {.v = d->claim.attempt},
            .owner = d->owner,
            .digest = d->claim.request_digest,
            .verdict = span_of(verdict_word(d->verdict)),
            .remote_id = d->remote_id,
            .result = {d->result},
            .evidence = {d->evidence},
            .by = SPAN_LIT("late answer"),
        };
    }
    struct ledger_recorded *judged = NULL;
    size_t judged_n = 0;
    if (facts_n == 0) {
        return;
    }
    enum outcome outcome = ledger_converge(s->lane, facts, facts_n, s->arena, &judged, &judged_n);
    if (outcome != OUTCOME_OK) {
        log_event(LOG_WARN, "dispatch.late_not_judged", LOG_INT("items", facts_n),
                  LOG_OUTCOME(outcome), LOG_TEXT("detail", fence_error(s->lane)));
        return;
    }
    for (size_t i = 0; i < judged_n; i++) {
        size_t at = (size_t)judged[i].item - 1;
        if (judged[i].item >= 1 && at < facts_n) {
            converged_note("late", &facts[at], &judged[i]);
        }
    }
    converged_wake(s->outbox, judged, judged_n, s->arena);
}

static enum outcome call(struct settler *s, enum ledger_verb verb, struct dispatch *const *items,
                         size_t n)
{
    struct ledger_record *records = arena_array(s->arena, n, sizeof *records);
    for (size_t i = 0; i < n; i++) {
        records[i] = record_of(items[i]);
    }
    struct ledger_recorded *rows = NULL;
    size_t rows_n = 0;
    enum outcome outcome = ledger_record(s->lane, verb, records, n, s->arena, &rows, &rows_n);
    if (outcome == OUTCOME_OK) {
        for (size_t i = 0; i < rows_n; i++) {
            size_t at = (size_t)rows[i].item - 1;
            if (rows[i].item >= 1 && at < n) {
                note_recorded(items[at], &rows[i]);
            }
            if (rows[i].woke &&
                !told_before(rows, &rows[i])) { // due at the epoch after the last one
                outbox_send_wakeup(s->outbox, rows[i].run_id, rows[i].epoch + 1, s->arena);
            }
        }
        if (verb == LEDGER_RESULT) {
            converge_late(s, items, n, rows, rows_n);
        }
    }
    return outcome;
}

// A record that the database refuses for its content is recorded again as unknown, without what the
// remote said; when even that is refused, the claim runs out and the sweep makes it unknown.
static bool give_way(struct settler *s, struct dispatch *d)
{
    log_event(
        LOG_ERROR, "dispatch.record_impossible", LOG_SPAN("operation_id", d->claim.operation_id),
        LOG_TEXT("verdict", verdict_word(d->verdict)), LOG_TEXT("detail", fence_error(s->lane)));
    if (++d->record_tries >= POISON_TRIES || d->verdict == VERDICT_NOT_SENT) {
        return false;
    }
    d->verdict = VERDICT_UNKNOWN;
    d->evidence = SPAN_LIT("{\"fault\":\"not_storable\",\"may_have_been_sent\":true}");
    d->retry_ms = dispatch_back_off_ms(&s->outbox->config->dispatch, d->claim.attempt);
    return true;
}

static bool given_up(struct settler *s)
{
    if (s->give_up_us == CLOCK_FOREVER && queue_is_closed(s->outbox->to_settle)) {
        s->give_up_us = clock_deadline_us(LAST_TRIES_MS * CLOCK_MS);
    }
    return clock_mono_us() >= s->give_up_us;
}

static void record(struct settler *s, enum ledger_verb verb, struct dispatch **items, size_t n);

// Halves the batch down to the item that breaks it, so that it does not fail its neighbours.
static void split(struct settler *s, enum ledger_verb verb, struct dispatch **items, size_t n)
{
    if (n > 1) {
        record(s, verb, items, n / 2);
        record(s, verb, items + n / 2, n - n / 2);
    } else if (give_way(s, items[0])) {
        record(s, LEDGER_UNKNOWN, items, 1);
    } else {
        finish(items, 1);
    }
}

static void record(struct settler *s, enum ledger_verb verb, struct dispatch **items, size_t n)
{
    for (bool told = false;; told = true) {
        enum outcome outcome = call(s, verb, items, n);
        if (outcome == OUTCOME_OK) {
            finish(items, n);
            return;
        }
        if (outcome == OUTCOME_ITEM_ERROR || (outcome_class(outcome) == CLASS_BUG && n > 1)) {
            split(s, verb, items, n);
            return;
        }
        if (!told) {
            log_event(LOG_WARN, "dispatch.record_waits", LOG_INT("items", n), LOG_OUTCOME(outcome),
                      LOG_TEXT("detail", fence_error(s->lane)));
        }
        if (given_up(s) || outcome == OUTCOME_DB_BUG) {
            log_event(LOG_ERROR, "dispatch.record_given_up", LOG_INT("items", n),
                      LOG_OUTCOME(outcome));
            finish(items, n);
            return;
        }
        (void)!fence_connect(s->lane, CONNECT_MS * CLOCK_MS);
    }
}

// ---- the thread ----

static void settle(struct settler *s, void *const *taken, size_t n)
{
    struct dispatch *groups[LEDGER_VERBS][SETTLE_MAX]; // sorted first: recording frees
    size_t group_n[LEDGER_VERBS] = {0};
    STOP_POINT("dispatch.after_response_before_record");
    for (size_t i = 0; i < n; i++) {
        struct dispatch *d = taken[i];
        enum ledger_verb verb = verb_of(d->verdict);
        groups[verb][group_n[verb]++] = d;
    }
    for (int verb = 0; verb < LEDGER_VERBS; verb++) {
        if (group_n[verb] > 0) {
            record(s, (enum ledger_verb)verb, groups[verb], group_n[verb]);
        }
    }
    relay_notify(s->outbox->relay);
    broker_producer_poll(s->outbox->producer, 0);
}

void *settle_thread(void *argument)
{
    struct settler s = {.outbox = argument, .arena = arena_new(), .give_up_us = CLOCK_FOREVER};
    CHECK(fence_open(s.outbox->config, "dispatch settle", 0, &s.lane) == OUTCOME_OK);
    void *taken[SETTLE_MAX];
    for (;;) {
        arena_reset(s.arena);
        size_t n = queue_pop_many(s.outbox->to_settle, taken, SETTLE_MAX, CLOCK_SECOND);
        if (n > 0) {
            settle(&s, taken, n);
        } else if (queue_is_closed(s.outbox->to_settle)) {
            break;
        }
    }
    fence_close(s.lane);
    arena_free(s.arena);
    return NULL;
}

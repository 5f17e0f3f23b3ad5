/* submit: makes records durable. One statement a verb carries what was polled; records of one task
 * go one after the other, in the order of their partition. PostgreSQL away: the same again until it
 * is back, partitions paused. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "pool/pool_int.h"
#include "pool/record_int.h"

struct submit {
    struct pool *pool;
    struct fence *fence;
    struct arena *round; /* of the records picked */
    struct arena *call;  /* of the statement under way */
    struct task_record **pending;
    size_t pending_n, max;
};

/* One verb's part of a round. */
struct verb {
    /* Offers the records in one statement; on OK settles each. */
    enum outcome (*offer)(struct submit *s, struct task_record **records, size_t n);
};

/* ---- what only this pod can check: the handler's name and a plan's graph ---- */

static void check_handler(struct submit *s, struct task_record *r)
{
    struct names *names = s->pool->names;
    struct span handler = r->message.handler;
    if (names_has_handler(names, handler))
        return;
    if (names_refresh(names, s->fence) == OUTCOME_OK && names_has_handler(names, handler))
        return;
    struct span near = names_nearest_handler(names, handler);
    const char *what =
        span_is_null(near)
            ? arena_printf(r->arena, "no pod ever declared a handler \"%.*s\"", SPAN_ARG(handler))
            : arena_printf(r->arena,
                           "no pod ever declared a handler \"%.*s\"; did you mean \"%.*s\"?",
                           SPAN_ARG(handler), SPAN_ARG(near));
    record_reject(r, REJECT_OUT_OF_RANGE, SPAN_LIT("/handler"), span_of(what));
}

static bool is_plan(const struct submit *s, const struct task_record *r)
{
    const struct config_handler *handler = config_handler(s->pool->cfg, r->message.handler.p);
    return handler != NULL && handler->kind == HANDLER_PLAN;
}

static void check_plan(struct submit *s, struct task_record *r)
{
    struct plan_fault fault;
    struct plan_names tools = names_tools(s->pool->names);
    const struct json_value *input = r->message.input_value;
    if (plan_check_value(input, &tools, r->arena, &fault))
        return;
    /* perhaps a pod has just declared that tool */
    if (names_refresh(s->pool->names, s->fence) == OUTCOME_OK) {
        tools = names_tools(s->pool->names);
        if (plan_check_value(input, &tools, r->arena, &fault))
            return;
    }
    struct span place = span_of(arena_printf(r->arena, "/input%.*s", SPAN_ARG(fault.place)));
    struct span detail =
        span_of(arena_printf(r->arena, "%.*s: %.*s", SPAN_ARG(place), SPAN_ARG(fault.what)));
    record_reject(r, REJECT_OUT_OF_RANGE, place, detail);
}

static void check(struct submit *s, struct task_record *r)
{
    if (!span_is_null(r->reject))
        return;
    switch (r->message.type) {
    case MESSAGE_SUBMIT:
        check_handler(s, r);
        if (span_is_null(r->reject) && is_plan(s, r))
            check_plan(s, r);
        return;
    case MESSAGE_SIGNAL:
    case MESSAGE_CANCEL:
    case MESSAGE_RETRY:
        return;
    }
}

/* ---- answers ---- */

static void finish_record(struct submit *s, struct task_record *r, bool dead, enum outcome o)
{
    if (!dead) {
        record_done(r);
        return;
    }
    struct span reason = span_is_null(r->dead_reason) ? span_of(outcome_word(o)) : r->dead_reason;
    struct span detail =
        span_is_null(r->dead_detail) ? span_of(outcome_sentence(o)) : r->dead_detail;
    dead_send(s->pool->dead, r, reason, detail);
}

/* A record that was found invalid is dead-lettered at every delivery: the first letter may not have
 * arrived. */
static bool is_invalid(enum outcome o, struct span first_outcome)
{
    return o == OUTCOME_INVALID || o == OUTCOME_TOO_OLD ||
           (o == OUTCOME_DUPLICATE && span_eq_text(first_outcome, outcome_word(OUTCOME_INVALID)));
}

static void log_answer(const struct task_record *r, enum outcome o, struct uuid run_id)
{
    if (log_enabled(LOG_DEBUG))
        log_event(LOG_DEBUG, "record.applied", LOG_TEXT("type", message_type_word(r->message.type)),
                  LOG_SPAN("tenant_id", r->message.tenant_id),
                  LOG_SPAN("task_id", r->message.task_id), LOG_UUID("run_id", run_id),
                  LOG_OUTCOME(o));
}

static enum outcome offer_submits(struct submit *s, struct task_record **records, size_t n)
{
    struct fence_submit_item *items = arena_array(s->call, n, sizeof(*items));
    struct fence_submit_result *rows;
    for (size_t i = 0; i < n; i++)
        items[i] = submit_item(records[i]);
    int64_t start_us = clock_mono_us();
    STOP_POINT("submit.before_statement");
    enum outcome o = fence_submit(s->fence, items, n, s->call, &rows);
    metric_observe(METRIC_SUBMIT_BATCH_SECONDS, NO_LABELS,
                   (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND);
    if (o != OUTCOME_OK)
        return o;
    STOP_POINT("submit.durable");
    for (size_t i = 0; i < n; i++) {
        metric_add(METRIC_SUBMIT, LABELS(outcome_word(rows[i].outcome)), 1);
        log_answer(records[i], rows[i].outcome, rows[i].run_id);
        if (rows[i].due)
            hint_run(s->pool, rows[i].run_id, rows[i].epoch + 1);
        finish_record(s, records[i], is_invalid(rows[i].outcome, rows[i].first_outcome),
                      rows[i].outcome);
    }
    return o;
}

/* Speaks of a run that is not there: somebody should know. */
static bool goes_nowhere(enum outcome o)
{
    return o == OUTCOME_MISSING || o == OUTCOME_RUN_MISMATCH;
}

static enum outcome offer_cancels(struct submit *s, struct task_record **records, size_t n)
{
    struct fence_cancel_item *items = arena_array(s->call, n, sizeof(*items));
    struct fence_cancel_result *rows;
    for (size_t i = 0; i < n; i++)
        items[i] = cancel_item(records[i]);
    enum outcome o = fence_cancel(s->fence, items, n, s->call, &rows);
    if (o != OUTCOME_OK)
        return o;
    for (size_t i = 0; i < n; i++) {
        enum outcome answer = rows[i].outcome;
        metric_add(METRIC_CONTROL, LABELS("cancel", outcome_word(answer)), 1);
        log_answer(records[i], answer, rows[i].run_id);
        finish_record(s, records[i],
                      goes_nowhere(answer) || is_invalid(answer, rows[i].first_outcome), answer);
    }
    return o;
}

static enum outcome offer_signals(struct submit *s, struct task_record **records, size_t n)
{
    struct fence_signal_item *items = arena_array(s->call, n, sizeof(*items));
    struct fence_signal_result *rows;
    for (size_t i = 0; i < n; i++)
        items[i] = signal_item(records[i]);
    enum outcome o = fence_signal(s->fence, items, n, s->call, &rows);
    if (o != OUTCOME_OK)
        return o;
    for (size_t i = 0; i < n; i++) {
        enum outcome answer = rows[i].outcome;
        metric_add(METRIC_CONTROL, LABELS("signal", outcome_word(answer)), 1);
        log_answer(records[i], answer, rows[i].run_id);
        if (rows[i].woke)
            hint_run(s->pool, rows[i].run_id, rows[i].epoch + 1);
        finish_record(s, records[i],
                      goes_nowhere(answer) || is_invalid(answer, rows[i].first_outcome), answer);
    }
    return o;
}

static enum outcome offer_retries(struct submit *s, struct task_record **records, size_t n)
{
    struct fence_retry_item *items = arena_array(s->call, n, sizeof(*items));
    struct fence_retry_result *rows;
    for (size_t i = 0; i < n; i++)
        items[i] = retry_item(records[i]);
    enum outcome o = fence_retry(s->fence, items, n, s->call, &rows);
    if (o != OUTCOME_OK)
        return o;
    for (size_t i = 0; i < n; i++) {
        enum outcome answer = rows[i].outcome;
        metric_add(METRIC_CONTROL, LABELS("retry", outcome_word(answer)), 1);
        log_answer(records[i], answer, rows[i].run_id);
        if (rows[i].due)
            hint_run(s->pool, rows[i].run_id, rows[i].epoch + 1);
        finish_record(s, records[i],
                      goes_nowhere(answer) || is_invalid(answer, rows[i].first_outcome), answer);
    }
    return o;
}

/* ---- one statement, until it is answered ---- */

/* False: the pod ends and does not wait any longer. */
static bool wait_for_database(struct submit *s, enum outcome o)
{
    struct pool *p = s->pool;
    if (!atomic_exchange(&p->submit_away, true))
        log_event(LOG_WARN, "submit.waits_for_database", LOG_OUTCOME(o),
                  LOG_TEXT("detail", fence_error(s->fence)));
    while (!atomic_load(&p->hurry))
        if (fence_connect(s->fence, CLOCK_SECOND) == OUTCOME_OK) {
            if (atomic_exchange(&p->submit_away, false))
                log_event(LOG_INFO, "submit.database_is_back");
            return true;
        }
    return false;
}

/* A record whose data the database does not take: recorded as invalid under its identity, else only
 * dead-lettered. */
static void reject_poison(struct submit *s, struct task_record *r, enum outcome o)
{
    struct span words = span_of(arena_dup_text(r->arena, span_of(fence_error(s->fence))));
    bool was_rejected = !span_is_null(r->reject);
    if (!was_rejected) {
        record_reject(r, REJECT_OUT_OF_RANGE, SPAN_LIT(""), words);
        arena_reset(s->call);
        if (offer_submits(s, &r, 1) == OUTCOME_OK)
            return;
    }
    r->dead_reason = span_of(outcome_word(o));
    r->dead_detail = words;
    finish_record(s, r, true, o);
}

static void offer_all(struct submit *s, const struct verb *verb, struct task_record **records,
                      size_t n)
{
    while (n > 0) {
        arena_reset(s->call);
        enum outcome o = verb->offer(s, records, n);
        if (o == OUTCOME_OK) {
            pool_tell_events(s->pool);
            return;
        }
        enum outcome_class class = outcome_class(o);
        bool data = class == CLASS_REFUSED || class == CLASS_DONE || o == OUTCOME_DB_BUG;
        if (!data) {
            /* request keys make the same statement harmless, whatever became of it */
            if (wait_for_database(s, o))
                continue;
            for (size_t i = 0; i < n; i++)
                record_free(records[i]); /* not done: they come again */
            return;
        }
        if (n == 1) {
            reject_poison(s, records[0], o);
            return;
        }
        offer_all(s, verb, records, n / 2);
        records += n / 2;
        n -= n / 2;
    }
}

/* ---- rounds ---- */

/* What was found invalid is recorded by submit, whatever it wanted to be. */
static size_t verb_of(const struct task_record *r)
{
    if (!span_is_null(r->reject))
        return 0;
    switch (r->message.type) {
    case MESSAGE_CANCEL:
        return 1;
    case MESSAGE_RETRY:
        return 2;
    case MESSAGE_SIGNAL:
        return 3;
    case MESSAGE_SUBMIT:
        return 0;
    }
    return 0;
}

/* The first n pending ones: no two of one task, so that the order of the verbs does not matter. */
static void submit_round(struct submit *s, size_t n)
{
    static const struct verb verbs[] = {
        {offer_submits}, {offer_cancels}, {offer_retries}, {offer_signals}};
    struct task_record **records[COUNT_OF(verbs)];
    size_t counts[COUNT_OF(verbs)] = {0};
    for (size_t v = 0; v < COUNT_OF(verbs); v++)
        records[v] = arena_array(s->round, n, sizeof(struct task_record *));
    for (size_t i = 0; i < n; i++) {
        check(s, s->pending[i]);
        size_t v = verb_of(s->pending[i]);
        records[v][counts[v]++] = s->pending[i];
    }
    s->pending_n -= n;
    memmove(s->pending, s->pending + n, s->pending_n * sizeof(struct task_record *));
    for (size_t v = 0; v < COUNT_OF(verbs); v++)
        offer_all(s, &verbs[v], records[v], counts[v]);
}

static void collect(struct submit *s)
{
    void *taken[512];
    size_t room = s->max - s->pending_n;
    if (room > COUNT_OF(taken))
        room = COUNT_OF(taken);
    int64_t timeout_us = s->pending_n > 0 ? 0 : CLOCK_FOREVER;
    size_t n = room > 0 ? queue_pop_many(s->pool->records, taken, room, timeout_us) : 0;
    for (size_t i = 0; i < n; i++)
        s->pending[s->pending_n++] = taken[i];
}

static void first_contact(struct submit *s)
{
    while (!atomic_load(&s->pool->hurry)) {
        enum outcome o = fence_connect(s->fence, CLOCK_SECOND);
        if (o == OUTCOME_OK)
            o = names_register(s->pool->names, s->fence);
        if (o == OUTCOME_OK)
            o = names_refresh(s->pool->names, s->fence);
        if (o == OUTCOME_OK || !wait_for_database(s, o))
            break;
        pool_sleep_until(s->pool, clock_deadline_us(CLOCK_SECOND));
    }
    atomic_store(&s->pool->submit_away, false);
}

void *submit_run(void *pool)
{
    struct pool *p = pool;
    struct submit s = {
        .pool = p, .fence = p->submit_fence, .round = arena_new(), .call = arena_new()};
    s.max = (size_t)p->cfg->ingest.batch * 2;
    s.pending = memory_new(s.max, sizeof(struct task_record *));
    first_contact(&s);
    for (;;) {
        collect(&s);
        if (s.pending_n == 0) {
            if (queue_is_closed(p->records))
                break;
            continue;
        }
        arena_reset(s.round);
        size_t n = round_pick(s.pending, s.pending_n, (size_t)p->cfg->ingest.batch, s.round);
        submit_round(&s, n);
    }
    atomic_store(&p->submit_over, true);
    free(s.pending);
    arena_free(s.round);
    arena_free(s.call);
    return NULL;
}

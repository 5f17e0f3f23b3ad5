/* step: what a worker does with a session: start its handler, or say what the handler has decided;
 * and what becomes of a session once the database has answered. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "pool/exec_int.h"
#include "pool/pool_int.h"
#include "schemas/intent.h"

void step_push(struct pool *p, struct session *s)
{
    /* sessions are bounded by pool.max_running, not by this queue */
    CHECK(queue_force_push(p->steps, s));
}

void step_end(struct pool *p, struct session *s)
{
    bool was_full = sessions_count(p->sessions) >= (size_t)p->cfg->pool.max_running;
    sessions_end(p->sessions, s);
    if (was_full)
        hints_nudge(p->hints);
}

/* ---- hints ---- */

static void produce(struct pool *p, const char *topic, struct uuid run_id, struct span value)
{
    char key[UUID_TEXT_SIZE];
    struct broker_message message = {
        .topic = topic,
        .partition = BROKER_BY_KEY,
        .key = span_of(uuid_format(run_id, key)),
        .value = value,
    };
    enum broker_result result = broker_produce(p->producer, &message, NULL, NULL, NULL);
    metric_add(METRIC_HINTS, LABELS(topic, broker_result_word(result)), 1);
}

void hint_others(struct pool *p, struct uuid run_id, int64_t epoch)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct wakeup wakeup = {run_id, epoch};
    produce(p, p->wakeups_topic, run_id, wakeup_encode(&wakeup, arena));
}

void hint_run(struct pool *p, struct uuid run_id, int64_t epoch)
{
    bool room = p->cfg->pool.enabled && !atomic_load(&p->stopping) &&
                sessions_count(p->sessions) < (size_t)p->cfg->pool.max_running;
    if (!room || !hints_add(p->hints, (struct hint){run_id, epoch}))
        hint_others(p, run_id, epoch);
}

static bool is_adopted(const struct commit_request *r, struct span operation_id)
{
    for (size_t i = 0; i < r->adopted.n; i++)
        if (span_eq(r->adopted.v[i], operation_id))
            return true;
    return false;
}

void step_hints(struct pool *p, const struct session *s, const struct commit_request *r)
{
    bool to_send = false;
    pool_tell_events(p);
    for (size_t i = 0; i < r->decision.intent_n; i++) {
        const struct fence_intent *from = &r->decision.intents[i];
        if (is_adopted(r, from->operation_id))
            continue;
        struct intent intent = {
            .kind = INTENT_REGISTERED,
            .operation_id = from->operation_id,
            .run_id = s->run_id,
            .tool_name = from->tool,
            .request_digest = from->digest,
        };
        produce(p, p->intents_topic, s->run_id, intent_encode(&intent, r->arena));
        to_send = true;
    }
    if (to_send)
        pool_tell_intents(p);
    if (r->due)
        hint_run(p, s->run_id, s->epoch + 1);
}

/* ---- refusals ---- */

void step_refused(const struct session *s, const struct commit_request *r)
{
    metric_add(METRIC_PROTECTED_WRITE_REJECTED, LABELS(outcome_word(r->outcome)), 1);
    log_event(
        LOG_WARN, "write.refused", LOG_UUID("run_id", s->run_id), LOG_SPAN("task_id", s->task),
        LOG_SPAN("owner", s->owner), LOG_INT("epoch", s->epoch), LOG_INT("revision", r->revision),
        LOG_OUTCOME(r->outcome), LOG_TEXT("decision", r->give_back ? "release" : r->decision.word),
        LOG_INT("current_epoch", r->current_epoch), LOG_SPAN("current_owner", r->current_owner),
        LOG_SPAN("detail", r->detail), LOG_SPAN("trace_id", s->trace_id));
}

/* ---- the way to the database ---- */

static struct commit_lane *lane_of(struct pool *p, const struct session *s)
{
    return p->commits[s->run_id.b[15] % COMMIT_LANES]; /* a run always on the same lane */
}

static void returned(struct commit_request *r)
{
    struct session *s = r->opaque;
    struct pool *p = s->pool;
    if (r->outcome == OUTCOME_RELEASED)
        hint_run(p, s->run_id, s->epoch + 1);
    else
        step_refused(s, r);
    step_end(p, s);
}

static void give_back(struct pool *p, struct session *s)
{
    atomic_store(&s->leaving, true);
    s->commit = (struct commit_request){
        .run_id = s->run_id,
        .owner = s->owner,
        .epoch = s->epoch,
        .revision = s->revision,
        .give_back = true,
        .prefiltered = s->prefiltered,
        .arena = session_step(s),
        .done = returned,
        .opaque = s,
    };
    commit_push(lane_of(p, s), &s->commit);
}

static bool leaves(const struct decision *d)
{
    return d->release || !span_is_null(d->finish) || !span_is_null(d->wait_mode);
}

void step_commit(struct pool *p, struct session *s, const struct decision *d,
                 void (*done)(struct commit_request *))
{
    atomic_store(&s->leaving, leaves(d));
    s->commit = (struct commit_request){
        .run_id = s->run_id,
        .owner = s->owner,
        .epoch = s->epoch,
        .revision = s->revision,
        .decision = *d,
        .prefiltered = s->prefiltered,
        .arena = s->step,
        .done = done,
        .opaque = s,
    };
    commit_prepare(&s->commit);
    commit_push(lane_of(p, s), &s->commit);
}

static void answered(struct commit_request *r);

static bool is_plan(const struct session *s)
{
    return s->config == NULL || s->config->kind == HANDLER_PLAN;
}

/* The attempt failed, for a reason that is no decision of the handler's. */
static void fail_attempt(struct pool *p, struct session *s, struct span failure)
{
    int64_t first_ms = s->config ? s->config->retry_ms : 1000,
            last_ms = s->config ? s->config->retry_max_ms : 60000;
    struct decision d =
        decision_retry(failure, decision_backoff_ms(s->failures, first_ms, last_ms));
    d.word = "attempt_failed";
    d.by_pool = true;
    log_event(LOG_WARN, "step.failed", LOG_UUID("run_id", s->run_id), LOG_SPAN("task_id", s->task),
              LOG_SPAN("handler", s->handler), LOG_SPAN("owner", s->owner),
              LOG_INT("epoch", s->epoch), LOG_INT("failures", s->failures + 1),
              LOG_SPAN("failure", failure), LOG_SPAN("trace_id", s->trace_id));
    step_commit(p, s, &d, answered);
}

/* The database did not take the decision for what it is. A plan cannot decide otherwise: its run
 * ends. Another handler may be mended: its attempt failed. What the pool itself wrote is not
 * offered in yet another form: the lease runs out, and attempts are counted. */
static void unacceptable(struct pool *p, struct session *s, struct commit_request *r)
{
    step_refused(s, r);
    if (r->decision.by_pool) {
        step_end(p, s);
        return;
    }
    struct span detail =
        span_is_null(r->detail) ? span_of(outcome_sentence(r->outcome)) : r->detail;
    struct span failure = decision_failure(s->step, outcome_word(r->outcome), detail);
    if (!is_plan(s)) {
        fail_attempt(p, s, failure);
        return;
    }
    struct decision d = decision_fail(failure);
    d.by_pool = true;
    step_commit(p, s, &d, answered);
}

static void applied(struct pool *p, struct session *s, struct commit_request *r)
{
    STOP_POINT("step.committed");
    metric_add(METRIC_STEPS, LABELS(s->config ? s->config->name : "plan", r->decision.word), 1);
    metric_observe(METRIC_STEP_SECONDS, LABELS(s->config ? s->config->name : "plan"),
                   (double)(clock_mono_us() - s->step_started_us) / (double)CLOCK_SECOND);
    if (log_enabled(LOG_DEBUG))
        log_event(LOG_DEBUG, "step.committed", LOG_UUID("run_id", s->run_id),
                  LOG_SPAN("owner", s->owner), LOG_INT("epoch", s->epoch),
                  LOG_INT("revision", r->new_revision), LOG_TEXT("decision", r->decision.word),
                  LOG_SPAN("trace_id", s->trace_id));
    step_hints(p, s, r);
    if (leaves(&r->decision)) {
        step_end(p, s);
        return;
    }
    session_advance(s, r->new_revision, r->decision.checkpoint.text);
    s->phase = SESSION_START;
    step_push(p, s);
}

/* What the outcome of a protected write means for its session. Thread: commit. */
static void answered(struct commit_request *r)
{
    struct session *s = r->opaque;
    struct pool *p = s->pool;
    switch (outcome_class(r->outcome)) {
    case CLASS_DONE:
        applied(p, s, r);
        return;
    case CLASS_RETRY:
    case CLASS_UNKNOWN:
        /* only when the pod ends and the database is away: the lease runs out, and whoever takes
         * over reads back */
        step_end(p, s);
        return;
    case CLASS_REFUSED:
    case CLASS_BUG:
        break;
    }
    if (r->outcome == OUTCOME_LEASE_LOST || r->outcome == OUTCOME_SUPERSEDED ||
        r->outcome == OUTCOME_NOT_RUNNING) {
        step_refused(s, r); /* stop, write nothing more */
        step_end(p, s);
    } else if (r->outcome == OUTCOME_REVISION_CONFLICT) {
        step_refused(
            s, r); /* decided on a state that is not the stored one: again, with a fresh context */
        s->phase = SESSION_REPEAT;
        step_push(p, s);
    } else {
        unacceptable(p, s, r);
    }
}

/* ---- handlers ---- */

static struct fence_intent *intents_of(const struct plan_decision *plan, struct arena *arena)
{
    struct fence_intent *intents = arena_array(arena, plan->intent_n + 1, sizeof(*intents));
    for (size_t i = 0; i < plan->intent_n; i++) {
        const struct plan_intent *from = &plan->intents[i];
        intents[i] = (struct fence_intent){
            .operation_id = from->operation_id,
            .step = from->step,
            .version = from->version,
            .tool = from->tool,
            .digest = from->digest,
            .body = {from->body},
            .capability = from->capability,
            .declaration = {from->declaration},
            .external_key = from->external_key,
        };
    }
    return intents;
}

static void evaluate_plan(struct pool *p, struct session *s)
{
    struct arena *arena = session_step(s);
    struct plan_run run = {s->tenant, s->run_id, s->first_run_id, s->input, s->operations};
    struct plan_decision plan;
    plan_evaluate(&run, p->tools, p->tool_n, arena, &plan);
    struct decision d = decision_empty("plan");
    switch (plan.next) {
    case PLAN_WAIT:
        d.intents = intents_of(&plan, arena);
        d.intent_n = plan.intent_n;
        d.wait_for = plan.wait_for;
        d.wait_n = plan.wait_n;
        d.wait_mode = plan.wait_all ? SPAN_LIT("all") : SPAN_LIT("any");
        d.release = true;
        break;
    case PLAN_SUCCEEDED:
        d = decision_succeed(plan.result);
        break;
    case PLAN_FAILED:
        d = decision_fail(plan.result);
        break;
    case PLAN_UNABLE:
        fail_attempt(p, s, plan.result);
        return;
    }
    STOP_POINT("step.decided");
    step_commit(p, s, &d, answered);
}

static void start_handler(struct pool *p, struct session *s)
{
    s->step_started_us = clock_mono_us();
    if (is_plan(s))
        evaluate_plan(p, s);
    else
        exec_start(p->exec, s);
}

/* ---- the worker ---- */

/* Local validity is over, and heart has not said anything: ask now. It may only stop work. */
static void notice_expiry(struct pool *p, struct session *s)
{
    if (session_stopped(s) != SESSION_GOES || session_is_valid(s))
        return;
    struct fence_lease lease = {s->run_id, s->owner, s->epoch};
    (void)sessions_stop(p->sessions, &lease, SESSION_DOUBT, p->steps);
    atomic_store(&p->heart_soon, true);
    pool_wake_sleepers(p);
}

/* Something speaks against going on: true, and the session is gone or lies on the shelf. */
static bool stopped(struct pool *p, struct session *s)
{
    notice_expiry(p, s);
    switch (session_stopped(s)) {
    case SESSION_GOES:
        if (!atomic_load(&p->stopping))
            return false;
        give_back(p, s);
        return true;
    case SESSION_DOUBT:
        if (sessions_shelve(p->sessions, s))
            return true;
        return stopped(p, s); /* heart has just learnt more */
    case SESSION_DRAIN:
    case SESSION_DEADLINE:
        give_back(p, s);
        return true;
    case SESSION_CANCELLED:
    case SESSION_LOST:
        step_end(p, s);
        return true;
    }
    return false;
}

static void offer_answer(struct pool *p, struct session *s)
{
    struct decision d;
    struct span why;
    /* the handler has decided: that is offered once, whatever the local clock says; the database
     * judges */
    if (answer_read(p, s, s->step, &d, &why)) {
        STOP_POINT("step.decided");
        step_commit(p, s, &d, answered);
    } else {
        fail_attempt(p, s, decision_failure(s->step, "decision_refused", why));
    }
}

static void work(struct pool *p, struct session *s)
{
    switch (s->phase) {
    case SESSION_START:
        if (!stopped(p, s))
            start_handler(p, s);
        return;
    case SESSION_ANSWERED:
        /* in doubt nothing is written; once heart knows more it is offered, whatever that was */
        notice_expiry(p, s);
        if (!sessions_shelve(p->sessions, s))
            offer_answer(p, s);
        return;
    case SESSION_FAILED:
        s->phase = SESSION_START;
        if (session_stopped(s) != SESSION_GOES && stopped(p, s))
            return; /* told to stop: its end is no failure of the handler */
        fail_attempt(p, s, s->answer);
        return;
    case SESSION_REPEAT:
        give_back(p, s);
        return;
    }
}

void *worker_run(void *pool)
{
    struct pool *p = pool;
    for (;;) {
        struct session *s = queue_pop(p->steps, CLOCK_FOREVER);
        if (s == NULL) {
            if (queue_is_closed(p->steps))
                return NULL;
            continue;
        }
        metric_move(METRIC_WORKERS_BUSY, NO_LABELS, 1);
        work(p, s);
        metric_move(METRIC_WORKERS_BUSY, NO_LABELS, -1);
    }
}

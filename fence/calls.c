/* calls: which member is which parameter or column of the interface functions. */
#include "fence/fence_int.h"

/* ---- records ---- */

#define SUBMIT(member) DB_ITEM(0, struct fence_submit_item, member)
static const struct db_param submit_params[] = {
    SUBMIT(tenant),          SUBMIT(task),     SUBMIT(key),          SUBMIT(own_key),
    SUBMIT(digest),          SUBMIT(source),   SUBMIT(by),           SUBMIT(reject),
    SUBMIT(handler),         SUBMIT(run_id),   SUBMIT(input),        SUBMIT(priority),
    SUBMIT(not_before),      SUBMIT(deadline), SUBMIT(max_attempts), SUBMIT(cancel_previous),
    SUBMIT(allow_unsettled), SUBMIT(labels),   SUBMIT(traceparent),  SUBMIT(tracestate),
};
#define SUBMITTED(member) DB_COLUMN(struct fence_submit_result, member)
static const struct db_column submit_columns[] = {
    SUBMITTED(item), SUBMITTED(outcome), SUBMITTED(first_outcome), SUBMITTED(run_id),
    SUBMITTED(due),  SUBMITTED(epoch),   SUBMITTED(detail),
};
const struct db_call call_submit = DB_CALL("submit", submit_params, submit_columns, 0);

#define CANCEL(member) DB_ITEM(0, struct fence_cancel_item, member)
static const struct db_param cancel_params[] = {
    CANCEL(tenant), CANCEL(task), CANCEL(key),    CANCEL(own_key), CANCEL(digest),
    CANCEL(source), CANCEL(by),   CANCEL(run_id), CANCEL(reason),  CANCEL(record),
};
#define CANCELLED(member) DB_COLUMN(struct fence_cancel_result, member)
static const struct db_column cancel_columns[] = {
    CANCELLED(item),   CANCELLED(outcome), CANCELLED(first_outcome),
    CANCELLED(run_id), CANCELLED(status),  CANCELLED(detached),
};
const struct db_call call_cancel = DB_CALL("cancel", cancel_params, cancel_columns, 0);

#define SIGNAL(member) DB_ITEM(0, struct fence_signal_item, member)
static const struct db_param signal_params[] = {
    SIGNAL(tenant),    SIGNAL(task),   SIGNAL(key),     SIGNAL(own_key),
    SIGNAL(digest),    SIGNAL(source), SIGNAL(by),      SIGNAL(run_id),
    SIGNAL(signal_id), SIGNAL(name),   SIGNAL(payload), SIGNAL(record),
};
#define SIGNALLED(member) DB_COLUMN(struct fence_signal_result, member)
static const struct db_column signal_columns[] = {
    SIGNALLED(item),   SIGNALLED(outcome), SIGNALLED(first_outcome),
    SIGNALLED(run_id), SIGNALLED(woke),    SIGNALLED(epoch),
};
const struct db_call call_signal = DB_CALL("signal", signal_params, signal_columns, 0);

#define RETRY(member) DB_ITEM(0, struct fence_retry_item, member)
static const struct db_param retry_params[] = {
    RETRY(tenant),          RETRY(task),   RETRY(key),         RETRY(own_key),    RETRY(digest),
    RETRY(source),          RETRY(by),     RETRY(run_id),      RETRY(new_run_id), RETRY(fresh),
    RETRY(allow_unsettled), RETRY(reason), RETRY(traceparent), RETRY(tracestate),
};
#define RETRIED(member) DB_COLUMN(struct fence_retry_result, member)
static const struct db_column retry_columns[] = {
    RETRIED(item), RETRIED(outcome), RETRIED(first_outcome), RETRIED(run_id),
    RETRIED(due),  RETRIED(epoch),   RETRIED(unsettled),
};
const struct db_call call_retry = DB_CALL("retry", retry_params, retry_columns, 0);

/* ---- leases ---- */

#define SESSION(member) DB_SCALAR(struct fence_session_in, member)
static const struct db_param acquire_params[] = {
    SESSION(owner), SESSION(token), SESSION(run_ids), SESSION(ttl_ms), SESSION(handlers),
};
static const struct db_param claim_params[] = {
    SESSION(owner), SESSION(token), SESSION(limit), SESSION(ttl_ms), SESSION(handlers),
};
#define ACQUIRED(member) DB_COLUMN(struct fence_acquired, member)
static const struct db_column acquired_columns[] = {
    ACQUIRED(item),         ACQUIRED(outcome),     ACQUIRED(run_id),      ACQUIRED(epoch),
    ACQUIRED(revision),     ACQUIRED(tenant_id),   ACQUIRED(task_id),     ACQUIRED(handler),
    ACQUIRED(attempt),      ACQUIRED(failures),    ACQUIRED(takeover),    ACQUIRED(takeover_ms),
    ACQUIRED(started),      ACQUIRED(checkpoint),  ACQUIRED(input),       ACQUIRED(woke_reason),
    ACQUIRED(operations),   ACQUIRED(signals),     ACQUIRED(earlier),     ACQUIRED(deadline),
    ACQUIRED(first_run_id), ACQUIRED(prev_run_id), ACQUIRED(traceparent), ACQUIRED(tracestate),
};
const struct db_call call_acquire = DB_CALL("acquire", acquire_params, acquired_columns, 0);
const struct db_call call_claim = DB_CALL("claim", claim_params, acquired_columns, 0);

#define LEASE(parameter, member) DB_ITEM_AS(parameter, 0, struct fence_lease, member)
static const struct db_param renew_params[] = {
    LEASE("run_ids", run_id),
    LEASE("owners", owner),
    LEASE("epochs", epoch),
    DB_SCALAR(struct fence_renew_in, ttl_ms),
};
#define RENEWED(member) DB_COLUMN(struct fence_renew_result, member)
static const struct db_column renew_columns[] = {
    RENEWED(item),
    RENEWED(outcome),
    RENEWED(current_epoch),
    RENEWED(status),
};
const struct db_call call_renew = DB_CALL("renew", renew_params, renew_columns, 0);

static const struct db_param release_params[] = {
    LEASE("run_ids", run_id),
    LEASE("owners", owner),
    LEASE("epochs", epoch),
    DB_SCALAR(struct fence_release_in, graceful),
};
#define RELEASED(member) DB_COLUMN(struct fence_release_result, member)
static const struct db_column release_columns[] = {
    RELEASED(item),
    RELEASED(outcome),
    RELEASED(current_epoch),
};
const struct db_call call_release = DB_CALL("release", release_params, release_columns, 0);

/* ---- the protected write ---- */

#define COMMIT(parameter, member)                                                                  \
    DB_ITEM_AS(parameter, COMMIT_ITEMS, struct fence_commit_item, member)
#define INTENT(parameter, member)                                                                  \
    DB_ITEM_AS("i_" parameter, COMMIT_INTENTS, struct fence_intent, member)
#define WAIT(parameter, member) DB_ITEM_AS("w_" parameter, COMMIT_WAITS, struct fence_wait, member)
#define EVENT(parameter, member)                                                                   \
    DB_ITEM_AS("e_" parameter, COMMIT_EVENTS, struct fence_event, member)
#define DETACH(parameter, member)                                                                  \
    DB_ITEM_AS("d_" parameter, COMMIT_DETACHED, struct fence_detach, member)
#define CONSUME(parameter, member)                                                                 \
    DB_ITEM_AS("s_" parameter, COMMIT_CONSUMED, struct fence_consumed, member)
static const struct db_param commit_params[] = {
    COMMIT("run_ids", run_id),
    COMMIT("owners", owner),
    COMMIT("epochs", epoch),
    COMMIT("revisions", revision),
    COMMIT("commit_ids", commit_id),
    COMMIT("digests", digest),
    COMMIT("checkpoints", checkpoint),
    COMMIT("finish", finish),
    COMMIT("outputs", output),
    COMMIT("release", release),
    COMMIT("wait_mode", wait_mode),
    COMMIT("wait_signal", wait_signal),
    COMMIT("wait_until", wait_until),
    COMMIT("retry_ms", retry_ms),
    INTENT("item", item),
    INTENT("operation_id", operation_id),
    INTENT("step", step),
    INTENT("version", version),
    INTENT("tool", tool),
    INTENT("digest", digest),
    INTENT("body", body),
    INTENT("capability", capability),
    INTENT("declaration", declaration),
    INTENT("external_key", external_key),
    INTENT("after_settled", after_settled),
    INTENT("compensates", compensates),
    WAIT("item", item),
    WAIT("operation_id", operation_id),
    EVENT("item", item),
    EVENT("type", type),
    EVENT("body", body),
    DETACH("item", item),
    DETACH("operation_id", operation_id),
    CONSUME("item", item),
    CONSUME("signal_id", signal_id),
};
#define COMMITTED(member) DB_COLUMN(struct fence_commit_result, member)
static const struct db_column commit_columns[] = {
    COMMITTED(item),          COMMITTED(outcome),    COMMITTED(revision), COMMITTED(current_epoch),
    COMMITTED(current_owner), COMMITTED(checkpoint), COMMITTED(due),      COMMITTED(woke_reason),
    COMMITTED(detail),        COMMITTED(adopted),
};
const struct db_call call_commit = DB_CALL("commit", commit_params, commit_columns, 0);

/* ---- services ---- */

#define SERVICE(member) DB_SCALAR(struct fence_service_in, member)
static const struct db_param service_acquire_params[] = {SERVICE(name), SERVICE(owner),
                                                         SERVICE(ttl_ms)};
static const struct db_param service_renew_params[] = {SERVICE(name), SERVICE(owner),
                                                       SERVICE(epoch), SERVICE(ttl_ms)};
static const struct db_param service_release_params[] = {SERVICE(name), SERVICE(owner),
                                                         SERVICE(epoch)};
static const struct db_column service_columns[] = {
    DB_COLUMN(struct fence_service, outcome),
    DB_COLUMN(struct fence_service, epoch),
};
const struct db_call call_service_acquire =
    DB_CALL("service_acquire", service_acquire_params, service_columns, 0);
const struct db_call call_service_renew =
    DB_CALL("service_renew", service_renew_params, service_columns, 0);
const struct db_call call_service_release =
    DB_CALL("service_release", service_release_params, service_columns, 0);

static const struct db_param sweep_params[] = {
    DB_SCALAR(struct fence_sweep_in, owner),
    DB_SCALAR(struct fence_sweep_in, epoch),
    DB_SCALAR(struct fence_sweep_in, limit),
};
#define SWEPT(member) DB_COLUMN(struct fence_sweep, member)
static const struct db_column sweep_columns[] = {
    SWEPT(outcome),          SWEPT(leases_expired),
    SWEPT(timers_due),       SWEPT(deadlines),
    SWEPT(exhausted),        SWEPT(claims_expired),
    SWEPT(requests_missing), SWEPT(tokens_pruned),
    SWEPT(escalated),        SWEPT(due),
    SWEPT(missing),          SWEPT(doubtful),
};
const struct db_call call_sweep = DB_CALL("sweep", sweep_params, sweep_columns, 0);

#define DECLARE(parameter, member) DB_ITEM_AS(parameter, 0, struct fence_declaration, member)
static const struct db_param register_params[] = {
    DECLARE("kind", kind),
    DECLARE("names", name),
    DECLARE("digests", digest),
    DECLARE("declarations", declaration),
    DB_SCALAR(struct fence_register_in, pod),
};
static const struct db_column register_columns[] = {
    DB_COLUMN(struct fence_registered, item),
    DB_COLUMN(struct fence_registered, outcome),
};
const struct db_call call_register = DB_CALL("register", register_params, register_columns, 0);

static const struct db_param known_params[] = {DB_SCALAR(struct fence_known_in, kind)};
static const struct db_column known_columns[] = {
    DB_COLUMN(struct fence_known, name),
    DB_COLUMN(struct fence_known, digest),
    DB_COLUMN(struct fence_known, declaration),
    DB_COLUMN(struct fence_known, seen_at),
};
const struct db_call call_known = DB_CALL("known", known_params, known_columns, DB_READ);

#define GATE(member) DB_COLUMN(struct fence_gate, member)
static const struct db_column gate_columns[] = {
    GATE(open), GATE(reason), GATE(system_identifier), GATE(timeline), GATE(mode),
};
const struct db_call call_gate_status = DB_CALL_BARE("gate_status", gate_columns, DB_READ);

static const struct db_column backlog_columns[] = {DB_COLUMN(struct fence_backlog, ready)};
static const struct db_param backlog_params[] = {DB_SCALAR(struct fence_backlog_in, limit)};
const struct db_call call_backlog = DB_CALL("backlog", backlog_params, backlog_columns, DB_READ);

static const struct db_column clock_columns[] = {DB_COLUMN(struct fence_clock, clock)};
const struct db_call call_clock = DB_CALL_BARE("server_facts", clock_columns, DB_READ);

const struct db_call *const fence_calls[] = {
    &call_submit,        &call_cancel,          &call_signal,   &call_retry,
    &call_acquire,       &call_claim,           &call_renew,    &call_release,
    &call_commit,        &call_sweep,           &call_register, &call_service_acquire,
    &call_service_renew, &call_service_release, &call_known,    &call_gate_status,
    &call_backlog,       &call_clock,
};
const size_t fence_call_n = COUNT_OF(fence_calls);

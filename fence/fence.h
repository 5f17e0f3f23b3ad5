/* fence: the protocol's verbs, one call each, over one database connection (a lane).
 *
 * Purpose    Each verb is one function of the interface schema, called once with a batch of items:
 * its arrays mirror the SQL function one to one, and the database's answer is repeated as an
 * outcome per item. Nothing here improves on that answer: no cached lease, no clock that decides
 * validity. Ownership  Everything a verb returns lives in the caller's arena. Spans given in are
 * borrowed for the call. Threads    A lane is used by one thread at a time; a pod has few lanes,
 * independent of its number of workers. Only fence_interrupt() may be called from another thread.
 * Errors     A verb returns the outcome of the whole batch. OUTCOME_OK: ret_results[i] answers
 * items[i], whatever that answer is. Class RETRY: nothing happened (db_retry only after the budget
 * for 40001 and 40P01 is spent). Class UNKNOWN: it may have happened: repeat it with the same
 * identity (commit_id, token, request key) before anything that depends on it; fence never repeats
 * it by itself. OUTCOME_ITEM_ERROR: an item's data broke the batch and nothing happened: split it
 * in halves down to that item. fence_error() has the server's words. Never      sleeps inside a
 * verb except for the retry budget; splits a batch; speaks to Kafka.
 */
#ifndef HOLDFAST_FENCE_FENCE_H
#define HOLDFAST_FENCE_FENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/uuid.h"
#include "config/config.h"
#include "schemas/db.h"

/* ---- the lane
 * ------------------------------------------------------------------------------------------------
 */

struct fence;

/* Makes a lane; connects at its first use. `lane` names it in application_name and in the log
 * (borrowed, static). `call_timeout_ms` bounds each call at the client; 0: the configuration's.
 * Thread: any. */
MUST_CHECK enum outcome fence_open(const struct config *cfg, const char *lane,
                                   int64_t call_timeout_ms, struct fence **ret);
void fence_close(struct fence *f);

/* Waits until the lane has a connection to a writable primary whose functions match this program,
 * trying with back-off for at most `timeout_us`. OUTCOME_OK, or, after all of that time or
 * fence_interrupt(), why not. A verb on an unconnected
 * lane makes one try itself, not more often than the back-off allows, and answers db_down
 * otherwise. */
MUST_CHECK enum outcome fence_connect(struct fence *f, int64_t timeout_us);

/* Ends a wait of fence_connect() and of the retry budget, now and later (the pod stops). Thread:
 * any. */
void fence_interrupt(struct fence *f);

bool fence_is_connected(const struct fence *f);

/* The words of the last error of this lane; empty when there was none. Valid until the next call.
 */
const char *fence_error(const struct fence *f);

/* Any other call of the interface over this lane, with the lane's connection, retry budget and
 * outcomes: for rooms that bring their own descriptor rows (the ledger's verbs in outbox). As
 * db_call(). */
MUST_CHECK enum outcome fence_call(struct fence *f, const struct db_call *call, const void *scalars,
                                   const struct db_group *groups, struct arena *arena,
                                   void *ret_rows, size_t *ret_n);

/* Compares calls that other rooms bring with the database, as fence_connect() does with its own:
 * OUTCOME_OK, db_drift (fence_error() says which call and what differs), or what a call answers. */
MUST_CHECK enum outcome fence_check(struct fence *f, const struct db_call *const calls[], size_t n);

/* ---- records: submit, cancel, retry
 * --------------------------------------------------------------------------- */

struct fence_submit_item {
    struct span tenant, task;
    struct span key; /* request key */
    bool own_key;    /* the producer's own request_id, not the record's position */
    struct span digest, source, by;
    struct json_span reject; /* not NULL: found invalid before SQL; recorded as such */
    struct span handler;
    struct uuid run_id; /* made by the caller, the same when the batch is repeated */
    struct json_span input;
    int32_t priority;
    struct db_time not_before, deadline;
    int32_t max_attempts;
    bool cancel_previous, allow_unsettled;
    struct json_span labels;
    struct span traceparent, tracestate;
};
struct fence_submit_result {
    int32_t item;
    enum outcome outcome;
    struct span first_outcome; /* of the first delivery, when outcome is duplicate */
    struct uuid run_id;
    bool due; /* the run may be acquired now, and would get `epoch` + 1 */
    int64_t epoch;
    struct json_span detail;
};
/* At most one item per task and per request key. */
MUST_CHECK enum outcome fence_submit(struct fence *f, const struct fence_submit_item *items,
                                     size_t n, struct arena *arena,
                                     struct fence_submit_result **ret_results);

struct fence_cancel_item {
    struct span tenant, task; /* task NULL: the run alone names it */
    struct span key;
    bool own_key;
    struct span digest, source, by;
    struct uuid_opt run_id;
    struct span reason;
    struct json_span record; /* kept while it waits for its task */
};
struct fence_cancel_result {
    int32_t item;
    enum outcome outcome;
    struct span first_outcome;
    struct uuid run_id;
    struct span status;
    struct db_texts detached; /* operations that go on after the run's end */
};
MUST_CHECK enum outcome fence_cancel(struct fence *f, const struct fence_cancel_item *items,
                                     size_t n, struct arena *arena,
                                     struct fence_cancel_result **ret_results);

struct fence_signal_item {
    struct span tenant, task; /* task NULL: the run alone names it */
    struct span key;
    bool own_key;
    struct span digest, source, by;
    struct uuid_opt run_id;
    struct span signal_id, name;
    struct json_span payload; /* NULL: none */
    struct json_span record;  /* kept while it waits for its task */
};
struct fence_signal_result {
    int32_t item;
    enum outcome outcome;
    struct span first_outcome;
    struct uuid run_id;
    bool woke; /* the run is due, and would get `epoch` + 1 */
    int64_t epoch;
};
MUST_CHECK enum outcome fence_signal(struct fence *f, const struct fence_signal_item *items,
                                     size_t n, struct arena *arena,
                                     struct fence_signal_result **ret_results);

struct fence_retry_item {
    struct span tenant, task;
    struct span key;
    bool own_key;
    struct span digest, source, by;
    struct uuid_opt run_id; /* the run to retry; absent: the task's last */
    struct uuid new_run_id;
    bool fresh, allow_unsettled;
    struct span reason;
    struct span traceparent, tracestate;
};
struct fence_retry_result {
    int32_t item;
    enum outcome outcome;
    struct span first_outcome;
    struct uuid run_id;
    bool due;
    int64_t epoch;
    struct db_texts
        unsettled; /* what stands in the way, when the outcome is unsettled_operations */
};
MUST_CHECK enum outcome fence_retry(struct fence *f, const struct fence_retry_item *items, size_t n,
                                    struct arena *arena, struct fence_retry_result **ret_results);

/* ---- leases
 * ---------------------------------------------------------------------------------------------------
 */

/* One acquired run with its whole step context, or why a named one was not acquired. */
struct fence_acquired {
    int32_t item;
    enum outcome outcome;
    struct uuid run_id;
    int64_t epoch, revision;
    struct span tenant_id, task_id, handler;
    int32_t attempt, failures;
    bool takeover, started;
    int64_t takeover_ms; /* since the previous lease ran out */
    struct json_span checkpoint, input;
    struct span woke_reason;
    struct json_span operations, signals, earlier;
    struct db_time deadline;
    struct uuid first_run_id;
    struct uuid_opt prev_run_id;
    struct span traceparent, tracestate;
};
struct fence_session {
    struct span owner; /* pod name and token: one execution session */
    struct uuid token; /* the same when the call is repeated after UNKNOWN */
    int64_t ttl_ms;
    const struct span *handlers; /* that this pod serves */
    size_t handler_n;
};
/* By name: ret_rows[i] answers run_ids[i]. */
MUST_CHECK enum outcome fence_acquire(struct fence *f, const struct fence_session *s,
                                      const struct uuid *run_ids, size_t n, struct arena *arena,
                                      struct fence_acquired **ret_rows);
/* From what is ready, priority first: at most `limit` rows. */
MUST_CHECK enum outcome fence_claim(struct fence *f, const struct fence_session *s, int32_t limit,
                                    struct arena *arena, struct fence_acquired **ret_rows,
                                    size_t *ret_n);

struct fence_lease {
    struct uuid run_id;
    struct span owner;
    int64_t epoch;
};
struct fence_renew_result {
    int32_t item;
    enum outcome outcome;
    int64_t current_epoch;
    struct span status;
};
/* At most FENCE_RENEW_MAX a call. */
enum { FENCE_RENEW_MAX = 1000 };
MUST_CHECK enum outcome fence_renew(struct fence *f, const struct fence_lease *leases, size_t n,
                                    int64_t ttl_ms, struct arena *arena,
                                    struct fence_renew_result **ret_results);

struct fence_release_result {
    int32_t item;
    enum outcome outcome;
    int64_t current_epoch;
};
/* graceful: the attempt is given back (it does not count against max_attempts). */
MUST_CHECK enum outcome fence_release(struct fence *f, const struct fence_lease *leases, size_t n,
                                      bool graceful, struct arena *arena,
                                      struct fence_release_result **ret_results);

/* ---- the protected write
 * -------------------------------------------------------------------------------------- */

struct fence_commit_item {
    struct uuid run_id;
    struct span owner;
    int64_t epoch, revision;     /* revision: the one this write expects */
    struct uuid commit_id;       /* of this attempted write, the same when it is repeated */
    struct span digest;          /* of its whole content */
    struct json_span checkpoint; /* NULL: unchanged */
    struct span finish;          /* NULL, "succeeded", "failed" */
    struct json_span output;     /* output, or failure */
    bool release;
    struct span wait_mode, wait_signal;
    struct db_time wait_until;
    struct db_int retry_ms; /* not NULL: the attempt failed; due again after this time */
};
/* The lists below name their item by its 1-based place in the batch. */
struct fence_intent {
    int32_t item;
    struct span operation_id, step;
    int32_t version;
    struct span tool, digest;
    struct json_span body;
    struct span capability;
    struct json_span declaration;
    struct span external_key;
    bool after_settled;
    struct span compensates;
};
struct fence_wait {
    int32_t item;
    struct span operation_id;
};
struct fence_event {
    int32_t item;
    struct span type;
    struct json_span body;
};
struct fence_detach {
    int32_t item;
    struct span operation_id;
};
struct fence_consumed {
    int32_t item;
    struct span signal_id;
};
struct fence_commit_batch {
    const struct fence_commit_item *items;
    size_t item_n;
    const struct fence_intent *intents;
    size_t intent_n;
    const struct fence_wait *waits;
    size_t wait_n;
    const struct fence_event *events;
    size_t event_n;
    const struct fence_detach *detached;
    size_t detached_n;
    const struct fence_consumed *consumed;
    size_t consumed_n;
};
struct fence_commit_result {
    int32_t item;
    enum outcome outcome;
    int64_t revision, current_epoch;
    struct span current_owner;
    struct json_span checkpoint; /* on revision_conflict: what is stored */
    bool due;                    /* the run was released, or its wait is already met */
    struct span woke_reason;
    struct span detail;
    struct db_texts adopted; /* operations answered from an earlier run: not to be sent */
};
/* At most one item per run. */
MUST_CHECK enum outcome fence_commit(struct fence *f, const struct fence_commit_batch *batch,
                                     struct arena *arena, struct fence_commit_result **ret_results);

/* ---- services of a pod
 * ---------------------------------------------------------------------------------------- */

struct fence_service {
    enum outcome outcome;
    int64_t epoch;
};
MUST_CHECK enum outcome fence_service_acquire(struct fence *f, struct span name, struct span owner,
                                              int64_t ttl_ms, struct arena *arena,
                                              struct fence_service *ret);
MUST_CHECK enum outcome fence_service_renew(struct fence *f, struct span name, struct span owner,
                                            int64_t epoch, int64_t ttl_ms, struct arena *arena,
                                            struct fence_service *ret);
MUST_CHECK enum outcome fence_service_release(struct fence *f, struct span name, struct span owner,
                                              int64_t epoch, struct arena *arena,
                                              struct fence_service *ret);

struct fence_sweep {
    enum outcome outcome;
    int32_t leases_expired, timers_due, deadlines, exhausted, claims_expired, requests_missing,
        tokens_pruned, escalated;
    struct db_uuids due;
    struct db_texts doubtful; /* tools of operations that are in doubt since their claim ran out */
    struct json_span missing; /* array of records whose task never came: to be dead-lettered */
};
/* Holder of the service lease "sweep" only. */
MUST_CHECK enum outcome fence_sweep(struct fence *f, struct span owner, int64_t epoch,
                                    int32_t limit, struct arena *arena, struct fence_sweep *ret);

struct fence_declaration {
    struct span kind; /* "handler" or "tool" */
    struct span name, digest;
    struct json_span declaration;
};
/* Declares what this pod serves, so that others can tell a typo from a name that waits for its pod.
 */
MUST_CHECK enum outcome fence_register(struct fence *f, struct span pod,
                                       const struct fence_declaration *items, size_t n,
                                       struct arena *arena);
struct fence_known {
    struct span name, digest;
    struct json_span declaration;
    struct db_time seen_at;
};
/* What any pod ever declared under that kind. */
MUST_CHECK enum outcome fence_known(struct fence *f, struct span kind, struct arena *arena,
                                    struct fence_known **ret, size_t *ret_n);

/* How many runs could be claimed now, by anyone; counted no further than `limit`. */
MUST_CHECK enum outcome fence_backlog(struct fence *f, int64_t limit, struct arena *arena,
                                      int64_t *ret_ready);
/* The database's clock minus this pod's wall clock, within half the time the question takes. */
MUST_CHECK enum outcome fence_clock_offset(struct fence *f, struct arena *arena,
                                           int64_t *ret_offset_us);

struct fence_gate {
    bool open;
    struct span reason;
    int64_t system_identifier, timeline;
    struct span mode;
};
MUST_CHECK enum outcome fence_gate_status(struct fence *f, struct arena *arena,
                                          struct fence_gate *ret);

#endif

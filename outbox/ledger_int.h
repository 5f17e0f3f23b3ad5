// outbox/ledger_int.h: the database calls of dispatcher and relay, one function of the interface
// schema each.
//
// Private to outbox. A call goes over a lane (struct fence) of the calling thread; its outcome is
// the whole call's, each row carries its own. Rows and their texts live in the arena. Nothing here
// retries, except that fence repeats what was clearly rolled back, within its budget.
#ifndef HOLDFAST_OUTBOX_LEDGER_INT_H
#define HOLDFAST_OUTBOX_LEDGER_INT_H

#include "base/arena.h"
#include "base/check.h"
#include "base/outcome.h"
#include "fence/fence.h"
#include "schemas/db.h"

// ---- claims ----

enum ledger_kind {
    LEDGER_FIRST, // claim_operations: prepared, and what was not sent
    LEDGER_AGAIN, // claim_unknown: the same key once more, where the stored declaration allows it
};

struct ledger_claim {
    struct span owner; // of this claim, new for each: outbox->session and the token
    struct uuid token; // of this call; the same when it is asked again
    int32_t limit;
    int64_t ttl_ms;
    struct db_texts tools;         // that have room
    struct db_texts operation_ids; // is_null: the oldest due ones
};

struct ledger_claimed {
    int32_t item;
    enum outcome outcome;
    struct span operation_id;
    struct uuid run_id;
    struct span tenant_id, task_id, step_id;
    int32_t effect_version;
    struct span tool_name, request_digest;
    struct json_span request_body;
    struct span external_key, capability;
    struct json_span declaration;
    int64_t revision;
    int32_t attempt, attempts_not_sent;
    int64_t epoch; // of the run's lease, for the remote's high-water mark
    struct db_time dispatch_until;
    int64_t ttl_ms;
    struct span traceparent, tracestate;
    int64_t timeline;
};

MUST_CHECK enum outcome ledger_claim(struct fence *lane, enum ledger_kind kind,
                                     const struct ledger_claim *claim, struct arena *arena,
                                     struct ledger_claimed **ret_rows, size_t *ret_n);

// ---- records ----

// One answer to one claim; which members count depends on the call.
struct ledger_record {
    struct span operation_id, owner;
    int64_t revision;
    int32_t attempt;
    struct span digest;      // result
    struct span verdict;     // result: succeeded, failed_final
    struct span remote_id;   // result
    struct json_span result; // result
    int64_t retry_ms;        // not_sent, unknown: not again before
    struct json_span evidence;
};

struct ledger_recorded {
    int32_t item;
    enum outcome outcome;
    struct uuid run_id;
    bool woke; // the run became ready by this: a hint is due
    int64_t epoch;
    struct span status; // of the operation now
};

enum ledger_verb { LEDGER_RESULT, LEDGER_NOT_SENT, LEDGER_UNKNOWN };
enum { LEDGER_VERBS = LEDGER_UNKNOWN + 1 };

// At most one record per operation. ret_rows[i] answers records[i] only by its item (1-based).
MUST_CHECK enum outcome ledger_record(struct fence *lane, enum ledger_verb verb,
                                      const struct ledger_record *records, size_t n,
                                      struct arena *arena, struct ledger_recorded **ret_rows,
                                      size_t *ret_n);

// ---- facts ----

// An operation in doubt that this reconciler may ask the remote about.
struct ledger_question {
    int32_t item;
    enum outcome outcome; // claimed, gate_closed, token_used
    struct span operation_id;
    struct uuid run_id;
    struct span tool_name, request_digest;
    struct json_span request_body;
    struct span external_key, remote_id, capability;
    struct json_span declaration;
    int32_t attempt, attempts_not_sent, queries;
    int64_t epoch;
    bool absent_counts; // "not found", said to this claim, is a fact
    int64_t ttl_ms;
    struct span traceparent, tracestate;
};
MUST_CHECK enum outcome ledger_questions(struct fence *lane, struct span owner, struct uuid token,
                                         int32_t limit, int64_t ttl_ms, struct db_texts tools,
                                         struct arena *arena, struct ledger_question **ret_rows,
                                         size_t *ret_n);

// The remote told nothing that settles it.
struct ledger_unanswered {
    struct span operation_id, owner;
    int32_t queries;
    struct db_int retry_ms; // is_null: the ledger's back-off
    struct json_span evidence;
};
MUST_CHECK enum outcome ledger_unanswered(struct fence *lane, const struct ledger_unanswered *items,
                                          size_t n, struct arena *arena);

// A remote's word. attempt is_null: about the operation as such; owner is then the session of a
// question, or NULL.
struct ledger_fact {
    struct span operation_id;
    struct db_int32 attempt;
    struct span owner, digest, verdict, remote_id;
    struct json_span result, evidence;
    struct span by;
};
MUST_CHECK enum outcome ledger_converge(struct fence *lane, const struct ledger_fact *facts,
                                        size_t n, struct arena *arena,
                                        struct ledger_recorded **ret_rows, size_t *ret_n);
extern const struct db_call *const ledger_fact_calls[];
extern const size_t ledger_fact_call_n;

// ---- events ----

struct ledger_shard {
    int32_t shard;
    struct span owner;
    int64_t epoch;
};

struct ledger_event {
    enum outcome outcome; // ok; or a single row: gate_closed, not_holder
    int64_t seq;
    struct uuid event_id;
    struct span tenant_id, task_id;
    struct uuid_opt run_id;
    struct span type;
    int64_t epoch, revision, timeline;
    struct db_time at;
    struct json_span body;
    struct span traceparent, tracestate;
};

MUST_CHECK enum outcome ledger_events_read(struct fence *lane, const struct ledger_shard *shard,
                                           int64_t after, int32_t limit, struct db_int max_age_ms,
                                           struct arena *arena, struct ledger_event **ret_rows,
                                           size_t *ret_n);

// At most LEDGER_DELETE_MAX rows, by both, sequence and identity. batch is_null: what a recovery
// found, which is no batch. *ret_outcome: deleted, not_holder (another pod holds the shard).
enum { LEDGER_DELETE_MAX = 10000 };
MUST_CHECK enum outcome ledger_events_delete(struct fence *lane, const struct ledger_shard *shard,
                                             struct db_int batch, const int64_t *seqs,
                                             const struct uuid *event_ids, size_t n,
                                             struct arena *arena, enum outcome *ret_outcome,
                                             int32_t *ret_deleted);

struct ledger_position {
    int64_t last_batch;
    struct span system_identifier;
    int64_t timeline;
    struct span lsn; // how far its WAL is flushed, in PostgreSQL's text form
    struct db_time oldest_at;
    struct db_int oldest_seq;
    struct db_time server_start;
    bool checked;      // this shard was compared with Kafka since then
    int32_t held_back; // rows older than max_age_ms
};
// max_age_ms NULL: nothing is counted.
MUST_CHECK enum outcome ledger_position(struct fence *lane, int32_t shard, struct db_int max_age_ms,
                                        struct arena *arena, struct ledger_position *ret);

// This shard was compared with what Kafka remembers. *ret_outcome: recorded, stale (the server has
// started again since server_start), not_holder.
MUST_CHECK enum outcome ledger_relay_checked(struct fence *lane, const struct ledger_shard *shard,
                                             struct db_time server_start, struct arena *arena,
                                             enum outcome *ret_outcome);

// This pod relays for the next ttl_ms (NULL: no more); how many shards are its share.
MUST_CHECK enum outcome ledger_relay_share(struct fence *lane, struct span owner,
                                           struct db_int ttl_ms, struct arena *arena,
                                           int32_t *ret_share);

// One small write that is waited for: what was read before it is replicated once it has answered.
MUST_CHECK enum outcome ledger_barrier(struct fence *lane, struct arena *arena);

// Kafka remembers more than this database does, so this database was set back: until an operator opens
// the gate nothing in it counts as not sent.
MUST_CHECK enum outcome ledger_gate_close(struct fence *lane, struct span by, struct span reason,
                                          struct arena *arena);

struct ledger_facts {
    int32_t shards; // of the installation
    struct span failover_mode;
};
MUST_CHECK enum outcome ledger_facts(struct fence *lane, struct arena *arena,
                                     struct ledger_facts *ret);

// All calls of this file, for the check against the live database.
extern const struct db_call *const ledger_calls[];
extern const size_t ledger_call_n;

#endif

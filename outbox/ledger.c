// outbox/ledger.c: descriptor rows of the ledger's and the relay's functions.
#include "outbox/ledger_int.h"
#include "outbox/outbox.h"

// ---- claims ----

#define CLAIM(member) DB_SCALAR(struct ledger_claim, member)
static const struct db_param claim_params[] = {
    CLAIM(owner), CLAIM(token), CLAIM(limit), CLAIM(ttl_ms), CLAIM(tools), CLAIM(operation_ids),
};
#define CLAIMED(member) DB_COLUMN(struct ledger_claimed, member)
static const struct db_column claim_columns[] = {
    CLAIMED(item),
    CLAIMED(outcome),
    CLAIMED(operation_id),
    CLAIMED(run_id),
    CLAIMED(tenant_id),
    CLAIMED(task_id),
    CLAIMED(step_id),
    CLAIMED(effect_version),
    CLAIMED(tool_name),
    CLAIMED(request_digest),
    CLAIMED(request_body),
    CLAIMED(external_key),
    CLAIMED(capability),
    CLAIMED(declaration),
    CLAIMED(revision),
    CLAIMED(attempt),
    CLAIMED(attempts_not_sent),
    CLAIMED(epoch),
    CLAIMED(dispatch_until),
    CLAIMED(ttl_ms),
    CLAIMED(traceparent),
    CLAIMED(tracestate),
    CLAIMED(timeline),
};
static const struct db_call claim_operations =
    DB_CALL("claim_operations", claim_params, claim_columns, 0);
static const struct db_call claim_unknown =
    DB_CALL("claim_unknown", claim_params, claim_columns, 0);

enum outcome ledger_claim(struct fence *lane, enum ledger_kind kind,
                          const struct ledger_claim *claim, struct arena *arena,
                          struct ledger_claimed **ret_rows, size_t *ret_n)
{
    const struct db_call *call = kind == LEDGER_FIRST ? &claim_operations : &claim_unknown;
    return fence_call(lane, call, claim, NULL, arena, ret_rows, ret_n);
}

// ---- records ----

#define RECORD(parameter, member) DB_ITEM_AS(parameter, 0, struct ledger_record, member)
#define RECORD_CLAIM                                                                               \
    RECORD("operation_ids", operation_id), RECORD("owners", owner), RECORD("revisions", revision), \
        RECORD("attempts", attempt)
static const struct db_param result_params[] = {
    RECORD_CLAIM,
    RECORD("digests", digest),
    RECORD("verdicts", verdict),
    RECORD("remote_ids", remote_id),
    RECORD("results", result),
    RECORD("evidence", evidence),
};
static const struct db_param open_params[] = {
    RECORD_CLAIM,
    RECORD("retry_ms", retry_ms),
    RECORD("evidence", evidence),
};
#define RECORDED(member) DB_COLUMN(struct ledger_recorded, member)
static const struct db_column recorded_columns[] = {
    RECORDED(item), RECORDED(outcome), RECORDED(run_id),
    RECORDED(woke), RECORDED(epoch),   RECORDED(status),
};
static const struct db_call record_calls[LEDGER_VERBS] = {
    [LEDGER_RESULT] = DB_CALL("record_result", result_params, recorded_columns, 0),
    [LEDGER_NOT_SENT] = DB_CALL("record_not_sent", open_params, recorded_columns, 0),
    [LEDGER_UNKNOWN] = DB_CALL("record_unknown", open_params, recorded_columns, 0),
};

enum outcome ledger_record(struct fence *lane, enum ledger_verb verb,
                           const struct ledger_record *records, size_t n, struct arena *arena,
                           struct ledger_recorded **ret_rows, size_t *ret_n)
{
    const struct db_group group = {.items = records, .n = n};
    return fence_call(lane, &record_calls[verb], NULL, &group, arena, ret_rows, ret_n);
}

// ---- events ----

struct events_read_in {
    int32_t shard;
    struct span owner;
    int64_t epoch, after;
    int32_t limit;
    struct db_int max_age_ms;
};
#define READ(member) DB_SCALAR(struct events_read_in, member)
static const struct db_param events_read_params[] = {
    READ(shard), READ(owner), READ(epoch), READ(after), READ(limit), READ(max_age_ms),
};
#define EVENT(member) DB_COLUMN(struct ledger_event, member)
static const struct db_column events_read_columns[] = {
    EVENT(outcome), EVENT(seq),  EVENT(event_id),    EVENT(tenant_id),  EVENT(task_id),
    EVENT(run_id),  EVENT(type), EVENT(epoch),       EVENT(revision),   EVENT(timeline),
    EVENT(at),      EVENT(body), EVENT(traceparent), EVENT(tracestate),
};
static const struct db_call events_read =
    DB_CALL("events_read", events_read_params, events_read_columns, DB_READ);

enum outcome ledger_events_read(struct fence *lane, const struct ledger_shard *shard, int64_t after,
                                int32_t limit, struct db_int max_age_ms, struct arena *arena,
                                struct ledger_event **ret_rows, size_t *ret_n)
{
    const struct events_read_in in = {.shard = shard->shard,
                                      .owner = shard->owner,
                                      .epoch = shard->epoch,
                                      .after = after,
                                      .limit = limit,
                                      .max_age_ms = max_age_ms};
    return fence_call(lane, &events_read, &in, NULL, arena, ret_rows, ret_n);
}

struct events_delete_in {
    int32_t shard;
    struct span owner;
    int64_t epoch;
    struct db_int batch;
    struct db_ints seqs;
    struct db_uuids event_ids;
};
struct events_delete_out {
    enum outcome outcome;
    int32_t deleted;
};
#define DELETE(member) DB_SCALAR(struct events_delete_in, member)
static const struct db_param events_delete_params[] = {
    DELETE(shard), DELETE(owner), DELETE(epoch), DELETE(batch), DELETE(seqs), DELETE(event_ids),
};
#define DELETED(member) DB_COLUMN(struct events_delete_out, member)
static const struct db_column events_delete_columns[] = {DELETED(outcome), DELETED(deleted)};
static const struct db_call events_delete =
    DB_CALL("events_delete", events_delete_params, events_delete_columns, 0);

enum outcome ledger_events_delete(struct fence *lane, const struct ledger_shard *shard,
                                  struct db_int batch, const int64_t *seqs,
                                  const struct uuid *event_ids, size_t n, struct arena *arena,
                                  enum outcome *ret_outcome, int32_t *ret_deleted)
{
    const struct events_delete_in in = {
        .shard = shard->shard,
        .owner = shard->owner,
        .epoch = shard->epoch,
        .batch = batch,
        .seqs = {.v = seqs, .n = n},
        .event_ids = {.v = event_ids, .n = n},
    };
    struct events_delete_out *rows = NULL;
    size_t rows_n = 0;
    enum outcome outcome = fence_call(lane, &events_delete, &in, NULL, arena, &rows, &rows_n);
    if (outcome == OUTCOME_OK && rows_n != 1) {
        return OUTCOME_DB_DRIFT;
    }
    if (outcome == OUTCOME_OK) {
        *ret_outcome = rows[0].outcome;
        *ret_deleted = rows[0].deleted;
    }
    return outcome;
}

struct position_in {
    int32_t shard;
    struct db_int max_age_ms;
};
static const struct db_param position_params[] = {DB_SCALAR(struct position_in, shard),
                                                  DB_SCALAR(struct position_in, max_age_ms)};
#define POSITION(member) DB_COLUMN(struct ledger_position, member)
static const struct db_column position_columns[] = {
    POSITION(last_batch),   POSITION(system_identifier), POSITION(timeline),
    POSITION(lsn),          POSITION(oldest_at),         POSITION(oldest_seq),
    POSITION(server_start), POSITION(checked),           POSITION(held_back),
};
static const struct db_call relay_position =
    DB_CALL("relay_position", position_params, position_columns, DB_READ);

enum outcome ledger_position(struct fence *lane, int32_t shard, struct db_int max_age_ms,
                             struct arena *arena, struct ledger_position *ret)
{
    const struct position_in in = {.shard = shard, .max_age_ms = max_age_ms};
    struct ledger_position *rows = NULL;
    size_t n = 0;
    enum outcome outcome = fence_call(lane, &relay_position, &in, NULL, arena, &rows, &n);
    if (outcome == OUTCOME_OK && n != 1) {
        return OUTCOME_DB_DRIFT;
    }
    if (outcome == OUTCOME_OK) {
        *ret = rows[0];
    }
    return outcome;
}

// ---- durability, gate, facts ----

struct only_outcome {
    enum outcome outcome;
};
static const struct db_column only_outcome_columns[] = {DB_COLUMN(struct only_outcome, outcome)};
static const struct db_call barrier = DB_CALL_BARE("barrier", only_outcome_columns, 0);

enum outcome ledger_barrier(struct fence *lane, struct arena *arena)
{
    struct only_outcome *rows = NULL;
    size_t n = 0;
    return fence_call(lane, &barrier, NULL, NULL, arena, &rows, &n);
}

struct relay_checked_in {
    int32_t shard;
    struct span owner;
    int64_t epoch;
    struct db_time server_start;
};
#define CHECKED(member) DB_SCALAR(struct relay_checked_in, member)
static const struct db_param relay_checked_params[] = {CHECKED(shard), CHECKED(owner),
                                                       CHECKED(epoch), CHECKED(server_start)};
static const struct db_call relay_checked =
    DB_CALL("relay_checked", relay_checked_params, only_outcome_columns, 0);

enum outcome ledger_relay_checked(struct fence *lane, const struct ledger_shard *shard,
                                  struct db_time server_start, struct arena *arena,
                                  enum outcome *ret_outcome)
{
    const struct relay_checked_in in = {.shard = shard->shard,
                                        .owner = shard->owner,
                                        .epoch = shard->epoch,
                                        .server_start = server_start};
    struct only_outcome *rows = NULL;
    size_t n = 0;
    enum outcome outcome = fence_call(lane, &relay_checked, &in, NULL, arena, &rows, &n);
    if (outcome == OUTCOME_OK && n != 1) {
        return OUTCOME_DB_DRIFT;
    }
    if (outcome == OUTCOME_OK) {
        *ret_outcome = rows[0].outcome;
    }
    return outcome;
}

struct relay_share_in {
    struct span owner;
    struct db_int ttl_ms;
};
struct relay_share_out {
    int32_t share;
};
static const struct db_param relay_share_params[] = {DB_SCALAR(struct relay_share_in, owner),
                                                     DB_SCALAR(struct relay_share_in, ttl_ms)};
static const struct db_column relay_share_columns[] = {DB_COLUMN(struct relay_share_out, share)};
static const struct db_call relay_share =
    DB_CALL("relay_share", relay_share_params, relay_share_columns, 0);

enum outcome ledger_relay_share(struct fence *lane, struct span owner, struct db_int ttl_ms,
                                struct arena *arena, int32_t *ret_share)
{
    const struct relay_share_in in = {.owner = owner, .ttl_ms = ttl_ms};
    struct relay_share_out *rows = NULL;
    size_t n = 0;
    enum outcome outcome = fence_call(lane, &relay_share, &in, NULL, arena, &rows, &n);
    if (outcome == OUTCOME_OK && n != 1) {
        return OUTCOME_DB_DRIFT;
    }
    if (outcome == OUTCOME_OK) {
        *ret_share = rows[0].share;
    }
    return outcome;
}

struct gate_close_in {
    struct span by, reason;
    bool set_back;
};
static const struct db_param gate_close_params[] = {DB_SCALAR(struct gate_close_in, by),
                                                    DB_SCALAR(struct gate_close_in, reason),
                                                    DB_SCALAR(struct gate_close_in, set_back)};
static const struct db_call gate_close =
    DB_CALL("gate_close", gate_close_params, only_outcome_columns, 0);

enum outcome ledger_gate_close(struct fence *lane, struct span by, struct span reason,
                               struct arena *arena)
{
    const struct gate_close_in in = {.by = by, .reason = reason, .set_back = true};
    struct only_outcome *rows = NULL;
    size_t n = 0;
    return fence_call(lane, &gate_close, &in, NULL, arena, &rows, &n);
}

static const struct db_column facts_columns[] = {DB_COLUMN(struct ledger_facts, shards),
                                                 DB_COLUMN(struct ledger_facts, failover_mode)};
static const struct db_call server_facts = DB_CALL_BARE("server_facts", facts_columns, DB_READ);

enum outcome ledger_facts(struct fence *lane, struct arena *arena, struct ledger_facts *ret)
{
    struct ledger_facts *rows = NULL;
    size_t n = 0;
    enum outcome outcome = fence_call(lane, &server_facts, NULL, NULL, arena, &rows, &n);
    if (outcome == OUTCOME_OK && n != 1) {
        return OUTCOME_DB_DRIFT;
    }
    if (outcome == OUTCOME_OK) {
        *ret = rows[0];
    }
    return outcome;
}

const struct db_call *const ledger_calls[] = {
    &claim_operations,
    &claim_unknown,
    &record_calls[LEDGER_RESULT],
    &record_calls[LEDGER_NOT_SENT],
    &record_calls[LEDGER_UNKNOWN],
    &events_read,
    &events_delete,
    &relay_position,
    &relay_checked,
    &relay_share,
    &barrier,
    &gate_close,
    &server_facts,
};
const size_t ledger_call_n = COUNT_OF(ledger_calls);

enum outcome outbox_check(struct fence *lane)
{
    return fence_check(lane, ledger_calls, ledger_call_n);
}

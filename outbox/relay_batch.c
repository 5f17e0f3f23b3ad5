// outbox/relay_batch.c: one batch of a shard: read, publish, delete. At most one batch is between
// Kafka's commit and the durable delete, and its identity is in Kafka in the same transaction.
#include "outbox/relay_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "schemas/result.h"

enum {
    VALUE_BYTES_MAX =
        960000, // of a published event; Kafka's own default ceiling is 1,000,000 with headers
    BATCH_BYTES_WANTED = 8 << 20, // of the bodies of one batch
    LATER_MS = 200,
    GATE_CLOSED_MS = 500,
    BLOCKED_MS = 5000,
    DELETE_AGAIN_MS = 100,
    MARK_US = 60 * 1000 * 1000,
    TYPES_COUNTED = 16,
};

// ---- reading ----

// A sequence is drawn before its transaction commits, so a smaller one may still appear. The mark
// is what was the highest a minute ago, and once a minute a read ignores it.
static int64_t read_behind(struct shard *s)
{
    int64_t now = clock_mono_us();
    if (now >= s->mark_us) {
        s->low_mark = s->marked;
        s->marked = s->highest;
        s->mark_us = now + MARK_US;
        s->whole_once = true;
    }
    int64_t after = s->whole_once ? 0 : s->low_mark;
    s->whole_once = false;
    return after;
}

// Grows while whole batches go out, shrinks when their bodies are large.
static void fit_limit(struct shard *s, const struct ledger_event *rows, size_t n, int64_t batch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += rows[i].body.text.n;
    }
    if (bytes > BATCH_BYTES_WANTED) {
        s->limit = (int32_t)(n * BATCH_BYTES_WANTED / bytes);
        s->limit = s->limit < 1 ? 1 : s->limit;
    } else if (n == (size_t)s->limit) {
        s->limit = (int64_t)s->limit * 2 < batch ? s->limit * 2 : (int32_t)batch;
    }
}

// The database's identity as of now; another one than at start (a promoted standby), or a server
// that has started again (perhaps from an older copy), needs the start procedure.
static enum turn look_at_database(struct relay_lane *lane, struct shard *s,
                                  struct ledger_position *ret)
{
    enum outcome outcome = ledger_position(lane->lane, s->number, DB_INT_NULL, lane->arena, ret);
    if (outcome != OUTCOME_OK) {
        shard_later(s, LATER_MS);
        return TURN_LATER;
    }
    if (ret->timeline != s->timeline || ret->server_start.us != s->server_start_us ||
        !span_eq_text(ret->system_identifier, s->system_identifier)) {
        return TURN_RESTART;
    }
    return TURN_WORKED;
}

static enum turn read_refused(struct relay_lane *lane, struct shard *s, enum outcome outcome)
{
    if (outcome == OUTCOME_NOT_HOLDER) {
        return shard_regain(lane, s);
    }
    atomic_store(&lane->relay->outbox->gate_closed, true);
    shard_later(s, GATE_CLOSED_MS);
    struct ledger_position position; // a server that has started again waits for the comparison
    return look_at_database(lane, s, &position) == TURN_RESTART ? TURN_RESTART : TURN_LATER;
}

// ---- what is published ----

static bool is_omitted(const struct shard *s, int64_t seq)
{
    for (size_t i = 0; i < s->omitted_n; i++) {
        if (s->omitted[i] == seq) {
            return true;
        }
    }
    return false;
}

static void omit(struct shard *s, int64_t seq)
{
    if (!is_omitted(s, seq)) {
        s->omitted = memory_resize(s->omitted, s->omitted_n + 1, sizeof *s->omitted);
        s->omitted[s->omitted_n++] = seq;
    }
}

static void forget_omitted(struct shard *s)
{
    free(s->omitted);
    s->omitted = NULL;
    s->omitted_n = 0;
}

static struct broker_message message_of(struct relay_lane *lane, const struct shard *s,
                                        const struct ledger_event *row)
{
    const struct relay *relay = lane->relay;
    const struct result_event event = {
        .event_id = row->event_id,
        .tenant_id = row->tenant_id,
        .task_id = row->task_id,
        .has_run = !row->run_id.is_null,
        .run_id = row->run_id.v,
        .type = row->type,
        .epoch = row->epoch,
        .revision = row->revision,
        .timeline = row->timeline,
        .at_us = row->at.us,
        .body = row->body.text,
        .traceparent = row->traceparent,
        .tracestate = row->tracestate,
    };
    const struct result_options options = {
        .encoding = relay->outbox->config->results.encoding == ENCODING_MSGPACK ? RESULT_MSGPACK
                                                                                : RESULT_JSON,
        .source = span_of(relay->source),
        .max_bytes = VALUE_BYTES_MAX,
        .omit_body = is_omitted(s, row->seq),
    };
    struct result result;
    result_encode(&event, &options, lane->arena, &result);
    struct broker_header *headers = arena_array(lane->arena, result.n_headers + 1, sizeof *headers);
    for (size_t i = 0; i < result.n_headers; i++) {
        headers[i] = (struct broker_header){.name = result.headers[i].name,
                                            .value = result.headers[i].value};
    }
    return (struct broker_message){
        .topic = relay->results_topic,
        .partition = BROKER_BY_KEY,
        .key = result.key,
        .value = result.value,
        .headers = headers,
        .header_count = result.n_headers,
    };
}

static struct broker_message identity_of(struct relay_lane *lane, const struct shard *s,
                                         const struct ledger_position *position,
                                         const struct ledger_event *rows, size_t n)
{
    struct relay_pair *pairs = arena_array(lane->arena, n, sizeof *pairs);
    for (size_t i = 0; i < n; i++) {
        pairs[i] = (struct relay_pair){.seq = rows[i].seq, .event_id = rows[i].event_id};
    }
    const struct relay_identity identity = {
        .shard = s->number,
        .batch = s->batch + 1,
        .system_identifier = position->system_identifier,
        .timeline = position->timeline,
        .lsn = position->lsn,
        .pairs = pairs,
        .n_pairs = n,
    };
    return (struct broker_message){
        .topic = lane->relay->relay_topic,
        .partition = s->number,
        .key = span_of(arena_printf(lane->arena, "%d", (int)s->number)),
        .value = relay_identity_encode(&identity, lane->arena),
    };
}

static void count_published(struct relay_lane *lane, const struct ledger_event *rows, size_t n)
{
    struct span types[TYPES_COUNTED];
    uint64_t counts[TYPES_COUNTED];
    size_t types_n = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < types_n && !span_eq(types[at], rows[i].type)) {
            at++;
        }
        if (at == TYPES_COUNTED) {
            at--; // the metric lumps rare types together as well
        } else if (at == types_n) {
            types[types_n] = rows[i].type;
            counts[types_n++] = 0;
        }
        counts[at]++;
    }
    for (size_t at = 0; at < types_n; at++) {
        metric_add(METRIC_EVENTS_PUBLISHED, LABELS(arena_dup_text(lane->arena, types[at])),
                   counts[at]);
    }
}

// ---- exactly once: one Kafka transaction ----

static enum turn unclear(struct shard *s, const char *step, enum broker_result result,
                         const struct broker_error *error)
{
    metric_add(METRIC_RELAY_BATCHES, LABELS(broker_result_word(result)), 1);
    log_event(LOG_WARN, "relay.restarts_shard", LOG_INT("shard", s->number), LOG_TEXT("step", step),
              LOG_TEXT("result", broker_result_word(result)), LOG_TEXT("detail", error->text));
    shard_later(s, LATER_MS);
    return TURN_RESTART;
}

// Clearly aborted: nothing of it is visible, the same rows are read again. What the broker refuses
// may be too much together (its limit counts what travels in one piece): fewer at a time, and what
// it refuses alone goes without body.
static enum turn aborted(struct shard *s, size_t n, const char *step,
                         const struct broker_error *error)
{
    uint64_t seq = 0;
    bool refused = broker_txn_refused(s->txn, &seq);
    if (!refused) {
        shard_later(s, LATER_MS);
    } else if (n > 1) {
        s->limit = (int32_t)(n / 2);
    } else if (!is_omitted(s, (int64_t)seq)) {
        omit(s, (int64_t)seq);
    } else { // not even without its body: the topic's limit is below what any event needs
        log_event(LOG_ERROR, "relay.event_refused", LOG_INT("shard", s->number),
                  LOG_INT("seq", seq), LOG_TEXT("detail", error->text));
        shard_later(s, BLOCKED_MS);
    }
    metric_add(METRIC_RELAY_BATCHES, LABELS("aborted"), 1);
    log_event(LOG_WARN, "relay.batch_aborted", LOG_INT("shard", s->number), LOG_TEXT("step", step),
              LOG_INT("events", n), LOG_BOOL("refused", refused), LOG_TEXT("detail", error->text));
    return TURN_RESTART;
}

static enum turn abandon(struct relay_lane *lane, struct shard *s, size_t n, const char *step,
                         enum broker_result result, const struct broker_error *error)
{
    if (result == BROKER_UNKNOWN || result == BROKER_FENCED) {
        return unclear(s, step, result, error);
    }
    struct broker_error abort_error = {.text = ""};
    int timeout_ms = (int)lane->relay->outbox->config->relay.transaction_timeout_ms;
    enum broker_result abort = broker_txn_abort(s->txn, timeout_ms, &abort_error);
    if (abort != BROKER_OK) {
        return unclear(s, "abort", abort, &abort_error);
    }
    return aborted(s, n, step, error);
}

static enum broker_result produce_rows(struct relay_lane *lane, struct shard *s,
                                       const struct ledger_event *rows, size_t n,
                                       struct broker_error *error)
{
    for (size_t i = 0; i < n; i++) {
        struct broker_message message = message_of(lane, s, &rows[i]);
        enum broker_result result =
            broker_txn_produce(s->txn, &message, (uint64_t)rows[i].seq, error);
        if (result == BROKER_REFUSED && !is_omitted(s, rows[i].seq)) {
            omit(s, rows[i].seq);
            message = message_of(lane, s, &rows[i]);
            result = broker_txn_produce(s->txn, &message, (uint64_t)rows[i].seq, error);
        }
        if (result != BROKER_OK) {
            return result;
        }
    }
    return BROKER_OK;
}

static enum turn publish_transaction(struct relay_lane *lane, struct shard *s,
                                     const struct ledger_position *position,
                                     const struct ledger_event *rows, size_t n)
{
    struct broker_error error = {.text = ""};
    enum broker_result result = broker_txn_begin(s->txn, &error);
    if (result != BROKER_OK) {
        return unclear(s, "begin", result, &error);
    }
    result = produce_rows(lane, s, rows, n, &error);
    if (result != BROKER_OK) {
        return abandon(lane, s, n, "produce", result, &error);
    }
    struct broker_message identity = identity_of(lane, s, position, rows, n);
    result = broker_txn_produce(s->txn, &identity, 0, &error);
    if (result != BROKER_OK) {
        return abandon(lane, s, n, "identity", result, &error);
    }
    STOP_POINT("relay.before_kafka_commit");
    int timeout_ms = (int)lane->relay->outbox->config->relay.transaction_timeout_ms;
    result = broker_txn_commit(s->txn, timeout_ms, &error);
    switch (result) {
    case BROKER_OK:
        return TURN_WORKED;
    case BROKER_RETRY:
        return aborted(s, n, "commit", &error);
    case BROKER_REFUSED:
    case BROKER_UNKNOWN:
    case BROKER_FENCED:
        return unclear(s, "commit", result, &error);
    }
    CHECK(false);
    return TURN_LATER;
}

// ---- at least once: for brokers without transactions ----

struct delivery {
    struct shard *shard;
    size_t failed;
};

struct delivered_row {
    struct delivery *delivery;
    int64_t seq;
};

static void on_delivered(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                         const char *text)
{
    (void)partition, (void)offset, (void)text;
    const struct delivered_row *row = opaque;
    if (result == BROKER_REFUSED) {
        omit(row->delivery->shard, row->seq);
    }
    row->delivery->failed += result == BROKER_OK ? 0 : 1;
}

static bool open_producer(struct relay_lane *lane, struct broker_error *error)
{
    return lane->producer != NULL ||
           broker_producer_open(lane->relay->outbox->broker, &lane->producer, error) == BROKER_OK;
}

static enum turn publish_plainly(struct relay_lane *lane, struct shard *s,
                                 const struct ledger_event *rows, size_t n)
{
    struct broker_error error = {.text = ""};
    struct delivery delivery = {.shard = s};
    struct delivered_row *tracked = arena_array(lane->arena, n, sizeof *tracked);
    int timeout_ms = (int)lane->relay->outbox->config->relay.transaction_timeout_ms;
    bool good = open_producer(lane, &error);
    for (size_t i = 0; i < n && good; i++) {
        tracked[i] = (struct delivered_row){.delivery = &delivery, .seq = rows[i].seq};
        struct broker_message message = message_of(lane, s, &rows[i]);
        enum broker_result result =
            broker_produce(lane->producer, &message, on_delivered, &tracked[i], &error);
        if (result == BROKER_REFUSED && !is_omitted(s, rows[i].seq)) {
            omit(s, rows[i].seq);
            message = message_of(lane, s, &rows[i]);
            result = broker_produce(lane->producer, &message, on_delivered, &tracked[i], &error);
        }
        good = result == BROKER_OK;
    }
    if (lane->producer != NULL && broker_flush(lane->producer, timeout_ms) != BROKER_OK) {
        broker_producer_close(lane->producer); // its callbacks speak of this frame
        lane->producer = NULL;
        good = false;
    }
    if (!good || delivery.failed > 0) {
        log_event(LOG_WARN, "relay.batch_repeated", LOG_INT("shard", s->number),
                  LOG_INT("failed", delivery.failed), LOG_TEXT("detail", error.text));
        shard_later(s, LATER_MS);
        return TURN_LATER;
    }
    return TURN_WORKED;
}

// ---- deleting ----

enum turn shard_delete(struct relay_lane *lane, struct shard *s, struct db_int batch,
                       const int64_t *seqs, const struct uuid *event_ids, size_t n)
{
    for (bool told = false;; told = true) {
        struct ledger_shard holder = shard_holder(lane, s);
        enum outcome answer = OUTCOME_OK;
        int32_t deleted = 0;
        enum outcome outcome = ledger_events_delete(lane->lane, &holder, batch, seqs, event_ids, n,
                                                    lane->arena, &answer, &deleted);
        if (outcome == OUTCOME_OK && answer == OUTCOME_DELETED) {
            return TURN_WORKED;
        }
        if (outcome == OUTCOME_OK) {
            enum turn regained = shard_regain(lane, s);
            if (regained != TURN_WORKED) {
                return regained;
            }
            continue;
        }
        if (!told) {
            log_event(LOG_WARN, "relay.delete_again", LOG_INT("shard", s->number),
                      LOG_OUTCOME(outcome), LOG_TEXT("detail", fence_error(lane->lane)));
        }
        if (atomic_load(&lane->relay->stop)) {
            return TURN_LATER;
        }
        (void)!fence_connect(lane->lane, DELETE_AGAIN_MS * CLOCK_MS);
        if (outcome_class(outcome) == CLASS_BUG) {
            shard_later(s, LATER_MS);
            return TURN_RESTART; // never publish again what may still be there: the start procedure
                                 // looks first
        }
        lane_alive(lane);
    }
}

static enum turn delete_published(struct relay_lane *lane, struct shard *s,
                                  const struct ledger_event *rows, size_t n)
{
    int64_t *seqs = arena_array(lane->arena, n, sizeof *seqs);
    struct uuid *event_ids = arena_array(lane->arena, n, sizeof *event_ids);
    for (size_t i = 0; i < n; i++) {
        seqs[i] = rows[i].seq;
        event_ids[i] = rows[i].event_id;
    }
    STOP_POINT("relay.after_kafka_commit");
    enum turn turn = shard_delete(lane, s, DB_INT(s->batch + 1), seqs, event_ids, n);
    if (turn == TURN_WORKED) {
        s->batch++;
        forget_omitted(s);
        STOP_POINT("relay.after_delete");
    } else if (turn == TURN_LATER) {
        return TURN_RESTART;
    }
    return turn;
}

// ---- the turn ----

static enum turn publish_rows(struct relay_lane *lane, struct shard *s,
                              const struct ledger_event *rows, size_t n)
{
    int64_t begun_us = clock_mono_us();
    struct ledger_position position;
    enum turn turn = look_at_database(lane, s, &position);
    if (turn != TURN_WORKED) {
        return turn;
    }
    STOP_POINT("relay.after_read");
    if (atomic_load(&lane->relay->strict) &&
        ledger_barrier(lane->lane, lane->arena) != OUTCOME_OK) {
        shard_later(s, LATER_MS);
        return TURN_LATER;
    }
    turn = relay_exactly_once(lane->relay) ? publish_transaction(lane, s, &position, rows, n)
                                           : publish_plainly(lane, s, rows, n);
    if (turn != TURN_WORKED) {
        return turn;
    }
    turn = delete_published(lane, s, rows, n);
    fit_limit(s, rows, n, lane->relay->outbox->config->relay.batch);
    metric_add(METRIC_RELAY_BATCHES, LABELS("committed"), 1);
    metric_observe(METRIC_RELAY_BATCH_SECONDS, NO_LABELS,
                   (double)(clock_mono_us() - begun_us) / 1e6);
    count_published(lane, rows, n);
    return turn;
}

enum turn shard_publish(struct relay_lane *lane, struct shard *s)
{
    shard_count_held_back(lane, s);
    struct ledger_shard holder = shard_holder(lane, s);
    struct ledger_event *rows = NULL;
    size_t n = 0;
    enum outcome outcome = ledger_events_read(lane->lane, &holder, read_behind(s), s->limit,
                                              relay_max_age(lane->relay), lane->arena, &rows, &n);
    if (outcome != OUTCOME_OK) {
        shard_later(s, LATER_MS);
        return TURN_LATER;
    }
    if (n > 0 && rows[0].outcome != OUTCOME_OK) {
        return read_refused(lane, s, rows[0].outcome);
    }
    atomic_store(&lane->relay->outbox->gate_closed, false);
    if (n == 0) {
        return TURN_IDLE;
    }
    if (rows[n - 1].seq > s->highest) {
        s->highest = rows[n - 1].seq;
    }
    return publish_rows(lane, s, rows, n);
}

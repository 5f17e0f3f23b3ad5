// outbox/relay_start.c: what happens before a shard is published: finding out what was published
// before.
//
// Ordinary start: the last identity in the shard's own partition names the one batch that may not
// have been deleted. Recovery start: that identity is missing, or does not belong to this
// database's history; then the result topic is the memory, and every row whose event is found there
// is deleted.
#include "outbox/relay_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "schemas/result.h"

enum {
    OPEN_MS = 15000,
    LAST_MS = 15000,
    SCAN_MS = 600000,
    LATER_MS = 500,
    BLOCKED_MS = 5000, // by the gate or by another history: until a person acts
    ROWS_A_READ = 5000,
    DELETE_CHUNK = 5000,
    HEADERS_MAX = 64,
};

// The database's and the pods' clocks differ, and a batch is published some time after its rows
// were written; they are never published before.
static const int64_t margin_ms = 5 * 60 * 1000;

static enum turn later(struct shard *s, const char *step, const char *detail)
{
    log_event(LOG_WARN, "relay.start_waits", LOG_INT("shard", s->number), LOG_TEXT("step", step),
              LOG_TEXT("detail", detail));
    shard_later(s, LATER_MS);
    return TURN_LATER;
}

// ---- what Kafka and the database remember ----

struct memory {
    bool found;
    struct relay_identity identity;
    struct ledger_position position;
};

static enum turn open_transactions(struct relay_lane *lane, struct shard *s)
{
    struct broker_error error = {.text = ""};
    broker_txn_close(s->txn);
    s->txn = NULL;
    enum broker_result result = broker_txn_open(
        lane->relay->outbox->broker, s->transactional_id,
        (int)lane->relay->outbox->config->relay.transaction_timeout_ms, OPEN_MS, &s->txn, &error);
    if (result != BROKER_OK) {
        s->txn = NULL;
        return later(s, "init_transactions", error.text);
    }
    return TURN_WORKED;
}

// Only after open_transactions: then no transaction of an earlier producer can still commit.
static enum turn remember(struct relay_lane *lane, struct shard *s, struct memory *ret)
{
    struct broker_error error = {.text = ""};
    struct broker_record *record = NULL;
    enum broker_result result = broker_last_of_partition(
        lane->relay->outbox->broker, lane->relay->relay_topic, s->number, LAST_MS, &record, &error);
    if (result != BROKER_OK) {
        return later(s, "last_identity", error.text);
    }
    ret->found = false;
    if (record != NULL) {
        struct json_error json_error;
        struct span value = arena_dup(lane->arena, record->value);
        broker_record_free(record);
        ret->found = relay_identity_decode(value, lane->arena, &ret->identity, &json_error) &&
                     ret->identity.shard == s->number;
        if (!ret->found) { // somebody else wrote there: worth a recovery, and a person's look
            log_event(LOG_ERROR, "relay.identity_unreadable", LOG_INT("shard", s->number));
        }
    }
    if (ledger_position(lane->lane, s->number, DB_INT_NULL, lane->arena, &ret->position) !=
        OUTCOME_OK) {
        return later(s, "position", fence_error(lane->lane));
    }
    return TURN_WORKED;
}

// PostgreSQL's "16/B374D848". 0: not one.
static uint64_t lsn_of(struct span text, struct arena *arena)
{
    unsigned high = 0;
    unsigned low = 0;
    char end = '\0';
    int n = sscanf(arena_dup_text(arena, text), "%8X/%8X%c", &high, &low, &end);
    return n == 2 ? (uint64_t)high << 32 | low : 0;
}

enum history {
    HISTORY_SAME,   // ordinary start
    HISTORY_OTHER,  // recovery start
    HISTORY_AHEAD,  // this database was set back: gate, then recovery
    HISTORY_BEYOND, // Kafka knows a later timeline: gate, and nothing is published
};

static enum history compare(const struct memory *m, struct arena *arena)
{
    const struct relay_identity *i = &m->identity;
    const struct ledger_position *p = &m->position;
    if (!m->found || !span_eq(i->system_identifier, p->system_identifier)) {
        return HISTORY_OTHER;
    }
    if (i->timeline != p->timeline) {
        return i->timeline > p->timeline ? HISTORY_BEYOND : HISTORY_OTHER;
    }
    if (lsn_of(i->lsn, arena) > lsn_of(p->lsn, arena)) {
        return HISTORY_AHEAD;
    }
    return i->batch < p->last_batch ? HISTORY_OTHER : HISTORY_SAME;
}

// Claims may wait for this: since the server started it was compared with Kafka. Only when the gate
// is closed where they differ.
static enum turn tell_checked(struct relay_lane *lane, struct shard *s, const struct memory *m)
{
    struct ledger_shard holder = shard_holder(lane, s);
    enum outcome answer = OUTCOME_RECORDED;
    if (!m->position.checked && ledger_relay_checked(lane->lane, &holder, m->position.server_start,
                                                     lane->arena, &answer) != OUTCOME_OK) {
        return later(s, "checked", fence_error(lane->lane));
    }
    if (answer == OUTCOME_NOT_HOLDER) {
        enum turn regained = shard_regain(lane, s);
        return regained == TURN_WORKED ? TURN_RESTART : regained;
    }
    return answer == OUTCOME_RECORDED ? TURN_WORKED : TURN_RESTART;
}

// Once for an identity: an operator who opens the gate afterwards has seen why it was closed.
static enum turn close_gate(struct relay_lane *lane, struct shard *s, const struct memory *m,
                            const char *reason)
{
    log_event(LOG_ERROR, "relay.closes_gate", LOG_INT("shard", s->number),
              LOG_TEXT("reason", reason), LOG_INT("kafka_timeline", m->identity.timeline),
              LOG_INT("database_timeline", m->position.timeline),
              LOG_SPAN("kafka_lsn", m->identity.lsn), LOG_SPAN("database_lsn", m->position.lsn));
    const char *text = arena_printf(lane->arena, "shard %d: %s", (int)s->number, reason);
    if (ledger_gate_close(lane->lane, lane->relay->outbox->session, span_of(text), lane->arena) !=
        OUTCOME_OK) {
        return later(s, "gate_close", fence_error(lane->lane));
    }
    s->gate_closed_for = m->identity.batch;
    enum turn turn = tell_checked(lane, s, m);
    if (turn != TURN_WORKED) {
        return turn;
    }
    shard_later(s, BLOCKED_MS);
    return TURN_LATER;
}

// ---- ordinary start ----

static enum turn delete_last_batch(struct relay_lane *lane, struct shard *s, const struct memory *m)
{
    const struct relay_identity *identity = &m->identity;
    if (identity->batch <= m->position.last_batch) {
        return TURN_WORKED; // its delete is durable
    }
    int64_t *seqs = arena_array(lane->arena, identity->n_pairs, sizeof *seqs);
    struct uuid *event_ids = arena_array(lane->arena, identity->n_pairs, sizeof *event_ids);
    for (size_t i = 0; i < identity->n_pairs; i++) {
        seqs[i] = identity->pairs[i].seq;
        event_ids[i] = identity->pairs[i].event_id;
    }
    log_event(LOG_INFO, "relay.deletes_last_batch", LOG_INT("shard", s->number),
              LOG_INT("batch", identity->batch), LOG_INT("events", identity->n_pairs));
    return shard_delete(lane, s, DB_INT(identity->batch), seqs, event_ids, identity->n_pairs);
}

// ---- recovery start ----

static enum turn read_rows(struct relay_lane *lane, struct shard *s, struct relay_seen *seen)
{
    struct arena *arena = arena_new();
    struct arena *mine CLEANUP(arena_drop) = arena;
    (void)mine;
    for (int64_t after = 0;;) {
        arena_reset(arena);
        lane_alive(lane);
        struct ledger_shard holder = shard_holder(lane, s);
        struct ledger_event *rows = NULL;
        size_t n = 0;
        if (ledger_events_read(lane->lane, &holder, after, ROWS_A_READ, DB_INT_NULL, arena, &rows,
                               &n) != OUTCOME_OK) {
            return later(s, "recovery_read", fence_error(lane->lane));
        }
        if (n > 0 && rows[0].outcome == OUTCOME_NOT_HOLDER) {
            enum turn regained = shard_regain(lane, s);
            if (regained != TURN_WORKED) {
                return regained;
            }
            continue;
        }
        if (n > 0 && rows[0].outcome != OUTCOME_OK) {
            shard_later(s, BLOCKED_MS); // the gate: nothing is published before it opens either
            return TURN_LATER;
        }
        for (size_t i = 0; i < n; i++) {
            relay_seen_add(seen, rows[i].seq, rows[i].event_id);
            after = rows[i].seq;
        }
        if (n < ROWS_A_READ) {
            return TURN_WORKED;
        }
    }
}

struct scan {
    struct relay_lane *lane;
    struct relay_seen *seen;
};

static bool on_published(void *opaque, const struct broker_record *record)
{
    struct scan *scan = opaque;
    struct raw_header headers[HEADERS_MAX];
    size_t n = record->header_count < HEADERS_MAX ? record->header_count : HEADERS_MAX;
    for (size_t i = 0; i < n; i++) {
        headers[i] =
            (struct raw_header){.name = record->headers[i].name, .value = record->headers[i].value};
    }
    struct uuid event_id;
    if (result_event_id(headers, n, &event_id)) {
        relay_seen_mark(scan->seen, event_id);
    }
    lane_alive(scan->lane);
    return !atomic_load(&scan->lane->relay->stop);
}

static enum turn delete_seen(struct relay_lane *lane, struct shard *s,
                             const struct relay_seen *seen, size_t *ret_deleted)
{
    int64_t *seqs = arena_array(lane->arena, DELETE_CHUNK, sizeof *seqs);
    struct uuid *event_ids = arena_array(lane->arena, DELETE_CHUNK, sizeof *event_ids);
    size_t at = 0;
    for (size_t n; (n = relay_seen_marked(seen, &at, DELETE_CHUNK, seqs, event_ids)) > 0;) {
        enum turn turn = shard_delete(lane, s, DB_INT_NULL, seqs, event_ids, n);
        if (turn != TURN_WORKED) {
            return turn;
        }
        *ret_deleted += n;
    }
    return TURN_WORKED;
}

static enum turn recover_rows(struct relay_lane *lane, struct shard *s, const struct memory *m,
                              struct relay_seen *seen)
{
    enum turn turn = read_rows(lane, s, seen);
    if (turn != TURN_WORKED || relay_seen_count(seen) == 0) {
        return turn;
    }
    STOP_POINT("relay.recovery_before_scan");
    struct scan scan = {.lane = lane, .seen = seen};
    struct broker_error error = {.text = ""};
    int64_t since_ms =
        m->position.oldest_at.is_null ? 0 : m->position.oldest_at.us / 1000 - margin_ms;
    enum broker_result result =
        broker_read_since(lane->relay->outbox->broker, lane->relay->results_topic,
                          since_ms > 0 ? since_ms : 0, SCAN_MS, on_published, &scan, &error);
    if (result != BROKER_OK || atomic_load(&lane->relay->stop)) {
        return later(s, "recovery_scan", error.text);
    }
    size_t deleted = 0;
    turn = delete_seen(lane, s, seen, &deleted);
    log_event(LOG_INFO, "relay.recovered", LOG_INT("shard", s->number),
              LOG_INT("rows", relay_seen_count(seen)), LOG_INT("found_in_kafka", deleted));
    return turn;
}

static enum turn recover(struct relay_lane *lane, struct shard *s, const struct memory *m)
{
    bool fresh = !m->found && m->position.last_batch == 0; // nothing was ever published of it
    log_event(fresh ? LOG_INFO : LOG_WARN, "relay.recovery_start", LOG_INT("shard", s->number),
              LOG_BOOL("identity_found", m->found),
              LOG_INT("identity_batch", m->found ? m->identity.batch : 0),
              LOG_INT("last_batch", m->position.last_batch));
    struct relay_seen *seen = relay_seen_new();
    enum turn turn = recover_rows(lane, s, m, seen);
    relay_seen_free(seen);
    return turn;
}

// ---- the start ----

static void adopt(struct shard *s, const struct memory *m)
{
    s->batch = m->position.last_batch;
    if (m->found && m->identity.batch > s->batch) {
        s->batch = m->identity.batch;
    }
    s->timeline = m->position.timeline;
    s->server_start_us = m->position.server_start.us;
    (void)snprintf(s->system_identifier, sizeof s->system_identifier, "%.*s",
                   SPAN_ARG(m->position.system_identifier));
}

static enum turn start_by_history(struct relay_lane *lane, struct shard *s, const struct memory *m)
{
    bool fresh = !m->found && m->position.last_batch == 0 && m->position.oldest_at.is_null;
    enum history history = compare(m, lane->arena);
    bool closes = (history == HISTORY_AHEAD || history == HISTORY_BEYOND) &&
                  s->gate_closed_for != m->identity.batch;
    enum turn turn = closes ? TURN_WORKED : tell_checked(lane, s, m);
    if (turn != TURN_WORKED) {
        return turn;
    }
    switch (history) {
    case HISTORY_SAME:
        metric_add(METRIC_RELAY_RECOVERIES, LABELS("ordinary"), 1);
        return delete_last_batch(lane, s, m);
    case HISTORY_OTHER:
        metric_add(METRIC_RELAY_RECOVERIES, LABELS(fresh ? "ordinary" : "recovery"), 1);
        return fresh ? TURN_WORKED : recover(lane, s, m);
    case HISTORY_AHEAD:
        if (closes) {
            return close_gate(lane, s, m,
                              "Kafka remembers a later position in the WAL than this server has");
        }
        metric_add(METRIC_RELAY_RECOVERIES, LABELS("recovery"), 1);
        return recover(lane, s, m);
    case HISTORY_BEYOND:
        if (closes) {
            return close_gate(lane, s, m, "Kafka remembers a later timeline than this server's");
        }
        shard_later(s, BLOCKED_MS);
        return TURN_LATER;
    }
    CHECK(false);
    return TURN_LATER;
}

enum turn shard_start(struct relay_lane *lane, struct shard *s)
{
    struct memory m = {.found = false};
    if (!relay_exactly_once(
            lane->relay)) { // nothing to look for: what may be there twice is there twice
        if (ledger_position(lane->lane, s->number, DB_INT_NULL, lane->arena, &m.position) !=
            OUTCOME_OK) {
            return later(s, "position", fence_error(lane->lane));
        }
        adopt(s, &m);
        return TURN_WORKED;
    }
    enum turn turn = open_transactions(lane, s);
    if (turn == TURN_WORKED) {
        turn = remember(lane, s, &m);
    }
    if (turn == TURN_WORKED) {
        turn = start_by_history(lane, s, &m);
    }
    if (turn == TURN_WORKED) {
        adopt(s, &m);
    }
    return turn;
}

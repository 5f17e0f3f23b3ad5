// outbox/claim_hint.c: intents read from Kafka. A hint names an operation; the ledger decides. A
// hint is done when it was tried: what it points to is in PostgreSQL, and the look behind it finds
// it.
#include "outbox/claim_int.h"
#include "outbox/completion_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "schemas/dead_letter.h"
#include "schemas/intent.h"

enum {
    HINTS_MAX = 256,
    CONSUMER_AGAIN_MS = 1000,
    LETTER_BYTES_MAX = 900000,
};

struct hint {
    struct broker_record *record;
    struct intent intent;
};

static void open_consumer(struct claimer *c)
{
    struct outbox *outbox = c->outbox;
    const char *topics[] = {outbox->intents_topic};
    const struct broker_consumer_options options = {
        .group = outbox->config->dispatch.group,
        .topics = topics,
        .topic_count = 1,
    };
    struct broker_error error;
    if (broker_consumer_open(outbox->broker, &options, &c->consumer, &error) != BROKER_OK) {
        c->consumer = NULL;
        c->consumer_again_us = clock_deadline_us(CONSUMER_AGAIN_MS * CLOCK_MS);
        log_event(LOG_WARN, "dispatch.consumer_failed", LOG_TEXT("detail", error.text));
    }
}

// Without room nothing is fetched; polling goes on, so that the group keeps this member.
static void pause_or_resume(struct claimer *c)
{
    bool full = claim_room(c->outbox) == 0;
    if (full && !c->paused) {
        broker_pause_all(c->consumer);
    } else if (!full && c->paused) {
        broker_resume_all(c->consumer);
    }
    c->paused = full;
}

void claim_dead_letter(struct outbox *outbox, struct arena *arena,
                       const struct broker_record *record, struct span reason, struct span detail)
{
    struct raw_header *own = arena_array(arena, record->header_count + 1, sizeof *own);
    for (size_t i = 0; i < record->header_count; i++) {
        own[i] =
            (struct raw_header){.name = record->headers[i].name, .value = record->headers[i].value};
    }
    const struct raw_record raw = {
        .topic = span_of(record->topic),
        .partition = record->partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .key = record->key,
        .value = record->value,
        .headers = own,
        .n_headers = record->header_count,
    };
    struct dead_letter letter;
    dead_letter_encode(&raw, reason, detail, 1, LETTER_BYTES_MAX, arena, &letter);
    struct broker_header *headers = arena_array(arena, letter.n_headers + 1, sizeof *headers);
    for (size_t i = 0; i < letter.n_headers; i++) {
        headers[i] = (struct broker_header){.name = letter.headers[i].name,
                                            .value = letter.headers[i].value};
    }
    const struct broker_message message = {
        .topic = outbox->dead_letters_topic,
        .partition = BROKER_BY_KEY,
        .key = letter.key,
        .value = letter.value,
        .headers = headers,
        .header_count = letter.n_headers,
    };
    struct broker_error error = {.text = ""};
    bool sent = broker_produce(outbox->producer, &message, NULL, NULL, &error) == BROKER_OK;
    metric_add(METRIC_DEAD_LETTERS, LABELS(arena_dup_text(arena, reason)), 1);
    log_event(LOG_WARN, "dispatch.dead_lettered", LOG_TEXT("topic", record->topic),
              LOG_SPAN("reason", reason), LOG_SPAN("detail", detail),
              LOG_INT("partition", record->partition), LOG_INT("offset", record->offset),
              LOG_BOOL("sent", sent), LOG_TEXT("error", sent ? NULL : error.text));
}

static void dead_letter(struct claimer *c, const struct broker_record *record, struct span reason,
                        struct span detail)
{
    claim_dead_letter(c->outbox, c->arena, record, reason, detail);
}

// Reads what a record says; false: it is done with here.
static bool read_hint(struct claimer *c, struct broker_record *record, struct hint *ret)
{
    struct json_error error;
    ret->record = record;
    if (!intent_decode(record->value, c->arena, &ret->intent, &error)) {
        dead_letter(c, record, span_of(error.reason), error.detail);
        return false;
    }
    if (ret->intent.kind != INTENT_REGISTERED) {
        return false;
    }
    struct tool *tool = tools_find(c->outbox, ret->intent.tool_name);
    return tool != NULL && tool_room(tool) > 0;
}

static bool named_before(const struct hint *hints, size_t n, struct span operation_id)
{
    for (size_t i = 0; i < n; i++) {
        if (span_eq(hints[i].intent.operation_id, operation_id)) {
            return true;
        }
    }
    return false;
}

static void answer_hints(struct claimer *c, const struct hint *hints, size_t n,
                         const struct ledger_claimed *rows, size_t rows_n)
{
    for (size_t i = 0; i < rows_n; i++) {
        size_t at = (size_t)rows[i].item - 1;
        if (rows[i].item < 1 || at >= n) {
            continue; // a row about the whole call
        }
        const struct hint *hint = &hints[at];
        if (rows[i].outcome == OUTCOME_MISSING) {
            dead_letter(c, hint->record, SPAN_LIT("missing"),
                        SPAN_LIT("the intent names no registered operation"));
        } else if (rows[i].outcome == OUTCOME_CLAIMED &&
                   !span_eq(rows[i].request_digest, hint->intent.request_digest)) {
            dead_letter(c, hint->record, SPAN_LIT("digest_mismatch"),
                        SPAN_LIT("the intent names another request than the ledger holds"));
        }
    }
}

static void claim_named(struct claimer *c, const struct hint *hints, size_t n)
{
    struct span *ids = arena_array(c->arena, n, sizeof *ids);
    struct span *tools = arena_array(c->arena, c->outbox->tools_n + 1, sizeof *tools);
    for (size_t i = 0; i < n; i++) {
        ids[i] = hints[i].intent.operation_id;
    }
    for (size_t i = 0; i < c->outbox->tools_n; i++) {
        tools[i] = span_of(c->outbox->tools[i].config->name);
    }
    struct ledger_claim claim = {
        .limit = (int32_t)n,
        .tools = {.v = tools, .n = c->outbox->tools_n},
        .operation_ids = {.v = ids, .n = n},
    };
    struct ledger_claimed *rows = NULL;
    size_t rows_n = 0;
    if (claim_ask(c, LEDGER_FIRST, &claim, &rows, &rows_n)) {
        answer_hints(c, hints, n, rows, rows_n);
    } else {
        c->sweep_us = 0; // they are in the ledger: look as soon as it answers
    }
}

static size_t hints_wanted(const struct claimer *c)
{
    int64_t room = claim_room(c->outbox);
    int64_t batch = c->outbox->config->dispatch.batch;
    int64_t n = room < batch ? room : batch;
    if (n > HINTS_MAX) {
        n = HINTS_MAX;
    }
    return n > 0 ? (size_t)n : 1;
}

static void wait_for_consumer(struct claimer *c, int timeout_ms)
{
    if (clock_mono_us() >= c->consumer_again_us) {
        open_consumer(c);
    } else {
        broker_producer_poll(c->outbox->producer, timeout_ms);
    }
}

void claim_hints(struct claimer *c, int timeout_ms)
{
    if (c->consumer != NULL && broker_consumer_failed(c->consumer)) {
        broker_consumer_close(c->consumer);
        c->consumer = NULL;
        c->paused = false;
    }
    if (c->consumer == NULL) {
        wait_for_consumer(c, timeout_ms);
        return;
    }
    pause_or_resume(c);
    struct broker_record *records[HINTS_MAX];
    size_t n = broker_poll_many(c->consumer, records, hints_wanted(c), timeout_ms);
    if (n == 0) {
        return;
    }
    metric_add(METRIC_RECORDS, LABELS(c->outbox->intents_topic), n);
    struct hint *hints = arena_array(c->arena, n, sizeof *hints);
    size_t hints_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (read_hint(c, records[i], &hints[hints_n]) &&
            !named_before(hints, hints_n, hints[hints_n].intent.operation_id)) {
            hints_n++;
        }
    }
    if (hints_n > 0) {
        claim_named(c, hints, hints_n);
    }
    for (size_t i = 0; i < n; i++) {
        broker_done(records[i]);
        broker_record_free(records[i]);
    }
}

void claim_hints_end(struct claimer *c)
{
    broker_consumer_close(c->consumer);
    c->consumer = NULL;
}

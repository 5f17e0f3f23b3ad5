// outbox/completion.c: what is said later about an operation, over Kafka (thread `completions`) and
// over HTTP (whoever calls outbox_complete). The ledger decides what it is worth; what cannot be
// right is counted and dead-lettered.
#include "outbox/completion_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "schemas/completion.h"

enum {
    COMPLETIONS_MAX = 256,
    POLL_MS = 200,
    CONSUMER_AGAIN_MS = 1000,
    CONNECT_MS = 500,
};

struct completer {
    struct outbox *outbox;
    struct fence *lane;
    struct arena *arena;
    struct broker_consumer *consumer;
    int64_t again_us;
};

static struct ledger_fact fact_of(const struct completion *c, struct span by, struct arena *arena)
{
    return (struct ledger_fact){
        .operation_id = c->operation_id,
        .attempt = {.v = (int32_t)c->attempt, .is_null = c->attempt == 0},
        .owner = SPAN_NULL,
        .digest = c->request_digest,
        .verdict = c->verdict,
        .remote_id = c->remote_id,
        .result = {c->result},
        .evidence = {span_of(arena_printf(arena, "{\"completion\":%.*s}", SPAN_ARG(c->said)))},
        .by = by,
    };
}

static void count(const char *source, const char *outcome)
{
    metric_add(METRIC_COMPLETIONS, LABELS(source, outcome), 1);
}

// ---- Kafka ----

struct given {
    struct broker_record *record;
    struct completion completion;
    bool done;
};

static bool cannot_be_right(enum outcome outcome)
{
    return outcome == OUTCOME_MISSING || outcome == OUTCOME_DIGEST_MISMATCH;
}

static void finish(struct given *g)
{
    broker_done(g->record);
    broker_record_free(g->record);
    g->record = NULL;
    g->done = true;
}

static void refuse(struct completer *c, struct given *g, struct span reason, struct span detail)
{
    count("kafka", arena_dup_text(c->arena, reason));
    claim_dead_letter(c->outbox, c->arena, g->record, reason, detail);
    finish(g);
}

static bool is_named(struct given *const *chosen, size_t n, struct span operation)
{
    for (size_t i = 0; i < n; i++) {
        if (span_eq(chosen[i]->completion.operation_id, operation)) {
            return true;
        }
    }
    return false;
}

// One call: of every operation what was said first. False: not answered.
static bool offer(struct completer *c, struct given **chosen, size_t n)
{
    struct ledger_fact *facts = arena_array(c->arena, n, sizeof *facts);
    for (size_t i = 0; i < n; i++) {
        const struct broker_record *r = chosen[i]->record;
        const char *by = arena_printf(c->arena, "kafka:%s/%d/%lld", r->topic, (int)r->partition,
                                      (long long)r->offset);
        facts[i] = fact_of(&chosen[i]->completion, span_of(by), c->arena);
    }
    struct ledger_recorded *rows = NULL;
    size_t rows_n = 0;
    enum outcome outcome = ledger_converge(c->lane, facts, n, c->arena, &rows, &rows_n);
    if (outcome == OUTCOME_ITEM_ERROR || outcome_class(outcome) == CLASS_BUG) {
        if (n == 1) {
            refuse(c, chosen[0], SPAN_LIT("not_storable"), span_of(fence_error(c->lane)));
            return true;
        }
        return offer(c, chosen, n / 2) && offer(c, chosen + n / 2, n - n / 2);
    }
    if (outcome != OUTCOME_OK) {
        return false;
    }
    for (size_t i = 0; i < rows_n; i++) {
        size_t at = (size_t)rows[i].item - 1;
        if (rows[i].item < 1 || at >= n) {
            continue;
        }
        converged_note("completion", &facts[at], &rows[i]);
        if (cannot_be_right(rows[i].outcome)) {
            refuse(c, chosen[at], span_of(outcome_word(rows[i].outcome)),
                   span_of(outcome_sentence(rows[i].outcome)));
        } else {
            count("kafka", outcome_word(rows[i].outcome));
            finish(chosen[at]);
        }
    }
    converged_wake(c->outbox, rows, rows_n, c->arena);
    relay_notify(c->outbox->relay);
    return true;
}

// What is left undone when the pod stops comes again.
static void settle(struct completer *c, struct given *given, size_t n)
{
    size_t left = n;
    while (left > 0 && !atomic_load(&c->outbox->stop_claiming)) {
        struct given *chosen[COMPLETIONS_MAX];
        size_t chosen_n = 0;
        left = 0;
        for (size_t i = 0; i < n; i++) {
            if (given[i].done) {
                continue;
            }
            left++;
            if (!is_named(chosen, chosen_n, given[i].completion.operation_id)) {
                chosen[chosen_n++] = &given[i];
            }
        }
        if (chosen_n > 0 && !offer(c, chosen, chosen_n)) {
            log_event(LOG_WARN, "completions.wait", LOG_TEXT("detail", fence_error(c->lane)));
            (void)!fence_connect(c->lane, CONNECT_MS * CLOCK_MS);
        }
    }
    for (size_t i = 0; i < n; i++) {
        broker_record_free(given[i].record); // NULL: finished
    }
}

static bool open_consumer(struct completer *c)
{
    struct outbox *outbox = c->outbox;
    char topic[OUTBOX_TOPIC_SIZE];
    (void)snprintf(topic, sizeof topic, "%scompletions", outbox->config->topics.prefix);
    const char *topics[] = {topic};
    const struct broker_consumer_options options = {
        .group = arena_printf(c->arena, "%s-completions", outbox->config->dispatch.group),
        .topics = topics,
        .topic_count = 1,
    };
    struct broker_error error;
    if (broker_consumer_open(outbox->broker, &options, &c->consumer, &error) == BROKER_OK) {
        return true;
    }
    c->consumer = NULL;
    c->again_us = clock_deadline_us(CONSUMER_AGAIN_MS * CLOCK_MS);
    log_event(LOG_WARN, "completions.consumer_failed", LOG_TEXT("detail", error.text));
    return false;
}

static void read_some(struct completer *c)
{
    struct broker_record *records[COMPLETIONS_MAX];
    size_t n = broker_poll_many(c->consumer, records, COMPLETIONS_MAX, POLL_MS);
    if (n == 0) {
        return;
    }
    struct given *given = arena_array(c->arena, n, sizeof *given);
    size_t given_n = 0;
    for (size_t i = 0; i < n; i++) {
        struct given *g = &given[given_n];
        struct span why = SPAN_NULL;
        *g = (struct given){.record = records[i]};
        if (completion_decode(records[i]->value, c->arena, &g->completion, &why)) {
            given_n++;
        } else {
            refuse(c, g, SPAN_LIT("invalid"), why);
        }
    }
    settle(c, given, given_n);
}

void *completions_thread(void *argument)
{
    struct completer c = {.outbox = argument, .arena = arena_new()};
    CHECK(fence_open(c.outbox->config, "completions", 0, &c.lane) == OUTCOME_OK);
    while (!atomic_load(&c.outbox->stop_claiming)) {
        arena_reset(c.arena);
        if (c.consumer != NULL && broker_consumer_failed(c.consumer)) {
            broker_consumer_close(c.consumer);
            c.consumer = NULL;
        }
        if (c.consumer == NULL && (clock_mono_us() < c.again_us || !open_consumer(&c))) {
            broker_producer_poll(c.outbox->producer, POLL_MS);
            continue;
        }
        read_some(&c);
    }
    broker_consumer_close(c.consumer);
    fence_close(c.lane);
    arena_free(c.arena);
    return NULL;
}

// ---- HTTP ----

struct inbound {
    struct lock lock; // one at a time: a callback is rare
    struct fence *lane;
};

struct inbound *inbound_open(struct outbox *outbox)
{
    struct inbound *in = memory_new(1, sizeof *in);
    lock_init(&in->lock);
    CHECK(fence_open(outbox->config, "callbacks", 0, &in->lane) == OUTCOME_OK);
    return in;
}

void inbound_close(struct inbound *in)
{
    if (in == NULL) {
        return;
    }
    fence_close(in->lane);
    lock_destroy(&in->lock);
    free(in);
}

enum outcome outbox_complete(struct outbox *outbox, struct span body, struct span by,
                             struct text *ret_said)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct completion completion;
    struct span why = SPAN_NULL;
    if (!completion_decode(body, arena, &completion, &why)) {
        count("http", "invalid");
        text_add_span(ret_said, why);
        return OUTCOME_INVALID;
    }
    const struct ledger_fact fact = fact_of(&completion, by, arena);
    struct ledger_recorded *rows = NULL;
    size_t n = 0;
    lock_take(&outbox->inbound->lock);
    enum outcome outcome = ledger_converge(outbox->inbound->lane, &fact, 1, arena, &rows, &n);
    lock_drop(&outbox->inbound->lock);
    if (outcome == OUTCOME_OK && n == 1) {
        outcome = rows[0].outcome;
        converged_note("completion", &fact, &rows[0]);
        converged_wake(outbox, rows, n, arena);
        relay_notify(outbox->relay);
    }
    count("http", outcome_word(outcome));
    text_add_str(ret_said, outcome_sentence(outcome));
    return outcome;
}

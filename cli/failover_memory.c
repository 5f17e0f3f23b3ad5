// What Kafka remembers: of the result topic each run's and operation's latest word, of the intents
// topic the claims that were made before anything was sent.
#include "cli/failover_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schemas/intent.h"
#include "schemas/json.h"
#include "schemas/result.h"

enum {
    FIRST_SLOTS = 1024,
    READ_MS = 600000, // of one topic, all of it
};

void memory_of_kafka_free(struct memory_of_kafka *memory)
{
    arena_free(memory->arena);
    free(memory->slots);
    *memory = (struct memory_of_kafka){0};
}

// ---- a table by key ----

static size_t slot_of(const struct memory_of_kafka *memory, struct span key)
{
    uint64_t hash = 14695981039346656037u; // FNV-1a
    for (size_t i = 0; i < key.n; i++)
        hash = (hash ^ (unsigned char)key.p[i]) * 1099511628211u;
    size_t at = (size_t)hash & (memory->n_slots - 1);
    while (memory->slots[at] != NULL && !span_eq(memory->slots[at]->key, key))
        at = (at + 1) & (memory->n_slots - 1);
    return at;
}

static void grow(struct memory_of_kafka *memory)
{
    struct remembered **old = memory->slots;
    size_t n = memory->n_slots;
    memory->n_slots = n == 0 ? FIRST_SLOTS : n * 2;
    memory->slots = memory_new(memory->n_slots, sizeof *memory->slots);
    for (size_t i = 0; i < n; i++)
        if (old[i] != NULL)
            memory->slots[slot_of(memory, old[i]->key)] = old[i];
    free(old);
}

static struct remembered *remember(struct memory_of_kafka *memory, struct span key)
{
    if (memory->n * 2 >= memory->n_slots)
        grow(memory);
    size_t at = slot_of(memory, key);
    if (memory->slots[at] == NULL) {
        struct remembered *r = arena_alloc(memory->arena, sizeof *r);
        *r = (struct remembered){.key = arena_dup(memory->arena, key),
                                 .status = SPAN_NULL,
                                 .tool = SPAN_NULL,
                                 .digest = SPAN_NULL};
        memory->slots[at] = r;
        memory->n++;
    }
    return memory->slots[at];
}

// ---- what a record says ----

static struct span end_of(struct span type)
{
    static const struct {
        const char *type, *status;
    } ends[] = {
        {"run.succeeded", "succeeded"},       {"run.failed", "failed"},
        {"run.cancelled", "cancelled"},       {"operation.succeeded", "succeeded"},
        {"operation.failed", "failed_final"}, {"operation.cancelled", "cancelled"},
        {"operation.unknown", "unknown"},
    };
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (span_eq_text(type, ends[i].type))
            return span_of(ends[i].status);
    return SPAN_NULL;
}

static void note_run(struct memory_of_kafka *memory, const struct result_event *e)
{
    char text[UUID_TEXT_SIZE];
    struct remembered *r = remember(memory, span_of(uuid_format(e->run_id, text)));
    r->is_run = true;
    r->run_id = e->run_id;
    if (e->timeline > r->timeline) { // a later history: what it says replaces the earlier one's
        r->timeline = e->timeline;
        r->epoch = r->revision = 0;
        r->status = SPAN_NULL;
    }
    if (e->timeline < r->timeline)
        return;
    r->epoch = e->epoch > r->epoch ? e->epoch : r->epoch;
    r->revision = e->revision > r->revision ? e->revision : r->revision;
    if (e->type.n > 4 && memcmp(e->type.p, "run.", 4) == 0 && !span_is_null(end_of(e->type)))
        r->status = end_of(e->type);
}

static void note_operation(struct memory_of_kafka *memory, const struct result_event *e,
                           struct arena *arena)
{
    struct json_error problem;
    const struct json_value *body;
    if (!json_parse(e->body, NULL, arena, &body, &problem))
        return;
    const struct json_value *operation = json_get(body, "operation");
    const struct json_value *id = json_get(operation, "operation_id");
    struct span status = end_of(e->type);
    if (!json_is(id, JSON_STRING) || span_is_null(status))
        return;
    struct remembered *r = remember(memory, json_text(id));
    if (e->timeline < r->timeline)
        return;
    r->timeline = e->timeline;
    r->status = status;
    r->tool = arena_dup(memory->arena, json_text(json_get(operation, "tool_name")));
    r->digest = arena_dup(memory->arena, json_text(json_get(operation, "request_digest")));
}

static bool on_result(void *opaque, const struct broker_record *record)
{
    struct memory_of_kafka *memory = opaque;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct result_event event;
    struct json_error problem;
    if (!result_decode(record->value, arena, &event, &problem) || !event.has_run)
        return true;
    memory->events++;
    note_run(memory, &event);
    if (event.type.n > 10 && memcmp(event.type.p, "operation.", 10) == 0)
        note_operation(memory, &event, arena);
    return true;
}

static bool on_intent(void *opaque, const struct broker_record *record)
{
    struct memory_of_kafka *memory = opaque;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct intent intent;
    struct json_error problem;
    if (!intent_decode(record->value, arena, &intent, &problem))
        return true;
    struct remembered *r = remember(memory, intent.operation_id);
    if (intent.kind == INTENT_REGISTERED) {
        r->tool = arena_dup(memory->arena, intent.tool_name);
        r->digest = arena_dup(memory->arena, intent.request_digest);
    } else {
        memory->claims++;
        r->attempt = intent.attempt > r->attempt ? intent.attempt : r->attempt;
    }
    return true;
}

bool memory_of_kafka_read(struct memory_of_kafka *memory, struct broker *broker,
                          const struct config *cfg, struct broker_error *ret_error)
{
    char topic[300];
    *memory = (struct memory_of_kafka){.arena = arena_new()};
    (void)snprintf(topic, sizeof topic, "%sintents", cfg->topics.prefix);
    if (broker_read_since(broker, topic, 0, READ_MS, on_intent, memory, ret_error) != BROKER_OK)
        return false;
    (void)snprintf(topic, sizeof topic, "%sresults", cfg->topics.prefix);
    return broker_read_since(broker, topic, 0, READ_MS, on_result, memory, ret_error) == BROKER_OK;
}

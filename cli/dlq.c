// holdfast dlq list: the dead letters, with why they were refused.
#include "cli/commands.h"
#include "cli/session.h"

#include <stdlib.h>

#include "base/clock.h"
#include "schemas/dead_letter.h"

enum { SCAN_MS = 30000 };

struct letters {
    struct arena *arena;
    struct span *lines; // a ring of the last `limit` lines
    size_t limit, n;
    bool json;
};

static struct span line_json(const struct broker_record *record, const struct dead_letter_facts *f,
                             struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_integer(b, o, "partition", record->partition);
    json_put_integer(b, o, "offset", record->offset);
    json_put_text(b, o, "reason", f->reason);
    json_put_text(b, o, "detail", f->detail);
    json_put_text(b, o, "original_topic", f->topic);
    json_put_integer(b, o, "original_partition", f->partition);
    json_put_integer(b, o, "original_offset", f->offset);
    json_put_integer(b, o, "original_timestamp_ms", f->timestamp_ms);
    json_put_integer(b, o, "tried", f->tried);
    json_put_integer(b, o, "bytes", (int64_t)record->value.n);
    json_put_bool(b, o, "omitted", f->omitted);
    return json_build(b, o);
}

static struct span line_person(const struct broker_record *record,
                               const struct dead_letter_facts *f, struct arena *arena)
{
    char at[CLOCK_TEXT_SIZE];
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "%.19s  ", clock_format(f->timestamp_ms * CLOCK_MS, at));
    text_add_json(&t, f->topic);
    text_addf(&t, "/%d/%lld  %-18.*s ", f->partition, (long long)f->offset, SPAN_ARG(f->reason));
    text_add_json(&t, f->detail);
    text_addf(&t, " (%zu bytes)", record->value.n);
    return arena_dup(arena, text_span(&t));
}

static bool keep(void *opaque, const struct broker_record *record)
{
    struct letters *letters = opaque;
    struct raw_header *headers =
        arena_array(letters->arena, record->header_count + 1, sizeof *headers);
    for (size_t i = 0; i < record->header_count; i++)
        headers[i] = (struct raw_header){record->headers[i].name, record->headers[i].value};
    struct dead_letter_facts facts;
    if (!dead_letter_decode(headers, record->header_count, &facts))
        facts = (struct dead_letter_facts){.reason = SPAN_LIT("?"),
                                           .detail = SPAN_LIT("not written by holdfast")};
    letters->lines[letters->n++ % letters->limit] =
        letters->json ? line_json(record, &facts, letters->arena)
                      : line_person(record, &facts, letters->arena);
    return true;
}

int command_dlq_list(struct invocation *inv)
{
    long limit = 50;
    if (!invocation_integer(inv, "limit", 1, 1000000, &limit))
        return EXIT_CANNOT_RUN;
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    if (broker == NULL)
        return EXIT_CANNOT_RUN;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct letters letters = {
        .arena = arena, .limit = (size_t)limit, .json = invocation_flag(inv, "json")};
    letters.lines = arena_array(arena, letters.limit, sizeof *letters.lines);
    char topic[256];
    struct broker_error error;
    snprintf(topic, sizeof topic, "%sdead-letters", cfg->topics.prefix);
    if (broker_read_since(broker, topic, 0, SCAN_MS, keep, &letters, &error) != BROKER_OK) {
        say_error("holdfast topics check", "Kafka: %s", error.text);
        return EXIT_CANNOT_RUN;
    }
    size_t shown = letters.n < letters.limit ? letters.n : letters.limit;
    for (size_t i = letters.n - shown; i < letters.n; i++)
        printf("%.*s\n", SPAN_ARG(letters.lines[i % letters.limit]));
    if (!letters.json)
        fprintf(stderr, "%zu dead letter%s, %zu shown\n", letters.n, letters.n == 1 ? "" : "s",
                shown);
    return EXIT_HOLDS;
}

// holdfast submit: records from flags, a file or a pipe onto the tasks topic.
//
// The record is what the user gave: it is checked by the pod that reads it, as every producer's is.
// Here only what would hide a mistake of the command line is refused.
#include "cli/commands.h"
#include "cli/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_MS = 30000, POLL_MS = 100 };

struct submission {
    struct broker_producer *producer;
    const char *topic;
    bool json;
    size_t sent, accepted;
    char refused[512]; // why the broker did not take one; empty when all were taken
};

static void delivered(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                      const char *text)
{
    struct submission *s = opaque;
    (void)partition;
    (void)offset;
    if (result == BROKER_OK)
        s->accepted++;
    else
        snprintf(s->refused, sizeof s->refused, "%s", text);
}

// The key is the task's id, so that the records of one task stay in order.
static bool send_record(struct submission *s, struct span record)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *value;
    struct json_error problem;
    if (!json_parse(record, NULL, arena, &value, &problem)) {
        say_error("a record is one JSON object a line", "record %zu is no valid JSON: %.*s",
                  s->sent + 1, SPAN_ARG(problem.detail));
        return false;
    }
    struct broker_message message = {.topic = s->topic,
                                     .partition = BROKER_BY_KEY,
                                     .key = json_text(json_get(value, "task_id")),
                                     .value = record};
    struct broker_error error;
    enum broker_result result;
    while ((result = broker_produce(s->producer, &message, delivered, s, &error)) == BROKER_RETRY)
        broker_producer_poll(s->producer, POLL_MS);
    if (result != BROKER_OK) {
        say_error("holdfast topics check", "record %zu: %s", s->sent + 1, error.text);
        return false;
    }
    s->sent++;
    return true;
}

// One record over the whole file, or one a line.
static bool send_file(struct submission *s, FILE *in, const char *name)
{
    struct text all CLEANUP(text_free) = TEXT_EMPTY;
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        text_add(&all, block, n);
    if (ferror(in)) {
        say_error("check the file", "%s: %s", name, strerror(errno));
        return false;
    }
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *value;
    struct json_error problem;
    if (json_parse(text_span(&all), NULL, arena, &value, &problem))
        return send_record(s, text_span(&all));
    size_t at = 0;
    while (at < all.n) {
        const char *end = memchr(all.p + at, '\n', all.n - at);
        size_t length = end != NULL ? (size_t)(end - all.p) - at : all.n - at;
        struct span line = {all.p + at, length};
        if (strspn(line.p, " \t\r\n") < length && !send_record(s, line))
            return false;
        at += length + 1;
    }
    if (s->sent == 0)
        say_error("give records, one JSON object a line", "%s holds no record", name);
    return s->sent > 0;
}

static bool put_number(const struct invocation *inv, struct json_builder *b, struct json_node *o,
                       const char *option, const char *member, long min, long max)
{
    long value = 0;
    if (!invocation_integer(inv, option, min, max, &value))
        return false;
    if (invocation_value(inv, option) != NULL)
        json_put_integer(b, o, member, value);
    return true;
}

static bool put_input(const struct invocation *inv, struct arena *arena, struct json_builder *b,
                      struct json_node *o)
{
    const char *input = invocation_value(inv, "input");
    struct text piped CLEANUP(text_free) = TEXT_EMPTY;
    if (input != NULL && strcmp(input, "-") == 0) {
        char block[65536];
        size_t n;
        while ((n = fread(block, 1, sizeof block, stdin)) > 0)
            text_add(&piped, block, n);
    }
    struct span text = piped.n > 0 ? text_span(&piped) : span_of(input != NULL ? input : "{}");
    const struct json_value *value;
    struct json_error problem;
    if (!json_parse(text, NULL, arena, &value, &problem)) {
        say_usage(inv, "--input is no valid JSON: %.*s", SPAN_ARG(problem.detail));
        return false;
    }
    json_put_copy(b, o, "input", value);
    return true;
}

static bool send_flags(const struct invocation *inv, struct submission *s)
{
    static const struct {
        const char *option, *member;
    } texts[] = {{"task", "task_id"},
                 {"tenant", "tenant_id"},
                 {"request-id", "request_id"},
                 {"not-before", "not_before"},
                 {"deadline", "deadline"}};
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (invocation_value(inv, texts[i].option) != NULL)
            json_put_text(b, o, texts[i].member, span_of(invocation_value(inv, texts[i].option)));
    const char *handler = invocation_value(inv, "handler");
    json_put_text(b, o, "handler", span_of(handler != NULL ? handler : "plan"));
    if (!put_input(inv, arena, b, o) ||
        !put_number(inv, b, o, "priority", "priority", -1000, 1000) ||
        !put_number(inv, b, o, "max-attempts", "max_attempts", 1, 1000))
        return false;
    if (invocation_flag(inv, "cancel-previous"))
        json_put_text(b, o, "on_active", SPAN_LIT("cancel_previous"));
    if (invocation_flag(inv, "allow-unsettled"))
        json_put_bool(b, o, "allow_unsettled", true);
    return send_record(s, json_build(b, o));
}

static bool send_all(const struct invocation *inv, struct submission *s)
{
    const char *file = invocation_argument(inv, 0);
    if (file == NULL)
        return send_flags(inv, s);
    if (strcmp(file, "-") == 0)
        return send_file(s, stdin, "standard input");
    FILE *in = fopen(file, "rb");
    if (in == NULL) {
        say_error("name a file that can be read", "%s: %s", file, strerror(errno));
        return false;
    }
    bool ok = send_file(s, in, file);
    fclose(in);
    return ok;
}

static int report(const struct invocation *inv, const struct submission *s)
{
    if (s->refused[0] != '\0')
        say_error("holdfast topics check", "Kafka did not take all of them: %s", s->refused);
    if (invocation_flag(inv, "json"))
        printf("{\"sent\":%zu,\"accepted\":%zu}\n", s->sent, s->accepted);
    else
        printf("%zu of %zu records are on %s\n", s->accepted, s->sent, s->topic);
    return s->accepted == s->sent ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

int command_submit(struct invocation *inv)
{
    if (invocation_argument(inv, 0) == NULL && invocation_value(inv, "task") == NULL)
        return say_usage(inv, "--task is missing (or name a FILE of records)");
    if (invocation_argument(inv, 0) != NULL && invocation_value(inv, "task") != NULL)
        return say_usage(inv, "--task and FILE exclude each other");
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    struct broker_error error;
    char cluster[128], topic[256];
    snprintf(topic, sizeof topic, "%stasks", cfg->topics.prefix);
    struct submission s = {.topic = topic};
    if (broker == NULL)
        return EXIT_CANNOT_RUN;
    if (broker_cluster_id(broker, 10000, cluster, sizeof cluster, &error) != BROKER_OK ||
        broker_producer_open(broker, &s.producer, &error) != BROKER_OK) {
        say_error("check kafka.bootstrap.servers: holdfast doctor", "Kafka: %s", error.text);
        return EXIT_CANNOT_RUN;
    }
    bool ok = send_all(inv, &s);
    if (broker_flush(s.producer, FLUSH_MS) != BROKER_OK)
        snprintf(s.refused, sizeof s.refused, "no answer within %d s", FLUSH_MS / 1000);
    broker_producer_close(s.producer);
    int code = s.sent > 0 ? report(inv, &s) : EXIT_CANNOT_RUN;
    return ok ? code : EXIT_CANNOT_RUN;
}

// holdfast tail: follows the result topic as any downstream consumer would, read_committed.
#include "cli/commands.h"
#include "cli/session.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "schemas/result.h"

enum { POLL_MS = 200 };

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

struct tail {
    bool json;
    const char *task;
    int64_t since_ms; // what is older is passed over: every consumer of ours begins with the oldest
                      // record
    long left;        // runs that are still to end; 0: no limit
    bool done;
};

static bool ends_a_run(struct span type)
{
    return span_eq_text(type, "run.succeeded") || span_eq_text(type, "run.failed") ||
           span_eq_text(type, "run.cancelled");
}

static void print_person(const struct result_event *e)
{
    char at[CLOCK_TEXT_SIZE], run[37];
    uuid_format(e->run_id, run);
    struct text line CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&line, "%.23s  %-20.*s ", clock_format(e->at_us, at), SPAN_ARG(e->type));
    text_add_json(&line, e->task_id);
    if (e->has_run)
        text_addf(&line, "  run %s epoch %lld revision %lld", run, (long long)e->epoch,
                  (long long)e->revision);
    if (e->body.n > 2) {
        text_add_str(&line, "  ");
        text_add_span(&line, e->body);
    }
    puts(line.p);
}

static void print_json(const struct broker_record *record, const struct result_event *e,
                       struct arena *arena)
{
    struct span value = record->value;
    struct result encoded;
    if (value.n == 0 || value.p[0] != '{') { // MessagePack
        result_encode(
            e, &(struct result_options){.encoding = RESULT_JSON, .source = SPAN_LIT("/holdfast")},
            arena, &encoded);
        value = encoded.value;
    }
    printf("%.*s\n", SPAN_ARG(value));
}

static void show_record(struct tail *tail, const struct broker_record *record)
{
    if (record->timestamp_ms < tail->since_ms)
        return;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct result_event event;
    struct json_error problem;
    if (!result_decode(record->value, arena, &event, &problem)) {
        fprintf(stderr, "holdfast: partition %d offset %lld is no result: %.*s\n",
                record->partition, (long long)record->offset, SPAN_ARG(problem.detail));
        return;
    }
    if (tail->task != NULL && !span_eq_text(event.task_id, tail->task))
        return;
    if (tail->json)
        print_json(record, &event, arena);
    else
        print_person(&event);
    fflush(stdout);
    if (tail->left > 0 && ends_a_run(event.type))
        tail->done = --tail->left == 0;
}

static int follow(struct tail *tail, struct broker_consumer *consumer, long timeout_s)
{
    int64_t deadline = timeout_s > 0 ? clock_deadline_us(timeout_s * CLOCK_SECOND) : CLOCK_FOREVER;
    while (!interrupted && !tail->done) {
        struct broker_record *record = broker_poll(consumer, POLL_MS);
        if (record != NULL) {
            show_record(tail, record);
            broker_done(record);
            broker_record_free(record);
        }
        if (broker_consumer_failed(consumer)) {
            say_error("check kafka.bootstrap.servers: holdfast doctor",
                      "Kafka: the consumer failed");
            return EXIT_CANNOT_RUN;
        }
        if (clock_mono_us() >= deadline && !tail->done) {
            fprintf(stderr, "holdfast: %ld s have passed\n", timeout_s);
            return EXIT_HOLDS_NOT;
        }
    }
    return EXIT_HOLDS;
}

int command_tail(struct invocation *inv)
{
    long timeout_s = 0;
    struct tail tail = {.json = invocation_flag(inv, "json"),
                        .task = invocation_value(inv, "task")};
    if (!invocation_integer(inv, "until-terminal", 1, 1000000000, &tail.left) ||
        !invocation_integer(inv, "timeout", 1, 86400, &timeout_s))
        return EXIT_CANNOT_RUN;
    if (!invocation_flag(inv, "from-beginning"))
        tail.since_ms = clock_wall_us() / CLOCK_MS;
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    if (broker == NULL)
        return EXIT_CANNOT_RUN;
    char topic[256], group[64] = "holdfast-tail-";
    uuid_format(uuid_v4(), group + strlen(group));
    snprintf(topic, sizeof topic, "%sresults", cfg->topics.prefix);
    const char *topics[] = {topic};
    struct broker_consumer_options options = {.group = group, .topics = topics, .topic_count = 1};
    struct broker_consumer *consumer;
    struct broker_error error;
    if (broker_consumer_open(broker, &options, &consumer, &error) != BROKER_OK) {
        say_error("check kafka.bootstrap.servers: holdfast doctor", "Kafka: %s", error.text);
        return EXIT_CANNOT_RUN;
    }
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    int code = follow(&tail, consumer, timeout_s);
    broker_consumer_close(consumer);
    return code;
}

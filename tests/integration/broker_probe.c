/* The broker room on a line: one verb a line on standard input, one line of JSON as its answer.
 * Driven by test_broker.py, which may stop, continue and kill it like any pod. Values are words
 * without spaces; "-" is null. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "broker/broker.h"

#define MAX_HELD 100000
#define MAX_WORDS 16

static struct broker *broker;
static struct broker_consumer *consumer;
static struct broker_producer *producer;
static struct broker_txn *txn;
static struct broker_record *held[MAX_HELD];
static size_t held_count;
static char revoked[4096];
static bool assigned[1000];

static struct span word(const char *text)
{
    return strcmp(text, "-") == 0 ? SPAN_NULL : span_of(text);
}

static void print_quoted(const char *text, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\' || c < ' ')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void answer(enum broker_result result, const struct broker_error *error)
{
    printf("{\"result\":\"%s\"", broker_result_word(result));
    if (result != BROKER_OK) {
        printf(",\"text\":");
        print_quoted(error->text, strlen(error->text));
    }
}

static void print_text(const char *name, struct span value)
{
    printf(",\"%s\":", name);
    if (span_is_null(value))
        printf("null");
    else
        print_quoted(value.p, value.n);
}

static void print_record(const struct broker_record *r)
{
    printf("{\"topic\":\"%s\",\"partition\":%d,\"offset\":%" PRId64 ",\"timestamp\":%" PRId64
           ",\"headers\":%zu",
           r->topic, (int)r->partition, r->offset, r->timestamp_ms, r->header_count);
    print_text("key", r->key);
    print_text("value", r->value);
    putchar('}');
}

/* ---- Consumer ---- */

static void on_assigned(void *opaque, const char *topic, int32_t partition)
{
    (void)opaque;
    (void)topic;
    assigned[partition] = true;
}

static void on_revoked(void *opaque, const char *topic, int32_t partition, bool lost)
{
    (void)opaque;
    (void)topic;
    assigned[partition] = false;
    size_t used = strlen(revoked);
    (void)snprintf(revoked + used, sizeof revoked - used, "%s{\"partition\":%d,\"lost\":%s}",
                   used ? "," : "", (int)partition, lost ? "true" : "false");
}

static void open_consumer(char **w)
{
    const char *topics[] = {w[2]};
    const struct broker_consumer_options options = {
        .group = w[1],
        .topics = topics,
        .topic_count = 1,
        .commit_interval_ms = 100,
        .revoke_wait_ms = atoi(w[3]),
        .callbacks = {.assigned = on_assigned, .revoked = on_revoked}};
    struct broker_error error;
    answer(broker_consumer_open(broker, &options, &consumer, &error), &error);
    putchar('}');
}

/* poll MS MAX: keeps the records; "take" also says done at once. */
static void poll_records(char **w, bool done)
{
    static struct broker_record *batch[1000];
    size_t max = strtoul(w[2], NULL, 10),
           n = broker_poll_many(consumer, batch, max < 1000 ? max : 1000, atoi(w[1]));

    printf("{\"records\":[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            putchar(',');
        print_record(batch[i]);
        if (done) {
            broker_done(batch[i]);
            broker_record_free(batch[i]);
        } else {
            CHECK(held_count < MAX_HELD);
            held[held_count++] = batch[i];
        }
    }
    printf("],\"revoked\":[%s],\"outstanding\":%zu,\"assigned\":[", revoked,
           broker_outstanding(consumer));
    for (int i = 0, before = 0; i < 1000; i++)
        if (assigned[i])
            printf("%s%d", before++ ? "," : "", i);
    printf("]}");
    revoked[0] = '\0';
}

static void done(char **w)
{
    int32_t partition = atoi(w[1]);
    int64_t offset = strtoll(w[2], NULL, 10);
    size_t found = 0;

    for (size_t i = 0; i < held_count; i++) {
        if (held[i]->partition == partition && held[i]->offset == offset) {
            broker_done(held[i]);
            found++;
        }
    }
    printf("{\"found\":%zu}", found);
}

static void pause_or_resume(char **w, bool pause)
{
    if (strcmp(w[1], "all") == 0)
        (pause ? broker_pause_all : broker_resume_all)(consumer);
    else
        (pause ? broker_pause : broker_resume)(consumer, w[1], atoi(w[2]));
    printf("{}");
}

static void close_consumer(void)
{
    broker_consumer_close(consumer);
    consumer = NULL;
    printf("{\"revoked\":[%s]}", revoked);
    revoked[0] = '\0';
}

/* ---- Producers ---- */

static struct {
    enum broker_result result;
    int calls;
} delivery;

static void on_delivered(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                         const char *text)
{
    (void)opaque;
    (void)partition;
    (void)offset;
    (void)text;
    delivery.result = result;
    delivery.calls++;
}

/* produce TOPIC PARTITION|-1 KEY VALUE COUNT: COUNT records, "%d" in KEY and VALUE is the number.
 */
static struct span numbered(char *buffer, size_t size, const char *pattern, int number)
{
    const char *at = strstr(pattern, "%d");
    if (!at)
        return word(pattern);
    (void)snprintf(buffer, size, "%.*s%d%s", (int)(at - pattern), pattern, number, at + 2);
    return span_of(buffer);
}

static void produce(char **w)
{
    struct broker_error error;
    enum broker_result result = BROKER_OK;
    char key[300], value[300];

    if (!producer)
        result = broker_producer_open(broker, &producer, &error);
    for (int i = 0; i < atoi(w[5]) && result == BROKER_OK; i++) {
        const struct broker_message message = {.topic = w[1],
                                               .partition = atoi(w[2]),
                                               .key = numbered(key, sizeof key, w[3], i),
                                               .value = numbered(value, sizeof value, w[4], i)};
        result = broker_produce(producer, &message, on_delivered, NULL, &error);
    }
    if (result == BROKER_OK)
        result = broker_flush(producer, 60000);
    answer(result, &error);
    printf(",\"delivered\":\"%s\",\"calls\":%d}", broker_result_word(delivery.result),
           delivery.calls);
}

static void transaction(char **w, int words)
{
    struct broker_error error = {""};
    uint64_t tag = 0;

    if (strcmp(w[0], "txn") == 0)
        answer(broker_txn_open(broker, w[1], atoi(w[2]), atoi(w[3]), &txn, &error), &error);
    else if (strcmp(w[0], "begin") == 0)
        answer(broker_txn_begin(txn, &error), &error);
    else if (strcmp(w[0], "commit") == 0)
        answer(broker_txn_commit(txn, atoi(w[1]), &error), &error);
    else if (strcmp(w[0], "abort") == 0)
        answer(broker_txn_abort(txn, atoi(w[1]), &error), &error);
    else if (strcmp(w[0], "send") == 0 && words == 6) {
        char *large = NULL;
        struct span value = word(w[4]);
        if (w[4][0] == '#') { /* a value of so many bytes */
            value = (struct span){NULL, strtoul(w[4] + 1, NULL, 10)};
            large = memory_new(value.n + 1, 1);
            memset(large, 'x', value.n);
            value.p = large;
        }
        const struct broker_message message = {
            .topic = w[1], .partition = atoi(w[2]), .key = word(w[3]), .value = value};
        answer(broker_txn_produce(txn, &message, strtoull(w[5], NULL, 10), &error), &error);
        free(large);
    }
    if (strcmp(w[0], "commit") == 0 && broker_txn_refused(txn, &tag))
        printf(",\"refused\":%" PRIu64, tag);
    putchar('}');
}

/* ---- Read-backs, topics ---- */

static void last(char **w)
{
    struct broker_error error;
    struct broker_record *record = NULL;
    enum broker_result result =
        broker_last_of_partition(broker, w[1], atoi(w[2]), atoi(w[3]), &record, &error);

    answer(result, &error);
    if (result == BROKER_OK) {
        printf(",\"record\":");
        if (record)
            print_record(record);
        else
            printf("null");
    }
    putchar('}');
    broker_record_free(record);
}

struct scanned {
    size_t n, stop_after;
};

static bool scan_one(void *opaque, const struct broker_record *record)
{
    struct scanned *s = opaque;
    if (s->n++)
        putchar(',');
    print_record(record);
    return s->n != s->stop_after;
}

/* since TOPIC MS TIMEOUT STOP_AFTER(0: never) */
static void since(char **w)
{
    struct broker_error error;
    struct scanned s = {0, strtoul(w[4], NULL, 10)};

    printf("{\"records\":[");
    enum broker_result result =
        broker_read_since(broker, w[1], strtoll(w[2], NULL, 10), atoi(w[3]), scan_one, &s, &error);
    printf("],\"answer\":");
    answer(result, &error);
    printf("}}");
}

static void lag(char **w)
{
    struct broker_error error;
    int64_t behind = 0;
    answer(broker_group_lag(broker, w[1], w[2], atoi(w[3]), &behind, &error), &error);
    printf(",\"lag\":%" PRId64 "}", behind);
}

/* topics apply|check PREFIX PARTITIONS SHARDS */
static void topics(char **w)
{
    struct broker_error error;
    struct broker_topic wanted[BROKER_TOPIC_ROLES];
    struct broker_topic_state states[BROKER_TOPIC_ROLES] = {0};

    broker_topics_of(w[2], atoi(w[3]), atoi(w[4]), wanted);
    enum broker_result result =
        strcmp(w[1], "apply") == 0
            ? broker_topics_apply(broker, wanted, BROKER_TOPIC_ROLES, 1, 30000, states, &error)
            : broker_topics_check(broker, wanted, BROKER_TOPIC_ROLES, 30000, states, &error);
    answer(result, &error);
    printf(",\"topics\":{");
    for (size_t i = 0; i < BROKER_TOPIC_ROLES; i++)
        printf(
            "%s\"%s\":{\"exists\":%d,\"created\":%d,\"ok\":%d,\"partitions\":%d,\"replication\":%d,"
            "\"min_insync\":%d,\"detail\":\"%s\"}",
            i ? "," : "", wanted[i].name + strlen(w[2]), states[i].exists, states[i].created,
            states[i].ok, (int)states[i].partitions, (int)states[i].replication,
            (int)states[i].min_insync, states[i].detail);
    printf("}}");
}

static void stats(void)
{
    struct broker_stats s;
    broker_stats(broker, &s);
    printf("{\"consumed\":%" PRIu64 ",\"done\":%" PRIu64 ",\"done_stale\":%" PRIu64
           ",\"rebalances\":%" PRIu64 ",\"commit_failures\":%" PRIu64 ",\"txn_committed\":%" PRIu64
           ",\"txn_fenced\":%" PRIu64 ",\"txn_unknown\":%" PRIu64 "}",
           s.consumed, s.done, s.done_stale, s.rebalances, s.commit_failures, s.txn_committed,
           s.txn_fenced, s.txn_unknown);
}

static void cluster(void)
{
    char id[128] = "";
    struct broker_error error;
    answer(broker_cluster_id(broker, 10000, id, sizeof id, &error), &error);
    printf(",\"id\":\"%s\",\"mock\":%d}", id, broker_cluster_is_mock(id));
}

static bool obey(char **w, int words)
{
    const char *verb = w[0];

    if (strcmp(verb, "consumer") == 0)
        open_consumer(w);
    else if (strcmp(verb, "poll") == 0 || strcmp(verb, "take") == 0)
        poll_records(w, verb[0] == 't');
    else if (strcmp(verb, "done") == 0)
        done(w);
    else if (strcmp(verb, "pause") == 0 || strcmp(verb, "resume") == 0)
        pause_or_resume(w, verb[0] == 'p');
    else if (strcmp(verb, "close") == 0)
        close_consumer();
    else if (strcmp(verb, "produce") == 0)
        produce(w);
    else if (strcmp(verb, "closetxn") == 0) {
        broker_txn_close(txn);
        txn = NULL;
        printf("{}");
    } else if (strcmp(verb, "last") == 0)
        last(w);
    else if (strcmp(verb, "since") == 0)
        since(w);
    else if (strcmp(verb, "lag") == 0)
        lag(w);
    else if (strcmp(verb, "topics") == 0)
        topics(w);
    else if (strcmp(verb, "stats") == 0)
        stats();
    else if (strcmp(verb, "cluster") == 0)
        cluster();
    else
        transaction(w, words);
    return strcmp(verb, "quit") != 0;
}

static void close_all(void)
{
    broker_consumer_close(consumer);
    broker_producer_close(producer);
    broker_txn_close(txn);
    for (size_t i = 0; i < held_count; i++)
        broker_record_free(held[i]);
    broker_close(broker);
}

static void on_log(void *opaque, int level, const char *facility, const char *text)
{
    (void)opaque;
    (void)fprintf(stderr, "%d|%s|%s\n", level, facility, text);
}

static void on_error(void *opaque, const char *text, bool fatal)
{
    (void)opaque;
    (void)fprintf(stderr, "error%s: %s\n", fatal ? " (fatal)" : "", text);
}

/* broker_probe BOOTSTRAP [consumer.name=value | producer.name=value | name=value]… */
static void open_broker(int argc, char **argv)
{
    struct broker_property properties[20] = {{"bootstrap.servers", argv[1], BROKER_ALL}};
    size_t n = 1;
    struct broker_error error;

    for (int i = 2; i < argc && n < 20; i++) {
        enum broker_scope scope = strncmp(argv[i], "consumer.", 9) == 0   ? BROKER_CONSUMER
                                  : strncmp(argv[i], "producer.", 9) == 0 ? BROKER_PRODUCER
                                                                          : BROKER_ALL;
        char *name = argv[i] + (scope == BROKER_ALL ? 0 : 9), *equals = strchr(name, '=');
        CHECK(equals);
        *equals = '\0';
        properties[n++] = (struct broker_property){name, equals + 1, scope};
    }
    const struct broker_hooks hooks = {.log = on_log, .error = on_error};
    if (broker_open(properties, n, &hooks, &broker, &error) != BROKER_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    char line[4096];

    if (argc < 2)
        return 2;
    open_broker(argc, argv);
    (void)setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    for (bool more = true; more && fgets(line, sizeof line, stdin);) {
        char *words[MAX_WORDS + 1] = {0};
        int count = 0;
        for (char *at = strtok(line, " \n"); at && count < MAX_WORDS; at = strtok(NULL, " \n"))
            words[count++] = at;
        if (count == 0)
            continue;
        more = obey(words, count);
        putchar('\n');
        (void)fflush(stdout);
    }
    close_all();
    return 0;
}

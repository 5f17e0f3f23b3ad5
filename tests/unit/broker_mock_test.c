/* Consumer and producer on the mock cluster of librdkafka: the development broker, and faults on
 * demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/queue.h"
#include "broker/broker.h"

#define WAIT_MS 30000
#define TOPIC "holdfast.tasks"

struct world {
    struct broker_mock *mock;
    struct broker *broker;
};

static int set_up(void **state)
{
    static struct world world;
    struct broker_topic topics[BROKER_TOPIC_ROLES];

    broker_topics_of("holdfast.", 2, 8, topics);
    assert_int_equal(broker_mock_open(topics, BROKER_TOPIC_ROLES, &world.mock, NULL), BROKER_OK);
    const struct broker_property properties[] = {
        {"bootstrap.servers", broker_mock_bootstrap(world.mock), BROKER_ALL},
        {"session.timeout.ms", "6000", BROKER_CONSUMER},
    };
    assert_int_equal(broker_open(properties, 2, NULL, &world.broker, NULL), BROKER_OK);
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    broker_close(world->broker);
    broker_mock_close(world->mock);
    return 0;
}

static void produce(struct broker_producer *p, const char *key, const char *value)
{
    const struct broker_header headers[] = {{SPAN_LIT("h"), SPAN_LIT("v")},
                                            {SPAN_LIT("none"), SPAN_NULL}};
    const struct broker_message message = {TOPIC,          BROKER_BY_KEY, span_of(key),
                                           span_of(value), headers,       2};
    assert_int_equal(broker_produce(p, &message, NULL, NULL, NULL), BROKER_OK);
}

static struct broker_consumer *consumer(struct world *w, const char *group)
{
    static const char *const topics[] = {TOPIC};
    const struct broker_consumer_options options = {
        .group = group, .topics = topics, .topic_count = 1, .commit_interval_ms = 50};
    struct broker_consumer *c;
    assert_int_equal(broker_consumer_open(w->broker, &options, &c, NULL), BROKER_OK);
    return c;
}

static void what_is_produced_is_consumed_whole(void **state)
{
    struct world *w = *state;
    struct broker_producer *p;
    struct broker_consumer *c = consumer(w, "whole");
    bool seen_null = false, seen_text = false;

    assert_int_equal(broker_producer_open(w->broker, &p, NULL), BROKER_OK);
    produce(p, "t1", "{}");
    produce(p, NULL, NULL);
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    for (int i = 0; i < 2; i++) {
        struct broker_record *r = broker_poll(c, WAIT_MS);
        assert_non_null(r);
        assert_string_equal(r->topic, TOPIC);
        assert_int_equal(r->header_count, 2);
        assert_true(span_eq_text(r->headers[0].name, "h"));
        assert_true(span_eq_text(r->headers[0].value, "v"));
        assert_true(span_is_null(r->headers[1].value));
        assert_true(r->timestamp_ms > 0);
        seen_null |= span_is_null(r->key) && span_is_null(r->value);
        seen_text |= span_eq_text(r->key, "t1") && span_eq_text(r->value, "{}");
        broker_done(r);
        broker_record_free(r);
    }
    assert_true(seen_null && seen_text);
    broker_producer_close(p);
    broker_consumer_close(c);
}

static void a_consumer_that_comes_back_gets_what_was_not_done(void **state)
{
    struct world *w = *state;
    struct broker_producer *p;
    int64_t lag = -1;

    assert_int_equal(broker_producer_open(w->broker, &p, NULL), BROKER_OK);
    int64_t before;
    struct broker_consumer *c = consumer(w, "back");
    assert_int_equal(broker_group_lag(w->broker, "back", TOPIC, WAIT_MS, &before, NULL), BROKER_OK);
    for (int i = 0; i < 10; i++)
        produce(p, "same-key", "x");
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    struct broker_record *kept = NULL;
    for (int64_t i = 0; i < before + 10; i++) {
        struct broker_record *r = broker_poll(c, WAIT_MS);
        assert_non_null(r);
        if (i == before + 4) {
            kept = r;
            continue;
        }
        broker_done(r);
        broker_record_free(r);
    }
    broker_consumer_close(c);
    broker_done(kept); /* its consumer is gone: ignored */
    assert_int_equal(broker_group_lag(w->broker, "back", TOPIC, WAIT_MS, &lag, NULL), BROKER_OK);
    c = consumer(w, "back");
    struct broker_record *again = broker_poll(c, WAIT_MS);
    assert_non_null(again);
    assert_int_equal(again->offset, kept->offset);
    assert_int_equal(again->partition, kept->partition);
    broker_record_free(again);
    broker_record_free(kept);
    broker_consumer_close(c);
    broker_producer_close(p);
    assert_true(lag >= 1);
}

static void records_outlive_their_consumer(void **state)
{
    struct world *w = *state;
    struct broker_producer *p;
    assert_int_equal(broker_producer_open(w->broker, &p, NULL), BROKER_OK);
    produce(p, "k", "outlives");
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    broker_producer_close(p);
    struct broker_consumer *c = consumer(w, "outlive");
    struct broker_record *r = broker_poll(c, WAIT_MS);
    assert_non_null(r);
    broker_consumer_close(c);
    assert_string_equal(r->topic, TOPIC);
    broker_done(r);
    broker_record_free(r);
}

struct told {
    enum broker_result result;
    int calls;
};

static void hear(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                 const char *text)
{
    struct told *told = opaque;
    (void)partition;
    (void)offset;
    (void)text;
    told->result = result;
    told->calls++;
}

static void a_message_too_large_is_refused_at_once(void **state)
{
    struct world *w = *state;
    struct broker_producer *p;
    static char body[2 * 1000 * 1000];
    struct broker_error error = {""};
    struct told told = {BROKER_UNKNOWN, 0};

    memset(body, 'x', sizeof body);
    assert_int_equal(broker_producer_open(w->broker, &p, NULL), BROKER_OK);
    const struct broker_message message = {
        .topic = TOPIC, .partition = BROKER_BY_KEY, .value = {body, sizeof body}};
    assert_int_equal(broker_produce(p, &message, hear, &told, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, TOPIC));
    assert_int_equal(told.calls, 0);
    const struct broker_message small = {
        .topic = TOPIC, .partition = BROKER_BY_KEY, .value = {body, 10}};
    assert_int_equal(broker_produce(p, &small, hear, &told, &error), BROKER_OK);
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    assert_int_equal(told.calls, 1);
    assert_int_equal(told.result, BROKER_OK);
    broker_producer_close(p);
}

static void a_dead_letter_is_the_record_unchanged_with_headers_that_say_why(void **state)
{
    struct world *w = *state;
    struct broker_producer *p;
    struct broker_consumer *c = consumer(w, "dead");
    static const char *const letters[] = {"holdfast.dead-letters"};
    const struct broker_consumer_options options = {
        .group = "letters", .topics = letters, .topic_count = 1};
    const struct broker_header why[] = {{SPAN_LIT("reason"), SPAN_LIT("unknown_field")}};
    struct broker_consumer *reader;

    assert_int_equal(broker_producer_open(w->broker, &p, NULL), BROKER_OK);
    produce(p, "poison", "\x01\x02");
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    struct broker_record *r = broker_poll(c, WAIT_MS);
    while (r && !span_eq_text(r->key, "poison")) {
        broker_record_free(r);
        r = broker_poll(c, WAIT_MS);
    }
    assert_non_null(r);
    assert_int_equal(broker_forward(p, letters[0], r, why, 1, NULL, NULL, NULL), BROKER_OK);
    assert_int_equal(broker_flush(p, WAIT_MS), BROKER_OK);
    assert_int_equal(broker_consumer_open(w->broker, &options, &reader, NULL), BROKER_OK);
    struct broker_record *letter = broker_poll(reader, WAIT_MS);
    assert_non_null(letter);
    assert_true(span_eq(letter->key, r->key));
    assert_true(span_eq(letter->value, r->value));
    assert_int_equal(letter->header_count, 3);
    assert_true(span_eq_text(letter->headers[2].value, "unknown_field"));
    broker_record_free(letter);
    broker_record_free(r);
    broker_consumer_close(reader);
    broker_consumer_close(c);
    broker_producer_close(p);
}

/* ---- One thread polls, others say done, another pauses: as in a pod ---- */

enum { FLOOD = 4000, HELPERS = 3 };

struct crew {
    struct queue *queue;
    struct broker_consumer *consumer;
    struct broker *broker;
    _Atomic int done;
};

static void *finish_records(void *argument)
{
    struct crew *crew = argument;
    void *batch[64];
    size_t n;

    while ((n = queue_pop_many(crew->queue, batch, 64, CLOCK_FOREVER)) > 0) {
        for (size_t i = 0; i < n; i++) {
            broker_done(batch[i]);
            broker_record_free(batch[i]);
        }
        atomic_fetch_add(&crew->done, (int)n);
    }
    return NULL;
}

/* A pause throws away what was fetched ahead: each round waits for some progress, or there would be
 * none. */
static void *pause_and_resume(void *argument)
{
    struct crew *crew = argument;
    const struct timespec moment = {0, 1000 * 1000};

    for (int round = 0; round < 3; round++) {
        broker_pause_all(crew->consumer);
        broker_pause(crew->consumer, TOPIC, 0);
        broker_resume(crew->consumer, TOPIC, 0);
        broker_resume_all(crew->consumer);
        (void)broker_outstanding(crew->consumer);
        int before = atomic_load(&crew->done);
        while (atomic_load(&crew->done) < before + FLOOD / 20 && !queue_is_closed(crew->queue))
            (void)nanosleep(&moment, NULL);
    }
    return NULL;
}

static void *flood(void *argument)
{
    struct crew *crew = argument;
    struct broker_producer *p;
    char key[32];

    CHECK(broker_producer_open(crew->broker, &p, NULL) == BROKER_OK);
    for (int i = 0; i < FLOOD; i++) {
        (void)snprintf(key, sizeof key, "flood-%d", i);
        produce(p, key, "x");
    }
    CHECK(broker_flush(p, WAIT_MS) == BROKER_OK);
    broker_producer_close(p);
    return NULL;
}

static void records_are_done_by_other_threads_while_it_polls(void **state)
{
    struct world *w = *state;
    struct crew crew = {
        .queue = queue_new(256), .broker = w->broker, .consumer = consumer(w, "crew")};
    pthread_t threads[HELPERS + 2];
    int64_t deadline = clock_deadline_us(90 * CLOCK_SECOND), behind = -1;
    int seen = 0;

    for (int i = 0; i < HELPERS; i++)
        assert_true(thread_start(&threads[i], "finish", finish_records, &crew));
    assert_true(thread_start(&threads[HELPERS], "pause", pause_and_resume, &crew));
    assert_true(thread_start(&threads[HELPERS + 1], "flood", flood, &crew));
    while (seen < FLOOD && clock_mono_us() < deadline) {
        struct broker_record *r = broker_poll(crew.consumer, 100);
        if (!r)
            continue;
        seen += r->key.n > 6 && memcmp(r->key.p, "flood-", 6) == 0;
        assert_true(queue_push(crew.queue, r, CLOCK_FOREVER));
    }
    assert_int_equal(seen, FLOOD);
    queue_close(crew.queue);
    for (int i = 0; i < HELPERS + 2; i++)
        thread_join(threads[i]);
    assert_int_equal(broker_outstanding(crew.consumer), 0);
    broker_consumer_close(crew.consumer);
    assert_int_equal(broker_group_lag(w->broker, "crew", TOPIC, WAIT_MS, &behind, NULL), BROKER_OK);
    assert_int_equal(behind, 0);
    queue_free(crew.queue);
}

static void the_mock_says_that_it_is_one(void **state)
{
    struct world *w = *state;
    char id[128], path[128], line[128];
    struct broker_error error;

    assert_int_equal(broker_cluster_id(w->broker, WAIT_MS, id, sizeof id, NULL), BROKER_OK);
    assert_true(broker_cluster_is_mock(id));
    assert_false(broker_cluster_is_mock("aG9sZGZhc3QtdGVzdHMwMQ"));
    (void)snprintf(path, sizeof path, "/tmp/broker-mock-test-%ld", (long)clock_mono_us());
    assert_int_equal(broker_mock_write(w->mock, path, NULL), BROKER_OK);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_non_null(fgets(line, sizeof line, in));
    (void)fclose(in);
    (void)remove(path);
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(line, broker_mock_bootstrap(w->mock));
    assert_int_equal(broker_mock_write(w->mock, "/nonexistent/file", &error), BROKER_REFUSED);
}

static void nobody_there_is_said_in_time(void **state)
{
    (void)state;
    const struct broker_property properties[] = {{"bootstrap.servers", "127.0.0.1:1", BROKER_ALL}};
    struct broker *broker;
    char id[64];
    struct broker_error error = {""};

    assert_int_equal(broker_open(properties, 1, NULL, &broker, NULL), BROKER_OK);
    assert_int_equal(broker_cluster_id(broker, 300, id, sizeof id, &error), BROKER_RETRY);
    assert_non_null(strstr(error.text, "no Kafka broker answered"));
    struct broker_record *record = NULL;
    assert_int_equal(broker_last_of_partition(broker, TOPIC, 0, 300, &record, &error),
                     BROKER_RETRY);
    broker_close(broker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_produced_is_consumed_whole),
        cmocka_unit_test(a_consumer_that_comes_back_gets_what_was_not_done),
        cmocka_unit_test(records_outlive_their_consumer),
        cmocka_unit_test(a_message_too_large_is_refused_at_once),
        cmocka_unit_test(a_dead_letter_is_the_record_unchanged_with_headers_that_say_why),
        cmocka_unit_test(records_are_done_by_other_threads_while_it_polls),
        cmocka_unit_test(the_mock_says_that_it_is_one),
        cmocka_unit_test(nobody_there_is_said_in_time),
    };
    return cmocka_run_group_tests_name("broker_mock", tests, set_up, tear_down);
}

/* A consumer that is closed while it joins its group: librdkafka 2.0 ends the process when such a
 * client is destroyed between the answer to its JoinGroup and its first assignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "base/clock.h"
#include "broker/broker.h"

#define JOIN_MS 20000
#define SYNC_GROUP 14 /* the request's number in Kafka's protocol */

struct world {
    rd_kafka_t *rk;
    rd_kafka_mock_cluster_t *cluster;
    struct broker *broker;
    atomic_bool syncs; /* a consumer's JoinGroup was answered */
};

static void on_log(void *opaque, int level, const char *facility, const char *text)
{
    struct world *w = opaque;
    (void)level, (void)facility;
    if (strstr(text, "running cooperative-sticky assignor") != NULL)
        atomic_store(&w->syncs, true);
}

static int set_up(void **state)
{
    static struct world w;
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, NULL);
    w.rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    assert_non_null(w.rk);
    w.cluster = rd_kafka_mock_cluster_new(w.rk, 1);
    assert_non_null(w.cluster);
    assert_int_equal(rd_kafka_mock_topic_create(w.cluster, "t", 2, 1), 0);
    const struct broker_property properties[] = {
        {"bootstrap.servers", rd_kafka_mock_cluster_bootstraps(w.cluster), BROKER_ALL},
        {"debug", "cgrp", BROKER_CONSUMER},
    };
    const struct broker_hooks hooks = {.opaque = &w, .log = on_log};
    assert_int_equal(broker_open(properties, 2, &hooks, &w.broker, NULL), BROKER_OK);
    atomic_store(&w.syncs, false);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    broker_close(w->broker);
    rd_kafka_mock_cluster_destroy(w->cluster);
    rd_kafka_destroy(w->rk);
    return 0;
}

static struct broker_consumer *joining(struct world *w)
{
    static const char *const topics[] = {"t"};
    const struct broker_consumer_options options = {
        .group = "g", .topics = topics, .topic_count = 1};
    struct broker_consumer *c;
    assert_int_equal(broker_consumer_open(w->broker, &options, &c, NULL), BROKER_OK);
    int64_t until = clock_deadline_us(JOIN_MS * CLOCK_MS);
    while (!atomic_load(&w->syncs)) {
        assert_true(clock_mono_us() < until);
        assert_null(broker_poll(c, 1));
    }
    return c;
}

/* The group is rebalanced anew instead of giving the assignment, so many times. */
static void refuse_sync(struct world *w, size_t times)
{
    rd_kafka_resp_err_t errors[1000];
    assert_true(times <= sizeof errors / sizeof *errors);
    for (size_t i = 0; i < times; i++)
        errors[i] = RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    rd_kafka_mock_push_request_errors_array(w->cluster, SYNC_GROUP, times, errors);
}

static uint64_t close_and_count_rebalances(struct world *w)
{
    struct broker_stats stats;
    broker_consumer_close(joining(w));
    broker_stats(w->broker, &stats);
    return stats.rebalances;
}

static void closing_waits_for_the_first_assignment(void **state)
{
    struct world *w = *state;
    rd_kafka_mock_broker_set_rtt(w->cluster, 1, 700); /* the answer to SyncGroup is on its way */
    assert_true(close_and_count_rebalances(w) > 0);
}

static void a_group_that_never_assigns_is_left_all_the_same(void **state)
{
    struct world *w = *state;
    refuse_sync(w, 1000);
    assert_int_equal(close_and_count_rebalances(w), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(closing_waits_for_the_first_assignment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_group_that_never_assigns_is_left_all_the_same, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

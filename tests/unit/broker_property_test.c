/* Properties: passed through, guarded with a reason, refused in librdkafka's own words, masked when
 * shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broker/broker.h"

#define BOOTSTRAP                                                                                  \
    {                                                                                              \
        "bootstrap.servers", "127.0.0.1:1", BROKER_ALL                                             \
    }

static enum broker_result open_with(const char *name, const char *value, enum broker_scope scope,
                                    struct broker_error *ret_error)
{
    const struct broker_property properties[] = {BOOTSTRAP, {name, value, scope}};
    struct broker *broker = NULL;
    enum broker_result result = broker_open(properties, 2, NULL, &broker, ret_error);

    broker_close(broker);
    return result;
}

static void a_guarded_property_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const char *const guarded[] = {
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "transactional.id",
        "transaction.timeout.ms",
        "isolation.level",
        "plugin.library.paths",
        "ssl.engine.location",
        "auto.offset.reset",
        "group.id",
        "partition.assignment.strategy",
        "partitioner",
        "sasl.kerberos.kinit.cmd",
        "group.instance.id",
        "test.mock.num.brokers",
    };
    for (size_t i = 0; i < sizeof guarded / sizeof guarded[0]; i++) {
        struct broker_error error = {""};
        assert_int_equal(open_with(guarded[i], "true", BROKER_ALL, &error), BROKER_REFUSED);
        assert_non_null(strstr(error.text, guarded[i]));
        assert_non_null(strstr(error.text, broker_property_guard(guarded[i])));
    }
    assert_null(broker_property_guard("linger.ms"));
}

static void an_unknown_property_is_refused_in_the_clients_words(void **state)
{
    (void)state;
    struct broker_error error = {""};
    assert_int_equal(open_with("linger.msec", "5", BROKER_PRODUCER, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, "kafka.producer.linger.msec"));
    assert_non_null(strstr(error.text, "No such configuration property"));
    assert_int_equal(open_with("linger.ms", "soon", BROKER_PRODUCER, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, "linger.ms"));
    assert_int_equal(open_with("sasl.password", "", BROKER_ALL, &error), BROKER_OK);
}

static void
a_property_of_the_other_kind_of_client_is_refused_where_it_would_be_ignored(void **state)
{
    (void)state;
    struct broker_error error = {""};
    assert_int_equal(open_with("linger.ms", "7", BROKER_CONSUMER, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, "kafka.consumer.linger.ms"));
    assert_int_equal(open_with("max.poll.interval.ms", "400000", BROKER_PRODUCER, &error),
                     BROKER_REFUSED);
    assert_int_equal(open_with("max.poll.interval.ms", "400000", BROKER_ALL, &error), BROKER_OK);
}

static void properties_that_do_not_fit_together_are_refused(void **state)
{
    (void)state;
    struct broker_error error = {""};
    assert_int_equal(open_with("ssl.ca.location", "/nonexistent/ca.pem", BROKER_ALL, &error),
                     BROKER_OK);
    const struct broker_property tls[] = {BOOTSTRAP,
                                          {"security.protocol", "ssl", BROKER_ALL},
                                          {"ssl.ca.location", "/nonexistent/ca.pem", BROKER_ALL}};
    struct broker *broker = NULL;
    assert_int_equal(broker_open(tls, 3, NULL, &broker, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, "ssl.ca.location"));
    assert_null(broker);
}

static void without_an_address_there_is_no_broker(void **state)
{
    (void)state;
    struct broker_error error = {""};
    struct broker *broker = NULL;
    assert_int_equal(broker_open(NULL, 0, NULL, &broker, &error), BROKER_REFUSED);
    assert_non_null(strstr(error.text, "kafka.bootstrap.servers"));
}

struct wanted {
    const char *name;
    char value[64];
};

static void pick(void *opaque, const char *name, const char *value)
{
    for (struct wanted *w = opaque; w->name; w++)
        if (strcmp(w->name, name) == 0)
            (void)snprintf(w->value, sizeof w->value, "%s", value);
    assert_null(strstr(value, "hunter2"));
}

static void the_narrow_scope_wins_and_secrets_are_masked(void **state)
{
    (void)state;
    const struct broker_property properties[] = {
        {"client.id", "narrow", BROKER_PRODUCER},    BOOTSTRAP,
        {"client.id", "wide", BROKER_ALL},           {"sasl.password", "hunter2", BROKER_ALL},
        {"ssl.key.password", "hunter2", BROKER_ALL},
    };
    struct broker *broker;
    struct wanted of_producer[] = {
        {"client.id", ""}, {"sasl.password", ""},         {"enable.idempotence", ""},
        {"acks", ""},      {"request.required.acks", ""}, {"partitioner", ""},
        {NULL, ""}};
    struct wanted of_consumer[] = {{"client.id", ""},
                                   {"ssl.key.password", ""},
                                   {"queued.min.messages", ""},
                                   {"enable.auto.commit", ""},
                                   {"auto.offset.reset", ""},
                                   {"partition.assignment.strategy", ""},
                                   {NULL, ""}};

    assert_int_equal(broker_open(properties, 5, NULL, &broker, NULL), BROKER_OK);
    broker_config_dump(broker, BROKER_PRODUCER, pick, of_producer);
    broker_config_dump(broker, BROKER_CONSUMER, pick, of_consumer);
    assert_string_equal(of_producer[0].value, "narrow");
    assert_string_equal(of_producer[1].value, "********");
    assert_string_equal(of_producer[2].value, "true");
    assert_string_equal(of_producer[3].value[0] ? of_producer[3].value : of_producer[4].value,
                        "-1");
    assert_string_equal(of_producer[5].value, "murmur2_random");
    assert_string_equal(of_consumer[0].value, "wide");
    assert_string_equal(of_consumer[1].value, "********");
    assert_string_equal(of_consumer[2].value, "1000");
    assert_string_equal(of_consumer[3].value, "false");
    assert_string_equal(of_consumer[4].value,
                        "smallest"); /* librdkafka's other word for earliest */
    assert_string_equal(of_consumer[5].value, "cooperative-sticky");
    broker_close(broker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guarded_property_is_refused_with_its_reason),
        cmocka_unit_test(an_unknown_property_is_refused_in_the_clients_words),
        cmocka_unit_test(
            a_property_of_the_other_kind_of_client_is_refused_where_it_would_be_ignored),
        cmocka_unit_test(properties_that_do_not_fit_together_are_refused),
        cmocka_unit_test(without_an_address_there_is_no_broker),
        cmocka_unit_test(the_narrow_scope_wins_and_secrets_are_masked),
    };
    return cmocka_run_group_tests_name("broker_property", tests, NULL, NULL);
}

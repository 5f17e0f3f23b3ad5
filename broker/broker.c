/* A broker: checked properties as templates, the callbacks every client shares, the cluster's
 * identity, counts. */
#include "broker/broker_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metric.h"
#include "config/config.h"

const char *broker_result_word(enum broker_result result)
{
    switch (result) {
    case BROKER_OK:
        return "ok";
    case BROKER_REFUSED:
        return "refused";
    case BROKER_RETRY:
        return "retry";
    case BROKER_UNKNOWN:
        return "unknown";
    case BROKER_FENCED:
        return "fenced";
    }
    NOT_REACHED("a result outside the enumeration");
}

enum broker_result broker_fail(struct broker_error *ret_error, enum broker_result result,
                               const char *format, ...)
{
    if (ret_error) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(ret_error->text, sizeof ret_error->text, format, arguments);
        va_end(arguments);
    }
    return result;
}

/* librdkafka reports its own trouble here; the edge decides what is worth a line. Thread: the one
 * that polls. */
static void on_error(rd_kafka_t *rk, int code, const char *reason, void *opaque)
{
    struct broker_client *client = opaque;
    char text[512];
    bool fatal = code == RD_KAFKA_RESP_ERR__FATAL;

    if (fatal) {
        code = rd_kafka_fatal_error(rk, text, sizeof text);
        atomic_store(&client->failed, true);
    } else {
        (void)snprintf(text, sizeof text, "%s", reason);
    }
    metric_add(METRIC_KAFKA_ERRORS, LABELS(rd_kafka_err2name((rd_kafka_resp_err_t)code)), 1);
    if (client->broker->hooks.error)
        client->broker->hooks.error(client->broker->hooks.opaque, text, fatal);
}

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    const struct broker_client *client = rk ? rd_kafka_opaque(rk) : NULL;

    /* A property for the other kind of client is not wrong in `kafka.`; narrower scopes were
     * checked at open. */
    if (!client || !client->broker->hooks.log || strcmp(facility, "CONFWARN") == 0)
        return;
    client->broker->hooks.log(client->broker->hooks.opaque, level, facility, text);
}

enum broker_result broker_client_new(struct broker *broker, rd_kafka_type_t type,
                                     const struct broker_setting *fixed,
                                     void (*conf_hook)(rd_kafka_conf_t *conf),
                                     struct broker_client *client, rd_kafka_t **ret,
                                     struct broker_error *ret_error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_dup(type == RD_KAFKA_CONSUMER ? broker->consumer_conf
                                                                        : broker->producer_conf);
    char text[400];

    for (; fixed->name; fixed++) {
        if (rd_kafka_conf_set(conf, fixed->name, fixed->value, text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
            rd_kafka_conf_destroy(conf);
            return broker_fail(ret_error, BROKER_REFUSED, "kafka.%s = %s: %s", fixed->name,
                               fixed->value, text);
        }
    }
    client->broker = broker;
    rd_kafka_conf_set_opaque(conf, client);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    if (conf_hook)
        conf_hook(conf);
    rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof text);
    if (!rk) {
        rd_kafka_conf_destroy(conf);
        return broker_fail(ret_error, BROKER_REFUSED, "the Kafka client cannot start: %s", text);
    }
    *ret = rk;
    return BROKER_OK;
}

static const char *named(const struct broker_property *properties, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(properties[i].name, name) == 0)
            return properties[i].value;
    return NULL;
}

enum broker_result broker_open(const struct broker_property *properties, size_t n,
                               const struct broker_hooks *hooks, struct broker **ret,
                               struct broker_error *ret_error)
{
    if (!named(properties, n, "bootstrap.servers") && !named(properties, n, "metadata.broker.list"))
        return broker_fail(ret_error, BROKER_REFUSED, "kafka.bootstrap.servers is not set");

    struct broker *broker = memory_new(1, sizeof *broker);
    if (hooks)
        broker->hooks = *hooks;
    lock_init(&broker->lock);
    broker->consumer_conf = rd_kafka_conf_new();
    broker->producer_conf = rd_kafka_conf_new();
    enum broker_result result =
        broker_properties_apply(broker->consumer_conf, properties, n, BROKER_CONSUMER, ret_error);
    if (result == BROKER_OK)
        result = broker_properties_apply(broker->producer_conf, properties, n, BROKER_PRODUCER,
                                         ret_error);
    if (result != BROKER_OK) {
        broker_close(broker);
        return result;
    }
    *ret = broker;
    return BROKER_OK;
}

static enum broker_scope scope_of(enum config_kafka_scope scope)
{
    switch (scope) {
    case KAFKA_BOTH:
        return BROKER_ALL;
    case KAFKA_CONSUMER:
        return BROKER_CONSUMER;
    case KAFKA_PRODUCER:
        return BROKER_PRODUCER;
    }
    NOT_REACHED("a scope outside the enumeration");
}

enum broker_result broker_open_config(const struct config *config, const char *bootstrap,
                                      const struct broker_hooks *hooks, struct broker **ret,
                                      struct broker_error *ret_error)
{
    struct broker_property *properties CLEANUP(memory_drop) =
        memory_new(config->n_kafka + 1, sizeof *properties);
    size_t n = 0;

    for (size_t i = 0; i < config->n_kafka; i++) {
        const struct config_kafka *from = &config->kafka[i];
        if (bootstrap && strcmp(from->name, "bootstrap.servers") == 0)
            continue;
        properties[n++] = (struct broker_property){from->name, from->value, scope_of(from->scope)};
    }
    if (bootstrap)
        properties[n++] = (struct broker_property){"bootstrap.servers", bootstrap, BROKER_ALL};
    return broker_open(properties, n, hooks, ret, ret_error);
}

void broker_close(struct broker *broker)
{
    if (!broker)
        return;
    rd_kafka_conf_destroy(broker->consumer_conf);
    rd_kafka_conf_destroy(broker->producer_conf);
    lock_destroy(&broker->lock);
    free(broker);
}

enum broker_result broker_cluster_id(struct broker *broker, int timeout_ms, char *ret, size_t size,
                                     struct broker_error *ret_error)
{
    LOCK_SCOPE(&broker->lock);
    if (!broker->cluster_id[0]) {
        const struct broker_setting none[] = {{NULL, NULL}};
        struct broker_client client = {0};
        rd_kafka_t *rk;
        enum broker_result result =
            broker_client_new(broker, RD_KAFKA_PRODUCER, none, NULL, &client, &rk, ret_error);
        if (result != BROKER_OK)
            return result;
        char *id = rd_kafka_clusterid(rk, timeout_ms);
        if (id) {
            (void)snprintf(broker->cluster_id, sizeof broker->cluster_id, "%s", id);
            rd_kafka_mem_free(rk, id);
        }
        rd_kafka_destroy(rk);
        if (!broker->cluster_id[0])
            return broker_fail(ret_error, BROKER_RETRY, "no Kafka broker answered within %d ms",
                               timeout_ms);
    }
    if (strlen(broker->cluster_id) >= size)
        return broker_fail(ret_error, BROKER_REFUSED, "the cluster id is longer than %zu bytes",
                           size);
    memcpy(ret, broker->cluster_id, strlen(broker->cluster_id) + 1);
    return BROKER_OK;
}

bool broker_cluster_is_mock(const char *cluster_id)
{
    return strncmp(cluster_id, "mockCluster", strlen("mockCluster")) == 0;
}

void broker_stats(const struct broker *broker, struct broker_stats *ret)
{
#define READ(kind) atomic_load_explicit(&broker->counts[kind], memory_order_relaxed)
    *ret = (struct broker_stats){
        .consumed = READ(COUNT_CONSUMED),
        .done = READ(COUNT_DONE),
        .done_stale = READ(COUNT_DONE_STALE),
        .rebalances = READ(COUNT_REBALANCES),
        .commit_failures = READ(COUNT_COMMIT_FAILURES),
        .produced = READ(COUNT_PRODUCED),
        .delivered = READ(COUNT_DELIVERED),
        .refused = READ(COUNT_REFUSED),
        .failed = READ(COUNT_FAILED),
        .txn_committed = READ(COUNT_TXN_COMMITTED),
        .txn_aborted = READ(COUNT_TXN_ABORTED),
        .txn_unknown = READ(COUNT_TXN_UNKNOWN),
        .txn_fenced = READ(COUNT_TXN_FENCED),
    };
#undef READ
}

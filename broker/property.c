/* Kafka properties: what holdfast prefers, what users pass through, and what nobody may set because
 * a promise or the process's safety rests on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker_int.h"

struct guard {
    const char *name;
    const char *reason;
};

static const struct guard guards[] = {
    {"enable.auto.commit",
     "an offset is committed only after its record is durably applied or dead-lettered"},
    {"auto.commit.enable",
     "an offset is committed only after its record is durably applied or dead-lettered"},
    {"auto.commit.interval.ms", "offsets are not committed by the client's own timer"},
    {"enable.auto.offset.store",
     "an offset is stored only after its record is durably applied or dead-lettered"},
    {"auto.offset.reset",
     "a group without offsets starts at the earliest record, or records would be lost"},
    {"isolation.level", "records of transactions that were not committed must not be read"},
    {"group.id", "the groups are named by holdfast: pods of one installation must share them"},
    {"group.instance.id", "the consumers of one pod would fence each other under one instance id"},
    {"group.protocol", "the revocation of partitions is written for the classic protocol"},
    {"partition.assignment.strategy",
     "partitions are given up one by one, which needs cooperative-sticky"},
    {"enable.partition.eof", "holdfast sets it: the end of a partition is part of its offset"},
    {"enable.idempotence",
     "records must not be doubled or reordered by the producer's own retries"},
    {"enable.gapless.guarantee",
     "it stops the producer for good at the first message that cannot be delivered"},
    {"acks", "a record counts as written only when all in-sync replicas have it"},
    {"request.required.acks", "a record counts as written only when all in-sync replicas have it"},
    {"partitioner",
     "records of one task must stay in one partition, the one that Java clients choose"},
    {"transactional.id", "each relay shard has its own, by which a stale relay is fenced"},
    {"transaction.timeout.ms",
     "set relay.transaction_timeout_ms: it belongs to the shard lease's time-out"},
    {"delivery.report.only.error", "every delivery report is waited for"},
    {"statistics.interval.ms", "the client's own statistics are not read; see /metrics"},
    {"plugin.library.paths", "it loads code into this process"},
    {"ssl.engine.location", "it loads code into this process"},
    {"sasl.kerberos.kinit.cmd", "it runs a shell command"},
    {"test.mock.num.brokers",
     "each client would talk to a private mock; for development use `holdfast up`"},
};

/* Preferences a user may change. */
static const struct broker_setting common_preferences[] = {
    {"client.id", "holdfast"},
    {"socket.keepalive.enable", "true"},
    {"socket.nagle.disable", "true"},
    {"reconnect.backoff.max.ms", "2000"}, /* work goes on soon after an outage */
    {"log.connection.close", "false"},
    {NULL, NULL},
};
static const struct broker_setting consumer_preferences[] = {
    {"queued.min.messages", "1000"},         /* the default prefetches 100,000 messages … */
    {"queued.max.messages.kbytes", "16384"}, /* … or 64 MiB */
    {"session.timeout.ms",
     "10000"}, /* how long a killed pod's partitions stand still; default 45 s */
    {"heartbeat.interval.ms", "2000"},
    /* A resume has to wait until the long poll under way comes back, twice at worst: with the
     * default of 500 ms a pause costs half a second to a second of standing still. */
    {"fetch.wait.max.ms", "100"},
    {"topic.metadata.refresh.interval.ms", "60000"},
    {NULL, NULL},
};
static const struct broker_setting producer_preferences[] = {
    {"queue.buffering.max.messages", "100000"},
    {"queue.buffering.max.kbytes", "65536"}, /* default 1 GiB */
    {"linger.ms", "1"}, /* hints are about latency; batches come from group commits anyway */
    {NULL, NULL},
};
/* Never a user's: see the guards. */
static const struct broker_setting consumer_fixed[] = {
    {"enable.auto.commit", "false"},
    {"enable.auto.offset.store", "false"},
    {"auto.offset.reset", "earliest"},
    {"isolation.level", "read_committed"},
    {"partition.assignment.strategy", "cooperative-sticky"},
    {"enable.partition.eof", "true"},
    {NULL, NULL},
};
static const struct broker_setting producer_fixed[] = {
    {"enable.idempotence", "true"},
    {"acks", "all"},
    {"partitioner", "murmur2_random"},
    {NULL, NULL},
};

const char *broker_property_guard(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(guards); i++)
        if (strcmp(guards[i].name, name) == 0)
            return guards[i].reason;
    return NULL;
}

static const char *scope_prefix(enum broker_scope scope)
{
    switch (scope) {
    case BROKER_ALL:
        return "kafka.";
    case BROKER_CONSUMER:
        return "kafka.consumer.";
    case BROKER_PRODUCER:
        return "kafka.producer.";
    }
    NOT_REACHED("a scope outside the enumeration");
}

static void set_ours(rd_kafka_conf_t *conf, const struct broker_setting *settings)
{
    for (; settings->name; settings++) {
        rd_kafka_conf_res_t result =
            rd_kafka_conf_set(conf, settings->name, settings->value, NULL, 0);
        CHECK(result == RD_KAFKA_CONF_OK);
    }
}

static bool is_secret(const char *name)
{
    return strstr(name, "password") || strstr(name, "secret") || strstr(name, "key.pem") ||
           strcmp(name, "sasl.oauthbearer.config") == 0;
}

static enum broker_result set_theirs(rd_kafka_conf_t *conf, const struct broker_property *p,
                                     struct broker_error *ret_error)
{
    const char *reason = broker_property_guard(p->name);
    char text[300];

    if (reason)
        return broker_fail(ret_error, BROKER_REFUSED, "%s%s may not be set: %s",
                           scope_prefix(p->scope), p->name, reason);
    if (rd_kafka_conf_set(conf, p->name, p->value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return BROKER_OK;
    /* librdkafka quotes the value, which may be a secret. */
    if (is_secret(p->name))
        return broker_fail(ret_error, BROKER_REFUSED,
                           "%s%s: the value is refused by the Kafka client", scope_prefix(p->scope),
                           p->name);
    return broker_fail(ret_error, BROKER_REFUSED, "%s%s: %s", scope_prefix(p->scope), p->name,
                       text);
}

/* Only a client that is made checks how properties fit together, reads the files they name, and
 * says which property is for the other kind of client. These have no address, so they connect to
 * nothing. */
static void trial_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    struct broker_error *foreign = rd_kafka_opaque(rk);

    (void)level;
    if (foreign && strcmp(facility, "CONFWARN") == 0 && strstr(text, "will be ignored by this"))
        (void)snprintf(foreign->text, sizeof foreign->text, "%s", text);
}

/* Takes conf. `ret_foreign` gets the client's word about a property it ignores. */
static bool try_client(rd_kafka_conf_t *conf, enum broker_scope scope,
                       struct broker_error *ret_foreign, struct broker_error *ret_problem)
{
    bool consumer = scope == BROKER_CONSUMER;

    CHECK(rd_kafka_conf_set(conf, "bootstrap.servers", "", NULL, 0) == RD_KAFKA_CONF_OK);
    if (consumer)
        CHECK(rd_kafka_conf_set(conf, "group.id", "holdfast-check", NULL, 0) == RD_KAFKA_CONF_OK);
    rd_kafka_conf_set_opaque(conf, ret_foreign);
    rd_kafka_conf_set_log_cb(conf, trial_log);
    rd_kafka_t *rk = rd_kafka_new(consumer ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, conf,
                                  ret_problem->text, sizeof ret_problem->text);
    if (rk)
        rd_kafka_destroy(rk);
    else
        rd_kafka_conf_destroy(conf);
    return rk != NULL;
}

/* In `kafka.` a property may be for one kind only; in a narrower scope it would be ignored, so it
 * is refused. */
static enum broker_result refuse_foreign(const struct broker_property *properties, size_t n,
                                         enum broker_scope scope, struct broker_error *ret_error)
{
    for (size_t i = 0; i < n; i++) {
        struct broker_error foreign = {""}, problem;
        if (properties[i].scope != scope)
            continue;
        rd_kafka_conf_t *alone = rd_kafka_conf_new();
        CHECK(rd_kafka_conf_set(alone, properties[i].name, properties[i].value, NULL, 0) ==
              RD_KAFKA_CONF_OK);
        (void)try_client(alone, scope, &foreign,
                         &problem); /* alone it may lack others; the whole is tried later */
        if (foreign.text[0])
            return broker_fail(ret_error, BROKER_REFUSED, "%s%s: %s", scope_prefix(scope),
                               properties[i].name, foreign.text);
    }
    return BROKER_OK;
}

enum broker_result broker_properties_apply(rd_kafka_conf_t *conf,
                                           const struct broker_property *properties, size_t n,
                                           enum broker_scope scope, struct broker_error *ret_error)
{
    bool consumer = scope == BROKER_CONSUMER;

    set_ours(conf, common_preferences);
    set_ours(conf, consumer ? consumer_preferences : producer_preferences);
    const enum broker_scope passes[] = {BROKER_ALL, scope}; /* the narrower one last: it wins */
    for (size_t pass = 0; pass < COUNT_OF(passes); pass++) {
        for (size_t i = 0; i < n; i++) {
            if (properties[i].scope != passes[pass])
                continue;
            enum broker_result result = set_theirs(conf, &properties[i], ret_error);
            if (result != BROKER_OK)
                return result;
        }
    }
    set_ours(conf, consumer ? consumer_fixed : producer_fixed);
    enum broker_result result = refuse_foreign(properties, n, scope, ret_error);
    struct broker_error ignored, problem;
    if (result == BROKER_OK && !try_client(rd_kafka_conf_dup(conf), scope, &ignored, &problem))
        result = broker_fail(ret_error, BROKER_REFUSED,
                             "the Kafka properties do not fit together: %.400s", problem.text);
    return result;
}

static void dump_rows(const char **rows, size_t count,
                      void (*row)(void *, const char *, const char *), void *opaque)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        size_t length = strlen(rows[i]);
        bool pointer = strstr(rows[i], "opaque") || strcmp(rows[i], "interceptors") == 0 ||
                       strcmp(rows[i], "default_topic_conf") == 0 ||
                       strcmp(rows[i], "ssl_ca") == 0 ||
                       (length > 3 && strcmp(rows[i] + length - 3, "_cb") == 0);
        if (!pointer)
            row(opaque, rows[i], is_secret(rows[i]) && rows[i + 1][0] ? "********" : rows[i + 1]);
    }
    rd_kafka_conf_dump_free(rows, count);
}

void broker_config_dump(const struct broker *broker, enum broker_scope scope,
                        void (*row)(void *opaque, const char *name, const char *value),
                        void *opaque)
{
    rd_kafka_conf_t *conf =
        scope == BROKER_PRODUCER ? broker->producer_conf : broker->consumer_conf;
    size_t count;
    const char **rows = rd_kafka_conf_dump(conf, &count);

    dump_rows(rows, count, row, opaque);
    rd_kafka_topic_conf_t *topic = rd_kafka_conf_get_default_topic_conf(conf);
    if (topic) {
        rows = rd_kafka_topic_conf_dump(topic, &count);
        dump_rows(rows, count, row, opaque);
    }
}

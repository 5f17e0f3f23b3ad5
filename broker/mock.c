/* The mock cluster of librdkafka: development without a Kafka. */
#include "broker/broker_int.h" /* rdkafka.h comes before rdkafka_mock.h */

#include <errno.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

struct broker_mock {
    rd_kafka_t *rk; /* the cluster needs a client to live in */
    rd_kafka_mock_cluster_t *cluster;
};

enum broker_result broker_mock_open(const struct broker_topic *topics, size_t n,
                                    struct broker_mock **ret, struct broker_error *ret_error)
{
    char text[300];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, NULL); /* it complains that it has no address, and needs none */
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (!rk) {
        rd_kafka_conf_destroy(conf);
        return broker_fail(ret_error, BROKER_REFUSED, "the Kafka client cannot start: %s", text);
    }
    struct broker_mock *mock = memory_new(1, sizeof *mock);
    mock->rk = rk;
    mock->cluster = rd_kafka_mock_cluster_new(rk, 1);
    if (!mock->cluster) {
        broker_mock_close(mock);
        return broker_fail(ret_error, BROKER_RETRY,
                           "the mock cluster cannot start: no port or no memory");
    }
    for (size_t i = 0; i < n; i++) {
        rd_kafka_resp_err_t err =
            rd_kafka_mock_topic_create(mock->cluster, topics[i].name, topics[i].partitions, 1);
        if (err) {
            broker_mock_close(mock);
            return broker_fail(ret_error, BROKER_REFUSED, "%s: %s", topics[i].name,
                               rd_kafka_err2str(err));
        }
    }
    *ret = mock;
    return BROKER_OK;
}

const char *broker_mock_bootstrap(const struct broker_mock *mock)
{
    return rd_kafka_mock_cluster_bootstraps(mock->cluster);
}

enum broker_result broker_mock_write(const struct broker_mock *mock, const char *path,
                                     struct broker_error *ret_error)
{
    char temporary[4096];

    if (snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid()) >=
        (int)sizeof temporary)
        return broker_fail(ret_error, BROKER_REFUSED, "%s: the path is too long", path);
    FILE *out = fopen(temporary, "w");
    bool written = out && fprintf(out, "%s\n", broker_mock_bootstrap(mock)) > 0;
    if (out && fclose(out) != 0)
        written = false;
    if (written && rename(temporary, path) == 0)
        return BROKER_OK;
    int reason = errno;
    (void)unlink(temporary);
    return broker_fail(ret_error, BROKER_REFUSED, "%s: %s", path, strerror(reason));
}

void broker_mock_close(struct broker_mock *mock)
{
    if (!mock)
        return;
    if (mock->cluster)
        rd_kafka_mock_cluster_destroy(mock->cluster);
    rd_kafka_destroy(mock->rk);
    free(mock);
}

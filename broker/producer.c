/* The idempotent producer, and what is common to both producers: enqueueing, and errors in words.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "broker/broker_int.h"

#define CLOSE_WAIT_MS 5000

struct broker_producer {
    struct broker_client client;
    rd_kafka_t *rk;
};

struct delivery {
    broker_delivered *delivered;
    void *opaque;
};

/* ---- What errors mean ---- */

static bool is_about_the_message(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
           err == RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE ||
           err == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE || err == RD_KAFKA_RESP_ERR_INVALID_MSG ||
           err == RD_KAFKA_RESP_ERR_INVALID_RECORD || err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP ||
           err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
           err == RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION ||
           err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
           err == RD_KAFKA_RESP_ERR__INVALID_ARG;
}

enum broker_result broker_message_result(rd_kafka_resp_err_t err, rd_kafka_msg_status_t status)
{
    if (!err || status == RD_KAFKA_MSG_STATUS_PERSISTED)
        return BROKER_OK;
    if (status == RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED)
        return BROKER_UNKNOWN;
    return is_about_the_message(err) ? BROKER_REFUSED : BROKER_RETRY;
}

enum broker_result broker_produce_result(rd_kafka_resp_err_t err)
{
    if (!err)
        return BROKER_OK;
    return is_about_the_message(err) ? BROKER_REFUSED : BROKER_RETRY;
}

/* ---- Enqueueing ---- */

static void add_headers(rd_kafka_headers_t *list, const struct broker_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rd_kafka_resp_err_t err = rd_kafka_header_add(
            list, headers[i].name.p, (ssize_t)headers[i].name.n, headers[i].value.p,
            headers[i].value.p ? (ssize_t)headers[i].value.n : 0);
        CHECK(!err); /* it only allocates */
    }
}

rd_kafka_resp_err_t broker_enqueue(rd_kafka_t *client, const struct broker_message *message,
                                   const struct broker_header *added, size_t added_count,
                                   void *opaque)
{
    rd_kafka_headers_t *headers = NULL;

    if (message->header_count + added_count) {
        headers = rd_kafka_headers_new(message->header_count + added_count);
        add_headers(headers, message->headers, message->header_count);
        add_headers(headers, added, added_count);
    }
    /* The cast: librdkafka's interface lacks the const; with F_COPY it only reads. */
    rd_kafka_resp_err_t err = rd_kafka_producev(
        client, RD_KAFKA_V_TOPIC(message->topic),
        RD_KAFKA_V_PARTITION(message->partition == BROKER_BY_KEY ? RD_KAFKA_PARTITION_UA
                                                                 : message->partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_KEY((void *)(uintptr_t)message->key.p, message->key.n),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)message->value.p, message->value.n),
        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);
    if (err && headers)
        rd_kafka_headers_destroy(headers); /* taken over only on success */
    return err;
}

/* ---- The idempotent producer ---- */

static void on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
    (void)rk;
    struct broker_client *client = opaque;
    struct delivery *delivery = message->_private;
    enum broker_result result =
        broker_message_result(message->err, rd_kafka_message_status(message));

    broker_add(client->broker, result == BROKER_OK        ? COUNT_DELIVERED
                               : result == BROKER_REFUSED ? COUNT_REFUSED
                                                          : COUNT_FAILED);
    if (!delivery)
        return;
    delivery->delivered(delivery->opaque, result, message->partition, message->offset,
                        message->err ? rd_kafka_err2str(message->err) : "");
    free(delivery);
}

static void set_delivery(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivered);
}

enum broker_result broker_producer_open(struct broker *broker, struct broker_producer **ret,
                                        struct broker_error *ret_error)
{
    const struct broker_setting none[] = {{NULL, NULL}};
    struct broker_producer *p = memory_new(1, sizeof *p);
    enum broker_result result = broker_client_new(broker, RD_KAFKA_PRODUCER, none, set_delivery,
                                                  &p->client, &p->rk, ret_error);

    if (result != BROKER_OK) {
        free(p);
        return result;
    }
    *ret = p;
    return BROKER_OK;
}

void broker_producer_close(struct broker_producer *producer)
{
    if (!producer)
        return;
    if (rd_kafka_flush(producer->rk, CLOSE_WAIT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        /* Their callbacks are still owed: give up what is left, and hear of it. */
        (void)rd_kafka_purge(producer->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        (void)rd_kafka_flush(producer->rk, CLOSE_WAIT_MS);
    }
    rd_kafka_destroy(producer->rk);
    free(producer);
}

static enum broker_result enqueue(struct broker_producer *p, const struct broker_message *message,
                                  const struct broker_header *added, size_t added_count,
                                  broker_delivered *delivered, void *opaque,
                                  struct broker_error *ret_error)
{
    struct delivery *delivery = NULL;

    if (delivered) {
        delivery = memory_new(1, sizeof *delivery);
        *delivery = (struct delivery){delivered, opaque};
    }
    rd_kafka_resp_err_t err = broker_enqueue(p->rk, message, added, added_count, delivery);
    if (err)
        free(delivery);
    (void)rd_kafka_poll(p->rk, 0);
    if (err)
        return broker_fail(ret_error, broker_produce_result(err), "%s: %s", message->topic,
                           rd_kafka_err2str(err));
    broker_add(p->client.broker, COUNT_PRODUCED);
    return BROKER_OK;
}

enum broker_result broker_produce(struct broker_producer *producer,
                                  const struct broker_message *message, broker_delivered *delivered,
                                  void *opaque, struct broker_error *ret_error)
{
    return enqueue(producer, message, NULL, 0, delivered, opaque, ret_error);
}

enum broker_result broker_forward(struct broker_producer *producer, const char *topic,
                                  const struct broker_record *record,
                                  const struct broker_header *added, size_t added_count,
                                  broker_delivered *delivered, void *opaque,
                                  struct broker_error *ret_error)
{
    const struct broker_message message = {
        .topic = topic,
        .partition = BROKER_BY_KEY,
        .key = record->key,
        .value = record->value,
        .headers = record->headers,
        .header_count = record->header_count,
    };
    return enqueue(producer, &message, added, added_count, delivered, opaque, ret_error);
}

void broker_producer_poll(struct broker_producer *producer, int timeout_ms)
{
    (void)rd_kafka_poll(producer->rk, timeout_ms);
}

bool broker_producer_failed(struct broker_producer *producer)
{
    return atomic_load(&producer->client.failed);
}

enum broker_result broker_flush(struct broker_producer *producer, int timeout_ms)
{
    return rd_kafka_flush(producer->rk, timeout_ms) ? BROKER_RETRY : BROKER_OK;
}

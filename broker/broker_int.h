/* What the files of this room share: a client's identity, its configuration, errors in words. */
#ifndef HOLDFAST_BROKER_BROKER_INT_H
#define HOLDFAST_BROKER_BROKER_INT_H

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "broker/broker.h"

enum broker_count {
    COUNT_CONSUMED,
    COUNT_DONE,
    COUNT_DONE_STALE,
    COUNT_REBALANCES,
    COUNT_COMMIT_FAILURES,
    COUNT_PRODUCED,
    COUNT_DELIVERED,
    COUNT_REFUSED,
    COUNT_FAILED,
    COUNT_TXN_COMMITTED,
    COUNT_TXN_ABORTED,
    COUNT_TXN_UNKNOWN,
    COUNT_TXN_FENCED,
    COUNT_KINDS
};

struct broker {
    rd_kafka_conf_t *consumer_conf,
        *producer_conf; /* templates: what users set and what we prefer */
    struct broker_hooks hooks;
    _Atomic uint64_t counts[COUNT_KINDS];
    struct lock lock; /* cluster_id */
    char cluster_id[128];
};

/* First member of every handle: librdkafka's opaque points here. */
struct broker_client {
    struct broker *broker;
    _Atomic bool failed; /* a fatal error was reported */
};

static inline void broker_add(struct broker *broker, enum broker_count kind)
{
    atomic_fetch_add_explicit(&broker->counts[kind], 1, memory_order_relaxed);
}

/* Writes the sentence and returns the result, so that a refusal is one statement. */
PRINTF_LIKE(3, 4)
enum broker_result broker_fail(struct broker_error *ret_error, enum broker_result result,
                               const char *format, ...);

struct broker_setting {
    const char *name;
    const char *value;
};
/* A client of this kind: the template, then `fixed` settings (value NULL ends them), then our
 * callbacks. `conf_hook` may set further callbacks; NULL: none. */
MUST_CHECK enum broker_result broker_client_new(struct broker *broker, rd_kafka_type_t type,
                                                const struct broker_setting *fixed,
                                                void (*conf_hook)(rd_kafka_conf_t *conf),
                                                struct broker_client *client, rd_kafka_t **ret,
                                                struct broker_error *ret_error);

/* Templates. */
MUST_CHECK enum broker_result broker_properties_apply(rd_kafka_conf_t *conf,
                                                      const struct broker_property *properties,
                                                      size_t n, enum broker_scope scope,
                                                      struct broker_error *ret_error);

/* What a broker's error for one message means for that message. */
enum broker_result broker_message_result(rd_kafka_resp_err_t err, rd_kafka_msg_status_t status);
/* What an error of handing a message to the client means. */
enum broker_result broker_produce_result(rd_kafka_resp_err_t err);
/* Hands one message to the client, header by header. */
rd_kafka_resp_err_t broker_enqueue(rd_kafka_t *client, const struct broker_message *message,
                                   const struct broker_header *added, size_t added_count,
                                   void *opaque);

/* A copy of the message, in one allocation; offsets and generation are the consumer's to fill. */
struct broker_offsets;
struct broker_part;
struct broker_owned_record {
    struct broker_record record;    /* first: what the caller sees */
    struct broker_offsets *offsets; /* NULL: not of a consumer */
    struct broker_part *part;
};
struct broker_owned_record *broker_record_of(const rd_kafka_message_t *message);

#endif

/* The transactional producer. A commit is clear only where Kafka said so: once the commit itself
 * may have been sent, anything but its success is unknown, and the read-back decides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "broker/broker_int.h"

#define ABORT_WAIT_MS 10000
#define FULL_QUEUE_WAIT_MS 100

struct broker_txn {
    struct broker_client client;
    rd_kafka_t *rk;
    int transaction_timeout_ms;
    /* Of the transaction under way, from the delivery reports. */
    size_t undelivered;
    bool refused;
    uint64_t refused_tag;
    char failure[256];
};

static void on_delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
    (void)rk;
    struct broker_txn *t = opaque;
    enum broker_result result =
        broker_message_result(message->err, rd_kafka_message_status(message));

    if (result == BROKER_OK)
        return;
    if (t->undelivered++ == 0)
        (void)snprintf(t->failure, sizeof t->failure, "%s", rd_kafka_err2str(message->err));
    if (result == BROKER_REFUSED && !t->refused) {
        t->refused = true;
        t->refused_tag = (uint64_t)(uintptr_t)message->_private;
        (void)snprintf(t->failure, sizeof t->failure, "%s", rd_kafka_err2str(message->err));
    }
}

static void set_delivery(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivered);
}

/* Takes the error. Fatal: another producer with this id, or the coordinator gave the transaction
 * up. */
static enum broker_result judge(struct broker_txn *t, rd_kafka_error_t *error,
                                enum broker_result otherwise, const char *what,
                                struct broker_error *ret_error)
{
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum broker_result result = otherwise;
    char text[256];

    (void)snprintf(text, sizeof text, "%s", rd_kafka_error_string(error));
    if (rd_kafka_error_is_fatal(error)) {
        atomic_store(&t->client.failed, true);
        result = BROKER_UNKNOWN;
        rd_kafka_resp_err_t first = rd_kafka_fatal_error(t->rk, text, sizeof text);
        code = first ? first : code;
    }
    if (code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED || code == RD_KAFKA_RESP_ERR__FENCED ||
        code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH)
        result = BROKER_FENCED;
    rd_kafka_error_destroy(error);
    return broker_fail(ret_error, result, "%s: %s (%s)", what, text, rd_kafka_err2name(code));
}

/* Some calls may be repeated when they ran into their time-out; they go on where they were. */
static rd_kafka_error_t *repeat(rd_kafka_error_t *(*call)(rd_kafka_t *rk, int timeout_ms),
                                rd_kafka_t *rk, int timeout_ms)
{
    int64_t deadline = clock_deadline_us(timeout_ms * CLOCK_MS);

    for (;;) {
        int left_ms = clock_poll_ms(deadline);
        rd_kafka_error_t *error = call(rk, left_ms);
        if (!error || !rd_kafka_error_is_retriable(error) || clock_mono_us() >= deadline)
            return error;
        rd_kafka_error_destroy(error);
        (void)rd_kafka_poll(rk, 20);
    }
}

enum broker_result broker_txn_open(struct broker *broker, const char *transactional_id,
                                   int transaction_timeout_ms, int timeout_ms,
                                   struct broker_txn **ret, struct broker_error *ret_error)
{
    char timeout_text[16];
    (void)snprintf(timeout_text, sizeof timeout_text, "%d", transaction_timeout_ms);
    const struct broker_setting fixed[] = {
        {"transactional.id", transactional_id},
        {"transaction.timeout.ms", timeout_text},
        /* A message that outlives its transaction is of no use; the client asks for this order,
           too. */
        {"message.timeout.ms", timeout_text},
        {NULL, NULL},
    };
    struct broker_txn *t = memory_new(1, sizeof *t);
    enum broker_result result = broker_client_new(broker, RD_KAFKA_PRODUCER, fixed, set_delivery,
                                                  &t->client, &t->rk, ret_error);

    if (result != BROKER_OK) {
        free(t);
        return result;
    }
    t->transaction_timeout_ms = transaction_timeout_ms;
    rd_kafka_error_t *error = repeat(rd_kafka_init_transactions, t->rk, timeout_ms);
    if (error) {
        result = judge(t, error, BROKER_RETRY, "taking over the transactional id", ret_error);
        broker_txn_close(t);
        return result == BROKER_UNKNOWN ? BROKER_RETRY : result; /* nothing was begun */
    }
    *ret = t;
    return BROKER_OK;
}

void broker_txn_close(struct broker_txn *txn)
{
    if (!txn)
        return;
    /* What is under way is not waited for: the next open of this id settles it, at the latest the
     * coordinator does. */
    (void)rd_kafka_purge(txn->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    (void)rd_kafka_poll(txn->rk, 0);
    rd_kafka_destroy(txn->rk);
    free(txn);
}

enum broker_result broker_txn_begin(struct broker_txn *txn, struct broker_error *ret_error)
{
    txn->undelivered = 0;
    txn->refused = false;
    txn->failure[0] = '\0';
    rd_kafka_error_t *error = rd_kafka_begin_transaction(txn->rk);
    return error ? judge(txn, error, BROKER_UNKNOWN, "begin", ret_error) : BROKER_OK;
}

enum broker_result broker_txn_produce(struct broker_txn *txn, const struct broker_message *message,
                                      uint64_t tag, struct broker_error *ret_error)
{
    int64_t deadline = clock_deadline_us(txn->transaction_timeout_ms * CLOCK_MS);
    rd_kafka_resp_err_t err;

    for (;;) {
        err = broker_enqueue(txn->rk, message, NULL, 0, (void *)(uintptr_t)tag);
        if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL || clock_mono_us() >= deadline)
            break;
        (void)rd_kafka_poll(txn->rk, FULL_QUEUE_WAIT_MS);
    }
    if (!err)
        return BROKER_OK;
    /* Fatal here is told apart by the commit or abort that must follow. */
    return broker_fail(ret_error, broker_produce_result(err), "%s: %s", message->topic,
                       rd_kafka_err2str(err));
}

static enum broker_result count(struct broker_txn *t, enum broker_result result)
{
    switch (result) {
    case BROKER_OK:
        broker_add(t->client.broker, COUNT_TXN_COMMITTED);
        break;
    case BROKER_RETRY:
    case BROKER_REFUSED:
        broker_add(t->client.broker, COUNT_TXN_ABORTED);
        break;
    case BROKER_UNKNOWN:
        broker_add(t->client.broker, COUNT_TXN_UNKNOWN);
        break;
    case BROKER_FENCED:
        broker_add(t->client.broker, COUNT_TXN_FENCED);
        break;
    }
    return result;
}

static enum broker_result abort_it(struct broker_txn *t, int timeout_ms,
                                   struct broker_error *ret_error)
{
    rd_kafka_error_t *error = repeat(rd_kafka_abort_transaction, t->rk, timeout_ms);

    /* The reports of what the abort purged belong to this transaction, not to the next. */
    (void)rd_kafka_flush(t->rk, timeout_ms);
    return error ? judge(t, error, BROKER_UNKNOWN, "abort", ret_error) : BROKER_OK;
}

enum broker_result broker_txn_commit(struct broker_txn *txn, int timeout_ms,
                                     struct broker_error *ret_error)
{
    int64_t deadline = clock_deadline_us(timeout_ms * CLOCK_MS);
    /* Everything must be delivered before the commit is asked for: until then it surely was not
     * sent, and an abort is clear. (An abort after it is not proof: with a new epoch the client
     * settles by asking for a new id, which a finished commit passes as well.) */
    bool delivered =
        rd_kafka_flush(txn->rk, timeout_ms) == RD_KAFKA_RESP_ERR_NO_ERROR && txn->undelivered == 0;

    if (!delivered) {
        char why[sizeof txn->failure];
        (void)snprintf(why, sizeof why, "%s",
                       txn->failure[0] ? txn->failure : "not delivered in time");
        enum broker_result aborted = abort_it(txn, ABORT_WAIT_MS, ret_error);
        if (aborted != BROKER_OK)
            return count(txn, aborted);
        return count(txn, broker_fail(ret_error, BROKER_RETRY, "aborted: %s", why));
    }
    rd_kafka_error_t *error = repeat(rd_kafka_commit_transaction, txn->rk, clock_poll_ms(deadline));
    if (!error)
        return count(txn, BROKER_OK);
    return count(txn, judge(txn, error, BROKER_UNKNOWN, "commit", ret_error));
}

enum broker_result broker_txn_abort(struct broker_txn *txn, int timeout_ms,
                                    struct broker_error *ret_error)
{
    /* First out with what is queued: a transaction whose partitions the coordinator has not heard
     * of yet cannot be ended there (INVALID_TXN_STATE, seen with 2.0.2), although nothing of it
     * would be visible. */
    (void)rd_kafka_flush(txn->rk, timeout_ms);
    enum broker_result result = abort_it(txn, timeout_ms, ret_error);
    (void)count(txn, result == BROKER_OK ? BROKER_RETRY : result);
    return result;
}

bool broker_txn_refused(const struct broker_txn *txn, uint64_t *ret_tag)
{
    if (txn->refused)
        *ret_tag = txn->refused_tag;
    return txn->refused;
}

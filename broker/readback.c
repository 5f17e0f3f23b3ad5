/* Reading back what is committed, without a group: the last record of a partition, and everything
 * since a time.
 *
 * The high watermark is asked by a read_uncommitted client, for to a read_committed one the last
 * stable offset is the end. A read begins when the last stable offset has reached the watermark as
 * it was at the call; from then on the end of what can be read is beyond it. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "broker/broker_int.h"

#define LOOK_AGAIN_MS 20
#define FIRST_STEP_BACK 2 /* a record and its transaction's marker */

struct reader {
    struct broker_client committed_client, uncommitted_client;
    rd_kafka_t *committed, *uncommitted;
    rd_kafka_topic_t *topic;
    const char *name;
    int64_t deadline;
};

static void reader_close(struct reader *r)
{
    if (r->topic)
        rd_kafka_topic_destroy(r->topic);
    if (r->committed)
        rd_kafka_destroy(r->committed);
    if (r->uncommitted)
        rd_kafka_destroy(r->uncommitted);
}

static enum broker_result reader_open(struct reader *r, struct broker *broker, const char *topic,
                                      int timeout_ms, struct broker_error *ret_error)
{
    const struct broker_setting committed[] = {{NULL, NULL}};
    const struct broker_setting uncommitted[] = {{"isolation.level", "read_uncommitted"},
                                                 {NULL, NULL}};

    r->name = topic;
    r->deadline = clock_deadline_us(timeout_ms * CLOCK_MS);
    enum broker_result result = broker_client_new(broker, RD_KAFKA_CONSUMER, committed, NULL,
                                                  &r->committed_client, &r->committed, ret_error);
    if (result == BROKER_OK)
        result = broker_client_new(broker, RD_KAFKA_CONSUMER, uncommitted, NULL,
                                   &r->uncommitted_client, &r->uncommitted, ret_error);
    if (result != BROKER_OK)
        return result;
    r->topic = rd_kafka_topic_new(r->committed, topic, NULL);
    return r->topic ? BROKER_OK
                    : broker_fail(ret_error, BROKER_REFUSED, "%s: not a topic name", topic);
}

static enum broker_result failed(const struct reader *r, rd_kafka_resp_err_t err, const char *what,
                                 struct broker_error *ret_error)
{
    bool final =
        err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
        err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || err == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
        err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION || err == RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;
    return broker_fail(ret_error, final ? BROKER_REFUSED : BROKER_RETRY, "%s: %s: %s", r->name,
                       what, rd_kafka_err2str(err));
}

/* Low and high watermark, once the last stable offset has reached the high one. */
static enum broker_result stable_range(struct reader *r, int32_t partition, int64_t *ret_low,
                                       int64_t *ret_high, struct broker_error *ret_error)
{
    int64_t low, high, stable;
    rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(
        r->uncommitted, r->name, partition, &low, &high, clock_poll_ms(r->deadline));

    if (err)
        return failed(r, err, "high watermark", ret_error);
    for (;;) {
        int64_t ignored;
        err = rd_kafka_query_watermark_offsets(r->committed, r->name, partition, &ignored, &stable,
                                               clock_poll_ms(r->deadline));
        if (err)
            return failed(r, err, "last stable offset", ret_error);
        if (stable >= high)
            break;
        if (clock_mono_us() >= r->deadline)
            return broker_fail(
                ret_error, BROKER_RETRY,
                "%s partition %d: a transaction under way hides what follows offset %lld", r->name,
                (int)partition, (long long)stable);
        (void)rd_kafka_poll(r->committed, LOOK_AGAIN_MS);
    }
    *ret_low = low;
    *ret_high = high;
    return BROKER_OK;
}

/* ---- The last record of a partition ---- */

/* The last committed record in [from, high), or NULL. */
static enum broker_result last_between(struct reader *r, int32_t partition, int64_t from,
                                       int64_t high, struct broker_owned_record **ret,
                                       struct broker_error *ret_error)
{
    struct broker_owned_record *last = NULL;
    enum broker_result result = BROKER_OK;

    if (rd_kafka_consume_start(r->topic, partition, from) == -1)
        return failed(r, rd_kafka_last_error(), "read", ret_error);
    for (bool end = false; !end && result == BROKER_OK;) {
        rd_kafka_message_t *m = rd_kafka_consume(r->topic, partition, clock_poll_ms(r->deadline));
        if (!m) {
            result = failed(r, RD_KAFKA_RESP_ERR__TIMED_OUT, "read", ret_error);
        } else if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            end = true;
        } else if (m->err) {
            result = failed(r, m->err, "read", ret_error);
        } else {
            end = m->offset >= high - 1;
            if (m->offset < high) {
                broker_record_free(last ? &last->record : NULL);
                last = broker_record_of(m);
            }
        }
        if (m)
            rd_kafka_message_destroy(m);
    }
    (void)rd_kafka_consume_stop(r->topic, partition);
    if (result == BROKER_OK)
        *ret = last;
    else
        broker_record_free(last ? &last->record : NULL);
    return result;
}

enum broker_result broker_last_of_partition(struct broker *broker, const char *topic,
                                            int32_t partition, int timeout_ms,
                                            struct broker_record **ret,
                                            struct broker_error *ret_error)
{
    struct reader r CLEANUP(reader_close) = {0};
    struct broker_owned_record *found = NULL;
    int64_t low = 0, high = 0;
    enum broker_result result = reader_open(&r, broker, topic, timeout_ms, ret_error);

    if (result == BROKER_OK)
        result = stable_range(&r, partition, &low, &high, ret_error);
    /* Aborted batches, markers and compacted offsets hold no record: step further back each time.
     */
    int64_t from = high;
    for (int64_t step = FIRST_STEP_BACK; result == BROKER_OK && !found && from > low; step *= 8) {
        from = high - step > low ? high - step : low;
        result = last_between(&r, partition, from, high, &found, ret_error);
    }
    if (result == BROKER_OK)
        *ret = found ? &found->record : NULL;
    return result;
}

/* ---- Everything since a time ---- */

struct scan {
    struct reader r;
    int64_t *high; /* by partition; 0: nothing to read */
    int32_t partitions;
    int32_t open;
    rd_kafka_queue_t *queue;
};

static void scan_close(struct scan *s)
{
    for (int32_t p = 0; p < s->partitions; p++)
        if (s->high[p])
            (void)rd_kafka_consume_stop(s->r.topic, p);
    if (s->queue)
        rd_kafka_queue_destroy(s->queue);
    free(s->high);
    reader_close(&s->r);
}

static enum broker_result count_partitions(struct scan *s, struct broker_error *ret_error)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(s->r.committed, 0, s->r.topic, &metadata, clock_poll_ms(s->r.deadline));

    if (err)
        return failed(&s->r, err, "metadata", ret_error);
    err = metadata->topic_cnt ? metadata->topics[0].err : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
    s->partitions = metadata->topic_cnt ? metadata->topics[0].partition_cnt : 0;
    rd_kafka_metadata_destroy(metadata);
    s->high = memory_new((size_t)s->partitions + 1, sizeof *s->high);
    return err ? failed(&s->r, err, "metadata", ret_error) : BROKER_OK;
}

/* Where a partition's records of that time begin; `high` when there are none. */
static enum broker_result begin_of(struct scan *s, int32_t partition, int64_t since_ms, int64_t low,
                                   int64_t high, int64_t *ret, struct broker_error *ret_error)
{
    *ret = low;
    if (since_ms <= 0)
        return BROKER_OK;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *ask = rd_kafka_topic_partition_list_add(list, s->r.name, partition);
    ask->offset = since_ms;
    rd_kafka_resp_err_t err =
        rd_kafka_offsets_for_times(s->r.committed, list, clock_poll_ms(s->r.deadline));
    if (!err)
        err = ask->err;
    int64_t offset = ask->offset;
    rd_kafka_topic_partition_list_destroy(list);
    if (err)
        return failed(&s->r, err, "offset of a time", ret_error);
    *ret = offset < 0 ? high : offset; /* negative: nothing as young as that */
    return BROKER_OK;
}

static enum broker_result scan_start(struct scan *s, int64_t since_ms,
                                     struct broker_error *ret_error)
{
    enum broker_result result = count_partitions(s, ret_error);

    s->queue = rd_kafka_queue_new(s->r.committed);
    int32_t count = s->partitions;
    s->partitions = 0; /* those that scan_close must stop */
    for (int32_t p = 0; p < count && result == BROKER_OK; p++) {
        int64_t low, high, from;
        result = stable_range(&s->r, p, &low, &high, ret_error);
        if (result == BROKER_OK)
            result = begin_of(s, p, since_ms, low, high, &from, ret_error);
        if (result != BROKER_OK)
            break;
        s->partitions = p + 1;
        if (from >= high)
            continue;
        if (rd_kafka_consume_start_queue(s->r.topic, p, from, s->queue) == -1)
            return failed(&s->r, rd_kafka_last_error(), "read", ret_error);
        s->high[p] = high;
        s->open++;
    }
    return result;
}

/* False: the function has seen enough. */
static bool scan_message(struct scan *s, const rd_kafka_message_t *m, bool *closed,
                         broker_scan_fn *each, void *opaque)
{
    int64_t high = s->high[m->partition];
    bool more = true;

    if (!m->err && m->offset < high) {
        struct broker_owned_record *owned = broker_record_of(m);
        more = each(opaque, &owned->record);
        broker_record_free(&owned->record);
    }
    /* At its end the partition has no more: the last stable offset was beyond `high` already. */
    if (!closed[m->partition] &&
        (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF || m->offset >= high - 1)) {
        closed[m->partition] = true;
        s->open--;
    }
    return more;
}

enum broker_result broker_read_since(struct broker *broker, const char *topic, int64_t since_ms,
                                     int timeout_ms, broker_scan_fn *each, void *opaque,
                                     struct broker_error *ret_error)
{
    struct scan s CLEANUP(scan_close) = {0};
    enum broker_result result = reader_open(&s.r, broker, topic, timeout_ms, ret_error);

    if (result == BROKER_OK)
        result = scan_start(&s, since_ms, ret_error);
    bool *closed CLEANUP(memory_drop) = memory_new((size_t)s.partitions + 1, sizeof *closed);
    bool more = true;
    while (result == BROKER_OK && more && s.open > 0) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(s.queue, clock_poll_ms(s.r.deadline));
        if (!m) {
            result = failed(&s.r, RD_KAFKA_RESP_ERR__TIMED_OUT, "read", ret_error);
            break;
        }
        if (m->err && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
            result = failed(&s.r, m->err, "read", ret_error);
        else
            more = scan_message(&s, m, closed, each, opaque);
        rd_kafka_message_destroy(m);
    }
    return result;
}

/* ---- Lag ---- */

enum broker_result broker_group_lag(struct broker *broker, const char *group, const char *topic,
                                    int timeout_ms, int64_t *ret_lag,
                                    struct broker_error *ret_error)
{
    const struct broker_setting fixed[] = {
        {"group.id", group}, {"isolation.level", "read_uncommitted"}, {NULL, NULL}};
    struct scan s CLEANUP(scan_close) = {0};
    enum broker_result result = reader_open(&s.r, broker, topic, timeout_ms, ret_error);
    struct broker_client client = {0};
    rd_kafka_t *member = NULL;
    int64_t lag = 0;

    if (result == BROKER_OK)
        result = count_partitions(&s, ret_error);
    int32_t count = s.partitions;
    s.partitions = 0; /* nothing is being read */
    if (result == BROKER_OK)
        result =
            broker_client_new(broker, RD_KAFKA_CONSUMER, fixed, NULL, &client, &member, ret_error);
    if (result != BROKER_OK)
        return result;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    for (int32_t p = 0; p < count; p++)
        rd_kafka_topic_partition_list_add(list, topic, p);
    rd_kafka_resp_err_t err = rd_kafka_committed(member, list, clock_poll_ms(s.r.deadline));
    for (int32_t p = 0; p < count && !err; p++) {
        int64_t low, high;
        err = rd_kafka_query_watermark_offsets(member, topic, p, &low, &high,
                                               clock_poll_ms(s.r.deadline));
        if (!err)
            lag += high - (list->elems[p].offset < low ? low : list->elems[p].offset);
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(member);
    if (err)
        return failed(&s.r, err, "lag", ret_error);
    *ret_lag = lag;
    return BROKER_OK;
}

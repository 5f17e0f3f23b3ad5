/* A consumer of a group: cooperative, committing only what is done, losing nothing when partitions
 * move. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "broker/broker_int.h"
#include "broker/offsets_int.h"

#define REVOKE_WAIT_MS 500
#define COMMIT_INTERVAL_MS 1000
#define COMMIT_ANSWER_MS                                                                           \
    5000 /* a last commit is waited for that long; without it the records come again */
#define JOIN_WAIT_MS 5000 /* closing waits that long for the assignment of a group joined */
#define ASK_WAIT_MS 1000  /* and that long for the answer to its request to join */
#define JOIN_POLL_MS 20

struct broker_consumer {
    struct broker_client client;
    rd_kafka_t *rk;
    struct broker_offsets *offsets;
    struct broker_consumer_callbacks callbacks;
    int64_t revoke_wait_us, commit_interval_us;
    int64_t next_commit_us;
    bool commit_under_way;  /* at most one asynchronous commit at a time */
    char *group;
    bool subscribed;
    bool assigned;          /* the group has given it partitions, or none, at least once */
    struct lock pause_lock; /* a pause flag and what the client was told change together */
};

static struct broker_consumer *consumer_of(void *opaque)
{
    return opaque; /* the client is the first member */
}

/* ---- Commits ---- */

static void add_offset(void *opaque, const char *topic, int32_t partition, int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = opaque;
    rd_kafka_topic_partition_list_add(list, topic, partition)->offset = offset;
}

static void on_commit(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                      rd_kafka_topic_partition_list_t *list, void *opaque)
{
    (void)rk;
    struct broker_consumer *c = consumer_of(opaque);

    c->commit_under_way = false;
    if (err && err != RD_KAFKA_RESP_ERR__NO_OFFSET)
        broker_add(c->client.broker, COUNT_COMMIT_FAILURES);
    for (int i = 0; list && !err && i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        if (!p->err)
            broker_offsets_committed(c->offsets, p->topic, p->partition, p->offset);
    }
}

/* What is done and not committed, or NULL. */
static rd_kafka_topic_partition_list_t *dirty_list(struct broker_consumer *c)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);

    if (broker_offsets_dirty(c->offsets, add_offset, list))
        return list;
    rd_kafka_topic_partition_list_destroy(list);
    return NULL;
}

static void commit_when_due(struct broker_consumer *c)
{
    if (c->commit_under_way || clock_mono_us() < c->next_commit_us)
        return;
    c->next_commit_us = clock_deadline_us(c->commit_interval_us);
    rd_kafka_topic_partition_list_t *list = dirty_list(c);
    if (!list)
        return;
    /* The answer comes to on_commit, from within a poll. */
    c->commit_under_way = rd_kafka_commit(c->rk, list, 1) == RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
}

/* With a queue of its own: rd_kafka_commit() waits without limit for a broker that does not answer.
 */
static void commit_now(struct broker_consumer *c)
{
    rd_kafka_topic_partition_list_t *list = dirty_list(c);

    if (!list)
        return;
    rd_kafka_queue_t *queue = rd_kafka_queue_new(c->rk);
    rd_kafka_resp_err_t err = rd_kafka_commit_queue(c->rk, list, queue, NULL, NULL);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_event_t *event = err ? NULL : rd_kafka_queue_poll(queue, COMMIT_ANSWER_MS);
    if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_OFFSET_COMMIT &&
        !rd_kafka_event_error(event)) {
        bool under_way = c->commit_under_way;
        on_commit(c->rk, RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_event_topic_partition_list(event), c);
        c->commit_under_way = under_way;
    } else {
        broker_add(c->client.broker, COUNT_COMMIT_FAILURES);
    }
    if (event)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
}

/* ---- Rebalance: on the polling thread, from within a poll or close ---- */

static void apply_pause(rd_kafka_t *rk, const char *topic, int32_t partition, bool paused)
{
    rd_kafka_topic_partition_list_t *one = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(one, topic, partition);
    /* Errors name a partition that is not assigned any more: nothing to pause then. */
    (void)(paused ? rd_kafka_pause_partitions(rk, one) : rd_kafka_resume_partitions(rk, one));
    rd_kafka_topic_partition_list_destroy(one);
}

static void assign(struct broker_consumer *c, rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_error_t *error = rd_kafka_incremental_assign(c->rk, list);

    if (error)
        rd_kafka_error_destroy(error); /* reported through on_error; the group rebalances again */
    LOCK_SCOPE(&c->pause_lock);
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        struct broker_part *part = broker_offsets_assign(c->offsets, p->topic, p->partition);
        /* Said either way: the client remembers a pause from an earlier assignment. */
        apply_pause(c->rk, p->topic, p->partition, broker_offsets_is_paused(c->offsets, part));
    }
}

static void take_over(struct broker_consumer *c, rd_kafka_topic_partition_list_t *list)
{
    assign(c, list);
    for (int i = 0; i < list->cnt && c->callbacks.assigned; i++)
        c->callbacks.assigned(c->callbacks.opaque, list->elems[i].topic, list->elems[i].partition);
}

static void revoke(struct broker_consumer *c, rd_kafka_topic_partition_list_t *list)
{
    bool lost = rd_kafka_assignment_lost(c->rk) != 0;
    struct broker_part **parts CLEANUP(memory_drop) =
        memory_new((size_t)list->cnt + 1, sizeof(struct broker_part *));
    size_t n = 0;

    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        struct broker_part *part = broker_offsets_find(c->offsets, p->topic, p->partition);
        if (!part)
            continue;
        parts[n++] = part;
        if (c->callbacks.revoked)
            c->callbacks.revoked(c->callbacks.opaque, p->topic, p->partition, lost);
    }
    if (!lost) {
        (void)broker_offsets_wait_done(c->offsets, parts, n, clock_deadline_us(c->revoke_wait_us));
        commit_now(c);
    }
    for (size_t i = 0; i < n; i++)
        broker_offsets_revoke(c->offsets, parts[i]);
    rd_kafka_error_t *error = rd_kafka_incremental_unassign(c->rk, list);
    if (error)
        rd_kafka_error_destroy(error);
}

static void on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                         rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct broker_consumer *c = consumer_of(opaque);

    broker_add(c->client.broker, COUNT_REBALANCES);
    if (err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        c->assigned = true;
        take_over(c, list);
    } else if (err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
        revoke(c, list);
    } else {
        (void)rd_kafka_assign(rk, NULL);
    }
}

static void set_callbacks(rd_kafka_conf_t *conf)
{
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_offset_commit_cb(conf, on_commit);
}

/* ---- Open, close ---- */

static enum broker_result subscribe(struct broker_consumer *c,
                                    const struct broker_consumer_options *options,
                                    struct broker_error *ret_error)
{
    rd_kafka_topic_partition_list_t *topics =
        rd_kafka_topic_partition_list_new((int)options->topic_count);

    for (size_t i = 0; i < options->topic_count; i++)
        rd_kafka_topic_partition_list_add(topics, options->topics[i], RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t err = rd_kafka_subscribe(c->rk, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    c->subscribed = !err;
    return err ? broker_fail(ret_error, BROKER_REFUSED, "subscription: %s", rd_kafka_err2str(err))
               : BROKER_OK;
}

static void count_done(void *opaque, bool stale)
{
    broker_add(opaque, stale ? COUNT_DONE_STALE : COUNT_DONE);
}

enum broker_result broker_consumer_open(struct broker *broker,
                                        const struct broker_consumer_options *options,
                                        struct broker_consumer **ret,
                                        struct broker_error *ret_error)
{
    const struct broker_setting fixed[] = {{"group.id", options->group}, {NULL, NULL}};
    struct broker_consumer *c = memory_new(1, sizeof *c);

    c->callbacks = options->callbacks;
    c->revoke_wait_us =
        (options->revoke_wait_ms ? options->revoke_wait_ms : REVOKE_WAIT_MS) * CLOCK_MS;
    c->commit_interval_us =
        (options->commit_interval_ms ? options->commit_interval_ms : COMMIT_INTERVAL_MS) * CLOCK_MS;
    enum broker_result result = broker_client_new(broker, RD_KAFKA_CONSUMER, fixed, set_callbacks,
                                                  &c->client, &c->rk, ret_error);
    if (result != BROKER_OK) {
        free(c);
        return result;
    }
    c->group = memory_copy_text(options->group);
    c->offsets = broker_offsets_new(count_done, broker);
    lock_init(&c->pause_lock);
    (void)rd_kafka_poll_set_consumer(
        c->rk); /* its callbacks come through the consumer's own queue */
    result = subscribe(c, options, ret_error);
    if (result != BROKER_OK) {
        broker_consumer_close(c);
        return result;
    }
    *ret = c;
    return BROKER_OK;
}

/* The group has answered its request to join: it is of a generation. The client does not tell the
 * number, but it writes down what it is, and what it would be without one. */
static bool has_joined(struct broker_consumer *c)
{
    void *texts[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    char *member = rd_kafka_memberid(c->rk);
    rd_kafka_consumer_group_metadata_t *both[2] = {
        rd_kafka_consumer_group_metadata(c->rk),
        rd_kafka_consumer_group_metadata_new_with_genid(c->group, -1, member ? member : "", NULL)};

    for (int i = 0; i < 2; i++) {
        rd_kafka_error_destroy(
            both[i] ? rd_kafka_consumer_group_metadata_write(both[i], &texts[i], &sizes[i]) : NULL);
        if (both[i])
            rd_kafka_consumer_group_metadata_destroy(both[i]);
    }
    bool same = texts[0] && texts[1] && sizes[0] == sizes[1] &&
                memcmp(texts[0], texts[1], sizes[0]) == 0;
    for (int i = 0; i < 2; i++)
        rd_kafka_mem_free(c->rk, texts[i]);
    rd_kafka_mem_free(c->rk, member);
    return !same;
}

/* librdkafka 2.0 ends the process (an assertion on its sticky assignor's state, which the first
 * assignment makes) when a client is destroyed between the answer to its JoinGroup and that
 * assignment. So it is waited for. True: the client may be destroyed. */
static bool await_assignment(struct broker_consumer *c)
{
    int64_t join_by = clock_deadline_us(JOIN_WAIT_MS * CLOCK_MS);
    int64_t ask_by = clock_deadline_us(ASK_WAIT_MS * CLOCK_MS);
    bool joined = has_joined(c);

    while (!c->assigned && clock_mono_us() < (joined ? join_by : ask_by)) {
        broker_record_free(broker_poll(c, JOIN_POLL_MS)); /* not done: it comes again elsewhere */
        joined = has_joined(c);
    }
    return c->assigned || !joined;
}

void broker_consumer_close(struct broker_consumer *consumer)
{
    if (!consumer)
        return;
    bool destroyable = !consumer->subscribed || consumer->assigned || await_assignment(consumer);
    (void)rd_kafka_consumer_close(
        consumer->rk); /* revokes: waits for what is being made durable and commits */
    broker_offsets_close(consumer->offsets);
    if (destroyable)
        rd_kafka_destroy(consumer->rk);
    else /* it has left the group; its idle threads stay until the process ends */
        rd_kafka_set_log_level(consumer->rk, 0); /* says nothing: the broker may be closed */
    broker_offsets_unref(consumer->offsets);
    lock_destroy(&consumer->pause_lock);
    free(consumer->group);
    if (destroyable)
        free(consumer); /* else the client still points here */
}

/* ---- Records ---- */

static struct broker_record *hand_out(struct broker_consumer *c, const rd_kafka_message_t *message)
{
    struct broker_part *part =
        broker_offsets_find(c->offsets, rd_kafka_topic_name(message->rkt), message->partition);

    if (!part)
        return NULL; /* of a partition that was given up between fetch and poll: it is another
                        consumer's */
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        broker_offsets_end(c->offsets, part, message->offset);
        return NULL;
    }
    struct broker_owned_record *owned = broker_record_of(message);
    owned->record.generation = broker_offsets_hand_out(c->offsets, part, message->offset);
    owned->offsets = broker_offsets_ref(c->offsets);
    owned->part = part;
    broker_add(c->client.broker, COUNT_CONSUMED);
    return &owned->record;
}

static void report(struct broker_consumer *c, const rd_kafka_message_t *message)
{
    const struct broker_hooks *hooks = &c->client.broker->hooks;

    if (message->err == RD_KAFKA_RESP_ERR__FATAL)
        atomic_store(&c->client.failed, true);
    if (hooks->error)
        hooks->error(hooks->opaque, rd_kafka_message_errstr(message),
                     message->err == RD_KAFKA_RESP_ERR__FATAL);
}

struct broker_record *broker_poll(struct broker_consumer *consumer, int timeout_ms)
{
    int64_t deadline = clock_deadline_us(timeout_ms * CLOCK_MS);

    for (;;) {
        commit_when_due(consumer);
        /* Wakes for the next commit also when nothing arrives. */
        int64_t wake = deadline < consumer->next_commit_us ? deadline : consumer->next_commit_us;
        int wait_ms = clock_poll_ms(wake);
        if (broker_offsets_dirty(consumer->offsets, NULL, NULL) == 0 || consumer->commit_under_way)
            wait_ms = clock_poll_ms(deadline);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer->rk, wait_ms);
        struct broker_record *record = NULL;
        if (message) {
            if (!message->err || message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
                record = hand_out(consumer, message);
            else
                report(consumer, message);
            rd_kafka_message_destroy(message);
        }
        if (record || clock_mono_us() >= deadline)
            return record;
    }
}

size_t broker_poll_many(struct broker_consumer *consumer, struct broker_record **ret, size_t max,
                        int timeout_ms)
{
    size_t n = 0;

    while (n < max) {
        struct broker_record *record = broker_poll(consumer, n ? 0 : timeout_ms);
        if (!record)
            break;
        ret[n++] = record;
    }
    return n;
}

void broker_done(struct broker_record *record)
{
    struct broker_owned_record *owned = (struct broker_owned_record *)record;

    if (owned->offsets)
        (void)broker_offsets_done(owned->offsets, owned->part, record->generation, record->offset);
}

/* ---- Pause ---- */

struct pause_change {
    rd_kafka_topic_partition_list_t *paused, *resumed;
};

static void sort_out(void *opaque, const char *topic, int32_t partition, bool paused)
{
    struct pause_change *change = opaque;
    rd_kafka_topic_partition_list_add(paused ? change->paused : change->resumed, topic, partition);
}

static void pause_all(struct broker_consumer *c, bool paused)
{
    struct pause_change change = {rd_kafka_topic_partition_list_new(8),
                                  rd_kafka_topic_partition_list_new(8)};

    LOCK_SCOPE(&c->pause_lock);
    broker_offsets_pause_all(c->offsets, paused);
    broker_offsets_each(c->offsets, sort_out, &change);
    (void)rd_kafka_pause_partitions(c->rk, change.paused);
    (void)rd_kafka_resume_partitions(c->rk, change.resumed);
    rd_kafka_topic_partition_list_destroy(change.paused);
    rd_kafka_topic_partition_list_destroy(change.resumed);
}

void broker_pause_all(struct broker_consumer *consumer)
{
    pause_all(consumer, true);
}

void broker_resume_all(struct broker_consumer *consumer)
{
    pause_all(consumer, false);
}

static void pause_one(struct broker_consumer *c, const char *topic, int32_t partition, bool paused)
{
    LOCK_SCOPE(&c->pause_lock);
    struct broker_part *part = broker_offsets_find(c->offsets, topic, partition);
    if (part)
        apply_pause(c->rk, topic, partition, broker_offsets_pause(c->offsets, part, paused));
}

void broker_pause(struct broker_consumer *consumer, const char *topic, int32_t partition)
{
    pause_one(consumer, topic, partition, true);
}

void broker_resume(struct broker_consumer *consumer, const char *topic, int32_t partition)
{
    pause_one(consumer, topic, partition, false);
}

size_t broker_outstanding(struct broker_consumer *consumer)
{
    return broker_offsets_outstanding(consumer->offsets);
}

bool broker_consumer_failed(struct broker_consumer *consumer)
{
    return atomic_load(&consumer->client.failed);
}

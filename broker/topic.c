/* Topics: made, checked, and described in words a person can act on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "broker/broker_int.h"

#define SEGMENT_BYTES "1048576" /* compaction never looks at the active segment: keep it small */
#define DIRTY_RATIO "0.1"
#define ENOUGH_REPLICAS 3
#define LOOK_AGAIN_MS 50

void broker_topics_of(const char *prefix, int32_t partitions, int32_t shards,
                      struct broker_topic ret[BROKER_TOPIC_ROLES])
{
    static const struct {
        const char *name;
        bool compact_only, order;
    } roles[BROKER_TOPIC_ROLES] = {
        [BROKER_TASKS] = {"tasks", false, true},
        [BROKER_INTENTS] = {"intents", false, false},
        [BROKER_WAKEUPS] = {"wakeups", false, false},
        [BROKER_RESULTS] = {"results", false, true},
        [BROKER_DEAD_LETTERS] = {"dead-letters", false, false},
        [BROKER_RELAY] = {"relay", true, true},
        [BROKER_COMPLETIONS] = {"completions", false, false},
    };

    for (size_t i = 0; i < BROKER_TOPIC_ROLES; i++) {
        ret[i] = (struct broker_topic){.partitions = i == BROKER_RELAY ? shards : partitions,
                                       .compact_only = roles[i].compact_only,
                                       .partitions_are_order = roles[i].order};
        (void)snprintf(ret[i].name, sizeof ret[i].name, "%s%s", prefix, roles[i].name);
    }
}

struct admin {
    struct broker_client client;
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    int64_t deadline;
};

static void admin_close(struct admin *a)
{
    if (a->queue)
        rd_kafka_queue_destroy(a->queue);
    if (a->rk)
        rd_kafka_destroy(a->rk);
}

static enum broker_result admin_open(struct admin *a, struct broker *broker, int timeout_ms,
                                     struct broker_error *ret_error)
{
    const struct broker_setting none[] = {{NULL, NULL}};

    a->deadline = clock_deadline_us(timeout_ms * CLOCK_MS);
    enum broker_result result =
        broker_client_new(broker, RD_KAFKA_PRODUCER, none, NULL, &a->client, &a->rk, ret_error);
    if (result == BROKER_OK)
        a->queue = rd_kafka_queue_new(a->rk);
    return result;
}

static rd_kafka_AdminOptions_t *options_for(struct admin *a, rd_kafka_admin_op_t op)
{
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(a->rk, op);
    int left_ms = clock_poll_ms(a->deadline);

    left_ms = left_ms > 0 ? left_ms : 1;
    (void)rd_kafka_AdminOptions_set_request_timeout(options, left_ms, NULL, 0);
    if (op != RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS) /* then the answer says that the topic is there,
                                                    not only asked for */
        (void)rd_kafka_AdminOptions_set_operation_timeout(options, left_ms, NULL, 0);
    return options;
}

static enum broker_result await(struct admin *a, const char *what, rd_kafka_event_t **ret,
                                struct broker_error *ret_error)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(a->queue, clock_poll_ms(a->deadline) + 1000);

    if (!event)
        return broker_fail(ret_error, BROKER_RETRY, "%s: no answer in time", what);
    if (rd_kafka_event_error(event)) {
        enum broker_result result = broker_fail(ret_error, BROKER_RETRY, "%s: %s", what,
                                                rd_kafka_event_error_string(event));
        rd_kafka_event_destroy(event);
        return result;
    }
    *ret = event;
    return BROKER_OK;
}

/* ---- What is there ---- */

static void read_metadata(const struct rd_kafka_metadata *metadata,
                          const struct broker_topic *topic, struct broker_topic_state *state)
{
    for (int i = 0; i < metadata->topic_cnt; i++) {
        const rd_kafka_metadata_topic_t *there = &metadata->topics[i];
        if (strcmp(there->topic, topic->name) != 0 || there->err || there->partition_cnt == 0)
            continue;
        state->exists = true;
        state->partitions = there->partition_cnt;
        state->replication = there->partitions[0].replica_cnt;
    }
}

/* Asks for all topics: asking for a name may create it. */
static enum broker_result look(struct admin *a, const struct broker_topic *topics, size_t n,
                               struct broker_topic_state *states, struct broker_error *ret_error)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t err =
        rd_kafka_metadata(a->rk, 1, NULL, &metadata, clock_poll_ms(a->deadline));

    if (err)
        return broker_fail(ret_error, BROKER_RETRY, "metadata: %s", rd_kafka_err2str(err));
    for (size_t i = 0; i < n; i++)
        read_metadata(metadata, &topics[i], &states[i]);
    rd_kafka_metadata_destroy(metadata);
    return BROKER_OK;
}

/* A topic just made is known to the controller first and to the brokers a moment later. */
static enum broker_result look_until_there(struct admin *a, const struct broker_topic *topics,
                                           size_t n, struct broker_topic_state *states,
                                           struct broker_error *ret_error)
{
    for (;;) {
        enum broker_result result = look(a, topics, n, states, ret_error);
        bool there = true;
        for (size_t i = 0; i < n; i++)
            there =
                there && states[i].exists &&
                (states[i].partitions >= topics[i].partitions || topics[i].partitions_are_order);
        if (result != BROKER_OK || there || clock_mono_us() >= a->deadline)
            return result;
        (void)rd_kafka_poll(a->rk, LOOK_AGAIN_MS);
    }
}

/* ---- Making ---- */

static rd_kafka_NewTopic_t *new_topic(const struct broker_topic *topic, int replication, char *text,
                                      size_t size)
{
    rd_kafka_NewTopic_t *fresh = rd_kafka_NewTopic_new(
        topic->name, topic->partitions, replication > 0 ? replication : -1, text, size);

    if (fresh && topic->compact_only) {
        (void)rd_kafka_NewTopic_set_config(fresh, "cleanup.policy", "compact");
        (void)rd_kafka_NewTopic_set_config(fresh, "segment.bytes", SEGMENT_BYTES);
        (void)rd_kafka_NewTopic_set_config(fresh, "min.cleanable.dirty.ratio", DIRTY_RATIO);
    }
    if (fresh && replication >= ENOUGH_REPLICAS)
        (void)rd_kafka_NewTopic_set_config(fresh, "min.insync.replicas", "2");
    return fresh;
}

static enum broker_result create(struct admin *a, const struct broker_topic *topic, int replication,
                                 struct broker_topic_state *state, struct broker_error *ret_error)
{
    char text[300];
    rd_kafka_NewTopic_t *fresh = new_topic(topic, replication, text, sizeof text);
    rd_kafka_event_t *event;

    if (!fresh)
        return broker_fail(ret_error, BROKER_REFUSED, "%s: %s", topic->name, text);
    rd_kafka_AdminOptions_t *options = options_for(a, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_CreateTopics(a->rk, &fresh, 1, options, a->queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewTopic_destroy(fresh);
    enum broker_result result = await(a, topic->name, &event, ret_error);
    if (result != BROKER_OK)
        return result;
    size_t count;
    const rd_kafka_topic_result_t **made =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    rd_kafka_resp_err_t err =
        count ? rd_kafka_topic_result_error(made[0]) : RD_KAFKA_RESP_ERR__FAIL;
    if (err && err != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) /* another pod was first: fine */
        result = broker_fail(ret_error, BROKER_REFUSED, "%s cannot be created: %s", topic->name,
                             count ? rd_kafka_topic_result_error_string(made[0]) : "no answer");
    state->created = !err;
    rd_kafka_event_destroy(event);
    return result;
}

static enum broker_result grow(struct admin *a, const struct broker_topic *topic,
                               struct broker_error *ret_error)
{
    char text[300];
    rd_kafka_NewPartitions_t *more =
        rd_kafka_NewPartitions_new(topic->name, (size_t)topic->partitions, text, sizeof text);
    rd_kafka_event_t *event;

    if (!more)
        return broker_fail(ret_error, BROKER_REFUSED, "%s: %s", topic->name, text);
    rd_kafka_AdminOptions_t *options = options_for(a, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS);
    rd_kafka_CreatePartitions(a->rk, &more, 1, options, a->queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewPartitions_destroy(more);
    enum broker_result result = await(a, topic->name, &event, ret_error);
    if (result != BROKER_OK)
        return result;
    size_t count;
    const rd_kafka_topic_result_t **made = rd_kafka_CreatePartitions_result_topics(
        rd_kafka_event_CreatePartitions_result(event), &count);
    if (count && rd_kafka_topic_result_error(made[0]))
        result =
            broker_fail(ret_error, BROKER_REFUSED, "%s cannot get %d partitions: %s", topic->name,
                        (int)topic->partitions, rd_kafka_topic_result_error_string(made[0]));
    rd_kafka_event_destroy(event);
    return result;
}

/* ---- Judging ---- */

struct policy {
    bool compact, remove;
};

static void read_entry(const rd_kafka_ConfigEntry_t *entry, struct broker_topic_state *state,
                       struct policy *policy)
{
    const char *name = rd_kafka_ConfigEntry_name(entry), *value = rd_kafka_ConfigEntry_value(entry);

    if (!value)
        return;
    if (strcmp(name, "min.insync.replicas") == 0)
        state->min_insync = (int32_t)strtol(value, NULL, 10);
    else if (strcmp(name, "retention.ms") == 0)
        state->retention_ms = strtoll(value, NULL, 10);
    else if (strcmp(name, "unclean.leader.election.enable") == 0)
        state->unclean_election = strcmp(value, "true") == 0;
    else if (strcmp(name, "cleanup.policy") == 0)
        *policy =
            (struct policy){strstr(value, "compact") != NULL, strstr(value, "delete") != NULL};
}

static void judge(const struct broker_topic *topic, struct broker_topic_state *state,
                  const struct policy *policy)
{
    char *detail = state->detail;
    size_t size = sizeof state->detail;

    detail[0] = '\0';
    if (!state->exists)
        (void)snprintf(detail, size, "missing: run `holdfast topics apply`");
    else if (state->partitions < topic->partitions)
        (void)snprintf(detail, size, "has %d partitions instead of %d%s", (int)state->partitions,
                       (int)topic->partitions,
                       topic->partitions_are_order
                           ? "; adding some would break the order per key: make the topic anew, "
                             "or configure the number it has"
                           : ": run `holdfast topics apply`");
    else if (state->partitions > topic->partitions && topic->compact_only)
        (void)snprintf(detail, size, "has %d partitions instead of one for each of the %d shards",
                       (int)state->partitions, (int)topic->partitions);
    else if (topic->compact_only && (!policy->compact || policy->remove))
        (void)snprintf(
            detail, size,
            "must have cleanup.policy=compact only: the relay's memory would be deleted");
    else if (!topic->compact_only && policy->compact)
        (void)snprintf(detail, size, "must not be compacted: records with one key would be lost");
    state->ok = detail[0] == '\0';
}

static enum broker_result describe(struct admin *a, const struct broker_topic *topic,
                                   struct broker_topic_state *state, struct broker_error *ret_error)
{
    struct policy policy = {0};
    rd_kafka_event_t *event;

    state->retention_ms = -1;
    if (state->exists) {
        rd_kafka_ConfigResource_t *resource =
            rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic->name);
        rd_kafka_AdminOptions_t *options = options_for(a, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
        rd_kafka_DescribeConfigs(a->rk, &resource, 1, options, a->queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_ConfigResource_destroy(resource);
        enum broker_result result = await(a, topic->name, &event, ret_error);
        if (result != BROKER_OK)
            return result;
        size_t count, entries = 0;
        const rd_kafka_ConfigResource_t **answers = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(event), &count);
        const rd_kafka_ConfigEntry_t **list =
            count ? rd_kafka_ConfigResource_configs(answers[0], &entries) : NULL;
        for (size_t i = 0; i < entries; i++)
            read_entry(list[i], state, &policy);
        rd_kafka_event_destroy(event);
    }
    judge(topic, state, &policy);
    return BROKER_OK;
}

enum broker_result broker_topics_check(struct broker *broker, const struct broker_topic *topics,
                                       size_t n, int timeout_ms, struct broker_topic_state *ret,
                                       struct broker_error *ret_error)
{
    struct admin a CLEANUP(admin_close) = {0};
    struct broker_topic_state *states CLEANUP(memory_drop) = memory_new(n + 1, sizeof *states);
    enum broker_result result = admin_open(&a, broker, timeout_ms, ret_error);

    if (result == BROKER_OK)
        result = look(&a, topics, n, states, ret_error);
    for (size_t i = 0; i < n && result == BROKER_OK; i++)
        result = describe(&a, &topics[i], &states[i], ret_error);
    if (result == BROKER_OK)
        memcpy(ret, states, n * sizeof *states);
    return result;
}

enum broker_result broker_topics_apply(struct broker *broker, const struct broker_topic *topics,
                                       size_t n, int replication, int timeout_ms,
                                       struct broker_topic_state *ret,
                                       struct broker_error *ret_error)
{
    struct admin a CLEANUP(admin_close) = {0};
    struct broker_topic_state *states CLEANUP(memory_drop) = memory_new(n + 1, sizeof *states);
    enum broker_result result = admin_open(&a, broker, timeout_ms, ret_error);

    if (result == BROKER_OK)
        result = look(&a, topics, n, states, ret_error);
    for (size_t i = 0; i < n && result == BROKER_OK; i++) {
        if (!states[i].exists)
            result = create(&a, &topics[i], replication, &states[i], ret_error);
        else if (states[i].partitions < topics[i].partitions && !topics[i].partitions_are_order)
            result = grow(&a, &topics[i], ret_error);
    }
    if (result == BROKER_OK)
        result = look_until_there(&a, topics, n, states, ret_error);
    for (size_t i = 0; i < n && result == BROKER_OK; i++)
        result = describe(&a, &topics[i], &states[i], ret_error);
    if (result == BROKER_OK)
        memcpy(ret, states, n * sizeof *states);
    return result;
}

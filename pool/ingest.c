/* ingest: polls Kafka and decodes; never waits for anything else. And wakeups: the hints of other
 * pods. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "pool/pool_int.h"
#include "pool/record_int.h"
#include "schemas/intent.h"

enum {
    POLL_MS = 50,
    POLL_PAUSED_MS = 100,
    CLUSTER_ID_SIZE = 128,
    POLL_MANY = 256,
    TOPICS_MAX = 256
};

struct ingest {
    struct pool *pool;
    struct broker_consumer *consumer;
    char cluster[CLUSTER_ID_SIZE];
    bool paused;
    int64_t letters_us; /* when refused letters are offered again */
};

/* ---- topics that belong to a tenant: ingest.tenants = "topic=tenant, topic=tenant" ---- */

static struct span trimmed(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return (struct span){from, (size_t)(to - from)};
}

/* Walks the list; false at its end. */
static bool next_tenant(const char **at, struct span *ret_topic, struct span *ret_tenant)
{
    while (**at != '\0') {
        const char *from = *at, *end = from + strcspn(from, ",");
        const char *equals = memchr(from, '=', (size_t)(end - from));
        *at = *end == ',' ? end + 1 : end;
        if (equals == NULL)
            continue;
        *ret_topic = trimmed(from, equals);
        *ret_tenant = trimmed(equals + 1, end);
        return true;
    }
    return false;
}

static struct span tenant_of(const struct config *cfg, struct span topic)
{
    const char *at = cfg->ingest.tenants;
    struct span name, tenant;
    while (next_tenant(&at, &name, &tenant))
        if (span_eq(name, topic))
            return tenant;
    return SPAN_NULL;
}

/* The topic of tasks, that of control, and those of tenants, each once. */
static size_t topics_of(const struct pool *p, const char **ret, size_t max, struct arena *arena)
{
    const char *at = p->cfg->ingest.tenants;
    struct span name, tenant;
    size_t n = 0;
    ret[n++] = p->tasks_topic;
    if (p->cfg->ingest.control_topic[0] != '\0')
        ret[n++] = p->cfg->ingest.control_topic;
    while (n < max && next_tenant(&at, &name, &tenant)) {
        bool again = false;
        for (size_t i = 0; i < n && !again; i++)
            again = span_eq_text(name, ret[i]);
        if (!again)
            ret[n++] = arena_dup_text(arena, name);
    }
    return n;
}

/* ---- decoding ---- */

/* Control may have a topic of its own, so that Kafka's ACLs separate who may submit from who may
 * cancel. */
static void check_topic(const struct pool *p, struct task_record *r)
{
    const char *control = p->cfg->ingest.control_topic;
    if (control[0] == '\0' || !span_is_null(r->reject))
        return;
    bool on_control = strcmp(r->raw->topic, control) == 0;
    bool is_control = r->message.type != MESSAGE_SUBMIT;
    if (on_control != is_control)
        record_reject(r, REJECT_NOT_SUPPORTED, SPAN_LIT("/type"),
                      span_of(arena_printf(r->arena, "\"%s\" records do not belong on topic %s",
                                           message_type_word(r->message.type), r->raw->topic)));
}

/* NULL: it was a dead letter, and is on its way. */
static struct task_record *decode(struct ingest *in, struct broker_record *raw)
{
    struct task_record *r = record_new(raw);
    struct raw_record bytes = record_raw(raw, span_of(in->cluster), r->arena);
    struct message_limits limits = {.tenant = tenant_of(in->pool->cfg, bytes.topic)};
    struct reject reject;
    metric_add(METRIC_RECORDS, LABELS(raw->topic), 1);
    if (message_decode(&bytes, &limits, r->arena, &r->message, &reject)) {
        check_topic(in->pool, r);
    } else if (reject.has_task) {
        r->reject = reject_json(&reject, r->arena);
        r->dead_reason = span_of(reject_word(reject.reason));
        r->dead_detail = reject.detail;
    } else {
        dead_send(in->pool->dead, r, span_of(reject_word(reject.reason)), reject.detail);
        return NULL;
    }
    r->run_id = uuid_v7();
    return r;
}

/* ---- pausing ---- */

static bool should_pause(const struct ingest *in)
{
    const struct pool *p = in->pool;
    return queue_room(p->records) == 0 || atomic_load(&p->submit_away) ||
           atomic_load(&p->backlog_full);
}

/* Resumes once there is room for a good part of a batch, not for one record. */
static bool may_resume(const struct ingest *in)
{
    return !should_pause(in) &&
           queue_len(in->pool->records) * 2 <= (size_t)in->pool->cfg->pool.queue;
}

static void set_pause(struct ingest *in)
{
    if (!in->paused && should_pause(in)) {
        broker_pause_all(in->consumer);
        in->paused = true;
        log_event(LOG_INFO, "ingest.paused",
                  LOG_BOOL("database_away", atomic_load(&in->pool->submit_away)),
                  LOG_BOOL("backlog_full", atomic_load(&in->pool->backlog_full)),
                  LOG_BOOL("queue_full", queue_room(in->pool->records) == 0));
    } else if (in->paused && may_resume(in)) {
        broker_resume_all(in->consumer);
        in->paused = false;
        log_event(LOG_INFO, "ingest.resumed");
    }
    metric_set(METRIC_PAUSED_PARTITIONS, NO_LABELS, in->paused ? 1 : 0);
}

/* ---- the thread ---- */

static bool open_consumer(struct ingest *in)
{
    struct pool *p = in->pool;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const char *topics[TOPICS_MAX];
    struct broker_consumer_options options = {
        .group = p->cfg->ingest.group,
        .topics = topics,
        .topic_count = topics_of(p, topics, TOPICS_MAX, arena),
    };
    struct broker_error error;
    while (!atomic_load(&p->stopping)) {
        enum broker_result result =
            broker_cluster_id(p->broker, 1000, in->cluster, sizeof(in->cluster), &error);
        if (result == BROKER_OK)
            result = broker_consumer_open(p->broker, &options, &in->consumer, &error);
        if (result == BROKER_OK) {
            in->paused = false;
            atomic_store(&p->ingest_ready, true);
            return true;
        }
        log_event(LOG_WARN, "ingest.waits_for_kafka",
                  LOG_TEXT("result", broker_result_word(result)), LOG_TEXT("detail", error.text));
        pool_sleep_until(p, clock_deadline_us(CLOCK_SECOND));
    }
    return false;
}

static void poll(struct ingest *in)
{
    struct broker_record *raws[POLL_MANY];
    size_t room = queue_room(in->pool->records);
    size_t max = room < POLL_MANY ? room : POLL_MANY;
    size_t n = broker_poll_many(in->consumer, raws, max > 0 ? max : 1,
                                in->paused ? POLL_PAUSED_MS : POLL_MS);
    for (size_t i = 0; i < n; i++) {
        struct task_record *r = decode(in, raws[i]);
        /* there is room, but for one that slipped through a pause */
        if (r != NULL && !queue_force_push(in->pool->records, r))
            record_free(r);
    }
}

static void look_around(struct ingest *in)
{
    struct pool *p = in->pool;
    broker_producer_poll(p->producer, 0);
    int64_t now_us = clock_mono_us();
    if (now_us >= in->letters_us) {
        dead_retry(p->dead);
        in->letters_us = now_us + CLOCK_SECOND;
    }
    metric_set(METRIC_QUEUE_LENGTH, LABELS("records"), (double)queue_len(p->records));
}

/* The consumer stays until everything handed out is done, so that its offsets are stored. */
static void finish(struct ingest *in)
{
    struct pool *p = in->pool;
    int64_t deadline_us = clock_deadline_us(p->cfg->pool.grace_ms * CLOCK_MS);
    broker_pause_all(in->consumer);
    queue_close(p->records);
    while (broker_outstanding(in->consumer) > 0 && clock_mono_us() < deadline_us) {
        if (atomic_load(&p->submit_over) && dead_waiting(p->dead) == 0)
            break; /* what is left was given up undone: it comes again, to another pod */
        broker_record_free(broker_poll(in->consumer, 10));
        look_around(in);
    }
    broker_consumer_close(in->consumer);
    in->consumer = NULL;
}

void *ingest_run(void *pool)
{
    struct ingest in = {.pool = pool};
    struct pool *p = in.pool;
    while (!atomic_load(&p->stopping) && open_consumer(&in)) {
        while (!atomic_load(&p->stopping) && !broker_consumer_failed(in.consumer)) {
            set_pause(&in);
            poll(&in);
            look_around(&in);
        }
        atomic_store(&p->ingest_ready, false);
        if (atomic_load(&p->stopping))
            break;
        log_event(LOG_ERROR, "ingest.consumer_failed");
        broker_consumer_close(in.consumer);
        in.consumer = NULL;
    }
    if (in.consumer != NULL)
        finish(&in);
    queue_close(p->records);
    return NULL;
}

/* ---- wakeups ---- */

static void hear(struct pool *p, struct arena *arena, struct broker_record *record)
{
    struct wakeup wakeup;
    struct json_error error;
    arena_reset(arena);
    metric_add(METRIC_RECORDS, LABELS(record->topic), 1);
    if (!wakeup_decode(record->value, arena, &wakeup, &error))
        log_event(LOG_WARN, "wakeup.not_understood", LOG_SPAN("detail", error.detail));
    else if (wakeup.epoch == 0 || !hints_add(p->hints, (struct hint){wakeup.run_id, wakeup.epoch}))
        hints_nudge(p->hints);
    broker_done(record); /* a hint is acknowledged when heard: what it points to is in PostgreSQL */
    broker_record_free(record);
}

void *wakeups_run(void *pool)
{
    struct pool *p = pool;
    const char *topic = p->wakeups_topic;
    struct broker_consumer_options options = {
        .group = p->wakeups_group, .topics = &topic, .topic_count = 1};
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    while (!atomic_load(&p->stopping)) {
        struct broker_consumer *consumer;
        struct broker_error error;
        if (broker_consumer_open(p->broker, &options, &consumer, &error) != BROKER_OK) {
            log_event(LOG_WARN, "wakeups.wait_for_kafka", LOG_TEXT("detail", error.text));
            pool_sleep_until(p, clock_deadline_us(CLOCK_SECOND));
            continue;
        }
        while (!atomic_load(&p->stopping) && !broker_consumer_failed(consumer)) {
            struct broker_record *record = broker_poll(consumer, POLL_PAUSED_MS);
            if (record != NULL)
                hear(p, arena, record);
        }
        broker_consumer_close(consumer);
    }
    return NULL;
}

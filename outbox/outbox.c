// outbox/outbox.c: puts the threads of dispatcher and relay together, and takes them apart in the
// right order.
#include "outbox/outbox_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/uuid.h"
#include "outbox/completion_int.h"
#include "outbox/dispatch_int.h"
#include "outbox/exec_int.h"
#include "outbox/reconcile_int.h"
#include "schemas/intent.h"

enum { STOP_FLUSH_MS = 2000 };

void outbox_thread(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *argument)
{
    CHECK(thread_start(ret_thread, name, fn, argument));
}

// ---- Kafka ----

static void on_kafka_log(void *opaque, int level, const char *facility, const char *text)
{
    (void)opaque;
    log_event(level <= 3   ? LOG_ERROR
              : level == 4 ? LOG_WARN
                           : LOG_DEBUG,
              "kafka.log", LOG_TEXT("facility", facility), LOG_TEXT("text", text));
}

static void on_kafka_error(void *opaque, const char *text, bool fatal)
{
    (void)opaque;
    metric_add(METRIC_KAFKA_ERRORS, LABELS(fatal ? "fatal" : "error"), 1);
    log_event(fatal ? LOG_ERROR : LOG_WARN, "kafka.error", LOG_TEXT("text", text));
}

static enum broker_scope scope_of(enum config_kafka_scope scope)
{
    return scope == KAFKA_CONSUMER   ? BROKER_CONSUMER
           : scope == KAFKA_PRODUCER ? BROKER_PRODUCER
                                     : BROKER_ALL;
}

static bool open_broker(struct outbox *outbox, char *reason, size_t reason_size)
{
    const struct config *config = outbox->config;
    struct broker_property *properties = memory_new(config->n_kafka + 1, sizeof *properties);
    for (size_t i = 0; i < config->n_kafka; i++) {
        properties[i] = (struct broker_property){.name = config->kafka[i].name,
                                                 .value = config->kafka[i].value,
                                                 .scope = scope_of(config->kafka[i].scope)};
    }
    const struct broker_hooks hooks = {.log = on_kafka_log, .error = on_kafka_error};
    struct broker_error error = {.text = ""};
    bool good =
        broker_open(properties, config->n_kafka, &hooks, &outbox->broker, &error) == BROKER_OK &&
        broker_producer_open(outbox->broker, &outbox->producer, &error) == BROKER_OK;
    free(properties);
    (void)snprintf(reason, reason_size, "%s", error.text);
    return good;
}

void outbox_send_wakeup(struct outbox *outbox, struct uuid run_id, int64_t epoch,
                        struct arena *arena)
{
    const struct wakeup wakeup = {.run_id = run_id, .epoch = epoch};
    char key[UUID_TEXT_SIZE];
    const struct broker_message message = {
        .topic = outbox->wakeups_topic,
        .partition = BROKER_BY_KEY,
        .key = span_of(uuid_format(run_id, key)),
        .value = wakeup_encode(&wakeup, arena),
    };
    bool sent = broker_produce(outbox->producer, &message, NULL, NULL, NULL) == BROKER_OK;
    metric_add(METRIC_HINTS, LABELS(outbox->wakeups_topic, sent ? "sent" : "dropped"), 1);
}

// ---- start ----

static void name_things(struct outbox *outbox)
{
    const char *prefix = outbox->config->topics.prefix;
    char token[UUID_TEXT_SIZE];
    (void)snprintf(outbox->session_text, sizeof outbox->session_text, "%.80s/%s",
                   outbox->config->pod.name, uuid_format(uuid_v4(), token));
    outbox->session = span_of(outbox->session_text);
    (void)snprintf(outbox->intents_topic, OUTBOX_TOPIC_SIZE, "%sintents", prefix);
    (void)snprintf(outbox->wakeups_topic, OUTBOX_TOPIC_SIZE, "%swakeups", prefix);
    (void)snprintf(outbox->dead_letters_topic, OUTBOX_TOPIC_SIZE, "%sdead-letters", prefix);
}

static bool has_kind(const struct config *config, enum config_tool_kind kind)
{
    for (size_t i = 0; i < config->n_tools; i++) {
        if (config->tools[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static bool start_dispatcher(struct outbox *outbox)
{
    const struct config_dispatch *config = &outbox->config->dispatch;
    size_t capacity = (size_t)config->max_in_flight;
    outbox->to_dispatch = queue_new(capacity);
    outbox->to_settle = queue_new(capacity);
    tools_open(outbox);
    if (http_client_open(capacity, &outbox->http) != OUTCOME_OK ||
        http_client_open(capacity, &outbox->query_http) != OUTCOME_OK) {
        return false;
    }
    if (has_kind(outbox->config, TOOL_EXEC)) {
        outbox->programs = programs_open(outbox);
    }
    outbox->dispatching = true;
    outbox_thread(&outbox->settle_thread, "settle", settle_thread, outbox);
    outbox_thread(&outbox->dispatch_thread, "dispatch", dispatch_thread, outbox);
    outbox_thread(&outbox->claim_thread, "claim", claim_thread, outbox);
    outbox_thread(&outbox->reconcile_thread, "reconcile", reconcile_thread, outbox);
    return true;
}

static void outbox_free(struct outbox *outbox)
{
    inbound_close(outbox->inbound);
    http_client_close(outbox->http);
    http_client_close(outbox->query_http);
    if (outbox->to_dispatch != NULL) {
        queue_free(outbox->to_dispatch);
        queue_free(outbox->to_settle);
    }
    tools_close(outbox);
    broker_producer_close(outbox->producer);
    broker_close(outbox->broker);
    free(outbox);
}

static enum outcome refuse(struct outbox *outbox, const char **ret_reason, const char *reason)
{
    if (ret_reason != NULL) {
        *ret_reason = reason;
    }
    outbox_stop(outbox, 0);
    return OUTCOME_INVALID;
}

enum outcome outbox_start(const struct config *config, bool embedded_broker, struct outbox **ret,
                          const char **ret_reason)
{
    static _Thread_local char reason[sizeof((struct broker_error){{0}}.text)];
    struct outbox *outbox = memory_new(1, sizeof *outbox);
    outbox->config = config;
    name_things(outbox);
    if (embedded_broker && config->relay.enabled && config->relay.mode == RELAY_EXACTLY_ONCE) {
        return refuse(outbox, ret_reason,
                      "relay.mode = exactly_once needs a real Kafka: the embedded broker accepts "
                      "transactions but does not isolate them. Use relay.mode = at_least_once");
    }
    if (!open_broker(outbox, reason, sizeof reason)) {
        return refuse(outbox, ret_reason, reason);
    }
    if (config->relay.enabled && relay_start(outbox, &outbox->relay, ret_reason) != OUTCOME_OK) {
        outbox_stop(outbox, 0);
        return OUTCOME_INVALID;
    }
    // Without a tool there is nothing that this pod could send.
    if (config->dispatch.enabled && config->n_tools > 0 && !start_dispatcher(outbox)) {
        return refuse(outbox, ret_reason,
                      "the HTTP client could not be started: too few descriptors");
    }
    outbox->inbound = inbound_open(outbox);
    if (config->dispatch.completions) {
        outbox->completing = true;
        outbox_thread(&outbox->completions_thread, "completions", completions_thread, outbox);
    }
    *ret = outbox;
    return OUTCOME_OK;
}

// ---- while it runs ----

void outbox_notify_events(struct outbox *outbox)
{
    relay_notify(outbox->relay);
}

void outbox_notify_intents(struct outbox *outbox)
{
    atomic_store(&outbox->look_for_intents, true);
}

void outbox_health(struct outbox *outbox, struct outbox_health *ret)
{
    *ret = (struct outbox_health){
        .dispatch_enabled = outbox->dispatching,
        .relay_enabled = outbox->relay != NULL,
        .ledger_connected = atomic_load(&outbox->ledger_connected),
        .gate_closed = atomic_load(&outbox->gate_closed),
        .in_flight = (int64_t)atomic_load(&outbox->in_flight),
    };
    relay_health(outbox->relay, ret);
}

// ---- stop: claim first, so that nothing new comes; then dispatch; settle when it has written the
// last answer ----

static void stop_dispatcher(struct outbox *outbox, int64_t grace_ms)
{
    atomic_store(&outbox->grace_until_us, clock_deadline_us(grace_ms * CLOCK_MS));
    atomic_store(&outbox->stop_claiming, true);
    reconcile_wake(outbox);
    thread_join(outbox->claim_thread);
    thread_join(outbox->reconcile_thread);
    (void)!broker_flush(outbox->producer, STOP_FLUSH_MS);
    atomic_store(&outbox->stop_dispatching, true);
    http_client_wake(outbox->http);
    thread_join(outbox->dispatch_thread);
    thread_join(outbox->settle_thread);
}

void outbox_stop(struct outbox *outbox, int64_t grace_ms)
{
    if (outbox == NULL) {
        return;
    }
    atomic_store(&outbox->stop_claiming, true);
    if (outbox->dispatching) {
        stop_dispatcher(outbox, grace_ms);
    }
    if (outbox->completing) {
        thread_join(outbox->completions_thread);
    }
    relay_stop(outbox->relay);
    outbox_free(outbox);
}

// outbox/relay_age.c: rows older than the result topic's retention.
#include "outbox/relay_int.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"

enum {
    LOOK_US = 60 * 1000 * 1000,
    LOOK_SOON_US = 5 * 1000 * 1000, // while rows are held back: a person may be about to help
    LOOK_MS = 5000,
    MARGIN_MAX_MS = 5 * 60 * 1000,
};

struct db_int relay_max_age(const struct relay *relay)
{
    int64_t ms = atomic_load(&relay->max_age_ms);
    return ms > 0 ? DB_INT(ms) : DB_INT_NULL;
}

// Somewhat less than the retention: what a recovery finds missing must have been there while it
// read.
static int64_t max_age_of(int64_t retention_ms)
{
    if (retention_ms < 0) {
        return 0;
    }
    int64_t margin_ms = retention_ms / 10 < MARGIN_MAX_MS ? retention_ms / 10 : MARGIN_MAX_MS;
    return retention_ms - margin_ms > 0 ? retention_ms - margin_ms : 1;
}

void relay_look_at_retention(struct relay *relay)
{
    if (!relay_exactly_once(relay)) {
        return;
    }
    struct broker_topic topic = {.partitions = 1};
    (void)snprintf(topic.name, sizeof topic.name, "%s", relay->results_topic);
    struct broker_topic_state state = {0};
    struct broker_error error = {.text = ""};
    if (broker_topics_check(relay->outbox->broker, &topic, 1, LOOK_MS, &state, &error) !=
        BROKER_OK) {
        log_event(LOG_WARN, "relay.retention_unknown", LOG_TEXT("detail", error.text));
        return;
    }
    atomic_store(&relay->max_age_ms, max_age_of(state.retention_ms));
}

// One lane looks for all.
static void look_when_due(struct relay *relay, bool soon)
{
    int64_t now = clock_mono_us();
    int64_t last = atomic_load(&relay->retention_us);
    if (now - last >= (soon ? LOOK_SOON_US : LOOK_US) &&
        atomic_compare_exchange_strong(&relay->retention_us, &last, now)) {
        relay_look_at_retention(relay);
    }
}

void shard_count_held_back(struct relay_lane *lane, struct shard *s)
{
    int64_t now = clock_mono_us();
    if (now < s->count_us) {
        return;
    }
    look_when_due(lane->relay, s->held_back > 0);
    struct db_int max_age_ms = relay_max_age(lane->relay);
    struct ledger_position position = {.held_back = 0};
    if (!max_age_ms.is_null &&
        ledger_position(lane->lane, s->number, max_age_ms, lane->arena, &position) != OUTCOME_OK) {
        return;
    }
    char number[12];
    (void)snprintf(number, sizeof number, "%d", (int)s->number);
    metric_set(METRIC_EVENTS_HELD_BACK, LABELS(number), (double)position.held_back);
    if (position.held_back != s->held_back) {
        log_event(position.held_back > 0 ? LOG_ERROR : LOG_INFO, "relay.held_back",
                  LOG_INT("shard", s->number), LOG_INT("events", position.held_back),
                  LOG_INT("max_age_ms", max_age_ms.v),
                  LOG_TEXT("detail", "older than what Kafka keeps of the results: not published; "
                                     "raise retention.ms of the topic above their age"));
        s->whole_once = true;
    }
    s->held_back = position.held_back;
    s->count_us = now + (s->held_back > 0 ? LOOK_SOON_US : LOOK_US);
}

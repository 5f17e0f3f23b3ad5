// outbox/relay.c: the lanes: which shards are held, whose turn it is, how long to wait.
#include "outbox/relay_int.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/uuid.h"

enum {
    CONNECT_MS = 1000,
    CHECK_AGAIN_MS = 2000,
    IDLE_FIRST_US = 1000, // the first wait of an idle lane; doubles up to relay.interval_ms
    SILENCE_US = 2 * 1000 * 1000,
    SILENT_FACTOR = 8,
    FIRST_LIMIT = 64,
    TOPIC_CHECK_MS = 5000,
};

bool relay_exactly_once(const struct relay *relay)
{
    return relay->outbox->config->relay.mode == RELAY_EXACTLY_ONCE;
}

void shard_later(struct shard *s, int64_t ms)
{
    s->again_us = clock_deadline_us(ms * CLOCK_MS);
}

struct ledger_shard shard_holder(const struct relay_lane *lane, const struct shard *s)
{
    return (struct ledger_shard){
        .shard = s->number, .owner = lane->relay->outbox->session, .epoch = s->epoch};
}

// ---- leases ----

static void enter(struct relay_lane *lane, struct shard *s, enum shard_state state)
{
    struct relay *relay = lane->relay;
    atomic_fetch_add(&relay->shards_held, (state != SHARD_FREE) - (s->state != SHARD_FREE));
    atomic_fetch_add(&relay->shards_starting,
                     (state == SHARD_STARTING) - (s->state == SHARD_STARTING));
    metric_set(METRIC_SHARDS_HELD, NO_LABELS, (double)atomic_load(&relay->shards_held));
    s->again_us = 0;
    LOCK_SCOPE(&lane->lock);
    s->state = state;
}

static void set_epoch(struct relay_lane *lane, struct shard *s, int64_t epoch)
{
    LOCK_SCOPE(&lane->lock);
    s->epoch = epoch;
}

static void lose(struct relay_lane *lane, struct shard *s)
{
    broker_txn_close(s->txn);
    s->txn = NULL;
    enter(lane, s, SHARD_FREE);
    shard_later(s, lane->relay->outbox->config->relay.shard_ttl_ms / 2);
    log_event(LOG_INFO, "relay.shard_lost", LOG_INT("shard", s->number),
              LOG_INT("epoch", s->epoch));
}

// It holds more than its share: another pod has less.
static bool has_surplus(const struct relay *relay)
{
    return atomic_load(&relay->shards_held) > atomic_load(&relay->share);
}

static void release(struct relay_lane *lane, struct shard *s)
{
    broker_txn_close(s->txn);
    s->txn = NULL;
    struct fence_service answer;
    (void)!fence_service_release(lane->lane, span_of(s->name), lane->relay->outbox->session,
                                 s->epoch, lane->arena, &answer);
    enter(lane, s, SHARD_FREE);
}

static void let_go(struct relay_lane *lane, struct shard *s)
{
    release(lane, s);
    shard_later(s, lane->relay->outbox->config->relay.shard_ttl_ms);
    log_event(LOG_INFO, "relay.shard_let_go", LOG_INT("shard", s->number),
              LOG_INT("share", atomic_load(&lane->relay->share)));
}

static void acquire(struct relay_lane *lane, struct shard *s)
{
    if (atomic_load(&lane->relay->shards_held) >= atomic_load(&lane->relay->share)) {
        shard_later(s, lane->relay->outbox->config->relay.shard_ttl_ms / 4);
        return;
    }
    const struct config_relay *config = &lane->relay->outbox->config->relay;
    struct fence_service answer;
    enum outcome outcome =
        fence_service_acquire(lane->lane, span_of(s->name), lane->relay->outbox->session,
                              config->shard_ttl_ms, lane->arena, &answer);
    if (outcome != OUTCOME_OK || answer.outcome != OUTCOME_ACQUIRED) {
        uint32_t random = 0; // pods that wait for the same shard should not ask in step
        uuid_random_bytes(&random, sizeof random);
        shard_later(s, config->shard_ttl_ms / 4 + (int64_t)(random % 256));
        return;
    }
    set_epoch(lane, s, answer.epoch);
    s->limit = FIRST_LIMIT;
    s->low_mark = s->highest = s->marked = 0;
    s->mark_us = s->count_us = 0;
    enter(lane, s, SHARD_STARTING);
    log_event(LOG_INFO, "relay.shard_acquired", LOG_INT("shard", s->number),
              LOG_INT("epoch", s->epoch));
}

enum turn shard_regain(struct relay_lane *lane, struct shard *s)
{
    int64_t ttl_ms = lane->relay->outbox->config->relay.shard_ttl_ms;
    struct fence_service answer;
    enum outcome outcome = fence_service_acquire(
        lane->lane, span_of(s->name), lane->relay->outbox->session, ttl_ms, lane->arena, &answer);
    if (outcome != OUTCOME_OK || answer.outcome != OUTCOME_ACQUIRED) {
        return TURN_LOST;
    }
    bool alone = answer.epoch <= s->epoch + 1;
    set_epoch(lane, s, answer.epoch);
    return alone ? TURN_WORKED : TURN_RESTART;
}

static void give_back(struct relay_lane *lane, struct shard *s)
{
    if (s->state != SHARD_FREE) {
        release(lane, s);
    }
    free(s->omitted);
}

// ---- a lane's round ----

static enum turn take_turn(struct relay_lane *lane, struct shard *s)
{
    if (s->again_us > clock_mono_us()) {
        return TURN_LATER;
    }
    switch (s->state) {
    case SHARD_FREE:
        acquire(lane, s);
        return s->state == SHARD_FREE ? TURN_LATER : TURN_WORKED;
    case SHARD_STARTING:
        return shard_start(lane, s);
    case SHARD_RUNNING:
        if (has_surplus(lane->relay)) {
            let_go(lane, s);
            return TURN_LATER;
        }
        return shard_publish(lane, s);
    }
    CHECK(false);
    return TURN_LATER;
}

static bool turn(struct relay_lane *lane, struct shard *s)
{
    arena_reset(lane->arena);
    lane_alive(lane);
    enum shard_state before = s->state;
    enum turn t = take_turn(lane, s);
    switch (t) {
    case TURN_WORKED:
        if (before == SHARD_STARTING && s->state == SHARD_STARTING) {
            enter(lane, s, SHARD_RUNNING);
        }
        return true;
    case TURN_RESTART:
        broker_txn_close(s->txn);
        s->txn = NULL;
        if (s->state != SHARD_FREE) {
            int64_t again_us = s->again_us;
            enter(lane, s, SHARD_STARTING);
            s->again_us = again_us;
        }
        return true;
    case TURN_LOST:
        if (s->state != SHARD_FREE) {
            lose(lane, s);
        }
        return false;
    case TURN_IDLE:
    case TURN_LATER:
        return false;
    }
    CHECK(false);
    return false;
}

// While there is work now and then a shard is looked at every relay.interval_ms; in a long silence
// more and more rarely (an idle pod costs next to nothing), and at once when this process committed
// something.
static int64_t wait_us(struct relay_lane *lane)
{
    int64_t longest = lane->relay->outbox->config->relay.interval_ms * CLOCK_MS;
    if (clock_mono_us() - lane->worked_us > SILENCE_US) {
        longest *= SILENT_FACTOR;
    }
    int64_t wait = lane->idle_us < longest ? lane->idle_us : longest;
    lane->idle_us = lane->idle_us < longest ? lane->idle_us * 2 : longest;
    return wait;
}

static void wait_for_work(struct relay_lane *lane)
{
    int64_t deadline = clock_deadline_us(wait_us(lane));
    LOCK_SCOPE(&lane->lock);
    while (!atomic_load(&lane->look) && condition_wait_until(&lane->told, &lane->lock, deadline)) {
    }
    if (atomic_exchange(&lane->look, false)) {
        lane->idle_us = IDLE_FIRST_US;
        log_event(LOG_DEBUG, "relay.told", LOG_INT("lane", lane->index));
    }
}

static void round_of(struct relay_lane *lane)
{
    bool worked = false;
    for (size_t i = 0; i < lane->shards_n && !atomic_load(&lane->relay->stop); i++) {
        worked = turn(lane, &lane->shards[i]) || worked;
    }
    if (worked) {
        lane->idle_us = IDLE_FIRST_US;
        lane->worked_us = clock_mono_us();
    } else {
        wait_for_work(lane);
    }
}

// ---- a lane's life ----

static void make_shards(struct relay_lane *lane, int32_t shards)
{
    struct relay *relay = lane->relay;
    lane->shards = memory_new((size_t)shards, sizeof *lane->shards);
    for (int32_t number = lane->index; number < shards; number += (int32_t)relay->lanes_n) {
        struct shard *s = &lane->shards[lane->shards_n++];
        s->number = number;
        s->gate_closed_for = -1;
        (void)snprintf(s->name, sizeof s->name, "shard:%d", (int)number);
        (void)snprintf(s->transactional_id, sizeof s->transactional_id, "%s-%d", relay->relay_topic,
                       (int)number);
    }
}

// The read-back of a shard rests on its partition being its own and keeping its last record.
static bool topic_is_good(struct relay_lane *lane, int32_t shards)
{
    struct relay *relay = lane->relay;
    if (!relay_exactly_once(relay) || atomic_load(&relay->topic_checked)) {
        return true;
    }
    struct broker_topic topics[BROKER_TOPIC_ROLES];
    const struct config_topics *config = &relay->outbox->config->topics;
    broker_topics_of(config->prefix, (int32_t)config->partitions, shards, topics);
    struct broker_topic_state state = {0};
    struct broker_error error = {.text = ""};
    enum broker_result result = broker_topics_check(relay->outbox->broker, &topics[BROKER_RELAY], 1,
                                                    TOPIC_CHECK_MS, &state, &error);
    bool good = result == BROKER_OK && state.exists && state.ok;
    if (!good) {
        log_event(LOG_ERROR, "relay.topic_refused", LOG_TEXT("topic", relay->relay_topic),
                  LOG_TEXT("detail", result == BROKER_OK ? state.detail : error.text));
    }
    atomic_store(&relay->topic_checked, good);
    return good;
}

static bool open_shards(struct relay_lane *lane)
{
    struct ledger_facts facts = {.shards = 0};
    enum outcome outcome = fence_connect(lane->lane, CONNECT_MS * CLOCK_MS);
    if (outcome == OUTCOME_OK) {
        outcome = ledger_facts(lane->lane, lane->arena, &facts);
    }
    if (outcome != OUTCOME_OK) {
        log_event(LOG_WARN, "relay.waits_for_database", LOG_OUTCOME(outcome),
                  LOG_TEXT("detail", fence_error(lane->lane)));
        return false;
    }
    if (facts.shards < 1 || facts.shards > RELAY_SHARDS_MAX || !topic_is_good(lane, facts.shards)) {
        return false;
    }
    if (span_eq_text(facts.failover_mode, "strict")) {
        atomic_store(&lane->relay->strict, true);
    }
    relay_look_at_retention(lane->relay);
    LOCK_SCOPE(&lane->lock);
    make_shards(lane, facts.shards);
    atomic_fetch_add(&lane->relay->lanes_connected, 1);
    return true;
}

static void wait_before_retry(struct relay_lane *lane)
{
    int64_t deadline = clock_deadline_us(CHECK_AGAIN_MS * CLOCK_MS);
    LOCK_SCOPE(&lane->lock);
    while (!atomic_load(&lane->relay->stop) &&
           condition_wait_until(&lane->told, &lane->lock, deadline)) {
    }
}

static void *lane_thread(void *argument)
{
    struct relay_lane *lane = argument;
    CHECK(fence_open(lane->relay->outbox->config, "relay", 0, &lane->lane) == OUTCOME_OK);
    while (!atomic_load(&lane->relay->stop) && !open_shards(lane)) {
        arena_reset(lane->arena);
        wait_before_retry(lane);
    }
    while (!atomic_load(&lane->relay->stop)) {
        round_of(lane);
    }
    for (size_t i = 0; i < lane->shards_n; i++) {
        give_back(lane, &lane->shards[i]);
    }
    broker_producer_close(lane->producer);
    fence_close(lane->lane);
    return NULL;
}

// ---- the relay ----

// Told already and not awake yet: whoever commits often does not take the lock each time.
static void tell(struct relay_lane *lane)
{
    if (atomic_load(&lane->look) && !atomic_load(&lane->relay->stop)) {
        return;
    }
    LOCK_SCOPE(&lane->lock);
    atomic_store(&lane->look, true);
    condition_signal(&lane->told);
}

void relay_notify(struct relay *relay)
{
    for (size_t i = 0; relay != NULL && i < relay->lanes_n; i++) {
        tell(&relay->lanes[i]);
    }
}

enum outcome relay_start(struct outbox *outbox, struct relay **ret, const char **ret_reason)
{
    (void)ret_reason;
    const struct config *config = outbox->config;
    struct relay *relay = memory_new(1, sizeof *relay);
    relay->outbox = outbox;
    atomic_init(&relay->share, RELAY_SHARDS_MAX); // until it is known
    atomic_init(&relay->strict, config->failover.mode == FAILOVER_STRICT);
    (void)snprintf(relay->results_topic, OUTBOX_TOPIC_SIZE, "%sresults", config->topics.prefix);
    (void)snprintf(relay->relay_topic, OUTBOX_TOPIC_SIZE, "%srelay", config->topics.prefix);
    (void)snprintf(relay->source, OUTBOX_TOPIC_SIZE, "/holdfast/%s", config->postgres.schema);
    relay->lanes_n = (size_t)config->relay.lanes;
    relay->lanes = memory_new(relay->lanes_n, sizeof *relay->lanes);
    for (size_t i = 0; i < relay->lanes_n; i++) {
        struct relay_lane *lane = &relay->lanes[i];
        lane->relay = relay;
        lane->index = (int)i;
        lane->arena = arena_new();
        lane->idle_us = IDLE_FIRST_US;
        lock_init(&lane->lock);
        condition_init(&lane->told);
    }
    for (size_t i = 0; i < relay->lanes_n; i++) {
        outbox_thread(&relay->lanes[i].thread, "relay", lane_thread, &relay->lanes[i]);
    }
    lock_init(&relay->keeper_lock);
    condition_init(&relay->keeper_told);
    outbox_thread(&relay->keeper, "relay keeper", relay_keeper, relay);
    *ret = relay;
    return OUTCOME_OK;
}

void relay_health(struct relay *relay, struct outbox_health *ret)
{
    if (relay == NULL) {
        return;
    }
    ret->relay_connected = (size_t)atomic_load(&relay->lanes_connected) == relay->lanes_n;
    ret->shards_held = atomic_load(&relay->shards_held);
    ret->shards_recovering = atomic_load(&relay->shards_starting);
}

void relay_stop(struct relay *relay)
{
    if (relay == NULL) {
        return;
    }
    atomic_store(&relay->stop, true);
    relay_notify(relay);
    lock_take(&relay->keeper_lock);
    condition_signal(&relay->keeper_told);
    lock_drop(&relay->keeper_lock);
    for (size_t i = 0; i < relay->lanes_n; i++) {
        thread_join(relay->lanes[i].thread);
    }
    thread_join(relay->keeper);
    condition_destroy(&relay->keeper_told);
    lock_destroy(&relay->keeper_lock);
    for (size_t i = 0; i < relay->lanes_n; i++) {
        struct relay_lane *lane = &relay->lanes[i];
        arena_free(lane->arena);
        free(lane->shards);
        condition_destroy(&lane->told);
        lock_destroy(&lane->lock);
    }
    free(relay->lanes);
    free(relay);
}

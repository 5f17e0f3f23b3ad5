// outbox/relay_keep.c: renews the leases of the shards that the lanes hold. A thread and a
// connection of its own, because a lane may wait for Kafka longer than a lease lives, and two pods
// would then take a shard from each other for ever.
#include "outbox/relay_int.h"

#include "base/clock.h"
#include "base/log.h"

enum { ALIVE_US = 60 * 1000 * 1000 }; // longer than any single wait of a lane for Kafka

struct held {
    const char *name;
    int64_t epoch;
};

void lane_alive(struct relay_lane *lane)
{
    atomic_store(&lane->alive_us, clock_mono_us());
}

static size_t held_by(struct relay_lane *lane, struct held *ret)
{
    size_t n = 0;
    if (clock_mono_us() - atomic_load(&lane->alive_us) > ALIVE_US) {
        return 0; // it hangs: let another pod have its shards
    }
    LOCK_SCOPE(&lane->lock);
    for (size_t i = 0; i < lane->shards_n; i++) {
        const struct shard *s = &lane->shards[i];
        if (s->state != SHARD_FREE) {
            ret[n++] = (struct held){.name = s->name, .epoch = s->epoch};
        }
    }
    return n;
}

// What is refused here the lane finds out by itself: its next read or delete is refused, too.
static void renew_all(struct relay *relay, struct fence *lane, struct arena *arena)
{
    int64_t ttl_ms = relay->outbox->config->relay.shard_ttl_ms;
    struct held held[RELAY_SHARDS_MAX];
    for (size_t i = 0; i < relay->lanes_n; i++) {
        size_t n = held_by(&relay->lanes[i], held);
        for (size_t k = 0; k < n && !atomic_load(&relay->stop); k++) {
            struct fence_service answer;
            (void)!fence_service_renew(lane, span_of(held[k].name), relay->outbox->session,
                                       held[k].epoch, ttl_ms, arena, &answer);
        }
    }
}

// A pod whose lanes have not come up takes nothing: it does not count.
static void learn_share(struct relay *relay, struct fence *lane, struct arena *arena)
{
    int32_t share;
    int64_t ttl_ms = relay->outbox->config->relay.shard_ttl_ms;
    if (atomic_load(&relay->lanes_connected) > 0 &&
        ledger_relay_share(lane, relay->outbox->session, DB_INT(ttl_ms), arena, &share) ==
            OUTCOME_OK) {
        atomic_store(&relay->share, share);
    }
}

static void leave(struct relay *relay, struct fence *lane, struct arena *arena)
{
    int32_t share;
    if (fence_is_connected(lane) && ledger_relay_share(lane, relay->outbox->session, DB_INT_NULL,
                                                       arena, &share) != OUTCOME_OK) {
        log_event(LOG_INFO, "relay.not_left", LOG_TEXT("detail", fence_error(lane)));
    }
}

void *relay_keeper(void *argument)
{
    struct relay *relay = argument;
    struct arena *arena = arena_new();
    struct fence *lane = NULL;
    int64_t pause_us = relay->outbox->config->relay.shard_ttl_ms * CLOCK_MS / 3;
    CHECK(fence_open(relay->outbox->config, "relay keeper", 0, &lane) == OUTCOME_OK);
    while (!atomic_load(&relay->stop)) {
        arena_reset(arena);
        int64_t next_us = clock_deadline_us(pause_us);
        renew_all(relay, lane, arena);
        learn_share(relay, lane, arena);
        LOCK_SCOPE(&relay->keeper_lock);
        while (!atomic_load(&relay->stop) &&
               condition_wait_until(&relay->keeper_told, &relay->keeper_lock, next_us)) {
        }
    }
    leave(relay, lane, arena);
    fence_close(lane);
    arena_free(arena);
    return NULL;
}

/* Private to fence: the descriptor rows of all verbs (calls.c), checked against the live database
 * at connect. */
#ifndef HOLDFAST_FENCE_FENCE_INT_H
#define HOLDFAST_FENCE_FENCE_INT_H

#include "fence/fence.h"

/* Scalars of the calls, named as the SQL parameters are. */
struct fence_session_in {
    struct span owner;
    struct uuid token;
    int64_t ttl_ms;
    int32_t limit;
    struct db_texts handlers;
    struct db_uuids run_ids;
};
struct fence_renew_in {
    int64_t ttl_ms;
};
struct fence_release_in {
    bool graceful;
};
struct fence_service_in {
    struct span name, owner;
    int64_t epoch, ttl_ms;
};
struct fence_sweep_in {
    struct span owner;
    int64_t epoch;
    int32_t limit;
};
struct fence_register_in {
    struct span pod;
};
struct fence_registered {
    int32_t item;
    enum outcome outcome;
};
struct fence_backlog_in {
    int64_t limit;
};
struct fence_backlog {
    int64_t ready;
};
struct fence_clock {
    struct db_time clock;
};
struct fence_known_in {
    struct span kind;
};

/* Groups of commit, in this order. */
enum {
    COMMIT_ITEMS,
    COMMIT_INTENTS,
    COMMIT_WAITS,
    COMMIT_EVENTS,
    COMMIT_DETACHED,
    COMMIT_CONSUMED,
    COMMIT_GROUPS
};

extern const struct db_call call_submit, call_cancel, call_signal, call_retry, call_acquire, call_claim,
    call_renew, call_release, call_commit, call_service_acquire, call_service_renew,
    call_service_release, call_sweep, call_register, call_known, call_gate_status, call_backlog,
    call_clock;

/* All of them. */
extern const struct db_call *const fence_calls[];
extern const size_t fence_call_n;

#endif

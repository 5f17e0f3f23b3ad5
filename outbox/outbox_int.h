// outbox/outbox_int.h: what the threads of the outbox share. Private to outbox.
#ifndef HOLDFAST_OUTBOX_OUTBOX_INT_H
#define HOLDFAST_OUTBOX_OUTBOX_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/queue.h"
#include "base/span.h"
#include "broker/broker.h"
#include "config/config.h"
#include "net/http_client.h"
#include "outbox/outbox.h"

struct dispatch;
struct programs;
struct inbound;
struct reconciler;
struct relay;
struct tool;

enum { OUTBOX_TOPIC_SIZE = 250 };

struct outbox {
    const struct config *config;
    struct broker *broker;
    struct broker_producer *producer; // hints, claims of capability none, dead letters. Thread: any
    struct span session;              // of this pod's outbox: name and a random token
    char session_text[128];
    char intents_topic[OUTBOX_TOPIC_SIZE];
    char wakeups_topic[OUTBOX_TOPIC_SIZE];
    char dead_letters_topic[OUTBOX_TOPIC_SIZE];

    // Dispatcher. A claimed operation belongs to one thread at a time: claim → dispatch → settle.
    bool dispatching;
    struct tool *tools;
    size_t tools_n;
    struct queue *to_dispatch;
    struct queue *to_settle;
    struct http_client *http;
    struct programs *programs; // NULL: no tool of kind exec
    struct http_client *query_http;
    struct reconciler *reconciler; // lives on its thread
    pthread_t claim_thread, dispatch_thread, settle_thread, reconcile_thread;
    atomic_int_fast64_t in_flight; // claimed and not recorded yet
    atomic_bool stop_claiming;
    atomic_bool stop_dispatching;
    _Atomic int64_t grace_until_us; // dispatch waits for answers until then
    atomic_bool look_for_intents;
    atomic_bool ledger_connected;
    atomic_bool gate_closed;

    struct inbound *inbound; // for outbox_complete
    bool completing;         // thread completions runs
    pthread_t completions_thread;

    struct relay *relay;
};

// The threads' bodies; the argument is the outbox.
void *claim_thread(void *outbox);
void *dispatch_thread(void *outbox);
void *settle_thread(void *outbox);

// relay.c
MUST_CHECK enum outcome relay_start(struct outbox *outbox, struct relay **ret,
                                    const char **ret_reason);
void relay_notify(struct relay *relay);
void relay_health(struct relay *relay, struct outbox_health *ret);
void relay_stop(struct relay *relay);

// Starts a thread; nothing works without it, so the process ends if the system has none to give.
void outbox_thread(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *argument);

// "this run is due": best effort, the sweep is behind it.
struct uuid;
struct arena;
void outbox_send_wakeup(struct outbox *outbox, struct uuid run_id, int64_t epoch,
                        struct arena *arena);

#endif

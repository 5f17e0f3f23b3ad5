// One process of the product: waits for its services, starts pool, outbox and console, ends
// gracefully.
#include "cli/pod.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "cli/command.h"
#include "cli/session.h"
#include "console/console.h"
#include "fence/fence.h"
#include "outbox/outbox.h"
#include "pool/pool.h"

enum {
    TRY_US = 500 * 1000,           // one look at a service that is not up yet
    PROGRESS_US = 5 * 1000 * 1000, // between two lines about the same wait
    SERVICE_TIMEOUT_MS = 2000,
};

struct pod {
    const struct config *cfg;
    struct lock lock;    // over what the console's thread reads while main starts and stops
    const char *waiting; // a sentence while starting or stopping, NULL when it runs
    struct pool *pool;
    struct outbox *outbox;
    struct console *console;
    struct broker *broker; // the pool's; outlives it
    bool embedded_broker;
    bool asked_to_end; // before it ran
};

static void block_signals(sigset_t *ret_set)
{
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGTERM);
    sigaddset(ret_set, SIGINT);
    sigaddset(ret_set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, ret_set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

// True when the pod shall end. SIGHUP opens the log file anew, for rotation.
static bool asked_to_end(const sigset_t *set, int64_t wait_us)
{
    int64_t deadline = clock_deadline_us(wait_us);
    for (;;) {
        int64_t left = deadline - clock_mono_us();
        struct timespec timeout = {left > 0 ? left / CLOCK_SECOND : 0,
                                   left > 0 ? (left % CLOCK_SECOND) * 1000 : 0};
        int number =
            wait_us == CLOCK_FOREVER ? sigwaitinfo(set, NULL) : sigtimedwait(set, NULL, &timeout);
        if (number == SIGHUP) {
            if (!log_reopen())
                log_event(LOG_ERROR, "log.reopen_failed", LOG_TEXT("file", "log.file"));
            continue;
        }
        if (number == SIGTERM || number == SIGINT) {
            log_event(LOG_INFO, "pod.signal", LOG_TEXT("signal", strsignal(number)));
            return true;
        }
        if (wait_us != CLOCK_FOREVER && clock_mono_us() >= deadline)
            return false;
    }
}

static void set_waiting(struct pod *pod, const char *sentence)
{
    lock_take(&pod->lock);
    pod->waiting = sentence;
    lock_drop(&pod->lock);
}

// The console asks, also while the pod starts or ends.
static bool pod_ready(void *opaque, struct text *why)
{
    struct pod *pod = opaque;
    bool ready = false;
    lock_take(&pod->lock);
    if (pod->waiting != NULL) {
        text_addf(why, "%s\n", pod->waiting);
    } else {
        ready = pod->pool == NULL || pool_ready(pod->pool, why);
        struct outbox_health health = {.ledger_connected = true, .relay_connected = true};
        if (pod->outbox != NULL)
            outbox_health(pod->outbox, &health);
        health.ledger_connected |=
            pod->cfg->n_tools == 0; // a dispatcher without tools asks for nothing
        if (!health.ledger_connected)
            text_add_str(why, "the dispatcher has no connection to PostgreSQL\n");
        if (!health.relay_connected)
            text_add_str(why, "the relay has no connection to PostgreSQL\n");
        if (health.gate_closed)
            text_add_str(why, "the gate is closed: holdfast gate status\n");
        ready = ready && health.ledger_connected && health.relay_connected;
    }
    lock_drop(&pod->lock);
    return ready;
}

// One line at once and then every few seconds, so that a person sees what is waited for.
static void tell_progress(const char *service, const char *reason, int64_t *told_us)
{
    int64_t now = clock_mono_us();
    if (*told_us != 0 && now - *told_us < PROGRESS_US)
        return;
    *told_us = now;
    log_event(LOG_WARN, "pod.waiting", LOG_TEXT("for", service), LOG_TEXT("reason", reason));
}

// Every call of this program, those of threads included that meet the database only later.
static enum outcome compare_calls(struct fence *lane)
{
    enum outcome outcome = fence_connect(lane, TRY_US);
    if (outcome == OUTCOME_OK)
        outcome = outbox_check(lane);
    if (outcome == OUTCOME_OK)
        outcome = console_check(lane);
    return outcome;
}

static bool wait_for_postgres(struct pod *pod, const sigset_t *signals)
{
    struct fence *lane = NULL;
    enum outcome outcome = fence_open(pod->cfg, "start", SERVICE_TIMEOUT_MS, &lane);
    int64_t told_us = 0;
    bool up = outcome == OUTCOME_OK;
    while (up) {
        outcome = compare_calls(lane);
        if (outcome == OUTCOME_OK)
            break;
        const char *reason =
            *fence_error(lane) != '\0' ? fence_error(lane) : outcome_sentence(outcome);
        set_waiting(pod, "PostgreSQL cannot be used yet: see the log, or run holdfast doctor");
        tell_progress(outcome == OUTCOME_DB_DRIFT ? "PostgreSQL's schema (holdfast migrate)"
                                                  : "PostgreSQL",
                      reason, &told_us);
        pod->asked_to_end = asked_to_end(signals, TRY_US);
        up = !pod->asked_to_end;
    }
    fence_close(lane);
    return up;
}

static bool wait_for_kafka(struct pod *pod, const sigset_t *signals)
{
    pod->broker = session_broker(pod->cfg);
    if (pod->broker == NULL)
        return false;
    char cluster[128];
    struct broker_error error;
    int64_t told_us = 0;
    while (broker_cluster_id(pod->broker, SERVICE_TIMEOUT_MS, cluster, sizeof cluster, &error) !=
           BROKER_OK) {
        set_waiting(pod, "Kafka does not answer yet");
        tell_progress("Kafka", error.text, &told_us);
        pod->asked_to_end = asked_to_end(signals, TRY_US);
        if (pod->asked_to_end)
            return false;
    }
    pod->embedded_broker = broker_cluster_is_mock(cluster);
    return true;
}

static void events_committed(void *outbox)
{
    outbox_notify_events(outbox);
}

static void intents_committed(void *outbox)
{
    outbox_notify_intents(outbox);
}

// What the ledger made of it, as HTTP says it: 2xx is known now, 4xx will not get better by saying
// it again, 503 may be said again.
static unsigned on_completion(void *opaque, struct span body, struct span by, struct text *ret_said)
{
    enum outcome outcome = outbox_complete(opaque, body, by, ret_said);
    if (outcome == OUTCOME_SETTLED)
        return 200;
    if (outcome == OUTCOME_EVIDENCE_ONLY)
        return 202;
    if (outcome == OUTCOME_CONTRADICTION || outcome == OUTCOME_DIGEST_MISMATCH)
        return 409;
    if (outcome == OUTCOME_MISSING)
        return 404;
    return outcome == OUTCOME_INVALID || outcome == OUTCOME_ITEM_ERROR ? 400 : 503;
}

static bool start_rooms(struct pod *pod)
{
    const char *reason = NULL;
    struct pool *pool = NULL;
    struct outbox *outbox = NULL;
    enum outcome outcome = OUTCOME_OK;
    if (pod->cfg->dispatch.enabled || pod->cfg->relay.enabled)
        outcome = outbox_start(pod->cfg, pod->embedded_broker, &outbox, &reason);
    if (outcome != OUTCOME_OK) {
        say_error("holdfast config check", "outbox: %s",
                  reason != NULL ? reason : outcome_sentence(outcome));
        return false;
    }
    if (pod->cfg->pool.enabled || pod->cfg->ingest.enabled || pod->cfg->sweep.enabled)
        outcome = pool_start(pod->cfg, pod->broker,
                             outbox != NULL
                                 ? &(struct pool_told){outbox, events_committed, intents_committed}
                                 : NULL,
                             &pool);
    if (outcome != OUTCOME_OK) {
        say_error("holdfast doctor", "the pool cannot start: the last lines of the log say why");
        outbox_stop(outbox, 0);
        return false;
    }
    lock_take(&pod->lock);
    pod->pool = pool;
    pod->outbox = outbox;
    pod->waiting = NULL;
    lock_drop(&pod->lock);
    if (outbox != NULL)
        console_accept(pod->console, on_completion, outbox);
    return true;
}

// The pool first: what its handlers decide in their last moments is then still carried out by the
// outbox.
static void stop_rooms(struct pod *pod)
{
    lock_take(&pod->lock);
    struct pool *pool = pod->pool;
    struct outbox *outbox = pod->outbox;
    pod->pool = NULL;
    pod->outbox = NULL;
    pod->waiting = "the pod is ending";
    lock_drop(&pod->lock);
    int64_t deadline = clock_deadline_us(pod->cfg->pool.grace_ms * CLOCK_MS);
    pool_stop(pool, pod->cfg->pool.grace_ms);
    int64_t left_ms = (deadline - clock_mono_us()) / CLOCK_MS;
    console_accept(pod->console, NULL, NULL);
    outbox_stop(outbox, left_ms > 0 ? left_ms : 0);
}

static bool start_console(struct pod *pod)
{
    const char *reason = NULL;
    if (console_start(pod->cfg, pod_ready, pod, &pod->console, &reason) != OUTCOME_OK) {
        say_error("choose a free address: --set admin.listen=127.0.0.1:0", "admin.listen = %s: %s",
                  pod->cfg->admin.listen, reason != NULL ? reason : "cannot be bound");
        return false;
    }
    if (pod->console != NULL) {
        char address[64];
        const char *colon = strrchr(pod->cfg->admin.listen, ':');
        snprintf(address, sizeof address, "%.*s:%u", (int)(colon - pod->cfg->admin.listen),
                 pod->cfg->admin.listen, console_port(pod->console));
        log_event(LOG_INFO, "console.listening", LOG_TEXT("address", address));
    }
    return true;
}

// Returns 0, also when it was asked to end before it ran, or 2 when it cannot run as configured.
static int start(struct pod *pod, const sigset_t *signals)
{
    if (!start_console(pod))
        return EXIT_CANNOT_RUN;
    if (!wait_for_postgres(pod, signals) || !wait_for_kafka(pod, signals))
        return pod->asked_to_end ? EXIT_HOLDS : EXIT_CANNOT_RUN;
    return start_rooms(pod) ? EXIT_HOLDS : EXIT_CANNOT_RUN;
}

int pod_run(const struct config *cfg)
{
    log_set_level((enum log_level)cfg->log.level);
    log_set_pod(cfg->pod.name);
    stop_point_pod(cfg->pod.name);
    if (*cfg->log.file != '\0' && !log_open(cfg->log.file)) {
        say_error("make its folder, or leave log.file empty for standard error",
                  "log.file = %s cannot be written", cfg->log.file);
        return EXIT_CANNOT_RUN;
    }
    sigset_t signals;
    block_signals(&signals);
    metric_set(METRIC_BUILD_INFO, LABELS(HOLDFAST_VERSION), 1);
    metric_set(METRIC_START_TIME, NO_LABELS, (double)clock_wall_us() / 1e6);
    log_event(LOG_INFO, "pod.starting", LOG_TEXT("version", HOLDFAST_VERSION),
              LOG_INT("pid", getpid()));

    struct pod pod = {.cfg = cfg, .waiting = "starting"};
    lock_init(&pod.lock);
    int code = start(&pod, &signals);
    if (pod.pool != NULL || pod.outbox != NULL) {
        log_event(LOG_INFO, "pod.running", LOG_BOOL("embedded_broker", pod.embedded_broker));
        asked_to_end(&signals, CLOCK_FOREVER);
        // From here on a second signal has its default effect: the process ends, leases run out by
        // themselves.
        pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
        stop_rooms(&pod);
    }
    console_stop(pod.console);
    broker_close(pod.broker);
    lock_destroy(&pod.lock);
    log_event(LOG_INFO, "pod.ended", LOG_INT("code", code));
    return code;
}

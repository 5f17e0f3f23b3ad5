/* The pool's inside, shared by its files. Members are set before the threads start and then fixed,
 * but for atomics and for what is a queue or has a lock of its own. */
#ifndef HOLDFAST_POOL_POOL_INT_H
#define HOLDFAST_POOL_POOL_INT_H

#include "pool/session_int.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/queue.h"
#include "broker/broker.h"
#include "pool/hints_int.h"
#include "pool/names_int.h"
#include "pool/plan.h"
#include "pool/pool.h"

enum { COMMIT_LANES = 2 };

struct exec;
struct dead_letters;

struct pool {
    const struct config *cfg;
    struct broker *broker;
    struct broker_producer *producer;
    struct pool_told told;
    char *tasks_topic, *intents_topic, *wakeups_topic, *dead_topic, *wakeups_group;
    struct names *names;
    struct span *handlers; /* names that this pod serves */
    size_t handler_n;
    struct plan_tool *tools;
    size_t tool_n;

    struct queue *records; /* ingest to submit: struct task_record */
    struct queue *steps;   /* to workers: struct session */
    struct hints *hints;   /* to acquire */
    struct sessions *sessions;
    struct commit_lane *commits[COMMIT_LANES];
    struct exec *exec;
    struct dead_letters *dead;

    /* Why partitions are paused. */
    atomic_bool submit_away;  /* the submit lane has no database */
    atomic_bool backlog_full; /* more runs due than ingest.max_due */
    atomic_bool ingest_ready; /* assigned and reading */
    atomic_bool heart_away;
    atomic_bool heart_soon; /* somebody noticed that a lease has run out by the local clock */
    _Atomic int64_t clock_offset_us; /* the database's clock minus ours, as last looked at */

    /* The end, in this order. */
    atomic_bool stopping; /* take nothing new */
    atomic_bool hurry;    /* do not wait for services that are away */
    atomic_bool submit_over;

    pthread_t ingest, wakeups, submit, acquire, heart, sweep;
    bool ingest_runs, wakeups_run, submit_runs, acquire_runs, heart_runs, sweep_runs;
    pthread_t *workers;
    size_t worker_n;
    struct fence *submit_fence, *acquire_fence, *heart_fence, *sweep_fence;
    struct lock sleep_lock; /* of those who sleep by the clock: heart, sweep */
    struct condition wake_sleepers;
    uint64_t wakes;         /* under sleep_lock */
    atomic_bool heart_over; /* no session is left: heart may go */
};

/* Thread bodies. */
void *ingest_run(void *pool);
void *wakeups_run(void *pool);
void *submit_run(void *pool);
void *acquire_run(void *pool);
void *worker_run(void *pool);
void *heart_run(void *pool);
void *sweep_run(void *pool);

/* Sleeps until that monotonic time or until the pool's state changes. Thread: any of the pool's. */
void pool_sleep_until(struct pool *p, int64_t deadline_us);
void pool_wake_sleepers(struct pool *p);

/* To the pod: rows to publish, or to send, were committed. Thread: any. */
void pool_tell_events(const struct pool *p);
void pool_tell_intents(const struct pool *p);

/* A run is due: here first, while there is room; else another pod may hear it. Thread: any. */
void hint_run(struct pool *p, struct uuid run_id, int64_t epoch);
/* To other pods, by Kafka. epoch 0: unknown, who hears it looks at what is ready. */
void hint_others(struct pool *p, struct uuid run_id, int64_t epoch);

/* ---- steps (step.c) ---- */

/* Gives a session to the workers. */
void step_push(struct pool *p, struct session *s);
/* Sends what the step has decided to the run's commit lane. */
void step_commit(struct pool *p, struct session *s, const struct decision *d,
                 void (*done)(struct commit_request *));
/* The session is over for this pod. */
void step_end(struct pool *p, struct session *s);
/* Counts, logs and classifies what the database refused. */
void step_refused(const struct session *s, const struct commit_request *r);
/* An applied write: hints for its intents, and for the run where it is due. */
void step_hints(struct pool *p, const struct session *s, const struct commit_request *r);

#endif

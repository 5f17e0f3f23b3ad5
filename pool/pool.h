/* pool: the threads of a pod that carry runs.
 *
 * Purpose    Takes records from Kafka and makes them durable; takes leases, starts handlers,
 * commits their decisions in groups, renews what is held, sweeps what was left behind. What it
 * commits, outbox carries out. Ownership  The pool owns its threads, lanes, queues, sessions and
 * child processes. Configuration and broker are borrowed and must outlive it. Threads    ingest,
 * wakeups, submit, acquire, worker x N, commit x 2, heart, sweep, exec. pool_start() and
 *            pool_stop() are called by main; the rest by any thread.
 * Errors     pool_start() refuses what can never work (configuration, drift between program and
 * database). A service that is down is waited for, with a line in the log, and shows in
 * pool_ready(). Never      holds a connection while a handler runs; writes anything for a lease in
 * doubt on its own judgement.
 */
#ifndef HOLDFAST_POOL_POOL_H
#define HOLDFAST_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/text.h"
#include "broker/broker.h"
#include "config/config.h"

struct pool;

/* What the pool tells the rest of its pod, so that nobody there waits for his next look. Each may
 * be NULL. Thread: any of the pool's, right after a commit; must not block. */
struct pool_told {
    void *opaque;
    void (*events)(void *opaque);  /* event rows were committed */
    void (*intents)(void *opaque); /* operations that are to be sent were committed */
};

/* Starts all threads and returns at once; connections are made by the threads. `told` (NULL:
 * nobody) is copied; what it points to must outlive the pool. */
MUST_CHECK enum outcome pool_start(const struct config *cfg, struct broker *broker,
                                   const struct pool_told *told, struct pool **ret);

/* Graceful end: stops consuming, lets handlers finish within `grace_ms`, tells the rest to stop,
 * hands their runs back (release, so that others take them at once), flushes hints, stores offsets,
 * leaves the groups. Returns when every thread has ended; frees the pool. Where a thread does not
 * come back long after the grace period, the process ends (its leases run out). NULL is accepted.
 * Thread: main. */
void pool_stop(struct pool *p, int64_t grace_ms);

/* True when records flow: database lanes connected and partitions not paused for a fault. Otherwise
 * `why` (may be NULL) gets one line a reason. */
bool pool_ready(struct pool *p, struct text *why);

struct pool_counts {
    int64_t running;  /* runs whose lease this pod holds */
    int64_t queued;   /* of those, waiting for a worker, a commit or a child process */
    int64_t in_doubt; /* of those, whose renewal is not confirmed */
};
void pool_counts(struct pool *p, struct pool_counts *ret);

#endif

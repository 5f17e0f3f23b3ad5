/* prefilter: Redis as advice before an acquisition by name.
 *
 * Purpose    Several pods may hear the same run's name. SET NX PX on a key that names the run and
 * the epoch it would get lets one of them go and ask PostgreSQL, and spares the others the
 * question. A stale key therefore delays that one term only, and not longer than it lives
 * (redis.key_life).
 * Ownership  Keys are borrowed for the call.
 * Threads    A prefilter is one connection, used by one thread at a time.
 * Errors     None reaches the caller: Redis down, slow or out of memory is answered by
 * redis.on_failure (bypass: go on; hold: do not), behind a circuit breaker, and is counted. After a
 * time-out the connection is dropped and the keys in question count as somebody else's. Never says
 * "yours": only PostgreSQL does. claim, sweep, renew, commit and release do not ask it.
 */
#ifndef HOLDFAST_FENCE_PREFILTER_H
#define HOLDFAST_FENCE_PREFILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/uuid.h"
#include "config/config.h"

struct prefilter;

struct prefilter_key {
    struct uuid run_id;
    int64_t epoch;     /* that the run would get, or has got, by this acquisition */
    struct span token; /* owner of the session */
};

/* No connection is made yet. An empty redis.url makes a prefilter that always says go. Thread: any.
 */
MUST_CHECK enum outcome prefilter_open(const struct config *cfg, struct prefilter **ret);
void prefilter_close(struct prefilter *p);

/* ret_go[i]: ask PostgreSQL for keys[i]. One pipelined round trip. */
void prefilter_take(struct prefilter *p, const struct prefilter_key *keys, size_t n, bool *ret_go);

/* Takes back keys that still carry our token: before the hint of a release, park or finish is sent.
 */
void prefilter_drop(struct prefilter *p, const struct prefilter_key *keys, size_t n);

/* Lengthens keys that still carry our token to their whole life; only after PostgreSQL confirmed
 * the renewal, and only where keys live as long as leases. */
void prefilter_extend(struct prefilter *p, const struct prefilter_key *keys, size_t n);

#endif

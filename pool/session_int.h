/* session: a run whose lease this pod holds, from the acquisition to the commit that ends it, or to
 * its loss.
 *
 * Ownership  A session is in one place at a time: the worker queue, a worker, the exec thread, a
 * commit lane, or the shelf of the doubtful. Whoever has it may read and write it, except for what
 * is marked shared. Threads    The registry is used by any thread; heart reaches sessions only
 * through it, by identity, under its lock. */
#ifndef HOLDFAST_POOL_SESSION_INT_H
#define HOLDFAST_POOL_SESSION_INT_H

#include "pool/commit_int.h"

#include <stdatomic.h>

#include "base/queue.h"

enum session_phase {
    SESSION_START,    /* the next step may begin */
    SESSION_ANSWERED, /* its handler has answered: `answer` */
    SESSION_FAILED,   /* the attempt failed: `answer` says why */
    SESSION_REPEAT, /* the database does not hold what we thought: give back, to be acquired with a
                       fresh context */
};

/* Why nothing further may be done for a run; ordered: it only grows, except that doubt ends when
 * PostgreSQL says so. */
enum session_stop {
    SESSION_GOES,
    SESSION_DOUBT,     /* a renewal is not confirmed, or local validity is over */
    SESSION_DRAIN,     /* the pod stops: give back */
    SESSION_DEADLINE,  /* the run's deadline has passed: give back, the next acquisition ends it */
    SESSION_CANCELLED, /* the run has ended */
    SESSION_LOST,      /* another epoch, or none */
};
const char *session_stop_word(enum session_stop stop); /* as the exec protocol says it */

struct session {
    /* fixed */
    struct uuid run_id, first_run_id;
    struct uuid_opt prev_run_id;
    int64_t epoch;
    struct span owner, tenant, task, handler, trace_id, traceparent, tracestate;
    struct span input, operations, signals, earlier,
        woke_reason; /* JSON but for the last; NULL: none */
    struct db_time deadline;
    int32_t attempt, failures;
    bool takeover, prefiltered;
    int64_t first_asked_us; /* monotonic, before this token was first sent */
    const struct config_handler *config;

    /* the holder's */
    enum session_phase phase;
    int64_t revision;
    struct span checkpoint;
    char *checkpoint_own; /* where it lives once it has changed */
    struct arena *step;   /* of the step under way; NULL: none */
    struct span answer;   /* in `step` */
    int64_t step_started_us;
    struct commit_request commit;
    void *pool;             /* for callbacks */
    void *child;            /* the exec handler's process, while it has this session */
    bool saving;            /* its intermediate checkpoint is at the commit lane */
    struct session *queued; /* in lists of whoever holds it */

    /* shared */
    atomic_int stop;                /* enum session_stop */
    atomic_bool leaving;            /* the write under way gives the lease back */
    _Atomic int64_t valid_until_us; /* monotonic; it may only stop work */

    /* the registry's */
    bool shelved;
    struct session *slot_next, *before, *after;
};

/* One allocation for the session and all its texts. */
MUST_CHECK struct session *session_new(const struct fence_acquired *row, struct span owner,
                                       int64_t first_asked_us, int64_t ttl_us);
void session_free(struct session *s);
/* The state after an applied write. */
void session_advance(struct session *s, int64_t revision, struct span checkpoint);
/* A fresh arena for a step; the last one's is gone. */
struct arena *session_step(struct session *s);

static inline enum session_stop session_stopped(const struct session *s)
{
    return (enum session_stop)atomic_load(&s->stop);
}
bool session_is_valid(const struct session *s); /* by the local clock */

/* ---- the registry ---- */

struct sessions;
MUST_CHECK struct sessions *sessions_new(size_t capacity);
void sessions_free(struct sessions *all);
/* True: an older session of the same run was here; it is lost from now on (from the shelf to
 * `wake`). */
bool sessions_add(struct sessions *all, struct session *s, struct queue *wake);
/* Takes it out and frees it. */
void sessions_end(struct sessions *all, struct session *s);
size_t sessions_count(struct sessions *all);
/* Is this term of the run, or a later one, held here already? */
bool sessions_holds(struct sessions *all, struct uuid run_id, int64_t epoch);
size_t sessions_in_doubt(struct sessions *all);
/* False: no longer in doubt, go on with it. True: it lies on the shelf until heart knows more; no
 * longer yours. */
MUST_CHECK bool sessions_shelve(struct sessions *all, struct session *s);
/* Raises the reason to stop of all; those on the shelf go to `wake`. */
void sessions_stop_all(struct sessions *all, enum session_stop stop, struct queue *wake);
/* Waits until none is left; false: not in time. */
MUST_CHECK bool sessions_wait_empty(struct sessions *all, int64_t timeout_us);

/* What heart renews: every lease that is not lost, with less than `left_us` of local validity left,
 * or `leaving_left_us` where a write that gives the lease back is under way: a renewal that crossed
 * it would ask for what is gone. ret_prefiltered[i]: a key of the pre-filter names (*ret)[i].
 * Copies in the arena. */
size_t sessions_leases(struct sessions *all, int64_t left_us, int64_t leaving_left_us,
                       struct arena *arena, struct fence_lease **ret, bool **ret_prefiltered);
/* What the database said about a lease. Renewed: valid until then; a doubt is over, and one on the
 * shelf goes to `wake`. Otherwise: stop for that reason. True: something changed that a handler
 * should hear. */
bool sessions_renewed(struct sessions *all, const struct fence_lease *lease, int64_t valid_until_us,
                      struct queue *wake);
bool sessions_stop(struct sessions *all, const struct fence_lease *lease, enum session_stop stop,
                   struct queue *wake);

#endif

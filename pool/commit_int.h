/* commit: one lane of group commit. Whoever has something to write for a run pushes a request; one
 * statement carries what has come together meanwhile, and each request is answered through its
 * `done`.
 *
 * Ownership  A request is the lane's from commit_push() until `done` is called on the lane's
 * thread. It and all it points to must stay as they are: an unknown write is offered again, the
 * same. Threads    commit_push: any. At most one item per run is offered at a time; a run always
 * uses the same lane. */
#ifndef HOLDFAST_POOL_COMMIT_INT_H
#define HOLDFAST_POOL_COMMIT_INT_H

#include "pool/decision_int.h"

struct commit_request {
    /* the question */
    struct uuid run_id;
    struct span owner;
    int64_t epoch, revision;
    bool give_back; /* no write: release the lease, gracefully */
    struct decision decision;
    bool prefiltered;    /* a key of the pre-filter names this lease */
    struct arena *arena; /* for the texts of the answer */
    void (*done)(struct commit_request *request);
    void *opaque;

    /* set by commit_prepare */
    struct uuid commit_id;
    struct digest_text {
        char text[80];
    } digest;

    /* the answer */
    enum outcome outcome;
    int64_t new_revision, current_epoch;
    struct span current_owner, detail, woke_reason;
    struct json_span stored; /* checkpoint, on revision_conflict */
    bool due;
    struct db_texts adopted;
};

/* Gives the write its identity: a commit_id and the digest of its content. Before the push, once.
 */
void commit_prepare(struct commit_request *request);

struct commit_lane;
/* Starts its thread. `name` is static. */
MUST_CHECK enum outcome commit_open(const struct config *cfg, const char *name,
                                    struct commit_lane **ret);
void commit_push(struct commit_lane *lane, struct commit_request *request);
bool commit_connected(struct commit_lane *lane);
size_t commit_waiting(struct commit_lane *lane);
/* From now on a request that the database does not answer is answered db_down or db_unknown instead
 * of waiting. */
void commit_hurry(struct commit_lane *lane);
/* Waits until all that was pushed is answered, ends the thread, frees the lane. NULL is fine. */
void commit_close(struct commit_lane *lane);

/* ---- building a batch (commit_batch.c) ---- */

struct commit_limits {
    size_t items, bytes;
};
/* Moves at most the limits' worth of requests to the front, in order, no run twice; the rest keeps
 * its order behind them. Returns how many are in front; at least one if n > 0. Releases and writes
 * are picked alike. */
size_t commit_pick(struct commit_request **requests, size_t n, const struct commit_limits *limits,
                   struct arena *arena);
/* Arrays in the arena, for requests that are writes. */
void commit_build(struct commit_request *const *requests, size_t n, struct arena *arena,
                  struct fence_commit_batch *ret);

#endif

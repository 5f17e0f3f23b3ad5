#ifndef HOLDFAST_SCHEMAS_COMPLETION_H
#define HOLDFAST_SCHEMAS_COMPLETION_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"
#include "schemas/json.h"

/*
 * What a remote, or who speaks for it, says later about an operation that it was asked for: over the
 * topic of completions, or by POST. It carries no authority: it must name the operation, its run and
 * the digest of the request that it speaks of, and the ledger decides what it is worth. Threads: any.
 *
 *   {"operation_id", "run_id", "request_digest", "verdict": "succeeded|failed_final",
 *    "attempt"?, "remote_id"?, "result"?}
 */
struct completion {
    struct span operation_id;
    struct uuid run_id;
    struct span request_digest;
    struct span verdict;
    int64_t attempt;       /* 0: of the operation as such */
    struct span remote_id; /* NULL: none */
    struct span result;    /* JSON, "null" when there is none */
    struct span said;      /* the whole of it, for the evidence */
};
/* Refuses unknown fields, and a run that the operation's identity does not have. Texts are in the
 * arena. *ret_why is a sentence. */
MUST_CHECK bool completion_decode(struct span value, struct arena *arena, struct completion *ret,
                                  struct span *ret_why);

#endif

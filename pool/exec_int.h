/* exec: handlers that are long-lived child processes in any language. One thread serves all
 * children of a pod; a step is started with a context and answers later, no worker waits for it.
 *
 * One JSON text a line. To the child: {"context":{…}}; then an answer to each of its lines:
 * {"revision":n},
 * {"conflict":{"revision":n,"checkpoint":…}} or {"stop":"lease_lost|cancelled|deadline"}, the last
 * also unasked. From the child: any number of {"progress":…} and {"save":{checkpoint}}, then one
 * {"decision":…}. Anything else on standard output fails the attempt, as does its exit. Standard
 * error goes to the log, a line an event. After a stop the child ends the step by any decision,
 * which is offered once, or by exiting; else it is killed. */
#ifndef HOLDFAST_POOL_EXEC_INT_H
#define HOLDFAST_POOL_EXEC_INT_H

#include "pool/pool_int.h"

MUST_CHECK enum outcome exec_open(struct pool *p, struct exec **ret);
/* Takes the session; it comes back through step_push(), answered or failed. Thread: worker. */
void exec_start(struct exec *e, struct session *s);
/* The commit lane has answered a session's intermediate checkpoint. Thread: commit. */
void exec_saved(struct exec *e, struct session *s);
/* Reasons to stop have changed, or the pod stops: waiting sessions go back to the workers. Thread:
 * any. NULL is fine. */
void exec_nudge(struct exec *e);
/* Ends all children and the thread. No session may be left. */
void exec_close(struct exec *e);

/* {"context":{…}} and a newline (context.c). */
void context_write(const struct session *s, struct text *t);

/* A child's {"decision":…} as the pool's (answer.c). False: *ret_why says what is wrong with it.
 * Thread: worker. */
MUST_CHECK bool answer_read(const struct pool *p, const struct session *s, struct arena *arena,
                            struct decision *ret, struct span *ret_why);

#endif

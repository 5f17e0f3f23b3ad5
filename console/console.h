/* console: what a pod tells about itself over HTTP.
 *
 *   /livez              200 while the process answers
 *   /readyz[?verbose]   200 when records flow, else 503; verbose: one line a reason
 *   /metrics            OpenMetrics: this pod's counters, and the backlog as the database sees it
 *   POST /v1/completions   what a remote says later about an operation; only where admin.token is
 * set
 *
 * Purpose    Health for an orchestrator, metrics for a scraper. Read only.
 * Ownership  The configuration is borrowed and must outlive the console.
 * Threads    The HTTP server's own thread answers. It asks the database at most once a second, over
 * a lane of its own with a short time-out; between that it answers from memory. Errors
 * console_start refuses an address that cannot be bound, and one that is not loopback without
 * admin.token. Never      changes anything; shows a task, a run or a secret.
 */
#ifndef HOLDFAST_CONSOLE_CONSOLE_H
#define HOLDFAST_CONSOLE_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/text.h"
#include "config/config.h"

struct console;
struct fence;

/* Whether the pod is ready, and if not why: one line a reason. Thread: the console's. */
typedef bool console_ready_fn(void *opaque, struct text *why);

/* OUTCOME_OK, or OUTCOME_INVALID with a static sentence. An empty admin.listen makes no console:
 * *ret is NULL. */
MUST_CHECK enum outcome console_start(const struct config *cfg, console_ready_fn *ready,
                                      void *opaque, struct console **ret, const char **ret_reason);
/* Compares what /metrics asks with the database, over a lane that is connected. OUTCOME_OK, or why
 * not: fence_error() has the words. */
MUST_CHECK enum outcome console_check(struct fence *lane);
/* A remote's later word: the body of a POST, and who brings it. Answers an HTTP status; *ret_said
 * gets a sentence. Thread: the console's. */
typedef unsigned console_complete_fn(void *opaque, struct span body, struct span by,
                                     struct text *ret_said);
/* From now on (NULL: no longer) POST /v1/completions is served; before that it answers 503, so that
 * it is said again. When it returns, no call of the previous one is under way. NULL console is
 * fine. */
void console_accept(struct console *console, console_complete_fn *complete, void *opaque);
/* The port it listens on; 0 for NULL. */
uint16_t console_port(const struct console *console);
/* NULL is fine. */
void console_stop(struct console *console);

/* True when an address can only be reached from this machine ("127.0.0.1:8080", "[::1]:0",
 * "localhost:1"). */
bool console_is_loopback(const char *listen);

#endif

/* What a step decided, as the protected write will say it. All of it lives in the arena of its
 * step. */
#ifndef HOLDFAST_POOL_DECISION_INT_H
#define HOLDFAST_POOL_DECISION_INT_H

#include "schemas/json.h"

#include "fence/fence.h"

struct decision {
    const char *word; /* for log and metric: "continue", "plan", "succeed", … */
    bool by_pool;     /* not a handler's: if it is refused, nothing else is offered instead */
    struct json_span checkpoint; /* NULL: unchanged */
    struct span finish;          /* NULL, "succeeded", "failed" */
    struct json_span output;     /* output, or failure */
    bool release;
    struct span wait_mode, wait_signal;
    struct db_time wait_until;
    struct db_int retry_ms;
    struct fence_intent *intents; /* their item is set when the batch is built, as that of events */
    size_t intent_n;
    struct span *wait_for;
    size_t wait_n;
    struct fence_event *events;
    size_t event_n;
    struct span *detach;
    size_t detach_n;
    struct span *consume;
    size_t consume_n;
};

static inline struct decision decision_empty(const char *word)
{
    return (struct decision){.word = word, .wait_until = DB_TIME_NULL, .retry_ms = DB_INT_NULL};
}

/* The run ends. Texts are JSON. */
struct decision decision_succeed(struct span output);
struct decision decision_fail(struct span failure);
/* The attempt failed: given back, due again after retry_ms; at the limit of attempts the run fails
 * with it. */
struct decision decision_retry(struct span failure, int64_t retry_ms);
/* {"reason","detail"} */
struct span decision_failure(struct arena *arena, const char *reason, struct span detail);

/* Back-off of a handler's nth failure (from 0), with jitter. */
int64_t decision_backoff_ms(int32_t failures, int64_t first_ms, int64_t last_ms);

#endif

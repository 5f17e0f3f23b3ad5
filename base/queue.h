/* A bounded queue of pointers between threads. Pushing gives the thing away; a full queue is how
 * the house says "slower".
 *
 * Thread: any number of pushers and poppers. Timeouts are microseconds: 0 does not wait,
 * CLOCK_FOREVER waits until closed. The queue never frees what is in it. */
#ifndef HOLDFAST_BASE_QUEUE_H
#define HOLDFAST_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

struct queue;

MUST_CHECK struct queue *queue_new(size_t capacity);
void queue_free(
    struct queue *q); /* nobody may wait on it; what is still in it stays with the caller */

/* False: full (in time) or closed; the thing stays the caller's. */
MUST_CHECK bool queue_push(struct queue *q, void *p, int64_t timeout_us);
MUST_CHECK bool queue_try_push(struct queue *q, void *p);

/* Adds without regard to the capacity: for completions and other things whose number is bounded
 * elsewhere, where a refusal would lose them. False only when closed. */
MUST_CHECK bool queue_force_push(struct queue *q, void *p);

/* Waits for one, then takes all that is there, at most max: how a group commit collects. Returns
 * how many; 0: time is over, or closed and empty. */
size_t queue_pop_many(struct queue *q, void *ret_items[], size_t max, int64_t timeout_us);
void *queue_pop(struct queue *q, int64_t timeout_us); /* NULL: time is over, or closed and empty */

/* No more pushes; poppers get what is left, then nothing. Wakes everybody. */
void queue_close(struct queue *q);
bool queue_is_closed(struct queue *q);
size_t queue_len(struct queue *q);
size_t queue_room(struct queue *q); /* capacity - length, 0 when closed */

/* Wakes one waiting popper, which then returns 0: a timer or a signal wants it to look around. */
void queue_nudge(struct queue *q);

#endif

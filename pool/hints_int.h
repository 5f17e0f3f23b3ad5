/* Runs that somebody says are due: a bounded ring. What does not fit is dropped, for claim finds it
 * too. */
#ifndef HOLDFAST_POOL_HINTS_INT_H
#define HOLDFAST_POOL_HINTS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/uuid.h"

struct hint {
    struct uuid run_id;
    int64_t epoch; /* that the run would get */
};

struct hints;

MUST_CHECK struct hints *hints_new(size_t capacity);
void hints_free(struct hints *h);
/* False: full. Thread: any. */
bool hints_add(struct hints *h, struct hint hint);
/* Work may be ready that nobody named, or room has come: look around now. Thread: any. */
void hints_nudge(struct hints *h);
/* Waits for a hint or a nudge, then takes at most max hints. *ret_nudged: there was a nudge since
 * the last time. */
size_t hints_take(struct hints *h, struct hint *ret, size_t max, int64_t timeout_us,
                  bool *ret_nudged);
size_t hints_len(struct hints *h);

#endif

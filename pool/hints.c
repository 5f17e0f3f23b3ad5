#include "pool/hints_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"

struct hints {
    struct lock lock;
    struct condition some;
    struct hint *ring;
    size_t capacity, first, n;
    bool nudged;
};

struct hints *hints_new(size_t capacity)
{
    struct hints *h = memory_new(1, sizeof(*h));
    lock_init(&h->lock);
    condition_init(&h->some);
    h->ring = memory_new(capacity, sizeof(*h->ring));
    h->capacity = capacity;
    return h;
}

void hints_free(struct hints *h)
{
    if (h == NULL)
        return;
    condition_destroy(&h->some);
    lock_destroy(&h->lock);
    free(h->ring);
    free(h);
}

bool hints_add(struct hints *h, struct hint hint)
{
    LOCK_SCOPE(&h->lock);
    if (h->n == h->capacity)
        return false;
    h->ring[(h->first + h->n++) % h->capacity] = hint;
    condition_signal(&h->some);
    return true;
}

void hints_nudge(struct hints *h)
{
    LOCK_SCOPE(&h->lock);
    h->nudged = true;
    condition_signal(&h->some);
}

size_t hints_take(struct hints *h, struct hint *ret, size_t max, int64_t timeout_us,
                  bool *ret_nudged)
{
    int64_t deadline_us = clock_deadline_us(timeout_us);
    LOCK_SCOPE(&h->lock);
    while ((h->n == 0 || max == 0) && !h->nudged)
        if (!condition_wait_until(&h->some, &h->lock, deadline_us))
            break;
    size_t n = h->n < max ? h->n : max;
    for (size_t i = 0; i < n; i++)
        ret[i] = h->ring[(h->first + i) % h->capacity];
    h->first = (h->first + n) % h->capacity;
    h->n -= n;
    *ret_nudged = h->nudged;
    h->nudged = false;
    return n;
}

size_t hints_len(struct hints *h)
{
    LOCK_SCOPE(&h->lock);
    return h->n;
}

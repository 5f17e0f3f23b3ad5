#include "base/queue.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"

struct queue {
    struct lock lock; /* all below */
    struct condition filled;
    struct condition freed;
    void **ring;
    size_t ring_size; /* >= capacity: force_push may exceed it */
    size_t capacity;
    size_t first;
    size_t n;
    size_t poppers; /* waiting now */
    size_t nudges;  /* poppers that shall return with nothing */
    bool closed;
};

struct queue *queue_new(size_t capacity)
{
    CHECK(capacity > 0);
    struct queue *q = memory_new(1, sizeof(*q));
    lock_init(&q->lock);
    condition_init(&q->filled);
    condition_init(&q->freed);
    q->ring = memory_new(capacity, sizeof(void *));
    q->ring_size = q->capacity = capacity;
    return q;
}

void queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    condition_destroy(&q->filled);
    condition_destroy(&q->freed);
    lock_destroy(&q->lock);
    free(q->ring);
    free(q);
}

/* Needs: lock. */
static void add(struct queue *q, void *p)
{
    q->ring[(q->first + q->n) % q->ring_size] = p;
    q->n++;
    condition_signal(&q->filled);
}

/* Needs: lock. */
static void grow(struct queue *q)
{
    void **ring = memory_new(q->ring_size * 2, sizeof(void *));
    for (size_t i = 0; i < q->n; i++)
        ring[i] = q->ring[(q->first + i) % q->ring_size];
    free(q->ring);
    q->ring = ring;
    q->ring_size *= 2;
    q->first = 0;
}

bool queue_push(struct queue *q, void *p, int64_t timeout_us)
{
    CHECK(p != NULL);
    LOCK_SCOPE(&q->lock);
    if (!q->closed && q->n >= q->capacity && timeout_us > 0) {
        int64_t deadline = clock_deadline_us(timeout_us);
        while (!q->closed && q->n >= q->capacity)
            if (!condition_wait_until(&q->freed, &q->lock, deadline))
                break;
    }
    if (q->closed || q->n >= q->capacity)
        return false;
    add(q, p);
    return true;
}

bool queue_try_push(struct queue *q, void *p)
{
    return queue_push(q, p, 0);
}

bool queue_force_push(struct queue *q, void *p)
{
    CHECK(p != NULL);
    LOCK_SCOPE(&q->lock);
    if (q->closed)
        return false;
    if (q->n == q->ring_size)
        grow(q);
    add(q, p);
    return true;
}

size_t queue_pop_many(struct queue *q, void *ret_items[], size_t max, int64_t timeout_us)
{
    LOCK_SCOPE(&q->lock);
    if (q->n == 0 && !q->closed && timeout_us > 0) {
        int64_t deadline = clock_deadline_us(timeout_us);
        q->poppers++;
        while (q->n == 0 && !q->closed && q->nudges == 0)
            if (!condition_wait_until(&q->filled, &q->lock, deadline))
                break;
        q->poppers--;
        if (q->nudges > 0)
            q->nudges--;
    }
    size_t taken = q->n < max ? q->n : max;
    for (size_t i = 0; i < taken; i++)
        ret_items[i] = q->ring[(q->first + i) % q->ring_size];
    q->first = (q->first + taken) % q->ring_size;
    q->n -= taken;
    if (taken > 1)
        condition_broadcast(&q->freed);
    else if (taken == 1)
        condition_signal(&q->freed);
    return taken;
}

void *queue_pop(struct queue *q, int64_t timeout_us)
{
    void *p = NULL;
    return queue_pop_many(q, &p, 1, timeout_us) ? p : NULL;
}

void queue_close(struct queue *q)
{
    LOCK_SCOPE(&q->lock);
    q->closed = true;
    condition_broadcast(&q->filled);
    condition_broadcast(&q->freed);
}

bool queue_is_closed(struct queue *q)
{
    LOCK_SCOPE(&q->lock);
    return q->closed;
}

size_t queue_len(struct queue *q)
{
    LOCK_SCOPE(&q->lock);
    return q->n;
}

size_t queue_room(struct queue *q)
{
    LOCK_SCOPE(&q->lock);
    return q->closed || q->n >= q->capacity ? 0 : q->capacity - q->n;
}

void queue_nudge(struct queue *q)
{
    LOCK_SCOPE(&q->lock);
    if (q->nudges < q->poppers) {
        q->nudges++;
        condition_signal(&q->filled);
    }
}

/* Mutex and condition on the monotonic clock.
 *
 * lock_take never fails: a misuse (destroyed, taken twice by one thread) ends the process. Which
 * lock a function needs stands in its contract; two locks are taken in the order in which they
 * stand in their struct. */
#ifndef HOLDFAST_BASE_LOCK_H
#define HOLDFAST_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

struct lock {
    pthread_mutex_t mutex;
};

struct condition {
    pthread_cond_t cond;
};

/* clang-format off */
#define LOCK_INIT {PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP} /* for statics */
/* clang-format on */

void lock_init(struct lock *lock);
void lock_destroy(struct lock *lock);
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);

void condition_init(struct condition *c);
void condition_destroy(struct condition *c);
void condition_signal(struct condition *c);
void condition_broadcast(struct condition *c);

/* Waits until woken or until that monotonic time (clock_deadline_us; CLOCK_FOREVER waits for ever).
 * False: the time has passed. Wakes for no reason, too: always look at the fact again. Needs: lock
 * held. */
bool condition_wait_until(struct condition *c, struct lock *lock, int64_t deadline_us);

/* LOCK_SCOPE(&x->lock); holds it to the end of the block. */
#define LOCK_SCOPE(lock_pointer) LOCK_SCOPE_AT(lock_pointer, __LINE__)
#define LOCK_SCOPE_AT(lock_pointer, line) LOCK_SCOPE_NAMED(lock_pointer, line)
#define LOCK_SCOPE_NAMED(lock_pointer, line)                                                       \
    struct lock *lock_scope_##line UNUSED CLEANUP(lock_scope_end) = lock_scope_begin(lock_pointer)
struct lock *lock_scope_begin(struct lock *lock);
void lock_scope_end(struct lock **lock);

/* Starts a joinable thread with a name (at most 15 characters) and all signals blocked; false: no
 * thread. */
MUST_CHECK bool thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *),
                             void *arg);
void thread_join(pthread_t thread);

#endif

#include "base/lock.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"

void lock_init(struct lock *lock)
{
    pthread_mutexattr_t attr;
    CHECK(pthread_mutexattr_init(&attr) == 0);
    CHECK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK) == 0);
    CHECK(pthread_mutex_init(&lock->mutex, &attr) == 0);
    CHECK(pthread_mutexattr_destroy(&attr) == 0);
}

void lock_destroy(struct lock *lock)
{
    CHECK(pthread_mutex_destroy(&lock->mutex) == 0);
}

void lock_take(struct lock *lock)
{
    CHECK(pthread_mutex_lock(&lock->mutex) == 0);
}

void lock_drop(struct lock *lock)
{
    CHECK(pthread_mutex_unlock(&lock->mutex) == 0);
}

struct lock *lock_scope_begin(struct lock *lock)
{
    lock_take(lock);
    return lock;
}

void lock_scope_end(struct lock **lock)
{
    lock_drop(*lock);
}

void condition_init(struct condition *c)
{
    pthread_condattr_t attr;
    CHECK(pthread_condattr_init(&attr) == 0);
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&c->cond, &attr) == 0);
    CHECK(pthread_condattr_destroy(&attr) == 0);
}

void condition_destroy(struct condition *c)
{
    CHECK(pthread_cond_destroy(&c->cond) == 0);
}

void condition_signal(struct condition *c)
{
    CHECK(pthread_cond_signal(&c->cond) == 0);
}

void condition_broadcast(struct condition *c)
{
    CHECK(pthread_cond_broadcast(&c->cond) == 0);
}

bool condition_wait_until(struct condition *c, struct lock *lock, int64_t deadline_us)
{
    if (deadline_us == CLOCK_FOREVER) {
        CHECK(pthread_cond_wait(&c->cond, &lock->mutex) == 0);
        return true;
    }
    if (deadline_us <= 0)
        return false;
    struct timespec t = {.tv_sec = (time_t)(deadline_us / CLOCK_SECOND),
                         .tv_nsec = (long)(deadline_us % CLOCK_SECOND) * 1000};
    int rc = pthread_cond_timedwait(&c->cond, &lock->mutex, &t);
    CHECK(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

bool thread_start(pthread_t *ret_thread, const char *name, void *(*fn)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    int rc = pthread_create(ret_thread, NULL, fn, arg);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (rc != 0)
        return false;
    pthread_setname_np(*ret_thread, name);
    return true;
}

void thread_join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

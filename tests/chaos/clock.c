/* A library to preload: the wall clock of one process is wrong by CLOCK_SHIFT_S seconds. The monotonic clock is right, and
 * so is how long the process waits: an absolute time it waits for is one that it reckoned from the wrong clock.
 * (libfaketime leaves the condition variables of C11 alone, and librdkafka's then never wait.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>

#ifdef __x86_64__ /* where condition variables of an older layout have the same name */
#define SYMBOL(name) dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2")
#else
#define SYMBOL(name) dlsym(RTLD_NEXT, name)
#endif
#define WALL_SINCE 1000000000 /* an absolute time below is of the monotonic clock, not of this century */

static time_t shift(void)
{
    static time_t known;
    static int asked;
    if (!asked) {
        const char *text = getenv("CLOCK_SHIFT_S");
        known = text ? atol(text) : 0;
        asked = 1;
    }
    return known;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, ret);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        ret->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *ret)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *ret, int base)
{
    return clock_gettime(CLOCK_REALTIME, ret) == 0 ? base : 0;
}

static struct timespec right_time(const struct timespec *wrong)
{
    struct timespec right = *wrong;
    if (right.tv_sec > WALL_SINCE)
        right.tv_sec -= shift();
    return right;
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real)
        real = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec right = right_time(until);
    return real(cond, mutex, &right);
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))SYMBOL(
            "pthread_cond_timedwait");
    struct timespec right = right_time(until);
    return real(cond, mutex, &right);
}

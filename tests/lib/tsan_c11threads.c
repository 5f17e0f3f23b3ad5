/* Test only, thread sanitizer only. The distribution's librdkafka uses C11 threads, which the
 * sanitizer does not intercept (it crashes in the first thread). These definitions stand before
 * libc's and go by pthread, which it knows. glibc's own types have the sizes of pthread's, so
 * librdkafka's storage fits. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

_Static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t), "a C11 mutex must hold a pthread one");
_Static_assert(sizeof(cnd_t) >= sizeof(pthread_cond_t), "a C11 condition must hold a pthread one");

#define SEEN __attribute__((visibility("default")))

static int outcome(int error)
{
    switch (error) {
    case 0:
        return thrd_success;
    case EBUSY:
        return thrd_busy;
    case ETIMEDOUT:
        return thrd_timedout;
    case ENOMEM:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

struct start {
    thrd_start_t fn;
    void *argument;
};

static void *run(void *p)
{
    struct start start = *(struct start *)p;
    free(p);
    return (void *)(intptr_t)start.fn(start.argument);
}

SEEN int thrd_create(thrd_t *ret, thrd_start_t fn, void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return thrd_nomem;
    *start = (struct start){fn, argument};
    int error = pthread_create(ret, NULL, run, start);
    if (error)
        free(start);
    return outcome(error);
}

SEEN int thrd_join(thrd_t thread, int *ret)
{
    void *value;
    int error = pthread_join(thread, &value);
    if (!error && ret)
        *ret = (int)(intptr_t)value;
    return outcome(error);
}

SEEN int thrd_detach(thrd_t thread)
{
    return outcome(pthread_detach(thread));
}

SEEN thrd_t thrd_current(void)
{
    return pthread_self();
}

SEEN int thrd_equal(thrd_t a, thrd_t b)
{
    return pthread_equal(a, b);
}

SEEN _Noreturn void thrd_exit(int value)
{
    pthread_exit((void *)(intptr_t)value);
}

SEEN int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE
                                                                : PTHREAD_MUTEX_NORMAL);
    int error = pthread_mutex_init((pthread_mutex_t *)mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return outcome(error);
}

SEEN int mtx_lock(mtx_t *mutex)
{
    return outcome(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

SEEN int mtx_trylock(mtx_t *mutex)
{
    return outcome(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

SEEN int mtx_unlock(mtx_t *mutex)
{
    return outcome(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

SEEN void mtx_destroy(mtx_t *mutex)
{
    (void)pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

SEEN int cnd_init(cnd_t *condition)
{
    return outcome(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

SEEN int cnd_signal(cnd_t *condition)
{
    return outcome(pthread_cond_signal((pthread_cond_t *)condition));
}

SEEN int cnd_broadcast(cnd_t *condition)
{
    return outcome(pthread_cond_broadcast((pthread_cond_t *)condition));
}

SEEN int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return outcome(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

SEEN int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                       const struct timespec *restrict until)
{
    return outcome(
        pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}

SEEN void cnd_destroy(cnd_t *condition)
{
    (void)pthread_cond_destroy((pthread_cond_t *)condition);
}

/* librdkafka itself is not instrumented: its atomic reference counts order what the sanitizer then
 * takes for races. */
SEEN const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:librdkafka.so\n";
}

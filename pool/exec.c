/* exec: the one thread that serves all children, and the steps that wait for one. */
#include "pool/exec_int.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "pool/exec_child_int.h"

/* A handler that cannot be started is not tried at every step. */
#define SPAWN_PAUSE_US CLOCK_SECOND
#define CHILD_GRACE_US (500 * CLOCK_MS)
#define LOOK_US (250 * CLOCK_MS)
#define NUDGE_TAG UINT64_MAX
enum { EVENTS_MAX = 64 };

struct waiting {
    struct session *first, *last;
    size_t n;
};

struct exec_handler {
    const struct config_handler *config;
    struct exec_child *children;
    size_t n;
    struct waiting waiting; /* sessions for which no child is free */
    int64_t spawn_us;       /* not before */
};

struct exec {
    struct pool *pool;
    int epoll, wake;
    struct exec_handler *handlers;
    size_t handler_n;
    struct exec_child *children; /* of all handlers, behind each other */
    size_t child_n;
    struct arena *scratch;
    struct lock lock;
    struct waiting inbox; /* under lock: to be started, or answered by the commit lane */
    atomic_bool closing;
    pthread_t thread;
};

static void put(struct waiting *w, struct session *s)
{
    s->queued = NULL;
    if (w->first == NULL)
        w->first = s;
    else
        w->last->queued = s;
    w->last = s;
    w->n++;
}

static struct session *get(struct waiting *w)
{
    struct session *s = w->first;
    if (s == NULL)
        return NULL;
    w->first = s->queued;
    s->queued = NULL;
    w->n--;
    return s;
}

/* ---- from other threads ---- */

void exec_nudge(struct exec *e)
{
    if (e == NULL)
        return;
    uint64_t one = 1;
    ssize_t n = write(e->wake, &one, sizeof(one));
    CHECK(n == (ssize_t)sizeof(one) || errno == EAGAIN);
}

static void hand_over(struct exec *e, struct session *s)
{
    {
        LOCK_SCOPE(&e->lock);
        put(&e->inbox, s);
    }
    exec_nudge(e);
}

void exec_start(struct exec *e, struct session *s)
{
    hand_over(e, s);
}

void exec_saved(struct exec *e, struct session *s)
{
    hand_over(e, s);
}

/* ---- the thread ---- */

static struct exec_handler *handler_of(struct exec *e, const struct session *s)
{
    for (size_t i = 0; i < e->handler_n; i++)
        if (e->handlers[i].config == s->config)
            return &e->handlers[i];
    return NULL;
}

static void read_inbox(struct exec *e)
{
    struct waiting taken;
    {
        LOCK_SCOPE(&e->lock);
        taken = e->inbox;
        e->inbox = (struct waiting){NULL, NULL, 0};
    }
    struct session *s;
    while ((s = get(&taken)) != NULL) {
        if (s->saving) {
            child_saved(s->child);
            continue;
        }
        struct exec_handler *h = handler_of(e, s);
        CHECK(h != NULL); /* only runs of handlers that this pod serves are acquired */
        put(&h->waiting, s);
    }
}

static struct exec_child *free_child(struct exec_handler *h)
{
    struct exec_child *cold = NULL;
    for (size_t i = 0; i < h->n; i++) {
        struct exec_child *c = &h->children[i];
        if (c->session != NULL)
            continue;
        if (child_is_running(c))
            return c;
        cold = c;
    }
    return cold;
}

static void fail_start(struct session *s, struct span why)
{
    s->answer = decision_failure(session_step(s), "cannot_start", why);
    s->phase = SESSION_FAILED;
    step_push(s->pool, s);
}

/* Gives waiting sessions to free children, in order. */
static void assign(struct exec *e, struct exec_handler *h)
{
    struct exec_child *c;
    while (h->waiting.first != NULL && (c = free_child(h)) != NULL) {
        if (!child_is_running(c) && clock_mono_us() < h->spawn_us)
            return;
        struct span why;
        arena_reset(e->scratch);
        struct session *s = get(&h->waiting);
        if (session_stopped(s) != SESSION_GOES || !session_is_valid(s)) {
            step_push(e->pool, s); /* a worker knows what to do about it */
        } else if (child_ready(c, e->scratch, &why)) {
            child_begin(c, s);
        } else {
            h->spawn_us = clock_deadline_us(SPAWN_PAUSE_US);
            fail_start(s, why);
        }
    }
}

/* Sessions that wait here and may not go on, or all of them when the pod stops, go back to the
 * workers. */
static void weed(struct exec *e, struct exec_handler *h)
{
    struct waiting all = h->waiting;
    h->waiting = (struct waiting){NULL, NULL, 0};
    struct session *s;
    while ((s = get(&all)) != NULL)
        if (session_stopped(s) != SESSION_GOES || atomic_load(&e->pool->stopping))
            step_push(e->pool, s);
        else
            put(&h->waiting, s);
}

static int timeout_ms(const struct exec *e)
{
    int64_t next_us = CLOCK_FOREVER;
    for (size_t i = 0; i < e->child_n; i++)
        if (e->children[i].session != NULL && e->children[i].deadline_us < next_us)
            next_us = e->children[i].deadline_us;
    for (size_t i = 0; i < e->handler_n; i++)
        if (e->handlers[i].waiting.n > 0 && e->handlers[i].spawn_us < next_us)
            next_us = clock_mono_us() + LOOK_US < next_us ? clock_mono_us() + LOOK_US : next_us;
    return clock_poll_ms(next_us);
}

static void wait_for_events(struct exec *e)
{
    struct epoll_event events[EVENTS_MAX];
    int n = epoll_wait(e->epoll, events, EVENTS_MAX, timeout_ms(e));
    for (int i = 0; i < n; i++) {
        uint64_t tag = events[i].data.u64;
        if (tag == NUDGE_TAG) {
            uint64_t count;
            ssize_t got = read(e->wake, &count, sizeof(count));
            CHECK(got == (ssize_t)sizeof(count) || errno == EAGAIN);
        } else {
            child_serve(&e->children[tag / CHILD_ENDS], (enum child_end_of)(tag % CHILD_ENDS),
                        events[i].events);
        }
    }
}

static void *run(void *arg)
{
    struct exec *e = arg;
    while (!atomic_load(&e->closing)) {
        wait_for_events(e);
        read_inbox(e);
        int64_t now_us = clock_mono_us();
        for (size_t i = 0; i < e->child_n; i++)
            child_look(&e->children[i], now_us);
        size_t waiting = 0;
        for (size_t i = 0; i < e->handler_n; i++) {
            weed(e, &e->handlers[i]);
            assign(e, &e->handlers[i]);
            waiting += e->handlers[i].waiting.n;
        }
        metric_set(METRIC_QUEUE_LENGTH, LABELS("exec"), (double)waiting);
    }
    for (size_t i = 0; i < e->child_n; i++)
        child_fini(&e->children[i], CHILD_GRACE_US);
    return NULL;
}

/* ---- life ---- */

static void make_children(struct exec *e, const struct config *cfg)
{
    e->handlers = memory_new(cfg->n_handlers + 1, sizeof(*e->handlers));
    for (size_t i = 0; i < cfg->n_handlers; i++)
        if (cfg->handlers[i].kind == HANDLER_EXEC) {
            e->handlers[e->handler_n++] = (struct exec_handler){
                .config = &cfg->handlers[i], .n = (size_t)cfg->handlers[i].processes};
            e->child_n += (size_t)cfg->handlers[i].processes;
        }
    e->children = memory_new(e->child_n + 1, sizeof(*e->children));
    size_t at = 0;
    for (size_t i = 0; i < e->handler_n; i++) {
        struct exec_handler *h = &e->handlers[i];
        h->children = e->children + at;
        for (size_t k = 0; k < h->n; k++, at++)
            child_init(&e->children[at], e->pool, h->config, e->epoll, at * CHILD_ENDS);
    }
}

static void free_exec(struct exec *e)
{
    if (e->epoll >= 0)
        close(e->epoll);
    if (e->wake >= 0)
        close(e->wake);
    lock_destroy(&e->lock);
    arena_free(e->scratch);
    free(e->handlers);
    free(e->children);
    free(e);
}

enum outcome exec_open(struct pool *p, struct exec **ret)
{
    struct exec *e = memory_new(1, sizeof(*e));
    e->pool = p;
    lock_init(&e->lock);
    e->scratch = arena_new();
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event nudge = {.events = EPOLLIN, .data.u64 = NUDGE_TAG};
    bool fine =
        e->epoll >= 0 && e->wake >= 0 && epoll_ctl(e->epoll, EPOLL_CTL_ADD, e->wake, &nudge) == 0;
    if (fine)
        make_children(e, p->cfg);
    /* children die with the thread that started them: this one lives as long as they do */
    if (!fine || !thread_start(&e->thread, "exec", run, e)) {
        for (size_t i = 0; fine && i < e->child_n; i++)
            child_fini(&e->children[i], 0);
        free_exec(e);
        return OUTCOME_DB_BUG;
    }
    *ret = e;
    return OUTCOME_OK;
}

void exec_close(struct exec *e)
{
    if (e == NULL)
        return;
    atomic_store(&e->closing, true);
    exec_nudge(e);
    thread_join(e->thread);
    free_exec(e);
}

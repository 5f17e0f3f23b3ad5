/* exec_child: one child process of an exec handler and the line protocol with it. Thread: exec, all
 * of it. */
#ifndef HOLDFAST_POOL_EXEC_CHILD_INT_H
#define HOLDFAST_POOL_EXEC_CHILD_INT_H

#include "pool/exec_int.h"

#include "base/child.h"
#include "base/text.h"

enum child_end_of { CHILD_OUT, CHILD_IN, CHILD_ERR, CHILD_ENDS }; /* which pipe epoll speaks of */

struct exec_child {
    struct pool *pool;
    const struct config_handler *handler;
    int epoll;
    uint64_t tag;                  /* epoll data of its pipes: tag + enum child_end_of */
    struct child child;            /* pid 0: not running */
    int err;                       /* we read its standard error here; -1: none */
    int err_far;                   /* its end, kept open as long as the child lives; -1: none */
    struct text in, err_text, out; /* read and not yet a line; to be written */
    size_t out_at;
    struct session *session; /* NULL: idle */
    bool told;               /* to stop */
    int64_t deadline_us;     /* then it is killed; CLOCK_FOREVER: never */
    struct arena *line;      /* scratch */
};

void child_init(struct exec_child *c, struct pool *p, const struct config_handler *handler,
                int epoll, uint64_t tag);
/* Kills it, gives nothing back; no session may be in it. */
void child_fini(struct exec_child *c, int64_t grace_us);

static inline bool child_is_running(const struct exec_child *c)
{
    return c->child.pid > 0;
}

/* Starts the process if it does not run. False: *ret_why (in `arena`). */
MUST_CHECK bool child_ready(struct exec_child *c, struct arena *arena, struct span *ret_why);
/* Takes the session and sends its context. */
void child_begin(struct exec_child *c, struct session *s);
/* Something can be read or written; events as epoll told them. */
void child_serve(struct exec_child *c, enum child_end_of end, uint32_t events);
/* Its intermediate checkpoint has been answered. */
void child_saved(struct exec_child *c);
/* Looks whether its session has a reason to stop, or its time is over. */
void child_look(struct exec_child *c, int64_t now_us);

#endif

#include "pool/exec_child_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"

#define LINE_MAX_BYTES ((size_t)2 << 20)
#define STOP_GRACE_US (5 * CLOCK_SECOND)
#define DRAIN_GRACE_US CLOCK_SECOND
enum { READ_BYTES = 65536, ERR_LINE_BYTES = 4096 };

/* ---- life of the process ---- */

void child_init(struct exec_child *c, struct pool *p, const struct config_handler *handler,
                int epoll, uint64_t tag)
{
    *c = (struct exec_child){
        .pool = p,
        .handler = handler,
        .epoll = epoll,
        .tag = tag,
        .child = CHILD_NONE,
        .err = -1,
        .err_far = -1,
        .deadline_us = CLOCK_FOREVER,
        .line = arena_new(),
    };
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void forget_process(struct exec_child *c)
{
    close_fd(&c->err);
    close_fd(&c->err_far);
    text_reset(&c->in);
    text_reset(&c->out);
    text_reset(&c->err_text);
    c->out_at = 0;
    c->told = false;
    c->deadline_us = CLOCK_FOREVER;
}

void child_fini(struct exec_child *c, int64_t grace_us)
{
    CHECK(c->session == NULL);
    child_end(&c->child, grace_us);
    forget_process(c);
    text_free(&c->in);
    text_free(&c->out);
    text_free(&c->err_text);
    arena_free(c->line);
}

static void watch(struct exec_child *c, int fd, enum child_end_of end, uint32_t events,
                  int operation)
{
    struct epoll_event event = {.events = events, .data.u64 = c->tag + (uint64_t)end};
    CHECK(epoll_ctl(c->epoll, operation, fd, &event) == 0);
}

/* Standard error comes through a pipe that the shell opens by its name; where it may not, it stays
 * the pod's own. */
static bool spawn(struct exec_child *c)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    c->err = pair[0];
    c->err_far = pair[1];
    const char *command = arena_printf(c->line, "command exec 2>/proc/%d/fd/%d || :\n%s",
                                       (int)getpid(), c->err_far, c->handler->command);
    return child_spawn_shell(command, &c->child);
}

bool child_ready(struct exec_child *c, struct arena *arena, struct span *ret_why)
{
    if (child_is_running(c))
        return true;
    arena_reset(c->line);
    if (!spawn(c)) {
        *ret_why = span_of(
            arena_printf(arena, "cannot start \"%s\": %s", c->handler->command, strerror(errno)));
        forget_process(c);
        return false;
    }
    watch(c, c->child.out, CHILD_OUT, EPOLLIN, EPOLL_CTL_ADD);
    watch(c, c->child.in, CHILD_IN, 0, EPOLL_CTL_ADD);
    watch(c, c->err, CHILD_ERR, EPOLLIN, EPOLL_CTL_ADD);
    metric_add(METRIC_CHILD_RESTARTS, LABELS(c->handler->name), 1);
    log_event(LOG_INFO, "handler.started", LOG_TEXT("handler", c->handler->name),
              LOG_INT("pid", c->child.pid));
    return true;
}

/* Kills what is left of it and waits for its end, which is near. */
static int reap(struct exec_child *c)
{
    int status = 0;
    pid_t pid = c->child.pid;
    if (!child_reap(&c->child, 0, &status)) {
        child_kill(&c->child, SIGKILL);
        while (!child_reap(&c->child, CLOCK_SECOND, &status))
            log_event(LOG_WARN, "handler.does_not_die", LOG_INT("pid", pid));
    }
    forget_process(c);
    return status;
}

/* ---- sessions ---- */

static struct session *take_session(struct exec_child *c)
{
    struct session *s = c->session;
    c->session = NULL;
    c->told = false;
    c->deadline_us = CLOCK_FOREVER;
    s->child = NULL;
    return s;
}

static void fail(struct exec_child *c, const char *reason, struct span detail)
{
    struct session *s = take_session(c);
    struct arena *arena = session_step(s);
    s->answer = decision_failure(arena, reason, detail);
    s->phase = SESSION_FAILED;
    step_push(c->pool, s);
}

/* The child breaks the rules, or its time is over: it goes, and a fresh one starts when there is
 * work. */
static void kill_and_fail(struct exec_child *c, const char *reason, struct span detail)
{
    bool was_told = c->told;
    log_event(LOG_WARN, "handler.killed", LOG_TEXT("handler", c->handler->name),
              LOG_INT("pid", c->child.pid), LOG_TEXT("reason", reason), LOG_SPAN("detail", detail));
    child_kill(&c->child, SIGKILL);
    if (c->session != NULL && c->session->saving) {
        /* its write is under way: the session comes back with the answer */
        (void)reap(c);
        return;
    }
    if (c->session == NULL) {
        (void)reap(c);
        return;
    }
    if (was_told) { /* told to stop: no failure. A worker looks at the reason, and goes on if it is
                       gone */
        struct session *s = take_session(c);
        s->phase = SESSION_START;
        step_push(c->pool, s);
    } else {
        fail(c, reason, arena_dup(c->line, detail));
    }
    (void)reap(c);
}

static void restart_clock(struct exec_child *c)
{
    if (!c->told)
        c->deadline_us = c->handler->timeout_ms > 0
                             ? clock_deadline_us(c->handler->timeout_ms * CLOCK_MS)
                             : CLOCK_FOREVER;
}

/* ---- writing ---- */

static void flush(struct exec_child *c)
{
    while (c->out_at < c->out.n && c->child.in >= 0) {
        ssize_t n = write(c->child.in, c->out.p + c->out_at, c->out.n - c->out_at);
        if (n > 0)
            c->out_at += (size_t)n;
        else if (n < 0 && errno == EINTR)
            continue;
        else
            break; /* full: epoll tells; or closed: the end of its output tells */
    }
    bool more = c->out_at < c->out.n;
    if (!more) {
        text_reset(&c->out);
        c->out_at = 0;
    }
    if (c->child.in >= 0)
        watch(c, c->child.in, CHILD_IN, more ? EPOLLOUT : 0, EPOLL_CTL_MOD);
}

static void say_revision(struct exec_child *c)
{
    text_addf(&c->out, "{\"revision\":%lld}\n", (long long)c->session->revision);
    flush(c);
}

static void say_stop(struct exec_child *c)
{
    text_addf(&c->out, "{\"stop\":\"%s\"}\n", session_stop_word(session_stopped(c->session)));
    if (!c->told) {
        bool drain = session_stopped(c->session) == SESSION_DRAIN;
        c->told = true;
        c->deadline_us = clock_deadline_us(drain ? DRAIN_GRACE_US : STOP_GRACE_US);
    }
    flush(c);
}

static void say_conflict(struct exec_child *c)
{
    struct session *s = c->session;
    struct span stored = span_is_null(s->checkpoint) ? SPAN_LIT("{}") : s->checkpoint;
    text_addf(&c->out, "{\"conflict\":{\"revision\":%lld,\"checkpoint\":", (long long)s->revision);
    text_add_span(&c->out, stored);
    text_add_str(&c->out, "}}\n");
    flush(c);
}

void child_begin(struct exec_child *c, struct session *s)
{
    c->session = s;
    s->child = c;
    context_write(s, &c->out);
    restart_clock(c);
    flush(c);
}

/* ---- intermediate checkpoints ---- */

static void saved(struct commit_request *r);

static void save(struct exec_child *c, const struct json_value *checkpoint)
{
    struct session *s = c->session;
    struct decision d = decision_empty("save");
    struct arena *arena = session_step(s);
    d.by_pool = true;
    d.checkpoint.text = json_write(checkpoint, arena);
    s->saving = true;
    watch(c, c->child.out, CHILD_OUT, 0, EPOLL_CTL_MOD); /* its next line waits for this answer */
    step_commit(c->pool, s, &d, saved);
}

/* Thread: commit. The answer goes to the exec thread, which has the child. */
static void saved(struct commit_request *r)
{
    struct session *s = r->opaque;
    exec_saved(((struct pool *)s->pool)->exec, s);
}

static enum session_stop stop_of(enum outcome o)
{
    return o == OUTCOME_NOT_RUNNING ? SESSION_CANCELLED : SESSION_LOST;
}

/* True: the child may go on reading answers. */
static bool answer_save(struct exec_child *c, const struct commit_request *r)
{
    struct session *s = c->session;
    struct pool *p = c->pool;
    if (outcome_class(r->outcome) == CLASS_DONE) {
        session_advance(s, r->new_revision, r->decision.checkpoint.text);
        if (child_is_running(c))
            say_revision(c);
        return true;
    }
    enum outcome_class class = outcome_class(r->outcome);
    bool refused = class == CLASS_REFUSED || class == CLASS_BUG;
    if (refused)
        step_refused(s, r);
    if (r->outcome == OUTCOME_REVISION_CONFLICT) {
        session_advance(s, r->new_revision, r->stored.text);
        if (child_is_running(c))
            say_conflict(c);
        return true;
    }
    bool lost = !refused || r->outcome == OUTCOME_LEASE_LOST || r->outcome == OUTCOME_SUPERSEDED ||
                r->outcome == OUTCOME_NOT_RUNNING;
    if (!lost)
        return false;
    struct fence_lease lease = {s->run_id, s->owner, s->epoch};
    (void)sessions_stop(p->sessions, &lease, stop_of(r->outcome), p->steps);
    if (child_is_running(c))
        say_stop(c);
    return true;
}

static void take_lines(struct exec_child *c);

void child_saved(struct exec_child *c)
{
    struct session *s = c->session;
    struct commit_request *r = &s->commit;
    s->saving = false;
    struct span why = arena_dup(
        c->line, span_is_null(r->detail) ? span_of(outcome_sentence(r->outcome)) : r->detail);
    bool fine = answer_save(c, r);
    if (!child_is_running(c)) { /* it has gone meanwhile */
        fail(c, "process_ended",
             SPAN_LIT("the process ended while its checkpoint was being saved"));
        return;
    }
    if (!fine) {
        kill_and_fail(c, outcome_word(r->outcome), why);
        return;
    }
    restart_clock(c);
    watch(c, c->child.out, CHILD_OUT, EPOLLIN, EPOLL_CTL_MOD);
    take_lines(c);
}

/* ---- reading ---- */

static void take_line(struct exec_child *c, struct span line)
{
    struct session *s = c->session;
    const struct json_value *v, *part;
    struct json_error error;
    arena_reset(c->line);
    if (s == NULL) {
        kill_and_fail(c, "output_without_step",
                      SPAN_LIT("a line on standard output while no step was under way"));
    } else if (!json_parse(line, NULL, c->line, &v, &error)) {
        kill_and_fail(c, "output_refused", error.detail);
    } else if (json_get(v, "decision") != NULL) {
        struct arena *arena = session_step(s);
        s->answer = arena_dup(arena, line);
        s->phase = SESSION_ANSWERED;
        (void)take_session(c);
        step_push(c->pool, s);
    } else if (json_get(v, "progress") != NULL && json_count(v) == 1) {
        restart_clock(c);
        if (session_stopped(s) != SESSION_GOES)
            say_stop(c);
        else
            say_revision(c);
    } else if (json_is(part = json_get(v, "save"), JSON_OBJECT) && json_count(v) == 1) {
        save(c, part);
    } else {
        kill_and_fail(
            c, "output_refused",
            SPAN_LIT("a line must be {\"progress\":…}, {\"save\":{…}} or {\"decision\":…}"));
    }
}

static void take_lines(struct exec_child *c)
{
    size_t at = 0;
    while (child_is_running(c) && (c->session == NULL || !c->session->saving)) {
        const char *end = c->in.n > at ? memchr(c->in.p + at, '\n', c->in.n - at) : NULL;
        if (end == NULL)
            break;
        struct span line = {c->in.p + at, (size_t)(end - (c->in.p + at))};
        at += line.n + 1;
        take_line(c, line);
    }
    if (!child_is_running(c))
        return; /* killed: nothing of it counts */
    memmove(c->in.p, c->in.p + at, c->in.n - at);
    c->in.n -= at;
    if (c->in.n > LINE_MAX_BYTES)
        kill_and_fail(c, "output_refused", SPAN_LIT("a line of more than 2 MiB"));
}

static void ended(struct exec_child *c)
{
    bool was_told = c->told;
    bool saving = c->session != NULL && c->session->saving;
    struct session *s = c->session != NULL && !saving ? take_session(c) : NULL;
    int status = reap(c);
    struct arena *arena = s != NULL ? session_step(s) : c->line;
    const char *how =
        WIFSIGNALED(status)
            ? arena_printf(arena, "the process was ended by signal %d", WTERMSIG(status))
            : arena_printf(arena, "the process ended with status %d", WEXITSTATUS(status));
    log_event(LOG_INFO, "handler.ended", LOG_TEXT("handler", c->handler->name),
              LOG_TEXT("detail", how));
    if (s == NULL)
        return;
    s->answer = decision_failure(arena, "process_ended", span_of(how));
    s->phase = was_told ? SESSION_START : SESSION_FAILED;
    step_push(c->pool, s);
}

static void read_out(struct exec_child *c)
{
    bool end = false;
    for (;;) {
        char *to = text_reserve(&c->in, READ_BYTES);
        ssize_t n = read(c->child.out, to, READ_BYTES);
        if (n > 0)
            c->in.n += (size_t)n;
        if (n < 0 && errno == EINTR)
            continue;
        end = n == 0 || (n < 0 && errno != EAGAIN);
        if (n < READ_BYTES)
            break;
        if (c->in.n > LINE_MAX_BYTES)
            break;
    }
    take_lines(c);
    if (end && child_is_running(c))
        ended(c);
}

static void log_line(struct exec_child *c, struct span line)
{
    const struct session *s = c->session;
    if (s != NULL)
        log_event(LOG_INFO, "handler.stderr", LOG_TEXT("handler", c->handler->name),
                  LOG_INT("pid", c->child.pid), LOG_UUID("run_id", s->run_id),
                  LOG_INT("epoch", s->epoch), LOG_SPAN("text", line),
                  LOG_SPAN("trace_id", s->trace_id));
    else
        log_event(LOG_INFO, "handler.stderr", LOG_TEXT("handler", c->handler->name),
                  LOG_INT("pid", c->child.pid), LOG_SPAN("text", line));
}

static void read_err(struct exec_child *c)
{
    char *to = text_reserve(&c->err_text, ERR_LINE_BYTES);
    ssize_t n = read(c->err, to, ERR_LINE_BYTES);
    if (n <= 0)
        return;
    c->err_text.n += (size_t)n;
    size_t at = 0;
    const char *end;
    while ((end = memchr(c->err_text.p + at, '\n', c->err_text.n - at)) != NULL) {
        struct span line = {c->err_text.p + at, (size_t)(end - (c->err_text.p + at))};
        at += line.n + 1;
        log_line(c, line);
    }
    if (c->err_text.n - at >= ERR_LINE_BYTES) {
        log_line(c, (struct span){c->err_text.p + at, c->err_text.n - at});
        at = c->err_text.n;
    }
    memmove(c->err_text.p, c->err_text.p + at, c->err_text.n - at);
    c->err_text.n -= at;
}

void child_serve(struct exec_child *c, enum child_end_of end, uint32_t events)
{
    if (!child_is_running(c))
        return; /* an event of a process that has gone since */
    switch (end) {
    case CHILD_OUT:
        if (c->session == NULL || !c->session->saving)
            read_out(c);
        else
            ended(c); /* only a hang-up is told while its lines wait */
        return;
    case CHILD_IN:
        if ((events & (EPOLLERR | EPOLLHUP)) != 0)
            child_close_in(&c->child); /* it reads no more; the end of its output will tell */
        else
            flush(c);
        return;
    case CHILD_ERR:
        read_err(c);
        return;
    case CHILD_ENDS:
        return;
    }
}

void child_look(struct exec_child *c, int64_t now_us)
{
    if (!child_is_running(c) || c->session == NULL || c->session->saving)
        return;
    if (!c->told && session_stopped(c->session) != SESSION_GOES)
        say_stop(c);
    if (now_us >= c->deadline_us)
        kill_and_fail(c, c->told ? "stopped" : "timeout",
                      c->told ? SPAN_LIT("told to stop, it did not end its step")
                              : SPAN_LIT("no line within the handler's timeout_ms"));
}

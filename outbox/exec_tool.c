// outbox/exec_tool.c: tools of kind exec. One program a claim: the key as its last argument and in
// its environment, the request on its standard input, its answer on its standard output, its
// verdict its exit code. It is killed with its whole group at the deadline, and what it had done by
// then is unknown.
#include "outbox/exec_int.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/text.h"
#include "outbox/adapter.h"

enum {
    LOOK_MS = 50, // a program that ended while something of its own still holds its output
    REAP_US = 1000000,
};

struct program {
    struct program *next;
    struct dispatch *d;
    const struct config_tool *tool;
    struct child child;
    struct text output;
    size_t written; // of the body
    int64_t started_us, deadline_us;
    bool ended; // its output has
};

struct programs {
    struct outbox *outbox;
    pthread_t thread;
    struct queue *asked;
    int wake_fd;
    struct program *running;
    size_t running_n;
    atomic_bool stop;
    _Atomic int64_t until_us;
};

static void finish(struct program *p, const struct program_end *end)
{
    exec_judge(p->d, p->tool, end);
    if (end->spawned) {
        metric_add(METRIC_OPERATIONS_SENT, LABELS(p->d->tool->config->name), 1);
        metric_observe(METRIC_TOOL_SECONDS, LABELS(p->d->tool->config->name),
                       (double)end->took_us / 1e6);
    }
    CHECK(queue_force_push(p->d->outbox->to_settle, p->d));
    text_free(&p->output);
    free(p);
}

// ---- start ----

static bool spawn(struct program *p)
{
    struct dispatch *d = p->d;
    const char *line = arena_printf(d->arena, "%s \"$@\"", p->tool->command);
    const char *const argv[] = {
        "/bin/sh", "-c", line, p->tool->name, arena_dup_text(d->arena, d->claim.external_key),
        NULL};
    return child_spawn_with(argv, exec_environment(d), &p->child);
}

static void start(struct programs *all, struct dispatch *d)
{
    if (atomic_load(&all->stop)) {
        dispatch_not_sent(d, "stopped", "the pod stopped before it was started");
        return;
    }
    if (clock_mono_us() >= dispatch_send_before_us(d)) {
        dispatch_not_sent(d, "deadline", "its claim had no time left for it");
        return;
    }
    struct program *p = memory_new(1, sizeof *p);
    p->d = d;
    p->tool = declared_tool(d->tool->config, d->claim.declaration.text, d->arena);
    p->child = CHILD_NONE;
    p->started_us = clock_mono_us();
    p->deadline_us = p->started_us + p->tool->timeout_ms * CLOCK_MS;
    if (!spawn(p)) {
        finish(p, &(struct program_end){.exit_code = -1, .detail = strerror(errno)});
        return;
    }
    p->next = all->running;
    all->running = p;
    all->running_n++;
}

// ---- while it runs ----

static void feed(struct program *p)
{
    while (p->child.in >= 0 && p->written < p->d->body.n) {
        ssize_t n = write(p->child.in, p->d->body.p + p->written, p->d->body.n - p->written);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0) { // it does not read: its own business
            break;
        }
        p->written += (size_t)n;
    }
    child_close_in(&p->child);
}

static void drink(struct program *p)
{
    char piece[16384];
    while (p->output.n <= (size_t)p->tool->max_response_bytes) {
        ssize_t n = read(p->child.out, piece, sizeof piece);
        if (n > 0) {
            text_add(&p->output, piece, (size_t)n);
        } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
            p->ended = true;
            return;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

// Looks without taking its pipes away: what it wrote last is still to be read.
static bool has_exited(const struct program *p)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)p->child.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

// True: it is over and p is gone.
static bool over(struct program *p, bool give_up)
{
    int status = 0;
    bool reaped = has_exited(p);
    if (reaped) {
        if (!p->ended) {
            drink(p);
        }
        reaped = child_reap(&p->child, REAP_US, &status);
    }
    bool too_large = p->output.n > (size_t)p->tool->max_response_bytes;
    bool late = !reaped && (give_up || clock_mono_us() >= p->deadline_us);
    if (!reaped && !too_large && !late) {
        return false;
    }
    if (!reaped) {
        child_kill(&p->child, SIGKILL);
        if (!child_reap(&p->child, REAP_US, &status)) {
            child_end(&p->child, 0);
        }
    }
    struct program_end end = {
        .spawned = true,
        .timed_out = late,
        .too_large = too_large,
        .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
        .took_us = clock_mono_us() - p->started_us,
        .output = {.p = p->output.p,
                   .n = too_large ? (size_t)p->tool->max_response_bytes : p->output.n},
        .detail = late ? "it was still running at its deadline" : "",
    };
    finish(p, &end);
    return true;
}

static void look_at_all(struct programs *all, bool give_up)
{
    for (struct program **at = &all->running; *at != NULL;) {
        struct program *p = *at;
        struct program *next = p->next;
        if (p->child.in >= 0) {
            feed(p);
        }
        if (!p->ended) {
            drink(p);
        }
        if (over(p, give_up)) {
            *at = next;
            all->running_n--;
        } else {
            at = &p->next;
        }
    }
}

static void wait_for_some(struct programs *all)
{
    struct pollfd *fds = memory_new(2 * all->running_n + 1, sizeof *fds);
    nfds_t n = 0;
    int64_t until = clock_deadline_us(all->running_n > 0 ? LOOK_MS * CLOCK_MS : CLOCK_SECOND);
    fds[n++] = (struct pollfd){.fd = all->wake_fd, .events = POLLIN};
    for (struct program *p = all->running; p != NULL; p = p->next) {
        if (p->child.in >= 0) {
            fds[n++] = (struct pollfd){.fd = p->child.in, .events = POLLOUT};
        }
        if (!p->ended) {
            fds[n++] = (struct pollfd){.fd = p->child.out, .events = POLLIN};
        } else {
            until = clock_deadline_us(CLOCK_MS); // it ends in a moment
        }
        until = p->deadline_us < until ? p->deadline_us : until;
    }
    (void)poll(fds, n, clock_poll_ms(until));
    free(fds);
    uint64_t told;
    (void)!read(all->wake_fd, &told, sizeof told);
}

static void *programs_thread(void *argument)
{
    struct programs *all = argument;
    for (;;) {
        for (struct dispatch *d; (d = queue_pop(all->asked, 0)) != NULL;) {
            start(all, d);
        }
        bool stop = atomic_load(&all->stop);
        look_at_all(all, stop && clock_mono_us() >= atomic_load(&all->until_us));
        if (stop && all->running == NULL && queue_len(all->asked) == 0) {
            return NULL;
        }
        wait_for_some(all);
    }
}

// ---- from outside ----

static void wake(struct programs *all)
{
    uint64_t one = 1;
    (void)!write(all->wake_fd, &one, sizeof one);
}

struct programs *programs_open(struct outbox *outbox)
{
    struct programs *all = memory_new(1, sizeof *all);
    all->outbox = outbox;
    all->asked = queue_new((size_t)outbox->config->dispatch.max_in_flight);
    all->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(all->wake_fd >= 0);
    outbox_thread(&all->thread, "programs", programs_thread, all);
    return all;
}

void programs_run(struct programs *all, struct dispatch *d)
{
    CHECK(queue_force_push(all->asked, d));
    wake(all);
}

void programs_stop(struct programs *all, int64_t until_us)
{
    if (all == NULL) {
        return;
    }
    atomic_store(&all->until_us, until_us);
    atomic_store(&all->stop, true);
    wake(all);
    thread_join(all->thread);
    queue_free(all->asked);
    close(all->wake_fd);
    free(all);
}

static void exec_tool_send(struct dispatch *d)
{
    const struct config_tool *tool =
        declared_tool(d->tool->config, d->claim.declaration.text, d->arena);
    if (adapter_make_body(d, tool)) {
        programs_run(d->outbox->programs, d);
    }
}

const struct adapter exec_adapter = {.kind = "exec", .send = exec_tool_send};

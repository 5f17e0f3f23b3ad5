#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

/* pipes[0] to the child's input, [1] from its output, [2] tells the errno of a failed exec (closed
 * by exec). */
enum { TO_CHILD, FROM_CHILD, EXEC_FAILED, PIPES };

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

/* After fork in a threaded process: only async-signal-safe calls. */
__attribute__((noreturn)) static void become(const char *const argv[],
                                             const char *const environment[], int pipes[PIPES][2],
                                             pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int s = 1; s < NSIG; s++)
        sigaction(s, &standard, NULL); /* KILL and STOP refuse, which is fine */
    /* A parent that died before prctl would not be noticed. */
    if (getppid() == parent && dup2(pipes[TO_CHILD][0], STDIN_FILENO) >= 0 &&
        dup2(pipes[FROM_CHILD][1], STDOUT_FILENO) >= 0) {
        /* exec closes all that is CLOEXEC; libraries may have opened more. */
        syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
        if (environment != NULL)
            execvpe(argv[0], (char *const *)(size_t)argv, (char *const *)(size_t)environment);
        else
            execvp(argv[0], (char *const *)(size_t)argv);
    }
    int error = errno;
    ssize_t written = write(pipes[EXEC_FAILED][1], &error, sizeof(error));
    _exit(written > 0 ? 127 : 126);
}

static bool exec_worked(int fd, int *ret_errno)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(fd, &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    *ret_errno = error;
    return n == 0;
}

static bool not_blocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool child_spawn(const char *const argv[], struct child *ret)
{
    return child_spawn_with(argv, NULL, ret);
}

bool child_spawn_with(const char *const argv[], const char *const environment[], struct child *ret)
{
    int pipes[PIPES][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    bool open = true;
    for (int i = 0; i < PIPES && open; i++)
        open = pipe2(pipes[i], O_CLOEXEC) == 0;
    pid_t parent = getpid();
    pid_t pid = open ? fork() : -1;
    if (pid == 0)
        become(argv, environment, pipes, parent);
    int error = errno;
    bool worked = false;
    if (pid > 0) {
        setpgid(pid, pid); /* both sides, so that a kill right after spawn finds the group */
        close(pipes[EXEC_FAILED][1]);
        pipes[EXEC_FAILED][1] = -1;
        worked = exec_worked(pipes[EXEC_FAILED][0], &error) && not_blocking(pipes[TO_CHILD][1]) &&
                 not_blocking(pipes[FROM_CHILD][0]);
    }
    if (worked) {
        *ret = (struct child){pid, pipes[TO_CHILD][1], pipes[FROM_CHILD][0]};
        pipes[TO_CHILD][1] = pipes[FROM_CHILD][0] = -1;
    } else if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    for (int i = 0; i < PIPES; i++)
        close_pair(pipes[i]);
    errno = error;
    return worked;
}

bool child_spawn_shell(const char *command, struct child *ret)
{
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    return child_spawn(argv, ret);
}

void child_close_in(struct child *c)
{
    if (c->in >= 0)
        close(c->in);
    c->in = -1;
}

void child_kill(struct child *c, int signal_number)
{
    if (c->pid > 0)
        kill(-c->pid, signal_number);
}

bool child_reap(struct child *c, int64_t timeout_us, int *ret_status)
{
    CHECK(c->pid > 0);
    int64_t deadline = clock_deadline_us(timeout_us);
    int handle = (int)syscall(SYS_pidfd_open, c->pid, 0U); /* readable once the child has ended */
    struct pollfd wait = {.fd = handle, .events = POLLIN};
    int status = 0;
    pid_t got;
    for (;;) {
        got = waitpid(c->pid, &status, WNOHANG);
        if (got != 0 && !(got < 0 && errno == EINTR))
            break;
        int left = clock_poll_ms(deadline);
        if (left == 0)
            break;
        poll(&wait, 1, handle >= 0 ? left : 1);
    }
    if (handle >= 0)
        close(handle);
    if (got == 0)
        return false;
    CHECK(got == c->pid); /* nobody else reaps our children */
    child_close_in(c);
    if (c->out >= 0)
        close(c->out);
    *c = CHILD_NONE;
    *ret_status = status;
    return true;
}

void child_end(struct child *c, int64_t grace_us)
{
    if (c->pid <= 0)
        return;
    int status;
    child_close_in(c);
    child_kill(c, SIGTERM);
    if (child_reap(c, grace_us, &status))
        return;
    child_kill(c, SIGKILL);
    bool ended = child_reap(c, CLOCK_FOREVER, &status);
    CHECK(ended);
}

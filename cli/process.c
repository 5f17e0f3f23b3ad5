// Child processes of `holdfast up`.
#include "cli/process.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { LOOK_US = 20 * 1000, ANSWER_TIMEOUT_S = 2 };

// In the child: nothing here may allocate or return. What fails is written to the log.
__attribute__((noreturn)) static void become(const char *const argv[], const struct passwd *user,
                                             int log)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        _exit(126);
    setpgid(0, 0);
    if (user != NULL && (setgroups(1, &user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
                         setuid(user->pw_uid) != 0 || chdir("/") != 0))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // after setuid, which clears it
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

bool process_start(struct process *p, const char *const argv[], const char *user, const char *log)
{
    const struct passwd *entry = NULL;
    if (user != NULL) {
        entry = getpwnam(user);
        if (entry == NULL) {
            errno = ENOENT;
            return false;
        }
    }
    int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0)
        become(argv, entry, file);
    close(file);
    if (pid < 0)
        return false;
    p->pid = pid;
    p->status = 0;
    return true;
}

bool process_run(const char *const argv[], const char *user, const char *log)
{
    struct process p = {.name = argv[0]};
    if (!process_start(&p, argv, user, log))
        return false;
    while (waitpid(p.pid, &p.status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(p.status) && WEXITSTATUS(p.status) == 0;
}

bool process_ended(struct process *p)
{
    if (p->pid == 0)
        return true;
    if (waitpid(p->pid, &p->status, WNOHANG) != p->pid)
        return false;
    p->pid = 0;
    return true;
}

void process_stop(struct process *p, int signal_number, int64_t patience_us)
{
    if (process_ended(p))
        return;
    kill(p->pid, signal_number);
    kill(p->pid, SIGCONT);
    int64_t deadline = clock_deadline_us(patience_us);
    while (!process_ended(p)) {
        if (clock_mono_us() > deadline)
            kill(p->pid, SIGKILL);
        usleep(LOOK_US);
    }
}

const char *process_how(const struct process *p, char *buf, size_t size)
{
    if (WIFSIGNALED(p->status))
        snprintf(buf, size, "signal %d (%s)", WTERMSIG(p->status), strsignal(WTERMSIG(p->status)));
    else
        snprintf(buf, size, "exit code %d", WEXITSTATUS(p->status));
    return buf;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

uint16_t process_free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    uint16_t port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

bool process_port_answers(uint16_t port, const char *send_text, const char *expect)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = ANSWER_TIMEOUT_S};
    struct sockaddr_in address = loopback(port);
    char answer[64] = "";
    size_t n = 0;
    bool connected = fd >= 0 &&
                     setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                     connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (connected && *send_text != '\0')
        connected =
            send(fd, send_text, strlen(send_text), MSG_NOSIGNAL) == (ssize_t)strlen(send_text);
    while (connected && n < strlen(expect)) {
        ssize_t got = recv(fd, answer + n, sizeof answer - 1 - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    return connected && strncmp(answer, expect, strlen(expect)) == 0;
}

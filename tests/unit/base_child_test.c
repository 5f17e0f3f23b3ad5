/* child and stop_point: other processes, and this one held still. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/stop_point.h"

static const int64_t limit_us = 20 * CLOCK_SECOND;

/* One line from the child, within the time limit. */
static void read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    int64_t deadline = clock_deadline_us(limit_us);
    while (n + 1 < size) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_true(poll(&p, 1, clock_poll_ms(deadline)) > 0);
        ssize_t got = read(fd, line + n, 1);
        assert_int_equal(got, 1);
        if (line[n++] == '\n')
            break;
    }
    line[n] = '\0';
}

static void a_child_answers_through_its_pipes(void **state)
{
    (void)state;
    const char *const argv[] = {"cat", NULL};
    struct child c = CHILD_NONE;
    assert_true(child_spawn(argv, &c));
    assert_int_equal(write(c.in, "hello\n", 6), 6);
    char line[32];
    read_line(c.out, line, sizeof(line));
    assert_string_equal(line, "hello\n");
    int status = -1;
    assert_false(child_reap(&c, 0, &status)); /* still there */
    child_close_in(&c);
    assert_true(child_reap(&c, limit_us, &status));
    assert_int_equal(status, 0);
    assert_int_equal(c.pid, 0);
}

static void what_cannot_be_started_says_so(void **state)
{
    (void)state;
    const char *const argv[] = {"/nonexistent/program", NULL};
    struct child c = CHILD_NONE;
    assert_false(child_spawn(argv, &c));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(c.pid, 0);
}

static void ending_takes_the_whole_group(void **state)
{
    (void)state;
    struct child c = CHILD_NONE;
    /* deaf to SIGTERM, with a grandchild that would keep the pipe open */
    assert_true(child_spawn_shell("trap '' TERM; sleep 1000 & echo $!; wait; sleep 1000", &c));
    char line[32];
    read_line(c.out, line, sizeof(line));
    pid_t grandchild = (pid_t)strtol(line, NULL, 10);
    assert_int_equal(kill(grandchild, 0), 0);
    child_end(&c, 50 * CLOCK_MS);
    assert_int_equal(c.pid, 0);
    int64_t deadline = clock_deadline_us(limit_us);
    bool gone = false;
    while (!gone &&
           clock_poll_ms(deadline) > 0) { /* init reaps it; a zombie still answers kill(0) */
        char path[64], text[256] = "";
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)grandchild);
        int fd = open(path, O_RDONLY);
        gone = fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || strstr(text, ") Z ") != NULL;
        if (fd >= 0)
            close(fd);
    }
    assert_true(gone);
}

static void children_do_not_inherit_our_files(void **state)
{
    (void)state;
    int leak = open("/dev/null", O_RDONLY); /* not CLOEXEC, as a careless library would */
    assert_true(leak > 2);
    char command[64], line[32];
    snprintf(command, sizeof(command), "test -e /proc/self/fd/%d && echo open || echo closed",
             leak);
    struct child c = CHILD_NONE;
    assert_true(child_spawn_shell(command, &c));
    read_line(c.out, line, sizeof(line));
    assert_string_equal(line, "closed\n");
    child_end(&c, limit_us);
    close(leak);
}

/* ---- stop points, in a process of their own ---- */

static void touch(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static bool exists(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void wait_for(const char *dir, const char *name)
{
    int64_t deadline = clock_deadline_us(limit_us);
    while (!exists(dir, name) && clock_poll_ms(deadline) > 0)
        poll(NULL, 0, 1);
    assert_true(exists(dir, name));
}

static pid_t passing_by(const char *dir)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("HOLDFAST_STOP_DIR", dir, 1);
        stop_point_pod("pod-1");
        STOP_POINT("here");
        _exit(7);
    }
    return pid;
}

static void remove_folder(const char *dir)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void a_stop_point_holds_and_lets_go(void **state)
{
    (void)state;
    char dir[] = "/tmp/holdfast-stop-XXXXXX", reached[64];
    assert_non_null(mkdtemp(dir));
    touch(dir, "here@pod-2.hold"); /* for somebody else */
    touch(dir, "here@pod-1.hold");
    pid_t pid = passing_by(dir);
    snprintf(reached, sizeof(reached), "here.%d.reached", (int)pid);
    wait_for(dir, reached);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    char path[256];
    snprintf(path, sizeof(path), "%s/here@pod-1.hold", dir);
    unlink(path);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    remove_folder(dir);
}

static void a_stop_point_kills_once(void **state)
{
    (void)state;
    char dir[] = "/tmp/holdfast-stop-XXXXXX";
    assert_non_null(mkdtemp(dir));
    touch(dir, "here.die");
    int status = 0;
    pid_t first = passing_by(dir);
    assert_int_equal(waitpid(first, &status, 0), first);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pid_t second = passing_by(dir);
    assert_int_equal(waitpid(second, &status, 0), second);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    remove_folder(dir);
}

static void a_stop_point_stops_for_sigcont(void **state)
{
    (void)state;
    char dir[] = "/tmp/holdfast-stop-XXXXXX";
    assert_non_null(mkdtemp(dir));
    touch(dir, "here.stop");
    int status = 0;
    pid_t pid = passing_by(dir);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_answers_through_its_pipes),
        cmocka_unit_test(what_cannot_be_started_says_so),
        cmocka_unit_test(ending_takes_the_whole_group),
        cmocka_unit_test(children_do_not_inherit_our_files),
        cmocka_unit_test(a_stop_point_holds_and_lets_go),
        cmocka_unit_test(a_stop_point_kills_once),
        cmocka_unit_test(a_stop_point_stops_for_sigcont),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

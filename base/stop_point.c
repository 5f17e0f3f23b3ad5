#include "base/stop_point.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

enum { NAME_SIZE = 64, PATH_SIZE = 512 };

static char pod[NAME_SIZE];

void stop_point_pod(const char *name)
{
    snprintf(pod, sizeof(pod), "%s", name);
}

#ifdef HOLDFAST_STOP_POINTS

void stop_point_reached(const char *name);

static void say_reached(const char *dir, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s.%d.reached", dir, name, (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
}

/* Takes a file that speaks once. Of several processes exactly one succeeds: rename is atomic. */
static bool take(const char *dir, const char *name, const char *verb)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    snprintf(from, sizeof(from), "%s/%s.%s", dir, name, verb);
    snprintf(to, sizeof(to), "%s/%s.%s.taken.%d", dir, name, verb, (int)getpid());
    return rename(from, to) == 0;
}

static void hold(const char *dir, const char *name, const char *reached_as)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s.hold", dir, name);
    if (access(path, F_OK) != 0)
        return;
    say_reached(dir, reached_as);
    const struct timespec pause = {.tv_nsec = 2000000};
    while (access(path, F_OK) == 0)
        nanosleep(&pause, NULL);
}

static void obey(const char *dir, const char *name, const char *reached_as)
{
    hold(dir, name, reached_as);
    if (take(dir, name, "stop")) {
        say_reached(dir, reached_as);
        raise(SIGSTOP);
    }
    if (take(dir, name, "die")) {
        say_reached(dir, reached_as);
        kill(getpid(), SIGKILL); /* the whole process, at once */
        for (;;)
            pause();
    }
}

void stop_point_reached(const char *name)
{
    const char *dir = getenv("HOLDFAST_STOP_DIR");
    if (dir == NULL || *dir == '\0')
        return;
    int saved = errno;
    obey(dir, name, name);
    if (pod[0] != '\0') {
        char mine[NAME_SIZE * 2];
        snprintf(mine, sizeof(mine), "%s@%s", name, pod);
        obey(dir, mine, name);
    }
    errno = saved;
}

#endif

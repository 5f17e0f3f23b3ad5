/* Child processes with a pipe to their standard input and one from their standard output; standard
 * error is the caller's. The child gets its own process group, default signals and no other open
 * file of ours.
 *
 * Thread: one at a time per child; spawn from any. A child that was spawned must be reaped. It is
 * killed when the thread that spawned it ends (PR_SET_PDEATHSIG speaks of threads), so a killed pod
 * leaves no handlers behind: spawn from a thread that lives as long as its children. */
#ifndef HOLDFAST_BASE_CHILD_H
#define HOLDFAST_BASE_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/check.h"

struct child {
    pid_t pid; /* 0: none */
    int in;    /* we write here, non-blocking; -1 closed */
    int out;   /* we read here, non-blocking; -1 closed */
};

#define CHILD_NONE ((struct child){0, -1, -1})

/* argv ends with NULL; argv[0] is looked up in PATH. False with errno when it could not be started,
 * also when exec itself failed in the child (ENOENT, EACCES). */
MUST_CHECK bool child_spawn(const char *const argv[], struct child *ret);
/* The same with an environment of its own ("NAME=value", ends with NULL). */
MUST_CHECK bool child_spawn_with(const char *const argv[], const char *const environment[],
                                 struct child *ret);
/* The command line as /bin/sh -c understands it. */
MUST_CHECK bool child_spawn_shell(const char *command, struct child *ret);

void child_close_in(struct child *c); /* the child reads end of file */
/* The whole group; nothing when there is none. */
void child_kill(struct child *c, int signal_number);

/* Has it ended? Waits at most that long (0: just looks). True: c is empty again, pipes closed, and
 * *ret_status is what waitpid said. */
MUST_CHECK bool child_reap(struct child *c, int64_t timeout_us, int *ret_status);

/* SIGTERM, wait for grace, SIGKILL, reap. Always ends with an empty c. */
void child_end(struct child *c, int64_t grace_us);

#endif

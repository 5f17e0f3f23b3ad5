// Child processes of `holdfast up`: servers and pods, each with its own log file and its own
// process group, so that Ctrl-C reaches only `up`, which then ends them in order.
//
// Threads: main. A process dies with `up` also when that is killed (PR_SET_PDEATHSIG).
#ifndef HOLDFAST_CLI_PROCESS_H
#define HOLDFAST_CLI_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/check.h"

struct process {
    const char *name;
    pid_t pid;  // 0: does not run
    int status; // as waitpid said, once it ended
};

// Runs argv (NULL-terminated) as `user` (NULL: as we are) with its output appended to `log`. False
// with errno.
MUST_CHECK bool process_start(struct process *p, const char *const argv[], const char *user,
                              const char *log);
// The same and waits for its end; true if that was exit code 0.
MUST_CHECK bool process_run(const char *const argv[], const char *user, const char *log);
// Has it ended? Looks only.
bool process_ended(struct process *p);
// The signal, SIGCONT behind it (it may be stopped), waits; SIGKILL when the time is over.
void process_stop(struct process *p, int signal_number, int64_t patience_us);
// "exit code 1", "signal 9 (Killed)".
const char *process_how(const struct process *p, char *buf, size_t size);

// A loopback port that was free a moment ago; 0 when there is none.
uint16_t process_free_port(void);
// Does somebody answer `send` there with bytes that begin with `expect`? "" for both: accepts a
// connection.
bool process_port_answers(uint16_t port, const char *send, const char *expect);

#endif

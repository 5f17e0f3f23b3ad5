// outbox/exec_int.h: thread `programs`, which runs the programs of tools of kind exec. Private to
// outbox.
#ifndef HOLDFAST_OUTBOX_EXEC_INT_H
#define HOLDFAST_OUTBOX_EXEC_INT_H

#include "outbox/dispatch_int.h"

struct programs;

// Starts the thread. Thread: main.
struct programs *programs_open(struct outbox *outbox);
// Gives it a claim whose body is made. Thread: dispatch.
void programs_run(struct programs *programs, struct dispatch *d);
// What was not started goes back as not sent; what runs is waited for until then, and killed:
// unknown. Ends the thread. NULL is fine. Thread: dispatch.
void programs_stop(struct programs *programs, int64_t until_us);

// exec_judge.c: what a program's end means. Pure but for the arena.
struct program_end {
    bool spawned;   // from here on it may have acted
    bool timed_out; // killed at its deadline
    bool too_large; // killed: it wrote more than max_response_bytes
    int exit_code;  // -1: ended by a signal
    int64_t took_us;
    struct span output;
    const char *detail;
};
void exec_judge(struct dispatch *d, const struct config_tool *tool, const struct program_end *end);
// What it is run with; ends with NULL.
const char *const *exec_environment(const struct dispatch *d);

#endif

// outbox/dispatch_int.h: one claimed operation on its way, and the tools it may go to. Private to
// outbox.
#ifndef HOLDFAST_OUTBOX_DISPATCH_INT_H
#define HOLDFAST_OUTBOX_DISPATCH_INT_H

#include <stdatomic.h>

#include "base/arena.h"
#include "config/config.h"
#include "net/http_client.h"
#include "outbox/ledger_int.h"
#include "outbox/outbox_int.h"

// A tool that this pod can call.
struct tool {
    const struct config_tool *config;
    atomic_int_fast64_t in_flight;
};

void tools_open(struct outbox *outbox);
void tools_close(struct outbox *outbox);
struct tool *tools_find(struct outbox *outbox, struct span name); // NULL: not declared here
int64_t tool_room(const struct tool *tool);

// What is recorded; the order is the order of the calls in a batch.
enum verdict { VERDICT_SUCCEEDED, VERDICT_FAILED_FINAL, VERDICT_NOT_SENT, VERDICT_UNKNOWN };
const char *verdict_word(enum verdict verdict);

// One claim. Belongs to one thread at a time; everything in it lives in its arena.
struct dispatch {
    struct arena *arena;
    struct outbox *outbox;
    struct tool *tool;
    struct span owner;
    struct ledger_claimed claim;
    int64_t claimed_us; // clock_mono_us() before the claim was first asked: its term is reckoned
                        // from there
    struct span body;   // canonical bytes of the request

    enum verdict verdict;
    struct span remote_id;
    struct span result;    // JSON text
    struct span evidence;  // JSON text
    int64_t retry_ms;      // not again before
    unsigned record_tries; // by settle
};

// Copies the row into an arena of its own and counts it as in flight.
struct dispatch *dispatch_new(struct outbox *outbox, struct tool *tool,
                              const struct ledger_claimed *row, int64_t claimed_us);
// The end of it: recorded, or given up to the sweep. Counts it out and frees it.
void dispatch_free(struct dispatch *d);

// Its claim's deadline on the monotonic clock.
int64_t dispatch_until_us(const struct dispatch *d);

// Ends without having been sent: `fault` and `detail` become evidence. Gives it to settle. Thread:
// claim, dispatch.
void dispatch_not_sent(struct dispatch *d, const char *fault, const char *detail);

// Back-off before the next attempt: doubles with each, with jitter, within the configuration's
// bounds.
int64_t dispatch_back_off_ms(const struct config_dispatch *config, int32_t attempts);

// http_tool.c. Starts the request; the answer goes to settle. Thread: dispatch.
void http_tool_send(struct dispatch *d);

// http_judge.c: verdict, remote_id, result, evidence and retry_ms out of an answer. Pure but for
// the arena.
void http_judge(struct dispatch *d, const struct http_answer *answer);

// evidence.c: JSON texts for operation_evidence.
struct span evidence_of_answer(const struct http_answer *answer, struct arena *arena);
struct span evidence_of_fault(const char *fault, const char *detail, struct arena *arena);

#endif

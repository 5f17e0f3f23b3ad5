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
#include "schemas/json.h"

// A tool that this pod can call.
struct tool {
    const struct config_tool *config;
    atomic_int_fast64_t in_flight;
    int64_t questions; // in flight. Thread: reconcile
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

// Copies the row and the claim's owner into an arena of its own and counts it as in flight.
struct dispatch *dispatch_new(struct outbox *outbox, struct tool *tool, struct span owner,
                              const struct ledger_claimed *row, int64_t claimed_us);
// The end of it: recorded, or given up to the sweep. Counts it out and frees it.
void dispatch_free(struct dispatch *d);

// Its claim's deadline on the monotonic clock.
int64_t dispatch_until_us(const struct dispatch *d);
// Until when it may still be sent: a request begun so late that its answer could only come after
// the claim would be an unknown made by ourselves.
int64_t dispatch_send_before_us(const struct dispatch *d);

// Ends without having been sent: `fault` and `detail` become evidence. Gives it to settle. Thread:
// claim, dispatch.
void dispatch_not_sent(struct dispatch *d, const char *fault, const char *detail);

// Back-off before the next attempt: doubles with each, with jitter, within the configuration's
// bounds.
int64_t dispatch_back_off_ms(const struct config_dispatch *config, int32_t attempts);

// It can never be sent as it was registered; nothing was. Gives it to settle. Thread: dispatch.
void dispatch_refuse(struct dispatch *d, const char *fault, const char *detail);

// declared.c: the tool as its operation was registered: what was declared then, with today's
// address, credential and limits.
const struct config_tool *declared_tool(const struct config_tool *now, struct span declaration,
                                        struct arena *arena);
// The bytes that are sent: the canonical form of what the ledger holds, whose digest must be the
// ledger's, with the key at the tool's key_field. False: NULL or a sentence in ret_refused: the
// digest differs, or the request can never be sent.
MUST_CHECK bool declared_body(struct dispatch *d, const struct config_tool *tool,
                              const char **ret_refused);

// http_judge.c: verdict, remote_id, result, evidence and retry_ms out of an answer. Pure but for
// the arena.
void http_judge(struct dispatch *d, const struct http_answer *answer);
// Of a Retry-After header: seconds, or an HTTP date. 0: absent or nonsense.
int64_t http_retry_after_ms(const struct http_answer *answer);
// judge.c: the pieces that every adapter's judge is made of.
void judge_not_sent(struct dispatch *d, int64_t at_least_ms);
void judge_unknown(struct dispatch *d, int64_t at_least_ms);
// Asks for a person's eyes: counted and logged under that word.
void judge_alarm(struct dispatch *d, const char *what);
struct span judge_remote_id(const struct json_value *body, struct span declaration,
                            struct arena *arena);
bool judge_is_repeated(const struct dispatch *d); // an earlier attempt may have been sent

// converged.c: counts and logs what the ledger made of a fact; tells the runs that it woke.
void converged_note(const char *tool, const struct ledger_fact *fact,
                    const struct ledger_recorded *row);
void converged_wake(struct outbox *outbox, const struct ledger_recorded *rows, size_t n,
                    struct arena *arena);

// evidence.c: JSON texts for operation_evidence.
struct span evidence_of_answer(const struct http_answer *answer, struct arena *arena);
struct span evidence_of_fault(const char *fault, const char *detail, struct arena *arena);
// The same object with one more text member.
struct span evidence_with(struct span evidence, const char *name, struct span value,
                          struct arena *arena);
// Of a program or a stream: what came back, cut, with its digest.
struct evidence_output {
    const char *fault; // "none": it was read whole
    bool may_have_been_sent;
    int64_t took_us;
    int64_t exit_code; // -1: none
    const char *detail;
    struct span output;
};
struct span evidence_of_output(const struct evidence_output *seen, struct arena *arena);

#endif

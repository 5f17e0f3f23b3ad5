// outbox/outbox.h: carries intents out and results back, and publishes what happened.
//
// Two halves, each switched by configuration. The dispatcher (dispatch.enabled) claims operations
// from the ledger, calls the declared tools and records what came of it: one claim sends at most
// once, before its own deadline, under the operation's own identity; what is not known is recorded
// as `unknown` with its evidence. The relay (relay.enabled) publishes event rows, in order, and
// deletes them: exactly once for a read_committed consumer (relay.mode).
//
// It computes no workflow state and holds no authority: intents read from Kafka are hints, the
// ledger decides; every write is one database call that can refuse.
//
// Threads of its own: claim, dispatch, settle, reconcile, and relay.lanes relay threads; each with
// a database connection of its own except dispatch, which has none; and programs, where a tool is a
// program. PostgreSQL, Kafka or a tool being down is
// not an error of these functions: the threads wait, say so in the log, and go on by themselves.
#ifndef HOLDFAST_OUTBOX_OUTBOX_H
#define HOLDFAST_OUTBOX_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/text.h"

struct config;
struct outbox;
struct fence;

// What the pod tells about this half of it.
struct outbox_health {
    bool dispatch_enabled;
    bool relay_enabled;
    bool ledger_connected;     // the claim lane reached a primary lately
    bool relay_connected;      // every relay lane reached a primary lately
    bool gate_closed;          // a claim or a read was refused by the gate
    int64_t in_flight;         // requests claimed and not recorded yet
    int64_t shards_held;       // shards that this pod publishes now
    int64_t shards_recovering; // of these: still looking for what was published before
};

// Compares the functions of the ledger and the relay with the database, over a lane that is
// connected. OUTCOME_OK, or why not: fence_error() has the words.
MUST_CHECK enum outcome outbox_check(struct fence *lane);

// Starts the threads. `embedded_broker`: the broker is librdkafka's mock cluster, on which
// exactly_once is refused. OUTCOME_OK, or OUTCOME_INVALID with a sentence in ret_reason (static or
// owned by the configuration): the configuration cannot be honoured. The configuration must outlive
// the outbox.
MUST_CHECK enum outcome outbox_start(const struct config *config, bool embedded_broker,
                                     struct outbox **ret, const char **ret_reason);

// Something was committed in this process that wants to be published, or that may be claimed: look
// at once instead of at the next poll. Only saves latency. Thread: any.
void outbox_notify_events(struct outbox *outbox);
void outbox_notify_intents(struct outbox *outbox);

// A remote's later word about an operation (schemas/completion.h), as it came by HTTP. Answers what
// the ledger made of it (settled, evidence_only, contradiction, digest_mismatch, missing), invalid,
// or why it could not be asked (class RETRY or UNKNOWN: saying it again is harmless). *ret_said
// gets a sentence. `by` is kept with the evidence. Thread: any; one at a time is carried out.
MUST_CHECK enum outcome outbox_complete(struct outbox *outbox, struct span body, struct span by,
                                        struct text *ret_said);

// Thread: any.
void outbox_health(struct outbox *outbox, struct outbox_health *ret);

// Stops claiming; waits up to grace_ms for what is in flight; what was not sent is recorded as not
// sent, what may have been sent as unknown; the relay finishes its batch and gives its shards back.
// Frees the outbox. NULL is fine.
void outbox_stop(struct outbox *outbox, int64_t grace_ms);

#endif

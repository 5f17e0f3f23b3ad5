// outbox/claim_int.h: inside of thread `claim`. Private to outbox.
#ifndef HOLDFAST_OUTBOX_CLAIM_INT_H
#define HOLDFAST_OUTBOX_CLAIM_INT_H

#include "outbox/dispatch_int.h"

// Claims that wait for Kafka's acknowledgement. Thread: claim.
struct claim_ack;
struct claim_acks {
    struct claim_ack *first;
};
// Sends the claim to the intents topic; the operation goes to dispatch when Kafka has it, to settle
// when not.
void claim_ack_ask(struct claim_acks *acks, struct dispatch *d);
// Forgets what was answered; gives up what waits past its claim, or everything.
void claim_ack_sweep(struct claim_acks *acks, bool give_up_all);

// Hands a claimed operation to thread dispatch. Thread: any.
void dispatch_enqueue(struct dispatch *d);

struct claimer {
    struct outbox *outbox;
    struct fence *lane;
    struct arena *arena; // of one round
    struct broker_consumer *consumer;
    bool paused;
    int64_t consumer_again_us; // when opening it may be tried again
    int64_t sweep_us;          // next look without a hint
    bool more;                 // the last look was cut off by its limit
    enum outcome told;         // why claims fail, as last logged; OK: they do not
    struct claim_acks acks;
};

// claim_hint.c: intents from Kafka. Reads them, claims what they name, dead-letters what names
// nothing.
void claim_hints(struct claimer *c, int timeout_ms);
void claim_hints_end(struct claimer *c);

// claim.c: one claim, asked until it is answered; what was claimed goes on its way. False: not
// answered.
MUST_CHECK bool claim_ask(struct claimer *c, enum ledger_kind kind, struct ledger_claim *claim,
                          struct ledger_claimed **ret_rows, size_t *ret_n);
int64_t claim_room(const struct outbox *outbox);

#endif

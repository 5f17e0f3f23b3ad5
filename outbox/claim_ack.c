// outbox/claim_ack.c: in `async` failover mode an operation without any capability is sent only
// after Kafka holds its claim: PostgreSQL may lose an acknowledged claim in a promotion, and nobody
// could ever ask the remote. The audit finds such claims on the intents topic.
#include "outbox/claim_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schemas/intent.h"

// Held by the claim thread and by the delivery callback; the first of them to take it decides, the
// last one frees.
struct claim_ack {
    struct claim_ack *next; // claim thread only
    struct dispatch *d;
    int64_t give_up_us;
    atomic_bool taken;
    atomic_int holders;
};

static bool take(struct claim_ack *ack)
{
    return !atomic_exchange(&ack->taken, true);
}

static void let_go(struct claim_ack *ack)
{
    if (atomic_fetch_sub(&ack->holders, 1) == 1) {
        free(ack);
    }
}

static void on_delivered(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                         const char *text)
{
    (void)partition, (void)offset;
    struct claim_ack *ack = opaque;
    if (take(ack)) {
        if (result == BROKER_OK) {
            dispatch_enqueue(ack->d);
        } else {
            dispatch_not_sent(ack->d, "claim_not_acknowledged", text == NULL ? "" : text);
        }
    }
    let_go(ack);
}

void claim_ack_ask(struct claim_acks *acks, struct dispatch *d)
{
    struct outbox *outbox = d->outbox;
    const struct intent intent = {
        .kind = INTENT_CLAIMED,
        .operation_id = d->claim.operation_id,
        .attempt = d->claim.attempt,
        .timeline = d->claim.timeline,
        .until_us = d->claim.dispatch_until.us,
    };
    char run_id[UUID_TEXT_SIZE];
    const struct broker_message message = {
        .topic = outbox->intents_topic,
        .partition = BROKER_BY_KEY,
        .key = span_of(uuid_format(d->claim.run_id, run_id)),
        .value = intent_encode(&intent, d->arena),
    };
    struct claim_ack *ack = memory_new(1, sizeof *ack);
    ack->d = d;
    ack->give_up_us = dispatch_until_us(d);
    atomic_init(&ack->taken, false);
    atomic_init(&ack->holders, 2);
    struct broker_error error;
    if (broker_produce(outbox->producer, &message, on_delivered, ack, &error) != BROKER_OK) {
        free(ack);
        dispatch_not_sent(d, "claim_not_acknowledged", error.text);
        return;
    }
    ack->next = acks->first;
    acks->first = ack;
}

void claim_ack_sweep(struct claim_acks *acks, bool give_up_all)
{
    int64_t now = clock_mono_us();
    for (struct claim_ack **at = &acks->first; *at != NULL;) {
        struct claim_ack *ack = *at;
        bool over = give_up_all || now >= ack->give_up_us;
        if (over && take(ack)) {
            dispatch_not_sent(ack->d, "claim_not_acknowledged",
                              "Kafka did not confirm the claim in time");
        }
        if (over || atomic_load(&ack->taken)) {
            *at = ack->next;
            let_go(ack);
        } else {
            at = &ack->next;
        }
    }
}

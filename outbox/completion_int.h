// outbox/completion_int.h: the ways in for what is said later. Private to outbox.
#ifndef HOLDFAST_OUTBOX_COMPLETION_INT_H
#define HOLDFAST_OUTBOX_COMPLETION_INT_H

#include "outbox/dispatch_int.h"

void *completions_thread(void *outbox);

struct inbound;
struct inbound *inbound_open(struct outbox *outbox);
void inbound_close(struct inbound *inbound);

// claim_hint.c: a record that cannot be right, to the dead letters.
void claim_dead_letter(struct outbox *outbox, struct arena *arena,
                       const struct broker_record *record, struct span reason, struct span detail);

#endif

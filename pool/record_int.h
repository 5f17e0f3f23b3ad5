/* record: one record of the task topic on its way from ingest to its durable end. */
#ifndef HOLDFAST_POOL_RECORD_INT_H
#define HOLDFAST_POOL_RECORD_INT_H

#include "schemas/json.h"

#include "broker/broker.h"
#include "fence/fence.h"
#include "schemas/message.h"

struct task_record {
    struct broker_record
        *raw; /* owned; NULL: a control out of the database, there is no offset to store */
    struct raw_record origin; /* what a dead letter is made of: of `raw`, or of the control */
    struct arena *arena;      /* of message and rejection */
    struct message message;
    struct uuid run_id; /* of the run it may make; the same when the statement is repeated */
    struct span reject; /* {"reason","place","detail"}: to be recorded as invalid; NULL: valid */
    struct span dead_reason, dead_detail;
    int tried;    /* how often the letter was offered to Kafka */
    bool refused; /* Kafka does not take it as it is */
    struct task_record *next;
};

/* Takes the raw record. */
MUST_CHECK struct task_record *record_new(struct broker_record *raw);
void record_free(struct task_record *r);
/* Applied or dead-lettered: the offset may pass. Frees it. */
void record_done(struct task_record *r);
struct raw_record record_raw(const struct broker_record *raw, struct span cluster,
                             struct arena *arena);
/* Found invalid after decoding. */
void record_reject(struct task_record *r, enum reject_reason reason, struct span place,
                   struct span detail);

/* ---- dead letters (dead.c) ---- */

struct dead_letters;
MUST_CHECK struct dead_letters *dead_new(const char *topic, struct broker_producer *producer);
/* Those not yet acknowledged are freed undone: their records come again. */
void dead_free(struct dead_letters *d);
/* Takes the record; its offset passes once Kafka has acknowledged the letter. Thread: any. */
void dead_send(struct dead_letters *d, struct task_record *r, struct span reason,
               struct span detail);
/* A control whose task never came, as sweep tells it: {"task_id","source","record"}. Thread: sweep.
 */
void dead_send_control(struct dead_letters *d, const struct json_value *control);
/* Offers again what Kafka did not take. Thread: ingest. */
void dead_retry(struct dead_letters *d);
/* Letters on their way. Thread: any. */
size_t dead_waiting(struct dead_letters *d);

/* ---- rounds (submit_batch.c) ---- */

/* Moves to the front, in order, at most `max` records of which no two speak of the same task,
 * request or run; the rest keeps its order behind them. No later record of a task passes an earlier
 * one. Returns how many; at least one. */
size_t round_pick(struct task_record **records, size_t n, size_t max, struct arena *arena);

struct fence_submit_item submit_item(const struct task_record *r);
struct fence_cancel_item cancel_item(const struct task_record *r);
struct fence_retry_item retry_item(const struct task_record *r);
struct fence_signal_item signal_item(const struct task_record *r);

#endif

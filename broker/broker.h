/* broker: Kafka and nothing else. Bytes up, bytes down.
 *
 * Purpose    One `struct broker` says how Kafka is reached (checked properties). From it come
 *            consumers with offsets stored only for what is done, an idempotent producer, a
 *            transactional producer with clear outcomes, bounded read-backs, topics and, for
 *            development, a mock cluster inside this process.
 * Ownership  What an _open function returns is closed by its _close, which accepts NULL. A broker
 *            outlives what was opened from it. A record is one allocation of its own: any thread
 *            may keep it, also past the consumer. Messages and headers passed in are copied before
 *            the call returns.
 * Threads    No thread of our own. Callbacks run on the thread that polls, flushes or commits.
 *            "Thread:" says who may call; where it is missing: one thread at a time per handle.
 * Errors     enum broker_result says what the caller may do next, struct broker_error says it to a
 *            person. Outputs `ret_…` are set only on BROKER_OK. A `ret_error` may be NULL.
 * Never      knows what a run is; stores an offset that nobody called done; retries an unknown
 *            commit; logs.
 */
#ifndef HOLDFAST_BROKER_BROKER_H
#define HOLDFAST_BROKER_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/span.h"

struct config;

enum broker_result {
    BROKER_OK,      /* it happened */
    BROKER_REFUSED, /* by rule (property, size, authorisation): the same again gives the same */
    BROKER_RETRY,   /* clearly did not happen: may be tried again, also with the same handle */
    BROKER_UNKNOWN, /* may have happened: close the handle, read back, then decide */
    BROKER_FENCED   /* taken over, or the transaction outlived its time-out: close the handle, prove
                       anew that you may act; the read-back says what the last commit did */
};
const char *broker_result_word(enum broker_result result);

struct broker_error {
    char text[512];
};

/* ---- Connection: properties and identity ---- */

enum broker_scope { BROKER_ALL, BROKER_CONSUMER, BROKER_PRODUCER };

/* One `kafka.<name>`, `kafka.consumer.<name>` or `kafka.producer.<name>`; the narrower one wins. */
struct broker_property {
    const char *name;
    const char *value;
    enum broker_scope scope;
};

struct broker_hooks {
    void *opaque;
    /* Thread: librdkafka's own. */
    void (*log)(void *opaque, int syslog_level, const char *facility, const char *text);
    /* What a person should know. Thread: the polling one. */
    void (*error)(void *opaque, const char *text, bool fatal);
};

struct broker;
/* Checks every property: a guarded one is refused with its reason, an unknown or invalid one with
 * librdkafka's own message. Connects to nothing. `hooks` may be NULL. */
MUST_CHECK enum broker_result broker_open(const struct broker_property *properties, size_t n,
                                          const struct broker_hooks *hooks, struct broker **ret,
                                          struct broker_error *ret_error);
/* The same with the pass-through properties of a configuration. `bootstrap`, where not NULL, goes
 * before the file's. */
MUST_CHECK enum broker_result broker_open_config(const struct config *config, const char *bootstrap,
                                                 const struct broker_hooks *hooks,
                                                 struct broker **ret,
                                                 struct broker_error *ret_error);
void broker_close(struct broker *broker);

/* Why `name` may not be set by a user, NULL if it may. */
const char *broker_property_guard(const char *name);
/* The effective client configuration of a scope, one name and value at a time, secrets as
 * "********". */
void broker_config_dump(const struct broker *broker, enum broker_scope scope,
                        void (*row)(void *opaque, const char *name, const char *value),
                        void *opaque);
/* Waits for a broker's answer: Kafka's cluster id. BROKER_RETRY when nobody answers in time.
 * Thread: any. */
MUST_CHECK enum broker_result broker_cluster_id(struct broker *broker, int timeout_ms, char *ret,
                                                size_t size, struct broker_error *ret_error);
/* The cluster is a mock (no isolation, no fencing, forgets): exactly_once must be refused on it. */
bool broker_cluster_is_mock(const char *cluster_id);

/* Counted since broker_open over all its handles. Thread: any. */
struct broker_stats {
    uint64_t consumed, done, done_stale, rebalances, commit_failures, produced, delivered, refused,
        failed;
    uint64_t txn_committed, txn_aborted, txn_unknown, txn_fenced;
};
void broker_stats(const struct broker *broker, struct broker_stats *ret);

/* ---- Messages and records ---- */

struct broker_header {
    struct span name;
    struct span value; /* p NULL: a header without value */
};

/* p NULL in key or value is Kafka's null (a value of null is a tombstone). */
struct broker_message {
    const char *topic;
    int32_t partition; /* BROKER_BY_KEY: chosen from the key by murmur2, as Java clients do */
    struct span key, value;
    const struct broker_header *headers;
    size_t header_count;
};
#define BROKER_BY_KEY (-1)

struct broker_record {
    const char *topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms; /* -1: none */
    struct span key, value;
    const struct broker_header *headers;
    size_t header_count;
    uint64_t generation; /* of the partition's assignment to this consumer */
};
/* Thread: any. NULL is fine. Freeing a consumed record that is not done holds its partition's
 * offset where it is until the partition is assigned anew: the record then comes again. */
void broker_record_free(struct broker_record *record);

/* ---- Consumer ---- */

/* Called on the polling thread from within broker_poll or broker_consumer_close. */
struct broker_consumer_callbacks {
    void *opaque;
    void (*assigned)(void *opaque, const char *topic, int32_t partition);
    /* Records of it that are still out are somebody else's now: drop those not begun. Up to
     * revoke_wait_ms is then waited for those that are being made durable, their offsets are
     * committed, then the partition is given up. lost: it was already taken; nothing is waited for
     * or committed. */
    void (*revoked)(void *opaque, const char *topic, int32_t partition, bool lost);
};

struct broker_consumer_options {
    const char *group;
    const char *const *topics;
    size_t topic_count;
    int revoke_wait_ms;     /* 0: 500 */
    int commit_interval_ms; /* 0: 1000; stored offsets are committed by broker_poll that often */
    struct broker_consumer_callbacks callbacks;
};

struct broker_consumer;
MUST_CHECK enum broker_result broker_consumer_open(struct broker *broker,
                                                   const struct broker_consumer_options *options,
                                                   struct broker_consumer **ret,
                                                   struct broker_error *ret_error);
/* Commits what is done, leaves the group. Records still out stay valid; done on them is ignored
 * from then on. A consumer that is just joining waits up to 5 s for its first assignment. */
void broker_consumer_close(struct broker_consumer *consumer);

/* The next record, or NULL after timeout_ms. Must be called at least every max.poll.interval.ms,
 * also while paused. */
struct broker_record *broker_poll(struct broker_consumer *consumer, int timeout_ms);
/* Waits for one, then takes what is there, up to max. */
size_t broker_poll_many(struct broker_consumer *consumer, struct broker_record **ret, size_t max,
                        int timeout_ms);
/* This record is durably applied or dead-lettered: its offset may pass. Only the contiguous done
 * prefix of a partition is stored; done on a record of an earlier assignment is ignored. The record
 * stays valid. Thread: any. */
void broker_done(struct broker_record *record);

/* Paused partitions deliver nothing and stay assigned; "all" also holds for partitions assigned
 * later. Thread: any. */
void broker_pause_all(struct broker_consumer *consumer);
void broker_resume_all(struct broker_consumer *consumer);
void broker_pause(struct broker_consumer *consumer, const char *topic, int32_t partition);
void broker_resume(struct broker_consumer *consumer, const char *topic, int32_t partition);
/* Handed out and not done. Thread: any. */
size_t broker_outstanding(struct broker_consumer *consumer);
/* Not recoverable (fatal client error): close and open again. */
bool broker_consumer_failed(struct broker_consumer *consumer);

/* ---- Producer: idempotent, acks=all ---- */

/* OK: acknowledged at `offset`; REFUSED: will never be accepted; RETRY: surely not there; UNKNOWN:
 * may be there. Runs on whichever thread is inside produce, poll or flush of this producer. */
typedef void broker_delivered(void *opaque, enum broker_result result, int32_t partition,
                              int64_t offset, const char *text);

struct broker_producer;
MUST_CHECK enum broker_result broker_producer_open(struct broker *broker,
                                                   struct broker_producer **ret,
                                                   struct broker_error *ret_error);
/* Waits up to 5 s for what is queued. */
void broker_producer_close(struct broker_producer *producer);
/* Queues. BROKER_RETRY: the queue is full, poll first. REFUSED: too large or no such topic or
 * partition. `delivered` may be NULL (a hint); it is called exactly once after BROKER_OK. Thread:
 * any. */
MUST_CHECK enum broker_result broker_produce(struct broker_producer *producer,
                                             const struct broker_message *message,
                                             broker_delivered *delivered, void *opaque,
                                             struct broker_error *ret_error);
/* The record unchanged onto another topic, key and headers kept, `added` headers after them.
 * Thread: any. */
MUST_CHECK enum broker_result broker_forward(struct broker_producer *producer, const char *topic,
                                             const struct broker_record *record,
                                             const struct broker_header *added, size_t added_count,
                                             broker_delivered *delivered, void *opaque,
                                             struct broker_error *ret_error);
/* Serves delivery callbacks. Thread: any. */
void broker_producer_poll(struct broker_producer *producer, int timeout_ms);
/* Not recoverable (the idempotent producer lost its place): close and open again. Thread: any. */
bool broker_producer_failed(struct broker_producer *producer);
/* BROKER_OK: nothing is in flight any more (each callback was called); RETRY: some still are. */
MUST_CHECK enum broker_result broker_flush(struct broker_producer *producer, int timeout_ms);

/* ---- Transactional producer ---- */

struct broker_txn;
/* Fences every earlier producer of this id and settles its transaction, then returns BROKER_OK. */
MUST_CHECK enum broker_result broker_txn_open(struct broker *broker, const char *transactional_id,
                                              int transaction_timeout_ms, int timeout_ms,
                                              struct broker_txn **ret,
                                              struct broker_error *ret_error);
void broker_txn_close(struct broker_txn *txn);
MUST_CHECK enum broker_result broker_txn_begin(struct broker_txn *txn,
                                               struct broker_error *ret_error);
/* `tag` names the message in broker_txn_refused. REFUSED: this message only; the transaction goes
 * on without it. */
MUST_CHECK enum broker_result broker_txn_produce(struct broker_txn *txn,
                                                 const struct broker_message *message, uint64_t tag,
                                                 struct broker_error *ret_error);
/* OK: committed. RETRY: clearly aborted, nothing is visible, begin again. UNKNOWN, FENCED: close
 * the handle. */
MUST_CHECK enum broker_result broker_txn_commit(struct broker_txn *txn, int timeout_ms,
                                                struct broker_error *ret_error);
/* OK: aborted. UNKNOWN, FENCED: close the handle; opening a new one settles it. */
MUST_CHECK enum broker_result broker_txn_abort(struct broker_txn *txn, int timeout_ms,
                                               struct broker_error *ret_error);
/* After a commit that answered RETRY: did Kafka itself refuse a message for what it is (size), and
 * which? It refuses whole batches: any message of that batch may be named; sent alone it is plain.
 * After a refusal the next commit may answer RETRY once more (the client mends its sequence). */
bool broker_txn_refused(const struct broker_txn *txn, uint64_t *ret_tag);

/* ---- Read-backs (read_committed, no group) ---- */

/* The last committed record of a partition, by stepping back from the high watermark once the last
 * stable offset has reached it. *ret is NULL with BROKER_OK when there is none. */
MUST_CHECK enum broker_result broker_last_of_partition(struct broker *broker, const char *topic,
                                                       int32_t partition, int timeout_ms,
                                                       struct broker_record **ret,
                                                       struct broker_error *ret_error);
/* Borrowed record; false stops the scan. */
typedef bool broker_scan_fn(void *opaque, const struct broker_record *record);
/* Every committed record of all partitions from `since_ms` (unix time; 0: all) to the high
 * watermarks as they were at the call, in offset order per partition. BROKER_OK: all seen, or
 * stopped by the function. */
MUST_CHECK enum broker_result broker_read_since(struct broker *broker, const char *topic,
                                                int64_t since_ms, int timeout_ms,
                                                broker_scan_fn *each, void *opaque,
                                                struct broker_error *ret_error);
/* Sum over partitions of high watermark minus committed offset of a group; for status and tests. */
MUST_CHECK enum broker_result broker_group_lag(struct broker *broker, const char *group,
                                               const char *topic, int timeout_ms, int64_t *ret_lag,
                                               struct broker_error *ret_error);

/* ---- Topics ---- */

struct broker_topic {
    char name[250];
    int32_t partitions;
    bool compact_only;         /* the relay's memory: cleanup.policy=compact, small segments */
    bool partitions_are_order; /* adding some would break the order per key: apply never does */
};

enum broker_topic_role {
    BROKER_TASKS,
    BROKER_INTENTS,
    BROKER_WAKEUPS,
    BROKER_RESULTS,
    BROKER_DEAD_LETTERS,
    BROKER_RELAY,
    BROKER_COMPLETIONS,
    BROKER_TOPIC_ROLES
};
/* The topics of an installation: `<prefix>tasks` … ; relay has one partition a shard. */
void broker_topics_of(const char *prefix, int32_t partitions, int32_t shards,
                      struct broker_topic ret[BROKER_TOPIC_ROLES]);

struct broker_topic_state {
    bool exists, created, ok;
    int32_t partitions, replication, min_insync;
    bool unclean_election;
    int64_t retention_ms; /* how long a record is kept; -1: for ever */
    char detail[256];     /* what is wrong, and what to do about it; empty when ok */
};
/* Makes what is missing, adds partitions where that breaks no order, changes nothing else. One
 * state per topic. */
MUST_CHECK enum broker_result broker_topics_apply(struct broker *broker,
                                                  const struct broker_topic *topics, size_t n,
                                                  int replication, int timeout_ms,
                                                  struct broker_topic_state *ret,
                                                  struct broker_error *ret_error);
MUST_CHECK enum broker_result broker_topics_check(struct broker *broker,
                                                  const struct broker_topic *topics, size_t n,
                                                  int timeout_ms, struct broker_topic_state *ret,
                                                  struct broker_error *ret_error);

/* ---- Mock cluster: development only ---- */

struct broker_mock;
/* A cluster inside this process on random loopback ports; see broker_cluster_is_mock for what it
 * lacks. */
MUST_CHECK enum broker_result broker_mock_open(const struct broker_topic *topics, size_t n,
                                               struct broker_mock **ret,
                                               struct broker_error *ret_error);
const char *broker_mock_bootstrap(const struct broker_mock *mock);
/* Writes the bootstrap address and a newline to a file, whole or not at all. */
MUST_CHECK enum broker_result broker_mock_write(const struct broker_mock *mock, const char *path,
                                                struct broker_error *ret_error);
void broker_mock_close(struct broker_mock *mock);

#endif

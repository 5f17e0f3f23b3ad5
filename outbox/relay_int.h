// outbox/relay_int.h: inside of the relay. Private to outbox.
//
// Each shard of the event rows is published by one pod at a time, under the service lease
// shard:<n>, with a transactional producer of its own and its own partition of the relay topic. A
// lane is a thread with a database connection; shard n belongs to lane n modulo lanes in every pod.
#ifndef HOLDFAST_OUTBOX_RELAY_INT_H
#define HOLDFAST_OUTBOX_RELAY_INT_H

#include "base/arena.h"
#include "base/lock.h"
#include "outbox/ledger_int.h"
#include "outbox/outbox_int.h"
#include "schemas/intent.h"

enum { RELAY_SHARDS_MAX = 256 };

enum shard_state {
    SHARD_FREE,     // somebody else's, as far as is known
    SHARD_STARTING, // held; what was published before is not known yet
    SHARD_RUNNING,  // held; nothing is between Kafka's commit and the delete
};

struct shard {
    int32_t number;
    char name[24]; // of its lease
    char transactional_id[OUTBOX_TOPIC_SIZE + 16];
    enum shard_state state; // written under the lane's lock: the keeper reads it
    int64_t epoch;          // of the lease; the same
    int64_t again_us;       // no turn before (back-off)
    struct broker_txn *txn;

    int64_t batch; // number of the last batch published
    char system_identifier[24];
    int64_t timeline;        // the database's, as found at start
    int64_t server_start_us; // the same
    int64_t count_us;        // when they are counted next
    int32_t held_back;       // rows too old to be published, as last counted
    int64_t gate_closed_for; // batch whose identity made us close the gate; -1: none

    int32_t limit;    // rows a read; grows while batches stay small in bytes
    int64_t low_mark; // reads begin behind it: spares dead rows. A hint
    int64_t highest;  // highest sequence seen
    int64_t marked;   // `highest` as of the last mark
    int64_t mark_us;  // when the next mark is made
    bool whole_once;  // the next read ignores the low mark: what committed late is behind it
    int64_t *omitted; // sequences whose body the broker refused
    size_t omitted_n;
};

struct relay_lane {
    struct relay *relay;
    int index;
    pthread_t thread;
    struct fence *lane;
    struct arena *arena;              // of one turn
    struct broker_producer *producer; // at_least_once only
    struct shard *shards;
    size_t shards_n;
    _Atomic int64_t alive_us; // when the lane said so last
    struct lock lock;
    struct condition told; // notify or stop
    atomic_bool look;      // set under the lock
    int64_t worked_us;     // when something was published last
    int64_t idle_us;       // how long the next wait is
};

struct relay {
    struct outbox *outbox;
    char results_topic[OUTBOX_TOPIC_SIZE];
    char relay_topic[OUTBOX_TOPIC_SIZE];
    char source[OUTBOX_TOPIC_SIZE]; // ce_source
    struct relay_lane *lanes;
    size_t lanes_n;
    pthread_t keeper;
    struct lock keeper_lock;
    struct condition keeper_told; // stop
    atomic_bool stop;
    atomic_int shards_held;
    atomic_int shards_starting;
    atomic_int lanes_connected;
    atomic_bool topic_checked;
    atomic_int share;             // shards that this pod should hold at most
    _Atomic int64_t max_age_ms;   // older rows are held back; 0: none is
    _Atomic int64_t retention_us; // when the result topic's retention was looked at
    atomic_bool strict; // by the configuration or the installation: a barrier before each batch
};

// What a turn of a shard came to.
enum turn {
    TURN_WORKED,  // published something, or moved on: come again at once
    TURN_IDLE,    // nothing to do
    TURN_LATER,   // something is in the way; again_us says when to look
    TURN_RESTART, // Kafka's answer was not clear, or the database is another one: start procedure
    TURN_LOST,    // another pod holds the shard
};

bool relay_exactly_once(const struct relay *relay);
struct db_int relay_max_age(const struct relay *relay);
void shard_later(struct shard *s, int64_t ms);

// relay_keep.c: the leases are renewed by a thread of their own, as long as their lane shows that
// it moves.
void *relay_keeper(void *relay);
void lane_alive(struct relay_lane *lane);

// relay_age.c: rows older than the result topic's retention. Kafka no longer remembers whether they
// were published: they are counted, told and left where they are. A person who raises the retention
// above their age has them published.
void relay_look_at_retention(struct relay *relay);
void shard_count_held_back(struct relay_lane *lane, struct shard *s);

// relay.c
// The lease ran out (Kafka was slow). Taken again: TURN_WORKED when nobody held it in between,
// which the epoch tells: then all that is known still holds. TURN_RESTART when somebody did.
// TURN_LOST when somebody does.
enum turn shard_regain(struct relay_lane *lane, struct shard *s);
struct ledger_shard shard_holder(const struct relay_lane *lane, const struct shard *s);

// relay_start.c: the ordinary and the recovery start.
enum turn shard_start(struct relay_lane *lane, struct shard *s);

// relay_batch.c: one batch.
enum turn shard_publish(struct relay_lane *lane, struct shard *s);
// Deletes what is in Kafka; asks until it is answered. TURN_WORKED, TURN_LOST, or TURN_LATER when
// the pod stops.
enum turn shard_delete(struct relay_lane *lane, struct shard *s, struct db_int batch,
                       const int64_t *seqs, const struct uuid *event_ids, size_t n);

// relay_seen.c: the rows of a shard, to be found again in the result topic.
struct relay_seen;
struct relay_seen *relay_seen_new(void);
void relay_seen_free(struct relay_seen *seen);
void relay_seen_add(struct relay_seen *seen, int64_t seq, struct uuid event_id);
void relay_seen_mark(struct relay_seen *seen, struct uuid event_id); // it is in Kafka
size_t relay_seen_count(const struct relay_seen *seen);
// The next up to max marked rows from *at on; advances *at. 0: no more.
size_t relay_seen_marked(const struct relay_seen *seen, size_t *at, size_t max, int64_t *ret_seqs,
                         struct uuid *ret_event_ids);

#endif

/* Which records of which partition are out, and how far each partition may be committed.
 *
 * Per partition the records handed out are kept in offset order; the position moves over the
 * contiguous done prefix only. Each assignment of a partition has a generation: done on a record of
 * an earlier one is ignored. Knows nothing of librdkafka. Shared by its consumer and by every
 * record that is out; the last one frees it. Thread: any, except where a line says: the polling
 * thread. */
#ifndef HOLDFAST_BROKER_OFFSETS_INT_H
#define HOLDFAST_BROKER_OFFSETS_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OFFSET_NONE INT64_C(-1)

struct broker_offsets;
struct broker_part; /* one partition; lives as long as its offsets */

/* `count` is told of every done while the consumer is open; called with the lock held. NULL: nobody
 * counts. */
typedef void broker_offsets_count_fn(void *opaque, bool stale);
struct broker_offsets *broker_offsets_new(broker_offsets_count_fn *count, void *opaque);
struct broker_offsets *broker_offsets_ref(struct broker_offsets *offsets);
void broker_offsets_unref(struct broker_offsets *offsets);

/* Polling thread. A new generation; nothing is out. */
struct broker_part *broker_offsets_assign(struct broker_offsets *offsets, const char *topic,
                                          int32_t partition);
/* Polling thread. What is out of it no longer counts. */
void broker_offsets_revoke(struct broker_offsets *offsets, struct broker_part *part);
/* Polling thread. The consumer is gone: every later done is stale. */
void broker_offsets_close(struct broker_offsets *offsets);
/* The partition if it is assigned, else NULL. */
struct broker_part *broker_offsets_find(struct broker_offsets *offsets, const char *topic,
                                        int32_t partition);

/* Polling thread. This record is out now; returns its generation. An offset that is not above the
 * last one (the topic was truncated or made anew) begins a new generation. */
uint64_t broker_offsets_hand_out(struct broker_offsets *offsets, struct broker_part *part,
                                 int64_t offset);
/* Polling thread. The partition ends here for now: beyond the last record lie only markers. */
void broker_offsets_end(struct broker_offsets *offsets, struct broker_part *part, int64_t offset);
/* False: stale (other generation, revoked, closed, or done before). */
bool broker_offsets_done(struct broker_offsets *offsets, struct broker_part *part,
                         uint64_t generation, int64_t offset);

size_t broker_offsets_outstanding(struct broker_offsets *offsets);
/* Waits until none of these partitions has a record out; false: the time has passed first. */
bool broker_offsets_wait_done(struct broker_offsets *offsets, struct broker_part *const *parts,
                              size_t n, int64_t deadline_us);

/* What may be committed and is not yet: calls `each` with the offset to commit (last done + 1). */
typedef void broker_offsets_fn(void *opaque, const char *topic, int32_t partition, int64_t offset);
size_t broker_offsets_dirty(struct broker_offsets *offsets, broker_offsets_fn *each, void *opaque);
/* The group has stored this offset. */
void broker_offsets_committed(struct broker_offsets *offsets, const char *topic, int32_t partition,
                              int64_t offset);

/* Pause flags: true when the partition's effective state is paused. */
bool broker_offsets_pause(struct broker_offsets *offsets, struct broker_part *part, bool paused);
void broker_offsets_pause_all(struct broker_offsets *offsets, bool paused);
bool broker_offsets_is_paused(struct broker_offsets *offsets, const struct broker_part *part);
/* Every assigned partition. */
void broker_offsets_each(struct broker_offsets *offsets,
                         void (*each)(void *opaque, const char *topic, int32_t partition,
                                      bool paused),
                         void *opaque);

#endif

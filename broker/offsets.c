/* The contiguous done prefix of each partition; see offsets_int.h. */
#include "broker/offsets_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"

struct out {
    int64_t offset;
    bool done;
};

/* outs[first .. first+count) in offset order; the first is never done. */
struct broker_part {
    char *topic;
    int32_t partition;
    uint64_t generation;
    bool assigned, paused;
    struct out *outs;
    size_t first, count, capacity;
    size_t undone;
    int64_t last;      /* offset handed out last */
    int64_t position;  /* may be committed */
    int64_t committed; /* is committed */
    int64_t end;       /* end of the partition beyond `last`, OFFSET_NONE: unknown */
};

struct broker_offsets {
    struct lock lock;
    struct condition drained;
    size_t references;
    broker_offsets_count_fn *count;
    void *count_opaque;
    bool closed, paused_all;
    uint64_t generations;
    struct broker_part **parts;
    size_t part_count;
};

struct broker_offsets *broker_offsets_new(broker_offsets_count_fn *count, void *opaque)
{
    struct broker_offsets *offsets = memory_new(1, sizeof *offsets);

    offsets->count = count;
    offsets->count_opaque = opaque;
    lock_init(&offsets->lock);
    condition_init(&offsets->drained);
    offsets->references = 1;
    return offsets;
}

struct broker_offsets *broker_offsets_ref(struct broker_offsets *offsets)
{
    LOCK_SCOPE(&offsets->lock);
    offsets->references++;
    return offsets;
}

void broker_offsets_unref(struct broker_offsets *offsets)
{
    lock_take(&offsets->lock);
    bool last = --offsets->references == 0;
    lock_drop(&offsets->lock);
    if (!last)
        return;
    for (size_t i = 0; i < offsets->part_count; i++) {
        free(offsets->parts[i]->topic);
        free(offsets->parts[i]->outs);
        free(offsets->parts[i]);
    }
    free(offsets->parts);
    condition_destroy(&offsets->drained);
    lock_destroy(&offsets->lock);
    free(offsets);
}

/* Needs: lock. */
static struct broker_part *find(struct broker_offsets *offsets, const char *topic,
                                int32_t partition)
{
    for (size_t i = 0; i < offsets->part_count; i++) {
        struct broker_part *part = offsets->parts[i];
        if (part->partition == partition && strcmp(part->topic, topic) == 0)
            return part;
    }
    return NULL;
}

/* Needs: lock. */
static void begin_generation(struct broker_offsets *offsets, struct broker_part *part)
{
    part->generation = ++offsets->generations;
    part->first = part->count = part->undone = 0;
    part->last = part->position = part->committed = part->end = OFFSET_NONE;
    condition_broadcast(&offsets->drained);
}

struct broker_part *broker_offsets_assign(struct broker_offsets *offsets, const char *topic,
                                          int32_t partition)
{
    LOCK_SCOPE(&offsets->lock);
    struct broker_part *part = find(offsets, topic, partition);

    if (!part) {
        part = memory_new(1, sizeof *part);
        part->topic = memory_copy_text(topic);
        part->partition = partition;
        offsets->parts =
            memory_resize(offsets->parts, offsets->part_count + 1, sizeof(struct broker_part *));
        offsets->parts[offsets->part_count++] = part;
    }
    begin_generation(offsets, part);
    part->assigned = true;
    part->paused = false;
    return part;
}

void broker_offsets_revoke(struct broker_offsets *offsets, struct broker_part *part)
{
    LOCK_SCOPE(&offsets->lock);
    begin_generation(offsets, part);
    part->assigned = false;
}

void broker_offsets_close(struct broker_offsets *offsets)
{
    LOCK_SCOPE(&offsets->lock);
    offsets->closed = true;
    for (size_t i = 0; i < offsets->part_count; i++) {
        begin_generation(offsets, offsets->parts[i]);
        offsets->parts[i]->assigned = false;
    }
}

struct broker_part *broker_offsets_find(struct broker_offsets *offsets, const char *topic,
                                        int32_t partition)
{
    LOCK_SCOPE(&offsets->lock);
    struct broker_part *part = find(offsets, topic, partition);
    return part && part->assigned ? part : NULL;
}

/* Room for one more at the end: by moving the rest to the front when half is free, else by growing.
 * Needs: lock. */
static void make_room(struct broker_part *part)
{
    if (part->first + part->count < part->capacity)
        return;
    if (part->first > part->capacity / 2) {
        memmove(part->outs, part->outs + part->first, part->count * sizeof *part->outs);
        part->first = 0;
        return;
    }
    part->capacity = part->capacity ? part->capacity * 2 : 256;
    part->outs = memory_resize(part->outs, part->capacity, sizeof *part->outs);
}

uint64_t broker_offsets_hand_out(struct broker_offsets *offsets, struct broker_part *part,
                                 int64_t offset)
{
    LOCK_SCOPE(&offsets->lock);
    if (part->last != OFFSET_NONE && offset <= part->last)
        begin_generation(offsets, part);
    make_room(part);
    part->outs[part->first + part->count++] = (struct out){offset, false};
    part->undone++;
    part->last = offset;
    part->end = OFFSET_NONE;
    return part->generation;
}

/* Needs: lock. */
static void advance(struct broker_part *part)
{
    while (part->count && part->outs[part->first].done) {
        part->position = part->outs[part->first].offset + 1;
        part->first++;
        part->count--;
    }
    if (part->count == 0) {
        part->first = 0;
        if (part->end > part->position)
            part->position = part->end;
    }
}

void broker_offsets_end(struct broker_offsets *offsets, struct broker_part *part, int64_t offset)
{
    LOCK_SCOPE(&offsets->lock);
    if (offset <= part->last)
        return;
    part->end = offset;
    advance(part);
}

/* Needs: lock. */
static struct out *find_out(struct broker_part *part, int64_t offset)
{
    size_t low = part->first, high = part->first + part->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (part->outs[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < part->first + part->count && part->outs[low].offset == offset ? &part->outs[low]
                                                                               : NULL;
}

bool broker_offsets_done(struct broker_offsets *offsets, struct broker_part *part,
                         uint64_t generation, int64_t offset)
{
    LOCK_SCOPE(&offsets->lock);
    struct out *out =
        generation == part->generation && part->assigned ? find_out(part, offset) : NULL;

    if (offsets->closed)
        return false;
    bool stale = !out || out->done;
    if (offsets->count)
        offsets->count(offsets->count_opaque, stale);
    if (stale)
        return false;
    out->done = true;
    part->undone--;
    if (out == &part->outs[part->first])
        advance(part);
    if (part->undone == 0)
        condition_broadcast(&offsets->drained);
    return true;
}

size_t broker_offsets_outstanding(struct broker_offsets *offsets)
{
    LOCK_SCOPE(&offsets->lock);
    size_t total = 0;
    for (size_t i = 0; i < offsets->part_count; i++)
        total += offsets->parts[i]->undone;
    return total;
}

bool broker_offsets_wait_done(struct broker_offsets *offsets, struct broker_part *const *parts,
                              size_t n, int64_t deadline_us)
{
    LOCK_SCOPE(&offsets->lock);
    for (;;) {
        size_t undone = 0;
        for (size_t i = 0; i < n; i++)
            undone += parts[i]->undone;
        if (undone == 0)
            return true;
        if (!condition_wait_until(&offsets->drained, &offsets->lock, deadline_us))
            return false;
    }
}

size_t broker_offsets_dirty(struct broker_offsets *offsets, broker_offsets_fn *each, void *opaque)
{
    LOCK_SCOPE(&offsets->lock);
    size_t dirty = 0;

    for (size_t i = 0; i < offsets->part_count; i++) {
        const struct broker_part *part = offsets->parts[i];
        if (!part->assigned || part->position == OFFSET_NONE || part->position == part->committed)
            continue;
        dirty++;
        if (each)
            each(opaque, part->topic, part->partition, part->position);
    }
    return dirty;
}

void broker_offsets_committed(struct broker_offsets *offsets, const char *topic, int32_t partition,
                              int64_t offset)
{
    LOCK_SCOPE(&offsets->lock);
    struct broker_part *part = find(offsets, topic, partition);
    if (part && part->assigned && part->position != OFFSET_NONE)
        part->committed = offset;
}

bool broker_offsets_pause(struct broker_offsets *offsets, struct broker_part *part, bool paused)
{
    LOCK_SCOPE(&offsets->lock);
    part->paused = paused;
    return paused || offsets->paused_all;
}

void broker_offsets_pause_all(struct broker_offsets *offsets, bool paused)
{
    LOCK_SCOPE(&offsets->lock);
    offsets->paused_all = paused;
}

bool broker_offsets_is_paused(struct broker_offsets *offsets, const struct broker_part *part)
{
    LOCK_SCOPE(&offsets->lock);
    return part->paused || offsets->paused_all;
}

void broker_offsets_each(struct broker_offsets *offsets,
                         void (*each)(void *opaque, const char *topic, int32_t partition,
                                      bool paused),
                         void *opaque)
{
    LOCK_SCOPE(&offsets->lock);
    for (size_t i = 0; i < offsets->part_count; i++) {
        const struct broker_part *part = offsets->parts[i];
        if (part->assigned)
            each(opaque, part->topic, part->partition, part->paused || offsets->paused_all);
    }
}

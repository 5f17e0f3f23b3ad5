// outbox/relay_seen.c: an open-addressed table from event identity to row.
#include "outbox/relay_int.h"

#include <stdlib.h>

#include "base/memory.h"

struct row {
    int64_t seq;
    struct uuid event_id;
    bool marked;
};

struct relay_seen {
    struct row *rows;
    size_t n, capacity;
    uint32_t *slots; // index + 1; 0: free
    size_t slots_n;  // power of two, at least twice the rows
};

struct relay_seen *relay_seen_new(void)
{
    return memory_new(1, sizeof(struct relay_seen));
}

void relay_seen_free(struct relay_seen *seen)
{
    if (seen != NULL) {
        free(seen->rows);
        free(seen->slots);
        free(seen);
    }
}

size_t relay_seen_count(const struct relay_seen *seen)
{
    return seen->n;
}

static size_t first_slot(const struct relay_seen *seen, struct uuid id)
{
    uint64_t hash = 0; // the last bytes of a UUID are random in every version
    memcpy(&hash, id.b + 8, sizeof hash);
    return (size_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (seen->slots_n - 1);
}

static void place(struct relay_seen *seen, size_t index)
{
    size_t at = first_slot(seen, seen->rows[index].event_id);
    while (seen->slots[at] != 0) {
        at = (at + 1) & (seen->slots_n - 1);
    }
    seen->slots[at] = (uint32_t)index + 1;
}

static void grow(struct relay_seen *seen)
{
    seen->capacity = seen->capacity == 0 ? 1024 : seen->capacity * 2;
    seen->rows = memory_resize(seen->rows, seen->capacity, sizeof *seen->rows);
    free(seen->slots);
    seen->slots_n = seen->capacity * 2;
    seen->slots = memory_new(seen->slots_n, sizeof *seen->slots);
    for (size_t i = 0; i < seen->n; i++) {
        place(seen, i);
    }
}

void relay_seen_add(struct relay_seen *seen, int64_t seq, struct uuid event_id)
{
    if (seen->n == seen->capacity) {
        grow(seen);
    }
    seen->rows[seen->n] = (struct row){.seq = seq, .event_id = event_id};
    place(seen, seen->n++);
}

void relay_seen_mark(struct relay_seen *seen, struct uuid event_id)
{
    if (seen->n == 0) {
        return;
    }
    for (size_t at = first_slot(seen, event_id); seen->slots[at] != 0;
         at = (at + 1) & (seen->slots_n - 1)) {
        struct row *row = &seen->rows[seen->slots[at] - 1];
        if (uuid_eq(row->event_id, event_id)) {
            row->marked = true;
            return;
        }
    }
}

size_t relay_seen_marked(const struct relay_seen *seen, size_t *at, size_t max, int64_t *ret_seqs,
                         struct uuid *ret_event_ids)
{
    size_t n = 0;
    for (; *at < seen->n && n < max; (*at)++) {
        const struct row *row = &seen->rows[*at];
        if (row->marked) {
            ret_seqs[n] = row->seq;
            ret_event_ids[n] = row->event_id;
            n++;
        }
    }
    return n;
}

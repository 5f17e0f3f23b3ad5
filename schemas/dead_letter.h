#ifndef HOLDFAST_SCHEMAS_DEAD_LETTER_H
#define HOLDFAST_SCHEMAS_DEAD_LETTER_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "schemas/message.h"

/*
 * A dead letter is the record unchanged (key, value, its headers) with headers behind them that say
 * why. A value too large for the broker is left out: its size and digest are told, and its origin
 * is where it can be read. Threads: any.
 */

#define DEAD_LETTER_TOPIC "original_topic"
#define DEAD_LETTER_PARTITION "original_partition"
#define DEAD_LETTER_OFFSET "original_offset"
#define DEAD_LETTER_TIMESTAMP "original_timestamp"
#define DEAD_LETTER_REASON "reason"
#define DEAD_LETTER_DETAIL "detail"
#define DEAD_LETTER_TRIED "tried"
#define DEAD_LETTER_OMITTED "omitted" /* bytes and digest of a value that is not in the letter */

struct dead_letter {
    struct span key;
    struct span value;
    const struct raw_header *headers; /* the record's own, then ours */
    size_t n_headers;
};

/* reason is a word (reject_word or an outcome's), detail a sentence; max_bytes of the value, 0: no
 * limit. */
void dead_letter_encode(const struct raw_record *record, struct span reason, struct span detail,
                        int tried, size_t max_bytes, struct arena *arena, struct dead_letter *ret);

/* What the headers of a letter say; the last of a name counts. */
struct dead_letter_facts {
    struct span topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms;
    struct span reason;
    struct span detail;
    int32_t tried;
    bool omitted;
};
MUST_CHECK bool dead_letter_decode(const struct raw_header *headers, size_t n_headers,
                                   struct dead_letter_facts *ret);

#endif

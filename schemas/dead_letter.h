#ifndef HOLDFAST_SCHEMAS_DEAD_LETTER_H
#define HOLDFAST_SCHEMAS_DEAD_LETTER_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "schemas/message.h"

/*
 * A dead letter is the record unchanged (key, value, its headers) with headers behind them that say
 * why. A value too large for the broker is replaced by a reference to its origin. Threads: any.
 */

#define DEAD_LETTER_TOPIC "holdfast_original_topic"
#define DEAD_LETTER_PARTITION "holdfast_original_partition"
#define DEAD_LETTER_OFFSET "holdfast_original_offset"
#define DEAD_LETTER_TIMESTAMP "holdfast_original_timestamp"
#define DEAD_LETTER_REASON "holdfast_reason"
#define DEAD_LETTER_DETAIL "holdfast_detail"
#define DEAD_LETTER_TRIED "holdfast_tried"
#define DEAD_LETTER_OMITTED                                                                        \
    "holdfast_omitted" /* bytes and digest of a value that is not in the letter */

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

#ifndef HOLDFAST_SCHEMAS_JSON_INT_H
#define HOLDFAST_SCHEMAS_JSON_INT_H

/* What the files of this room share about JSON; nobody outside includes it. */

#include "schemas/json.h"
#include "schemas/message.h"

/* Where a walk stands; the text is made only when something is refused. NULL is the whole value. */
struct json_place {
    const struct json_place *up;
    struct span key; /* null span: an array item */
    size_t index;
};
struct span json_place_text(const struct json_place *place, struct arena *arena);

/* Fills *ret; always false, so that a caller can return it. */
bool json_refuse(struct json_error *ret, struct arena *arena, enum reject_reason reason,
                 struct span place, const char *format, ...) PRINTF_LIKE(5, 6);
bool json_size_ok(struct span text, const struct json_limits *limits, struct arena *arena,
                  struct json_error *ret_error);

static inline int json_depth_limit(const struct json_limits *limits)
{
    int depth = limits != NULL ? limits->max_depth : 0;
    return depth > 0 && depth < JSON_MAX_DEPTH ? depth : JSON_MAX_DEPTH;
}

/* True and *ret set if d is a whole number within +-(2^53 - 1); -0 counts as 0. */
static inline bool json_whole(double d, int64_t *ret)
{
    if (!(d >= -(double)JSON_SAFE_INTEGER && d <= (double)JSON_SAFE_INTEGER))
        return false;
    *ret = (int64_t)d;
    return (double)*ret == d;
}

/* The shortest decimal that reads back as d, in some JSON spelling; returns its length. */
size_t json_shortest_double(double d, char *buf, size_t size);

#endif

#ifndef HOLDFAST_SCHEMAS_SHAPE_INT_H
#define HOLDFAST_SCHEMAS_SHAPE_INT_H

/* Strict reading of the small messages: a table says what a JSON object must hold, everything else
 * is refused. */

#include "schemas/json.h"

enum shape_kind {
    SHAPE_TEXT,    /* -> struct span */
    SHAPE_DIGEST,  /* -> struct span, "sha256:…" */
    SHAPE_UUID,    /* -> struct uuid */
    SHAPE_INTEGER, /* -> int64_t, not negative */
    SHAPE_INT32,   /* -> int32_t, not negative */
    SHAPE_TIME,    /* -> int64_t microseconds */
    SHAPE_SKIP     /* read by the caller */
};

struct shape_field {
    const char *name;
    enum shape_kind kind;
    size_t at;
};

/* All fields are required. */
MUST_CHECK bool shape_read(const struct json_value *object, const struct shape_field *fields,
                           size_t n_fields, struct arena *arena, void *ret,
                           struct json_error *ret_error);

#endif

#ifndef HOLDFAST_SCHEMAS_CANON_INT_H
#define HOLDFAST_SCHEMAS_CANON_INT_H

/* Parts of canonical JSON, for encoders of this room that write a canonical object member by
 * member. */

#include <string.h>

#include "schemas/canon.h"

/* Starts as {.arena = arena}; grows in the arena. */
struct canon_out {
    struct arena *arena;
    char *p;
    size_t n, cap;
};
void canon_grow(struct canon_out *out, size_t n); /* room for n more */

static inline void canon_bytes(struct canon_out *out, const char *p, size_t n)
{
    if (n == 0)
        return;
    if (out->cap - out->n < n)
        canon_grow(out, n);
    memcpy(out->p + out->n, p, n);
    out->n += n;
}

void canon_text(struct canon_out *out, struct span s); /* quoted and escaped */
void canon_value(struct canon_out *out, const struct json_value *v);
struct span canon_end(struct canon_out *out); /* ends in NUL */

#endif

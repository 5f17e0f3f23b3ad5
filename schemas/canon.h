#ifndef HOLDFAST_SCHEMAS_CANON_H
#define HOLDFAST_SCHEMAS_CANON_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "schemas/json.h"

/*
 * Canonical JSON (RFC 8785) and digests over it. One content, one sequence of bytes: whatever the
 * order of members, the spelling of numbers and texts, and whether it came as JSON or as
 * MessagePack. Threads: any. Memory: the caller's arena.
 */

/* The canonical text; ends in NUL. The value holds no raw part and no NaN (parsed values never do).
 */
struct span canon_write(const struct json_value *v, struct arena *arena);

#define CANON_DIGEST_LENGTH 71 /* "sha256:" and 64 lower-case hexadecimal digits */
struct digest {
    char text[CANON_DIGEST_LENGTH + 1];
};

/* SHA-256 of bytes as they stand: of a canonical text, or of something that could not be decoded.
 */
struct digest digest_bytes(struct span bytes);
struct digest digest_json(const struct json_value *v,
                          struct arena *arena); /* of the canonical text */
/* The same as a span in the arena, ends in NUL. */
struct span digest_span(struct span bytes, struct arena *arena);
bool digest_is(struct span text); /* has the form of a digest */

#define CANON_NUMBER_SIZE 32
/* ECMAScript's Number::toString of a finite number; returns the length. */
size_t canon_number(double v, char ret[CANON_NUMBER_SIZE]);

#endif

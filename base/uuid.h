/* UUIDs as 16 bytes in network order, and their 36-character form.
 *
 * Thread: any. Randomness comes from getrandom(2); v7 is ordered by milliseconds, and within one
 * process strictly increasing, so that runs made in one batch sort as they were made. */
#ifndef HOLDFAST_BASE_UUID_H
#define HOLDFAST_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/span.h"

#define UUID_TEXT_SIZE 37 /* with the terminating zero */

struct uuid {
    uint8_t b[16];
};

#define UUID_NIL ((struct uuid){{0}})

struct uuid uuid_v7(void);
struct uuid uuid_v4(void);

/* Writes the lower-case form and returns buf. */
char *uuid_format(struct uuid u, char buf[UUID_TEXT_SIZE]);
MUST_CHECK bool uuid_parse(struct span s, struct uuid *ret);

static inline bool uuid_eq(struct uuid a, struct uuid b)
{
    return memcmp(a.b, b.b, sizeof(a.b)) == 0;
}

static inline int uuid_order(struct uuid a, struct uuid b)
{
    return memcmp(a.b, b.b, sizeof(a.b));
}

static inline bool uuid_is_nil(struct uuid u)
{
    return uuid_eq(u, UUID_NIL);
}

/* Fills p with n random bytes. */
void uuid_random_bytes(void *p, size_t n);

#endif

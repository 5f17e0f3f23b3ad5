#ifndef HOLDFAST_SCHEMAS_RFC3339_H
#define HOLDFAST_SCHEMAS_RFC3339_H

#include "base/check.h"
#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Times on the wire: RFC 3339 with an offset ("Z" or +hh:mm), years 1 to 9999, up to 9 digits of a
 * second of which microseconds are kept; second 60 is refused as PostgreSQL would silently make it
 * the next minute.
 */
MUST_CHECK bool rfc3339_parse(struct span text, int64_t *ret_us); /* Unix time in microseconds */

#define RFC3339_MIN_US (INT64_C(-62135596800) * 1000000)     /* 0001-01-01T00:00:00Z */
#define RFC3339_MAX_US (INT64_C(253402300800) * 1000000 - 1) /* 9999-12-31T23:59:59.999999Z */
#define RFC3339_SIZE 28
/* "2026-12-01T06:40:05.123456Z", always 27 characters; us within years 1 to 9999 (CHECKed). */
void rfc3339_format(int64_t us, char ret[RFC3339_SIZE]);

#endif

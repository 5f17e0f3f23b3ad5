#ifndef HOLDFAST_SCHEMAS_MSGPACK_H
#define HOLDFAST_SCHEMAS_MSGPACK_H

#include "schemas/json.h"

/*
 * MessagePack to JSON values and back. A bounded scan without allocations comes first, because
 * msgpack-c reserves what a five-byte message claims to hold, calls deep nesting out of memory, and
 * lets bad UTF-8 pass. The rules are those of json_parse; further refused: ext types, bin (send
 * base64 text), keys that are not strings, bytes after the value. Errors name a JSON pointer;
 * threads: any.
 */
MUST_CHECK bool msgpack_parse(struct span bytes, const struct json_limits *limits,
                              struct arena *arena, const struct json_value **ret,
                              struct json_error *ret_error);

/* Integral numbers become integers, all others float 64. */
struct span msgpack_write(const struct json_value *v, struct arena *arena);

/* True if the first byte can only begin a MessagePack map. */
bool msgpack_is_map(struct span bytes);

#endif

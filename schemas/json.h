#ifndef HOLDFAST_SCHEMAS_JSON_H
#define HOLDFAST_SCHEMAS_JSON_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * JSON: parse within limits, look up, walk, build, write. json.c is the only file that knows the
 * library behind it.
 *
 * Ownership: everything a call returns lives in the arena it was given and dies with it; nothing is
 * freed singly. A parsed value never changes and copies the text it was parsed from, which may go
 * away at once. Threads: a value may be read by many threads; an arena and a builder belong to one
 * at a time. Errors: a refusal is a sentence for a person and the place it speaks of. Nothing here
 * logs.
 */

struct json_value;   /* a parsed value, read only */
struct json_node;    /* a value under construction, part of one builder */
struct json_builder; /* makes nodes in an arena */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

#define JSON_SAFE_INTEGER INT64_C(9007199254740991) /* 2^53 - 1 */
#define JSON_MAX_DEPTH 64

struct json_limits {
    size_t max_bytes; /* of the text; 0: no limit */
    int max_depth;    /* nested arrays and objects, at most JSON_MAX_DEPTH; 0: JSON_MAX_DEPTH */
    bool any_number;  /* also numbers beyond +-(2^53 - 1): only for texts that are never stored or
                         digested */
};

/* Why a text was refused. Both spans end in NUL, so that .p prints. */
struct json_error {
    const char *reason; /* a word out of schemas/reject.tbl.h */
    struct span place; /* JSON pointer ("" is the whole) or "byte 17" where there is no value yet */
    struct span detail; /* the sentence, place included */
};

/*
 * Parses one JSON text (RFC 8259, UTF-8; blanks around it and a byte-order mark before it are
 * fine). Refuses what jsonb or I-JSON cannot hold: a key twice in one object, numbers beyond
 * +-(2^53 - 1) however they are spelled, NaN and infinities, U+0000, lone surrogates, bad UTF-8,
 * too deep, too large. limits NULL: the strict defaults without a size limit. False: *ret_error is
 * set and *ret is the value that was refused where the text could at least be read (so that an
 * identity in it can be shown), else NULL.
 */
MUST_CHECK bool json_parse(struct span text, const struct json_limits *limits, struct arena *arena,
                           const struct json_value **ret, struct json_error *ret_error);

/* The same rules for a value that was built here or came from elsewhere. */
MUST_CHECK bool json_check(const struct json_value *v, const struct json_limits *limits,
                           struct arena *arena, struct json_error *ret_error);

/* ---- reading: a NULL value answers like JSON null, so that look-ups may be chained ---- */

enum json_kind json_kind(const struct json_value *v);
const char *json_kind_name(enum json_kind kind); /* "a string", "an object", for sentences */
bool json_is(const struct json_value *v,
             enum json_kind kind); /* false for NULL, also with JSON_NULL */

bool json_bool(const struct json_value *v); /* false unless true */
struct span
json_text(const struct json_value *v);          /* of a string; the null span for any other kind */
double json_number(const struct json_value *v); /* 0 for any other kind */
/* True and *ret set if v is a number with an integral value of at most 2^53 - 1 (also spelled 3.0
 * or 3e0). */
MUST_CHECK bool json_integer(const struct json_value *v, int64_t *ret);

size_t json_count(const struct json_value *v); /* items of an array, members of an object */
const struct json_value *json_get(const struct json_value *v,
                                  const char *key); /* member; NULL: none */
const struct json_value *json_get_span(const struct json_value *v, struct span key);
const struct json_value *json_at(const struct json_value *v,
                                 size_t index); /* item; NULL: none; costs index steps */

/*
 * RFC 6901. "" is v itself. NULL: it points to nothing; then *ret_found_bytes (may be NULL) says
 * how many bytes of the pointer still led somewhere.
 */
const struct json_value *json_pointer(const struct json_value *v, struct span pointer,
                                      size_t *ret_found_bytes);
/* parent + "/" + key with ~ and / escaped; the text ends in NUL. */
struct span json_pointer_append(struct span parent, struct span key, struct arena *arena);

/*
 * Walks an array (key is the null span) or an object, in the order of the text:
 *     struct json_iter it = json_iter(v);
 *     while (json_next(&it)) { use it.key, it.value, it.index }
 */
struct json_iter {
    struct span key;
    const struct json_value *value;
    size_t index;             /* of the current one, from 0 */
    size_t private_left;      /* not for callers */
    const void *private_next; /* not for callers */
    bool private_object;      /* not for callers */
};
struct json_iter json_iter(const struct json_value *v);
bool json_next(struct json_iter *it);

/* The text without blanks, members in their order; ends in NUL. For digests use schemas/canon.h. */
struct span json_write(const struct json_value *v, struct arena *arena);

/* ---- building: keys and texts are copied into the arena; a node has one parent ---- */

struct json_builder *json_builder_new(struct arena *arena);
struct json_node *json_new_object(struct json_builder *b);
struct json_node *json_new_array(struct json_builder *b);
struct json_node *json_new_null(struct json_builder *b);
struct json_node *json_new_bool(struct json_builder *b, bool v);
struct json_node *json_new_integer(struct json_builder *b,
                                   int64_t v); /* beyond 2^53 - 1: write it as text */
struct json_node *json_new_number(struct json_builder *b, double v); /* finite: CHECKed */
struct json_node *json_new_text(struct json_builder *b,
                                struct span v); /* UTF-8; the null span makes null */
struct json_node *json_new_copy(struct json_builder *b,
                                const struct json_value *v); /* deep; NULL makes null */
/* As json_new_text, but the text is not copied: it outlives the builder's use. */
struct json_node *json_new_text_borrowed(struct json_builder *b, struct span v);
/* Text that is JSON already (out of the database), written as it stands; such a tree can be
 * written, not sealed. */
struct json_node *json_new_raw(struct json_builder *b, struct span json);

/* Adds a member at the end (the caller never adds a key twice) or an item. */
void json_put(struct json_builder *b, struct json_node *object, struct span key,
              struct json_node *value);
void json_push(struct json_builder *b, struct json_node *array, struct json_node *value);
/* Replaces or adds. */
void json_set(struct json_builder *b, struct json_node *object, struct span key,
              struct json_node *value);

/* The same in one call; key is a C string. */
void json_put_text(struct json_builder *b, struct json_node *object, const char *key,
                   struct span v);
void json_put_integer(struct json_builder *b, struct json_node *object, const char *key, int64_t v);
void json_put_bool(struct json_builder *b, struct json_node *object, const char *key, bool v);
void json_put_copy(struct json_builder *b, struct json_node *object, const char *key,
                   const struct json_value *v);
void json_put_raw(struct json_builder *b, struct json_node *object, const char *key,
                  struct span json);
void json_put_node(struct json_builder *b, struct json_node *object, const char *key,
                   struct json_node *v);

struct span json_build(struct json_builder *b,
                       const struct json_node *root); /* compact text, ends in NUL */
/* The finished tree as a value (a copy). */
const struct json_value *json_seal(struct json_builder *b, const struct json_node *root);

#endif

/* Descriptor rows of a database call: which member of which struct is which parameter or column.
 * The kind comes from the member's C type; a member of another type does not compile.
 *
 *   bool              boolean          int32_t       integer           int64_t   bigint      double
 * double precision struct uuid       uuid             struct uuid_opt  uuid or NULL   struct db_int
 * bigint or NULL struct db_int32   integer or NULL  struct db_bool   boolean or NULL struct span
 * text, p == NULL is NULL           struct json_span  jsonb, p == NULL is NULL struct db_time
 * timestamptz      enum outcome  text that is a word of the outcome table (columns only) struct
 * db_texts   text[]           struct db_uuids  uuid[]         struct db_ints  bigint[]     (not in
 * items)
 *
 * A NULL column reads as zero where the type has no place for NULL. */
#ifndef HOLDFAST_SCHEMAS_DB_ROW_H
#define HOLDFAST_SCHEMAS_DB_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/outcome.h"
#include "base/span.h"
#include "base/uuid.h"

struct json_span {
    struct span text; /* one JSON value in UTF-8 */
};
struct db_time {
    int64_t us; /* unix microseconds; INT64_MAX and INT64_MIN are SQL's infinities */
    bool is_null;
};
struct db_int {
    int64_t v;
    bool is_null;
};
struct db_int32 {
    int32_t v;
    bool is_null;
};
struct db_bool {
    bool v;
    bool is_null;
};
struct uuid_opt {
    struct uuid v;
    bool is_null;
};
/* Arrays: v == NULL with is_null is SQL NULL; n == 0 is the empty array. */
struct db_texts {
    const struct span *v;
    size_t n;
    bool is_null;
};
struct db_uuids {
    const struct uuid *v;
    size_t n;
    bool is_null;
};
struct db_ints {
    const int64_t *v;
    size_t n;
    bool is_null;
};

#define DB_JSON_NULL ((struct json_span){{NULL, 0}})
#define DB_INT(x) ((struct db_int){(x), false})
#define DB_INT_NULL ((struct db_int){0, true})
#define DB_TIME(x) ((struct db_time){(x), false})
#define DB_TIME_NULL ((struct db_time){0, true})
#define UUID_OPT(x) ((struct uuid_opt){(x), false})
#define UUID_OPT_NULL ((struct uuid_opt){{{0}}, true})
#define DB_TEXTS_NULL ((struct db_texts){NULL, 0, true})
#define DB_UUIDS_NULL ((struct db_uuids){NULL, 0, true})

enum db_kind {
    DB_KIND_BOOL,
    DB_KIND_INT32,
    DB_KIND_INT64,
    DB_KIND_DOUBLE,
    DB_KIND_UUID,
    DB_KIND_TEXT,
    DB_KIND_JSON,
    DB_KIND_TIME,
    DB_KIND_INT_OPT,
    DB_KIND_INT32_OPT,
    DB_KIND_BOOL_OPT,
    DB_KIND_UUID_OPT,
    DB_KIND_OUTCOME,
    DB_KIND_TEXTS,
    DB_KIND_UUIDS,
    DB_KIND_INTS
};

/* clang-format off */
#define DB_KIND_OF(type, member) _Generic(((type *)0)->member,                                     \
    bool: DB_KIND_BOOL, int32_t: DB_KIND_INT32, int64_t: DB_KIND_INT64, double: DB_KIND_DOUBLE,    \
    struct uuid: DB_KIND_UUID, struct span: DB_KIND_TEXT, struct json_span: DB_KIND_JSON,          \
    struct db_time: DB_KIND_TIME, struct db_int: DB_KIND_INT_OPT,                                  \
    struct db_int32: DB_KIND_INT32_OPT, struct db_bool: DB_KIND_BOOL_OPT,                          \
    struct uuid_opt: DB_KIND_UUID_OPT, enum outcome: DB_KIND_OUTCOME,                              \
    struct db_texts: DB_KIND_TEXTS, struct db_uuids: DB_KIND_UUIDS, struct db_ints: DB_KIND_INTS)
/* clang-format on */

#define DB_NO_GROUP (-1)

struct db_param {
    const char *name; /* SQL parameter without p_ */
    size_t offset;
    size_t stride; /* size of the item struct */
    enum db_kind kind;
    int group; /* DB_NO_GROUP: a scalar */
};

struct db_column {
    const char *name;
    size_t offset;
    size_t stride; /* size of the row struct, the same in all rows of a call */
    enum db_kind kind;
};

#define DB_SCALAR_AS(name, type, member)                                                           \
    {                                                                                              \
        (name), offsetof(type, member), sizeof(type), DB_KIND_OF(type, member), DB_NO_GROUP        \
    }
#define DB_SCALAR(type, member) DB_SCALAR_AS(#member, type, member)
#define DB_ITEM_AS(name, group, type, member)                                                      \
    {                                                                                              \
        (name), offsetof(type, member), sizeof(type), DB_KIND_OF(type, member), (group)            \
    }
#define DB_ITEM(group, type, member) DB_ITEM_AS(#member, group, type, member)
#define DB_COLUMN_AS(name, type, member)                                                           \
    {                                                                                              \
        (name), offsetof(type, member), sizeof(type), DB_KIND_OF(type, member)                     \
    }
#define DB_COLUMN(type, member) DB_COLUMN_AS(#member, type, member)

#endif

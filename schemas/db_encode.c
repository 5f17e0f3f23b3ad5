#include <endian.h>
#include <limits.h>
#include <string.h>

#include "schemas/db_int.h"

/* PostgreSQL counts microseconds from 2000-01-01. */
static const int64_t epoch_shift_us = INT64_C(946684800) * 1000000;

enum {
    OID_BOOL = 16,
    OID_INT8 = 20,
    OID_INT4 = 23,
    OID_TEXT = 25,
    OID_FLOAT8 = 701,
    OID_TIMESTAMPTZ = 1184
};
enum { OID_UUID = 2950, OID_JSONB = 3802 };

static const struct {
    Oid oid;
    Oid array;
    const char *word;
} types[] = {
    {OID_BOOL, 1000, "boolean"},
    {OID_INT8, 1016, "bigint"},
    {OID_INT4, 1007, "integer"},
    {OID_TEXT, 1009, "text"},
    {OID_FLOAT8, 1022, "double precision"},
    {OID_TIMESTAMPTZ, 1185, "timestamptz"},
    {OID_UUID, 2951, "uuid"},
    {OID_JSONB, 3807, "jsonb"},
};

const char *db_oid_word(Oid oid)
{
    static const char *const arrays[] = {
        "boolean[]",          "bigint[]",      "integer[]", "text[]",
        "double precision[]", "timestamptz[]", "uuid[]",    "jsonb[]"};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        if (types[i].oid == oid)
            return types[i].word;
        if (types[i].array == oid)
            return arrays[i];
    }
    return "another type";
}

static Oid array_of(Oid oid)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (types[i].oid == oid)
            return types[i].array;
    return InvalidOid;
}

Oid db_kind_oid(enum db_kind kind)
{
    switch (kind) {
    case DB_KIND_BOOL:
    case DB_KIND_BOOL_OPT:
        return OID_BOOL;
    case DB_KIND_INT32:
    case DB_KIND_INT32_OPT:
        return OID_INT4;
    case DB_KIND_INT64:
    case DB_KIND_INT_OPT:
        return OID_INT8;
    case DB_KIND_DOUBLE:
        return OID_FLOAT8;
    case DB_KIND_UUID:
    case DB_KIND_UUID_OPT:
        return OID_UUID;
    case DB_KIND_TEXT:
    case DB_KIND_OUTCOME:
        return OID_TEXT;
    case DB_KIND_JSON:
        return OID_JSONB;
    case DB_KIND_TIME:
        return OID_TIMESTAMPTZ;
    case DB_KIND_TEXTS:
        return array_of(OID_TEXT);
    case DB_KIND_UUIDS:
        return array_of(OID_UUID);
    case DB_KIND_INTS:
        return array_of(OID_INT8);
    }
    NOT_REACHED("a kind of value");
    return InvalidOid;
}

Oid db_kind_array_oid(enum db_kind kind)
{
    return array_of(db_kind_oid(kind));
}

/* Every value is its length (4 bytes, -1: NULL) and its bytes, as inside of an array; a scalar
 * parameter uses the same without the length. */
static void put32(struct text *t, int32_t v)
{
    uint32_t wire = htobe32((uint32_t)v);
    memcpy(text_reserve(t, sizeof(wire)), &wire, sizeof(wire));
    t->n += sizeof(wire);
}

static void put_null(struct text *t)
{
    put32(t, -1);
}

static void put_int32(struct text *t, int32_t v)
{
    put32(t, 4);
    put32(t, v);
}

static void put_int64(struct text *t, int64_t v)
{
    uint64_t wire = htobe64((uint64_t)v);
    put32(t, 8);
    memcpy(text_reserve(t, sizeof(wire)), &wire, sizeof(wire));
    t->n += sizeof(wire);
}

static void put_bool(struct text *t, bool v)
{
    put32(t, 1);
    text_add_char(t, v ? 1 : 0);
}

static void put_uuid(struct text *t, const struct uuid *u)
{
    put32(t, sizeof(u->b));
    text_add(t, u->b, sizeof(u->b));
}

/* prefix: jsonb's version byte in front of the text, or nothing. */
static void put_bytes(struct text *t, struct span s, const char *prefix)
{
    if (span_is_null(s)) {
        put_null(t);
        return;
    }
    size_t head = strlen(prefix);
    CHECK(s.n < INT32_MAX / 2);
    put32(t, (int32_t)(s.n + head));
    text_add(t, prefix, head);
    text_add_span(t, s);
}

static void put_time(struct text *t, struct db_time v)
{
    bool infinite = v.us == INT64_MAX || v.us == INT64_MIN;
    put_int64(t, infinite ? v.us : v.us - epoch_shift_us);
}

static void put_array_head(struct text *t, Oid element, size_t n)
{
    CHECK(n <= INT32_MAX / 8);
    put32(t, n > 0 ? 1 : 0); /* dimensions */
    put32(t, 1);             /* may hold NULLs */
    put32(t, (int32_t)element);
    if (n > 0) {
        put32(t, (int32_t)n);
        put32(t, 1); /* lower bound */
    }
}

/* Writes the length of what follows once it is known. */
static size_t open_value(struct text *t)
{
    put32(t, 0);
    return t->n;
}

static void close_value(struct text *t, size_t start)
{
    CHECK(t->n - start <= INT32_MAX);
    uint32_t wire = htobe32((uint32_t)(t->n - start));
    memcpy(t->p + start - sizeof(wire), &wire, sizeof(wire));
}

static void put_texts(struct text *t, const struct db_texts *v)
{
    if (v->is_null) {
        put_null(t);
        return;
    }
    size_t start = open_value(t);
    put_array_head(t, OID_TEXT, v->n);
    for (size_t i = 0; i < v->n; i++)
        put_bytes(t, v->v[i], "");
    close_value(t, start);
}

static void put_uuids(struct text *t, const struct db_uuids *v)
{
    if (v->is_null) {
        put_null(t);
        return;
    }
    size_t start = open_value(t);
    put_array_head(t, OID_UUID, v->n);
    for (size_t i = 0; i < v->n; i++)
        put_uuid(t, &v->v[i]);
    close_value(t, start);
}

static void put_ints(struct text *t, const struct db_ints *v)
{
    if (v->is_null) {
        put_null(t);
        return;
    }
    size_t start = open_value(t);
    put_array_head(t, OID_INT8, v->n);
    for (size_t i = 0; i < v->n; i++)
        put_int64(t, v->v[i]);
    close_value(t, start);
}

/* memcpy: a member's address is all we have, and it is of the kind that the descriptor says. */
#define MEMBER(type, name)                                                                         \
    type name;                                                                                     \
    memcpy(&(name), p, sizeof(name))

static void put_optional(struct text *t, enum db_kind kind, const char *p)
{
    if (kind == DB_KIND_INT_OPT) {
        MEMBER(struct db_int, v);
        v.is_null ? put_null(t) : put_int64(t, v.v);
    } else if (kind == DB_KIND_INT32_OPT) {
        MEMBER(struct db_int32, v);
        v.is_null ? put_null(t) : put_int32(t, v.v);
    } else if (kind == DB_KIND_BOOL_OPT) {
        MEMBER(struct db_bool, v);
        v.is_null ? put_null(t) : put_bool(t, v.v);
    } else if (kind == DB_KIND_UUID_OPT) {
        MEMBER(struct uuid_opt, v);
        v.is_null ? put_null(t) : put_uuid(t, &v.v);
    } else {
        MEMBER(struct db_time, v);
        v.is_null ? put_null(t) : put_time(t, v);
    }
}

static void put_array(struct text *t, enum db_kind kind, const char *p)
{
    if (kind == DB_KIND_TEXTS) {
        MEMBER(struct db_texts, v);
        put_texts(t, &v);
    } else if (kind == DB_KIND_UUIDS) {
        MEMBER(struct db_uuids, v);
        put_uuids(t, &v);
    } else {
        MEMBER(struct db_ints, v);
        put_ints(t, &v);
    }
}

static void put_value(struct text *t, enum db_kind kind, const char *p)
{
    switch (kind) {
    case DB_KIND_BOOL: {
        MEMBER(bool, v);
        put_bool(t, v);
        break;
    }
    case DB_KIND_INT32: {
        MEMBER(int32_t, v);
        put_int32(t, v);
        break;
    }
    case DB_KIND_INT64:
    case DB_KIND_DOUBLE: { /* eight bytes in network order, both */
        MEMBER(int64_t, v);
        put_int64(t, v);
        break;
    }
    case DB_KIND_UUID: {
        MEMBER(struct uuid, v);
        put_uuid(t, &v);
        break;
    }
    case DB_KIND_TEXT: {
        MEMBER(struct span, v);
        put_bytes(t, v, "");
        break;
    }
    case DB_KIND_JSON: {
        MEMBER(struct json_span, v);
        put_bytes(t, v.text, "\1");
        break;
    }
    case DB_KIND_TIME:
    case DB_KIND_INT_OPT:
    case DB_KIND_INT32_OPT:
    case DB_KIND_BOOL_OPT:
    case DB_KIND_UUID_OPT:
        put_optional(t, kind, p);
        break;
    case DB_KIND_TEXTS:
    case DB_KIND_UUIDS:
    case DB_KIND_INTS:
        put_array(t, kind, p);
        break;
    case DB_KIND_OUTCOME:
        NOT_REACHED("an outcome is never a parameter");
    }
}

static void put_group(struct text *t, const struct db_param *param, const struct db_group *group)
{
    size_t start = open_value(t);
    Oid element = db_kind_oid(param->kind);
    CHECK(array_of(element) != InvalidOid); /* no arrays of arrays */
    put_array_head(t, element, group->n);
    const char *p = (const char *)group->items + (group->n > 0 ? param->offset : 0);
    for (size_t i = 0; i < group->n; i++, p += param->stride)
        put_value(t, param->kind, p);
    close_value(t, start);
}

void db_encode(struct db_encoded *e, const struct db_call *call, const void *scalars,
               const struct db_group *groups)
{
    struct text *t = &e->bytes;
    text_reset(t);
    for (size_t i = 0; i < call->n_params; i++) {
        const struct db_param *param = &call->params[i];
        size_t start = t->n;
        if (param->group == DB_NO_GROUP) {
            CHECK(scalars != NULL);
            put_value(t, param->kind, (const char *)scalars + param->offset);
        } else {
            CHECK(groups != NULL);
            put_group(t, param, &groups[param->group]);
        }
        uint32_t wire;
        memcpy(&wire, t->p + start, sizeof(wire));
        e->length[i] = (int32_t)be32toh(wire);
        e->start[i] = e->length[i] < 0 ? -1 : (ssize_t)(start + sizeof(wire));
    }
}

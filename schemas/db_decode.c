#include <endian.h>
#include <string.h>

#include "schemas/db_int.h"

static const int64_t epoch_shift_us = INT64_C(946684800) * 1000000;

/* One value on the wire: types and lengths were compared when the statement was prepared, so what
 * does not fit here is a broken server or a broken program. p is NULL for SQL NULL. */
struct wire {
    const char *p;
    size_t n;
};

static int32_t get32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return (int32_t)be32toh(v);
}

static int64_t get64(const char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return (int64_t)be64toh(v);
}

static struct wire value_of(struct wire w, size_t n)
{
    CHECK(w.p == NULL || w.n == n);
    return w;
}

static int64_t int_of(struct wire w)
{
    return value_of(w, 8).p ? get64(w.p) : 0;
}

static int32_t int32_of(struct wire w)
{
    return value_of(w, 4).p ? get32(w.p) : 0;
}

static bool bool_of(struct wire w)
{
    return value_of(w, 1).p ? w.p[0] != 0 : false;
}

static struct uuid uuid_of(struct wire w)
{
    struct uuid u = UUID_NIL;
    if (value_of(w, sizeof(u.b)).p)
        memcpy(u.b, w.p, sizeof(u.b));
    return u;
}

static struct db_time time_of(struct wire w)
{
    int64_t us = int_of(w);
    if (us != INT64_MAX && us != INT64_MIN)
        us += epoch_shift_us;
    return w.p ? DB_TIME(us) : DB_TIME_NULL;
}

static struct json_span json_of(struct wire w)
{
    if (w.p == NULL)
        return DB_JSON_NULL;
    CHECK(w.n > 0 && w.p[0] == 1); /* version of jsonb's binary form */
    return (struct json_span){{w.p + 1, w.n - 1}};
}

/* Number of elements of a one-dimensional array and where the first one starts. */
static size_t array_head(struct wire w, const char **ret_p)
{
    CHECK(w.n >= 12);
    int32_t dimensions = get32(w.p);
    CHECK(dimensions == 0 || (dimensions == 1 && w.n >= 20));
    *ret_p = w.p + (dimensions ? 20 : 12);
    int32_t n = dimensions ? get32(w.p + 12) : 0;
    CHECK(n >= 0);
    return (size_t)n;
}

static struct wire array_next(struct wire array, const char **p)
{
    CHECK(*p + 4 <= array.p + array.n);
    int32_t length = get32(*p);
    *p += 4;
    if (length < 0)
        return (struct wire){NULL, 0};
    CHECK(length <= array.p + array.n - *p);
    struct wire w = {*p, (size_t)length};
    *p += length;
    return w;
}

static void set_texts(char *to, struct wire w, struct arena *arena)
{
    struct db_texts v = DB_TEXTS_NULL;
    if (w.p) {
        const char *p;
        v.is_null = false;
        v.n = array_head(w, &p);
        struct span *texts = arena_array(arena, v.n, sizeof(*texts));
        for (size_t i = 0; i < v.n; i++) {
            struct wire element = array_next(w, &p);
            texts[i] = (struct span){element.p, element.n};
        }
        v.v = texts;
    }
    memcpy(to, &v, sizeof(v));
}

static void set_uuids(char *to, struct wire w, struct arena *arena)
{
    struct db_uuids v = DB_UUIDS_NULL;
    if (w.p) {
        const char *p;
        v.is_null = false;
        v.n = array_head(w, &p);
        struct uuid *uuids = arena_array(arena, v.n, sizeof(*uuids));
        for (size_t i = 0; i < v.n; i++)
            uuids[i] = uuid_of(array_next(w, &p));
        v.v = uuids;
    }
    memcpy(to, &v, sizeof(v));
}

static void set_ints(char *to, struct wire w, struct arena *arena)
{
    struct db_ints v = {NULL, 0, true};
    if (w.p) {
        const char *p;
        v.is_null = false;
        v.n = array_head(w, &p);
        int64_t *ints = arena_array(arena, v.n, sizeof(*ints));
        for (size_t i = 0; i < v.n; i++)
            ints[i] = int_of(array_next(w, &p));
        v.v = ints;
    }
    memcpy(to, &v, sizeof(v));
}

/* The words of a batch are mostly the same one. */
static bool set_outcome(char *to, struct wire w, struct span *last_word, enum outcome *last)
{
    struct span word = {w.p, w.n};
    if (!span_eq(word, *last_word) || span_is_null(word)) {
        if (!outcome_from_word(word, last))
            return false;
        *last_word = word;
    }
    memcpy(to, last, sizeof(*last));
    return true;
}

#define PUT(type, value)                                                                           \
    do {                                                                                           \
        type put = (value);                                                                        \
        memcpy(to, &put, sizeof(put));                                                             \
    } while (0)

static void set_value(char *to, enum db_kind kind, struct wire w, struct arena *arena)
{
    switch (kind) {
    case DB_KIND_BOOL:
        PUT(bool, bool_of(w));
        break;
    case DB_KIND_INT32:
        PUT(int32_t, int32_of(w));
        break;
    case DB_KIND_INT64:
    case DB_KIND_DOUBLE:
        PUT(int64_t, int_of(w));
        break;
    case DB_KIND_UUID:
        PUT(struct uuid, uuid_of(w));
        break;
    case DB_KIND_TEXT:
        PUT(struct span, ((struct span){w.p, w.n}));
        break;
    case DB_KIND_JSON:
        PUT(struct json_span, json_of(w));
        break;
    case DB_KIND_TIME:
        PUT(struct db_time, time_of(w));
        break;
    case DB_KIND_INT_OPT:
        PUT(struct db_int, ((struct db_int){int_of(w), w.p == NULL}));
        break;
    case DB_KIND_INT32_OPT:
        PUT(struct db_int32, ((struct db_int32){int32_of(w), w.p == NULL}));
        break;
    case DB_KIND_BOOL_OPT:
        PUT(struct db_bool, ((struct db_bool){bool_of(w), w.p == NULL}));
        break;
    case DB_KIND_UUID_OPT:
        PUT(struct uuid_opt, ((struct uuid_opt){uuid_of(w), w.p == NULL}));
        break;
    case DB_KIND_TEXTS:
        set_texts(to, w, arena);
        break;
    case DB_KIND_UUIDS:
        set_uuids(to, w, arena);
        break;
    case DB_KIND_INTS:
        set_ints(to, w, arena);
        break;
    case DB_KIND_OUTCOME:
        NOT_REACHED("an outcome has a way of its own");
    }
}

static void clear_result(void *result)
{
    PQclear(result);
}

/* Takes the result: it lives as long as the arena, and texts point into it. */
enum outcome db_decode(struct db *db, const struct db_call *call, PGresult *result,
                       struct arena *arena, void *ret_rows, size_t *ret_n)
{
    arena_defer(arena, clear_result, result);
    size_t n = (size_t)PQntuples(result);
    size_t stride = call->columns[0].stride;
    char *rows = arena_array(arena, n, stride);
    struct span last_word = SPAN_NULL;
    enum outcome last = OUTCOME_OK;
    for (size_t i = 0; i < n; i++) {
        char *row = rows + i * stride;
        for (size_t c = 0; c < call->n_columns; c++) {
            const struct db_column *column = &call->columns[c];
            struct wire w = {NULL, 0};
            if (!PQgetisnull(result, (int)i, (int)c))
                w = (struct wire){PQgetvalue(result, (int)i, (int)c),
                                  (size_t)PQgetlength(result, (int)i, (int)c)};
            if (column->kind != DB_KIND_OUTCOME)
                set_value(row + column->offset, column->kind, w, arena);
            else if (!set_outcome(row + column->offset, w, &last_word, &last))
                return db_fail(db, OUTCOME_DB_DRIFT,
                               "%s answered \"%.*s\", which is no outcome of this program",
                               call->name, (int)w.n, w.p ? w.p : "");
        }
    }
    memcpy(ret_rows, &rows, sizeof(rows));
    *ret_n = n;
    return OUTCOME_OK;
}

#include "schemas/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "schemas/json_int.h"

/* struct json_value is yyjson_val and struct json_node is yyjson_mut_val under another name: no
 * other file looks inside, and no wrapper has to be allocated. */
static yyjson_val *val(const struct json_value *v)
{
    return (yyjson_val *)(uintptr_t)v;
}

static const struct json_value *value(const yyjson_val *v)
{
    return (const struct json_value *)v;
}

static yyjson_mut_val *mut(const struct json_node *n)
{
    return (yyjson_mut_val *)(uintptr_t)n;
}

static struct json_node *node(yyjson_mut_val *n)
{
    CHECK(n != NULL); /* the arena ends the process when memory is out, so only a bug leads here */
    return (struct json_node *)n;
}

/* ---- memory: the arena behind yyjson's allocator ---- */

static void *alc_malloc(void *ctx, size_t size)
{
    return arena_alloc(ctx, size);
}

static void *alc_realloc(void *ctx, void *p, size_t old_size, size_t size)
{
    if (size <= old_size)
        return p;
    void *grown = arena_alloc(ctx, size);
    memcpy(grown, p, old_size);
    return grown;
}

static void alc_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p;
}

static yyjson_alc alc_of(struct arena *arena)
{
    return (yyjson_alc){alc_malloc, alc_realloc, alc_free, arena};
}

/* ---- errors ---- */

bool json_refuse(struct json_error *ret, struct arena *arena, enum reject_reason reason,
                 struct span place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sentence = arena_vprintf(arena, format, args);
    va_end(args);
    *ret = (struct json_error){reject_word(reason), arena_dup(arena, place), span_of(sentence)};
    return false;
}

struct span json_place_text(const struct json_place *place, struct arena *arena)
{
    if (place == NULL)
        return SPAN_LIT("");
    struct span up = json_place_text(place->up, arena);
    char index[24];
    struct span key = place->key;
    if (key.p == NULL) {
        int n = snprintf(index, sizeof(index), "%zu", place->index);
        key = (struct span){index, (size_t)n};
    }
    return json_pointer_append(up, key, arena);
}

/* ---- what jsonb, I-JSON and our digests cannot hold ---- */

struct checker {
    struct arena *arena;
    struct json_error *error;
    int max_depth;
    bool any_number;
};

static bool refuse(const struct checker *c, enum reject_reason reason, const struct json_place *at,
                   const char *what)
{
    struct span place = json_place_text(at, c->arena);
    return json_refuse(c->error, c->arena, reason, place, "%s%.*s: %s", at ? "" : "the whole value",
                       SPAN_ARG(place), what);
}

static bool check_number(const struct checker *c, yyjson_val *v, const struct json_place *at)
{
    bool fits = true;
    if (yyjson_is_uint(v))
        fits = yyjson_get_uint(v) <= (uint64_t)JSON_SAFE_INTEGER;
    else if (yyjson_is_sint(v))
        fits = yyjson_get_sint(v) >= -JSON_SAFE_INTEGER && yyjson_get_sint(v) <= JSON_SAFE_INTEGER;
    else if (yyjson_is_real(v)) {
        double d = yyjson_get_real(v);
        if (!isfinite(d))
            return refuse(c, REJECT_BAD_NUMBER, at,
                          "NaN and infinities are not JSON; send null or a text");
        fits = fabs(d) <= (double)JSON_SAFE_INTEGER;
    } else
        fits = false; /* kept raw by the reader: larger than a double */
    if (fits || c->any_number)
        return true;
    return refuse(
        c, REJECT_BAD_NUMBER, at,
        "the number is beyond +-9007199254740991 (2^53 - 1), which not every reader keeps exactly; "
        "send it as a text");
}

static bool check_text(const struct checker *c, struct span text, const struct json_place *at)
{
    if (memchr(text.p, 0, text.n) == NULL)
        return true;
    return refuse(c, REJECT_BAD_TEXT, at,
                  "the text or key holds U+0000, which PostgreSQL cannot store");
}

static struct span span_of_val(yyjson_val *v)
{
    return (struct span){yyjson_get_str(v), yyjson_get_len(v)};
}

static int order_keys(const void *a, const void *b)
{
    return span_order(*(const struct span *)a, *(const struct span *)b);
}

/* A long object is sorted once: comparing every pair of 100,000 keys would be an attack. */
static bool check_keys(const struct checker *c, yyjson_val *object, const struct json_place *at)
{
    enum { FEW = 16 };
    struct span few[FEW];
    size_t n = yyjson_obj_size(object);
    struct span *keys = n <= FEW ? few : arena_array(c->arena, n, sizeof(*keys));
    size_t idx, max;
    yyjson_val *key, *member;
    yyjson_obj_foreach(object, idx, max, key, member)
    {
        (void)member;
        keys[idx] = span_of_val(key);
    }
    if (n > FEW)
        qsort(keys, n, sizeof(*keys), order_keys);
    for (size_t i = 1; i < n; i++) {
        for (size_t j = n > FEW ? i - 1 : 0; j < i; j++) {
            if (span_eq(keys[i], keys[j])) {
                struct json_place twice = {at, keys[i], 0};
                return refuse(c, REJECT_DUPLICATE_KEY, &twice,
                              "this key appears twice in its object");
            }
        }
    }
    return true;
}

static bool check_value(const struct checker *c, yyjson_val *v, const struct json_place *at,
                        int depth)
{
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_STR:
        return check_text(c, span_of_val(v), at);
    case YYJSON_TYPE_NUM:
    case YYJSON_TYPE_RAW:
        return check_number(c, v, at);
    case YYJSON_TYPE_ARR:
    case YYJSON_TYPE_OBJ:
        break;
    default: /* null, true, false */
        return true;
    }
    if (depth >= c->max_depth) {
        struct span what = span_of(arena_printf(
            c->arena, "arrays and objects are nested more than %d deep", c->max_depth));
        return refuse(c, REJECT_TOO_DEEP, at, what.p);
    }
    size_t idx, max;
    yyjson_val *key, *item;
    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, idx, max, item)
        {
            struct json_place here = {at, SPAN_NULL, idx};
            if (!check_value(c, item, &here, depth + 1))
                return false;
        }
        return true;
    }
    if (!check_keys(c, v, at))
        return false;
    yyjson_obj_foreach(v, idx, max, key, item)
    {
        struct json_place here = {at, span_of_val(key), idx};
        if (!check_text(c, here.key, &here) || !check_value(c, item, &here, depth + 1))
            return false;
    }
    return true;
}

bool json_check(const struct json_value *v, const struct json_limits *limits, struct arena *arena,
                struct json_error *ret_error)
{
    struct checker c = {arena, ret_error, json_depth_limit(limits),
                        limits != NULL && limits->any_number};
    return check_value(&c, val(v), NULL, 0);
}

/* ---- parse ---- */

bool json_size_ok(struct span text, const struct json_limits *limits, struct arena *arena,
                  struct json_error *ret_error)
{
    if (limits == NULL || limits->max_bytes == 0 || text.n <= limits->max_bytes)
        return true;
    return json_refuse(ret_error, arena, REJECT_TOO_LARGE, SPAN_LIT(""),
                       "%zu bytes are more than the allowed %zu", text.n, limits->max_bytes);
}

static bool refuse_syntax(const yyjson_read_err *err, struct span text, size_t skipped,
                          struct arena *arena, struct json_error *ret_error)
{
    size_t at = err->pos + skipped, line = 1, column = 1;
    for (size_t i = 0; i < at && i < text.n; i++) {
        bool newline = text.p[i] == '\n';
        line += newline ? 1 : 0;
        column = newline ? 1 : column + 1;
    }
    char *place = arena_printf(arena, "byte %zu", at);
    enum reject_reason reason =
        err->code == YYJSON_READ_ERROR_INVALID_STRING ? REJECT_BAD_TEXT : REJECT_NOT_JSON;
    return json_refuse(ret_error, arena, reason, span_of(place),
                       "not valid JSON at byte %zu (line %zu, column %zu): %s", at, line, column,
                       err->msg);
}

bool json_parse(struct span text, const struct json_limits *limits, struct arena *arena,
                const struct json_value **ret, struct json_error *ret_error)
{
    *ret = NULL;
    if (!json_size_ok(text, limits, arena, ret_error))
        return false;
    struct span body = text;
    if (body.n >= 3 && memcmp(body.p, "\xef\xbb\xbf", 3) == 0)
        body = (struct span){body.p + 3, body.n - 3};
    size_t skipped = text.n - body.n;
    if (body.n == 0)
        return json_refuse(ret_error, arena, REJECT_NOT_JSON, SPAN_LIT("byte 0"),
                           "there is no JSON in an empty text");

    bool any_number = limits != NULL && limits->any_number;
    yyjson_alc alc = alc_of(arena);
    yyjson_read_err err;
    yyjson_read_flag flags = any_number ? YYJSON_READ_NOFLAG : YYJSON_READ_BIGNUM_AS_RAW;
    /* The reader writes only into its own copy unless told otherwise; the cast is its interface's.
     */
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)body.p, body.n, flags, &alc, &err);
    if (doc == NULL)
        return refuse_syntax(&err, text, skipped, arena, ret_error);
    *ret = value(yyjson_doc_get_root(doc));
    return json_check(*ret, limits, arena, ret_error);
}

/* ---- reading ---- */

enum json_kind json_kind(const struct json_value *v)
{
    switch (yyjson_get_type(val(v))) {
    case YYJSON_TYPE_BOOL:
        return JSON_BOOL;
    case YYJSON_TYPE_NUM:
    case YYJSON_TYPE_RAW:
        return JSON_NUMBER;
    case YYJSON_TYPE_STR:
        return JSON_STRING;
    case YYJSON_TYPE_ARR:
        return JSON_ARRAY;
    case YYJSON_TYPE_OBJ:
        return JSON_OBJECT;
    default:
        return JSON_NULL;
    }
}

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {"null",   "true or false", "a number",
                                        "a text", "an array",      "an object"};
    return names[kind];
}

bool json_is(const struct json_value *v, enum json_kind kind)
{
    return v != NULL && json_kind(v) == kind;
}

bool json_bool(const struct json_value *v)
{
    return yyjson_is_true(val(v));
}

struct span json_text(const struct json_value *v)
{
    return yyjson_is_str(val(v)) ? span_of_val(val(v)) : SPAN_NULL;
}

double json_number(const struct json_value *v)
{
    return yyjson_get_num(val(v));
}

bool json_integer(const struct json_value *v, int64_t *ret)
{
    if (!yyjson_is_num(val(v)))
        return false;
    return json_whole(yyjson_get_num(val(v)), ret);
}

size_t json_count(const struct json_value *v)
{
    return yyjson_is_ctn(val(v))
               ? (yyjson_is_arr(val(v)) ? yyjson_arr_size(val(v)) : yyjson_obj_size(val(v)))
               : 0;
}

const struct json_value *json_get_span(const struct json_value *v, struct span key)
{
    return key.p == NULL ? NULL : value(yyjson_obj_getn(val(v), key.p, key.n));
}

const struct json_value *json_get(const struct json_value *v, const char *key)
{
    return json_get_span(v, span_of(key));
}

const struct json_value *json_at(const struct json_value *v, size_t index)
{
    return value(yyjson_arr_get(val(v), index));
}

const struct json_value *json_pointer(const struct json_value *v, struct span pointer,
                                      size_t *ret_found_bytes)
{
    size_t ignored;
    size_t *found = ret_found_bytes != NULL ? ret_found_bytes : &ignored;
    *found = 0;
    if (v == NULL || pointer.n == 0)
        return v;
    yyjson_ptr_err err;
    yyjson_val *target = yyjson_ptr_getx(val(v), pointer.p, pointer.n, &err);
    if (target == NULL) {
        /* The library points at or into the token that leads nowhere; its slash is not found
         * either. */
        size_t at = err.pos;
        while (at > 0 && pointer.p[at - 1] != '/')
            at--;
        *found = at > 0 ? at - 1 : 0;
    } else
        *found = pointer.n;
    return value(target);
}

struct span json_pointer_append(struct span parent, struct span key, struct arena *arena)
{
    size_t escapes = 0;
    for (size_t i = 0; i < key.n; i++)
        escapes += key.p[i] == '~' || key.p[i] == '/';
    size_t n = parent.n + 1 + key.n + escapes;
    char *text = arena_alloc(arena, n + 1);
    char *out = text;
    if (parent.n > 0)
        memcpy(out, parent.p, parent.n);
    out += parent.n;
    *out++ = '/';
    for (size_t i = 0; i < key.n; i++) {
        bool escape = key.p[i] == '~' || key.p[i] == '/';
        *out++ = escape ? '~' : key.p[i];
        if (escape)
            *out++ = key.p[i] == '~' ? '0' : '1';
    }
    *out = '\0';
    return (struct span){text, n};
}

struct json_iter json_iter(const struct json_value *v)
{
    struct json_iter it = {.private_left = json_count(v), .private_object = yyjson_is_obj(val(v))};
    if (it.private_left > 0)
        it.private_next = unsafe_yyjson_get_first(val(v));
    return it;
}

bool json_next(struct json_iter *it)
{
    if (it->private_left == 0)
        return false;
    it->index = it->value == NULL ? 0 : it->index + 1;
    yyjson_val *at = val(it->private_next);
    it->key = SPAN_NULL;
    if (it->private_object) {
        it->key = span_of_val(at);
        at++; /* yyjson keeps a member's value right behind its key */
    }
    it->value = value(at);
    it->private_next = unsafe_yyjson_get_next(at);
    it->private_left--;
    return true;
}

static struct span written(char *text, size_t n)
{
    CHECK(text != NULL); /* texts were checked when they were parsed or built */
    return (struct span){text, n};
}

struct span json_write(const struct json_value *v, struct arena *arena)
{
    yyjson_alc alc = alc_of(arena);
    size_t n = 0;
    if (v == NULL)
        return SPAN_LIT("null");
    char *text = yyjson_val_write_opts(val(v), YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    return written(text, n);
}

size_t json_shortest_double(double d, char *buf, size_t size)
{
    char memory[512];
    yyjson_alc alc;
    CHECK(isfinite(d) && yyjson_alc_pool_init(&alc, memory, sizeof(memory)));
    yyjson_val v = {.tag = YYJSON_TYPE_NUM | YYJSON_SUBTYPE_REAL, .uni = {.f64 = d}};
    size_t n = 0;
    char *text = yyjson_val_write_opts(&v, YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    CHECK(text != NULL && n < size);
    memcpy(buf, text, n + 1);
    return n;
}

/* ---- building ---- */

/* The builder is yyjson's document; its pools grow in the arena. */
static yyjson_mut_doc *doc_of(struct json_builder *b)
{
    return (yyjson_mut_doc *)b;
}

struct json_builder *json_builder_new(struct arena *arena)
{
    yyjson_alc alc = alc_of(arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&alc);
    CHECK(doc != NULL);
    return (struct json_builder *)doc;
}

struct json_node *json_new_object(struct json_builder *b)
{
    return node(yyjson_mut_obj(doc_of(b)));
}

struct json_node *json_new_array(struct json_builder *b)
{
    return node(yyjson_mut_arr(doc_of(b)));
}

struct json_node *json_new_null(struct json_builder *b)
{
    return node(yyjson_mut_null(doc_of(b)));
}

struct json_node *json_new_bool(struct json_builder *b, bool v)
{
    return node(yyjson_mut_bool(doc_of(b), v));
}

struct json_node *json_new_integer(struct json_builder *b, int64_t v)
{
    return node(yyjson_mut_sint(doc_of(b), v));
}

struct json_node *json_new_number(struct json_builder *b, double v)
{
    CHECK(isfinite(v));
    int64_t whole;
    if (json_whole(v, &whole))
        return json_new_integer(b, whole);
    return node(yyjson_mut_real(doc_of(b), v));
}

struct json_node *json_new_text(struct json_builder *b, struct span v)
{
    return v.p == NULL ? json_new_null(b) : node(yyjson_mut_strncpy(doc_of(b), v.p, v.n));
}

struct json_node *json_new_text_borrowed(struct json_builder *b, struct span v)
{
    return v.p == NULL ? json_new_null(b) : node(yyjson_mut_strn(doc_of(b), v.p, v.n));
}

struct json_node *json_new_copy(struct json_builder *b, const struct json_value *v)
{
    return v == NULL ? json_new_null(b) : node(yyjson_val_mut_copy(doc_of(b), val(v)));
}

struct json_node *json_new_raw(struct json_builder *b, struct span json)
{
    return json.p == NULL ? json_new_null(b) : node(yyjson_mut_rawncpy(doc_of(b), json.p, json.n));
}

void json_put(struct json_builder *b, struct json_node *object, struct span key,
              struct json_node *v)
{
    CHECK(yyjson_mut_obj_add(mut(object), mut(json_new_text(b, key)), mut(v)));
}

void json_push(struct json_builder *b, struct json_node *array, struct json_node *v)
{
    (void)b;
    CHECK(yyjson_mut_arr_append(mut(array), mut(v)));
}

void json_set(struct json_builder *b, struct json_node *object, struct span key,
              struct json_node *v)
{
    CHECK(yyjson_mut_obj_put(mut(object), mut(json_new_text(b, key)), mut(v)));
}

void json_put_node(struct json_builder *b, struct json_node *object, const char *key,
                   struct json_node *v)
{
    json_put(b, object, span_of(key), v);
}

void json_put_text(struct json_builder *b, struct json_node *object, const char *key, struct span v)
{
    json_put(b, object, span_of(key), json_new_text(b, v));
}

void json_put_integer(struct json_builder *b, struct json_node *object, const char *key, int64_t v)
{
    json_put(b, object, span_of(key), json_new_integer(b, v));
}

void json_put_bool(struct json_builder *b, struct json_node *object, const char *key, bool v)
{
    json_put(b, object, span_of(key), json_new_bool(b, v));
}

void json_put_copy(struct json_builder *b, struct json_node *object, const char *key,
                   const struct json_value *v)
{
    json_put(b, object, span_of(key), json_new_copy(b, v));
}

void json_put_raw(struct json_builder *b, struct json_node *object, const char *key,
                  struct span json)
{
    json_put(b, object, span_of(key), json_new_raw(b, json));
}

struct span json_build(struct json_builder *b, const struct json_node *root)
{
    yyjson_alc alc = doc_of(b)->alc;
    size_t n = 0;
    char *text = yyjson_mut_val_write_opts(mut(root), YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    return written(text, n);
}

const struct json_value *json_seal(struct json_builder *b, const struct json_node *root)
{
    yyjson_alc alc = doc_of(b)->alc;
    yyjson_doc *doc = yyjson_mut_val_imut_copy(mut(root), &alc);
    CHECK(doc != NULL);
    return value(yyjson_doc_get_root(doc));
}

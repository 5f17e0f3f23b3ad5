#include "schemas/msgpack.h"

#include <math.h>
#include <string.h>

#include "schemas/json_int.h"

/* msgpack-c's parser is instantiated here with our own callbacks and our own depth: its ready-made
 * one builds objects that would only be copied again, and stops at a depth of 32. */
#define MSGPACK_EMBED_STACK_SIZE JSON_MAX_DEPTH
#include <msgpack/pack.h>
#include <msgpack/sbuffer.h>
#include <msgpack/unpack.h>
#include <msgpack/unpack_define.h>

/* ---- the bounded scan: nothing is allocated for what a header claims ---- */

struct scan {
    const unsigned char *bytes;
    size_t n;
    size_t at;
    int max_depth;
    struct arena *arena;
    struct json_error *error;
};

enum item_kind {
    ITEM_SCALAR,
    ITEM_FLOAT,
    ITEM_TEXT,
    ITEM_BIN,
    ITEM_ARRAY,
    ITEM_MAP,
    ITEM_EXT,
    ITEM_INVALID
};

struct item {
    enum item_kind kind;
    size_t length; /* bytes of a scalar, float or text; items of an array; members of a map */
};

static bool refuse(struct scan *s, enum reject_reason reason, const struct json_place *place,
                   const char *what)
{
    struct span where = json_place_text(place, s->arena);
    if (place == NULL)
        where = span_of(arena_printf(s->arena, "byte %zu", s->at));
    return json_refuse(s->error, s->arena, reason, where, "%.*s: %s (byte %zu)", SPAN_ARG(where),
                       what, s->at);
}

static bool big_endian(struct scan *s, size_t width, size_t *ret)
{
    if (s->n - s->at < width)
        return false;
    size_t v = 0;
    for (size_t i = 0; i < width; i++)
        v = v << 8 | s->bytes[s->at + i];
    s->at += width;
    *ret = v;
    return true;
}

/* Reads one header; false if the bytes end inside it. */
static bool scan_header(struct scan *s, struct item *ret)
{
    if (s->at >= s->n)
        return false;
    unsigned char c = s->bytes[s->at++];
    if (c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3)
        *ret = (struct item){ITEM_SCALAR, 0};
    else if (c <= 0x8f)
        *ret = (struct item){ITEM_MAP, c & 0x0f};
    else if (c <= 0x9f)
        *ret = (struct item){ITEM_ARRAY, c & 0x0f};
    else if (c <= 0xbf)
        *ret = (struct item){ITEM_TEXT, c & 0x1f};
    else if (c == 0xca || c == 0xcb)
        *ret = (struct item){ITEM_FLOAT, c == 0xca ? 4 : 8};
    else if (c >= 0xcc && c <= 0xcf)
        *ret = (struct item){ITEM_SCALAR, (size_t)1 << (c - 0xcc)};
    else if (c >= 0xd0 && c <= 0xd3)
        *ret = (struct item){ITEM_SCALAR, (size_t)1 << (c - 0xd0)};
    else if ((c >= 0xc7 && c <= 0xc9) || (c >= 0xd4 && c <= 0xd8))
        *ret = (struct item){ITEM_EXT, 0};
    else if (c == 0xc1)
        *ret = (struct item){ITEM_INVALID, 0};
    else if (c >= 0xc4 && c <= 0xc6) {
        ret->kind = ITEM_BIN;
        return big_endian(s, (size_t)1 << (c - 0xc4), &ret->length);
    } else if (c >= 0xd9 && c <= 0xdb) {
        ret->kind = ITEM_TEXT;
        return big_endian(s, (size_t)1 << (c - 0xd9), &ret->length);
    } else {
        ret->kind = c <= 0xdd ? ITEM_ARRAY : ITEM_MAP;
        return big_endian(s, c == 0xdc || c == 0xde ? 2 : 4, &ret->length);
    }
    return true;
}

/* Bytes of the UTF-8 sequence that starts at p, 0 if there is none (overlong, surrogate, beyond
 * U+10FFFF, cut). */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
    unsigned char c = p[0];
    size_t length = c < 0x80                 ? 1
                    : c >= 0xc2 && c <= 0xdf ? 2
                    : c >= 0xe0 && c <= 0xef ? 3
                    : c >= 0xf0 && c <= 0xf4 ? 4
                                             : 0;
    if (length == 0 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c == 0xe0 && p[1] < 0xa0) || (c == 0xf0 && p[1] < 0x90);
    bool outside = (c == 0xed && p[1] > 0x9f) || (c == 0xf4 && p[1] > 0x8f);
    return overlong || outside ? 0 : length;
}

static bool scan_text(struct scan *s, size_t length, const struct json_place *place,
                      struct span *ret)
{
    if (s->n - s->at < length)
        return refuse(s, REJECT_NOT_MSGPACK, place, "the MessagePack ends in the middle of a text");
    const unsigned char *p = s->bytes + s->at;
    for (size_t i = 0; i < length;) {
        size_t step = utf8_sequence(p + i, length - i);
        if (step == 0)
            return refuse(s, REJECT_BAD_TEXT, place, "the text is not UTF-8");
        i += step;
    }
    *ret = (struct span){(const char *)p, length};
    s->at += length;
    return true;
}

static bool scan_scalar(struct scan *s, const struct item *item, const struct json_place *place)
{
    if (s->n - s->at < item->length)
        return refuse(s, REJECT_NOT_MSGPACK, place,
                      "the MessagePack ends in the middle of a number");
    if (item->kind == ITEM_FLOAT) { /* all bits of the exponent set: NaN or an infinity */
        const unsigned char *p = s->bytes + s->at;
        bool single = item->length == 4;
        if ((p[0] & 0x7f) == 0x7f && (single ? (p[1] & 0x80) == 0x80 : (p[1] & 0xf0) == 0xf0))
            return refuse(s, REJECT_BAD_NUMBER, place,
                          "NaN and infinities are not JSON; send null or a text");
    }
    s->at += item->length;
    return true;
}

static bool scan_value(struct scan *s, const struct json_place *place, int depth);

static bool scan_key(struct scan *s, const struct json_place *object, struct span *ret)
{
    struct item item;
    if (!scan_header(s, &item))
        return refuse(s, REJECT_NOT_MSGPACK, object, "the MessagePack ends in the middle of a map");
    if (item.kind != ITEM_TEXT)
        return refuse(s, REJECT_NOT_MSGPACK, object, "a key of this map is not a text");
    return scan_text(s, item.length, object, ret);
}

static bool scan_items(struct scan *s, const struct item *item, const struct json_place *place,
                       int depth)
{
    if (depth >= s->max_depth) {
        char *what =
            arena_printf(s->arena, "arrays and maps are nested more than %d deep", s->max_depth);
        return refuse(s, REJECT_TOO_DEEP, place, what);
    }
    for (size_t i = 0; i < item->length; i++) {
        struct json_place here = {place, SPAN_NULL, i};
        if (item->kind == ITEM_MAP && !scan_key(s, place, &here.key))
            return false;
        if (!scan_value(s, &here, depth + 1))
            return false;
    }
    return true;
}

static bool scan_value(struct scan *s, const struct json_place *place, int depth)
{
    struct item item = {ITEM_INVALID, 0};
    struct span text;
    if (!scan_header(s, &item))
        return refuse(s, REJECT_NOT_MSGPACK, place,
                      "the MessagePack ends before this value is complete");
    switch (item.kind) {
    case ITEM_SCALAR:
    case ITEM_FLOAT:
        return scan_scalar(s, &item, place);
    case ITEM_TEXT:
        return scan_text(s, item.length, place, &text);
    case ITEM_ARRAY:
    case ITEM_MAP:
        return scan_items(s, &item, place, depth);
    case ITEM_BIN:
        return refuse(s, REJECT_NOT_MSGPACK, place,
                      "binary data has no place here; send it as a base64 text");
    case ITEM_EXT:
        return refuse(
            s, REJECT_NOT_MSGPACK, place,
            "MessagePack extension types (timestamps too) are not supported; send a text");
    case ITEM_INVALID:
        break;
    }
    return refuse(s, REJECT_NOT_MSGPACK, place, "byte c1 is not MessagePack");
}

/* ---- msgpack-c's parser over bytes that are known to be sound ---- */

struct part {
    struct span text; /* of a text: keys need it */
    struct json_node *node;
};

#define msgpack_unpack_struct(name) struct unpack##name
#define msgpack_unpack_func(ret, name) static ret unpack##name
#define msgpack_unpack_callback(name) unpack_on##name
#define msgpack_unpack_object struct part
#define msgpack_unpack_user struct json_builder *

/* Every callback fills *o; the scan has excluded what they could fail for. */
static struct part unpack_on_root(struct json_builder **b)
{
    (void)b;
    return (struct part){SPAN_NULL, NULL};
}

#define INTEGER_CALLBACK(name, type)                                                               \
    static int unpack_on_##name(struct json_builder **b, type v, struct part *o)                   \
    {                                                                                              \
        *o = (struct part){SPAN_NULL, json_new_integer(*b, v)};                                    \
        return 0;                                                                                  \
    }
INTEGER_CALLBACK(uint8, uint8_t)
INTEGER_CALLBACK(uint16, uint16_t)
INTEGER_CALLBACK(uint32, uint32_t)
INTEGER_CALLBACK(int8, int8_t)
INTEGER_CALLBACK(int16, int16_t)
INTEGER_CALLBACK(int32, int32_t)
INTEGER_CALLBACK(int64, int64_t)

static int unpack_on_uint64(struct json_builder **b, uint64_t v, struct part *o)
{
    /* What does not fit int64 is out of bounds either way; json_check says so with its place. */
    *o = (struct part){SPAN_NULL, v <= INT64_MAX ? json_new_integer(*b, (int64_t)v)
                                                 : json_new_number(*b, (double)v)};
    return 0;
}

static int unpack_on_double(struct json_builder **b, double v, struct part *o)
{
    *o = (struct part){SPAN_NULL, json_new_number(*b, v)};
    return 0;
}

static int unpack_on_float(struct json_builder **b, float v, struct part *o)
{
    return unpack_on_double(b, (double)v, o);
}

static int unpack_on_nil(struct json_builder **b, struct part *o)
{
    *o = (struct part){SPAN_NULL, json_new_null(*b)};
    return 0;
}

static int unpack_on_true(struct json_builder **b, struct part *o)
{
    *o = (struct part){SPAN_NULL, json_new_bool(*b, true)};
    return 0;
}

static int unpack_on_false(struct json_builder **b, struct part *o)
{
    *o = (struct part){SPAN_NULL, json_new_bool(*b, false)};
    return 0;
}

static int unpack_on_array(struct json_builder **b, unsigned int n, struct part *o)
{
    (void)n;
    *o = (struct part){SPAN_NULL, json_new_array(*b)};
    return 0;
}

static int unpack_on_array_item(struct json_builder **b, struct part *array, struct part item)
{
    json_push(*b, array->node, item.node);
    return 0;
}

static int unpack_on_map(struct json_builder **b, unsigned int n, struct part *o)
{
    (void)n;
    *o = (struct part){SPAN_NULL, json_new_object(*b)};
    return 0;
}

static int unpack_on_map_item(struct json_builder **b, struct part *map, struct part key,
                              struct part item)
{
    json_put(*b, map->node, key.text, item.node);
    return 0;
}

static int unpack_on_str(struct json_builder **b, const char *base, const char *p, unsigned int n,
                         struct part *o)
{
    (void)base;
    struct span text = {n > 0 ? p : "", n}; /* the parser gives no address with an empty text */
    *o = (struct part){text, json_new_text_borrowed(*b, text)};
    return 0;
}

static int unpack_on_bin(struct json_builder **b, const char *base, const char *p, unsigned int n,
                         struct part *o)
{
    (void)b, (void)base, (void)p, (void)n, (void)o;
    return -1;
}

static int unpack_on_ext(struct json_builder **b, const char *base, const char *p, unsigned int n,
                         struct part *o)
{
    return unpack_on_bin(b, base, p, n, o);
}

#include <msgpack/unpack_template.h>

bool msgpack_parse(struct span bytes, const struct json_limits *limits, struct arena *arena,
                   const struct json_value **ret, struct json_error *ret_error)
{
    *ret = NULL;
    if (!json_size_ok(bytes, limits, arena, ret_error))
        return false;
    struct scan s = {(const unsigned char *)bytes.p, bytes.n, 0,
                     json_depth_limit(limits),       arena,   ret_error};
    if (!scan_value(&s, NULL, 0))
        return false;
    if (s.at != s.n)
        return refuse(&s, REJECT_NOT_MSGPACK, NULL, "more bytes follow after the value");

    struct json_builder *b = json_builder_new(arena);
    struct unpack_context context = {.user = b};
    unpack_init(&context);
    size_t at = 0;
    int done = unpack_execute(&context, bytes.p, bytes.n, &at);
    CHECK(done == 1 && at == bytes.n); /* the scan and the parser must agree */
    *ret = json_seal(b, unpack_data(&context).node);
    return json_check(*ret, limits, arena, ret_error);
}

bool msgpack_is_map(struct span bytes)
{
    if (bytes.n == 0)
        return false;
    unsigned char c = (unsigned char)bytes.p[0];
    return (c >= 0x80 && c <= 0x8f) || c == 0xde || c == 0xdf;
}

/* ---- write ---- */

static void pack_value(msgpack_packer *pk, const struct json_value *v)
{
    int64_t integer;
    struct span text = json_text(v);
    struct json_iter it = json_iter(v);
    switch (json_kind(v)) {
    case JSON_NULL:
        msgpack_pack_nil(pk);
        return;
    case JSON_BOOL:
        json_bool(v) ? msgpack_pack_true(pk) : msgpack_pack_false(pk);
        return;
    case JSON_NUMBER:
        if (json_integer(v, &integer))
            msgpack_pack_int64(pk, integer);
        else
            msgpack_pack_double(pk, json_number(v));
        return;
    case JSON_STRING:
        msgpack_pack_str(pk, text.n);
        msgpack_pack_str_body(pk, text.p, text.n);
        return;
    case JSON_ARRAY:
        msgpack_pack_array(pk, json_count(v));
        while (json_next(&it))
            pack_value(pk, it.value);
        return;
    case JSON_OBJECT:
        msgpack_pack_map(pk, json_count(v));
        while (json_next(&it)) {
            msgpack_pack_str(pk, it.key.n);
            msgpack_pack_str_body(pk, it.key.p, it.key.n);
            pack_value(pk, it.value);
        }
        return;
    }
}

struct span msgpack_write(const struct json_value *v, struct arena *arena)
{
    msgpack_sbuffer buffer;
    msgpack_sbuffer_init(&buffer);
    msgpack_packer pk;
    msgpack_packer_init(&pk, &buffer, msgpack_sbuffer_write);
    pack_value(&pk, v);
    struct span bytes = arena_dup(arena, (struct span){buffer.data, buffer.size});
    msgpack_sbuffer_destroy(&buffer);
    return bytes;
}

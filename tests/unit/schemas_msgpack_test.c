/* MessagePack: what the scan refuses and where, and that it agrees with msgpack-c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <msgpack.h>

#include "schemas/canon.h"
#include "schemas/msgpack.h"

struct refusal {
    const char *bytes;
    size_t n;
    const char *reason;
    const char *place;
    const char *sentence;
};
#define BYTES(literal) (literal), sizeof(literal) - 1

static void refusals_name_reason_and_place(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {BYTES(""), "not_msgpack", "byte 0", "ends"},
        {BYTES("\xc1"), "not_msgpack", "byte 1", "c1"},
        {BYTES("\xdd\xff\xff\xff\xff"), "not_msgpack", "/0",
         "ends"}, /* the five bytes that ask for gigabytes */
        {BYTES("\xdf\xff\xff\xff\xff"), "not_msgpack", "byte 5", "ends"},
        {BYTES("\xdb\xff\xff\xff\xff"), "not_msgpack", "byte 5", "ends"},
        {BYTES("\xdc\xff"), "not_msgpack", NULL, "ends"},
        {BYTES("\x81\xa1"), "not_msgpack", "byte 2", "ends"},
        {BYTES("\x81\xa1x"), "not_msgpack", "/x", "ends"},
        {BYTES("\x81\xa1x\xcd\x01"), "not_msgpack", "/x", "ends"},
        {BYTES("\x81\xa1x\xa3yy"), "not_msgpack", "/x", "ends"},
        {BYTES("\x80\xc0"), "not_msgpack", "byte 1", "more bytes"},
        {BYTES("\x81\x01\x02"), "not_msgpack", "byte 2", "not a text"},
        {BYTES("\x81\xc4\x01y\x02"), "not_msgpack", NULL, "not a text"},
        {BYTES("\x81\xa1x\xc4\x01y"), "not_msgpack", "/x", "base64"},
        {BYTES("\x81\xa1x\xd6\xff\x00\x00\x00\x00"), "not_msgpack", "/x", "extension"},
        {BYTES("\x81\xa1x\xc7\x00\x05"), "not_msgpack", "/x", "extension"},
        {BYTES("\x81\xa1x\x92\x01\xa1\xff"), "bad_text", "/x/1", "UTF-8"},
        {BYTES("\x81\xa1x\xa3\xed\xa0\x80"), "bad_text", "/x", "UTF-8"},
        {BYTES("\x81\xa1x\xa2\xc0\x80"), "bad_text", "/x", "UTF-8"},
        {BYTES("\x81\xa1x\xa4\xf4\x90\x80\x80"), "bad_text", "/x", "UTF-8"},
        {BYTES("\x81\xa1x\xa2\xe2\x82"), "bad_text", "/x", "UTF-8"},
        {BYTES("\x81\xa1\xff\x01"), "bad_text", NULL, "UTF-8"},
        {BYTES("\x81\xa1x\xa1\x00"), "bad_text", "/x", "U+0000"},
        {BYTES("\x82\xa1x\x01\xa1x\x01"), "duplicate_key", "/x", "twice"},
        {BYTES("\x81\xa1x\xcf\x00\x20\x00\x00\x00\x00\x00\x00"), "bad_number", "/x", "2^53"},
        {BYTES("\x81\xa1x\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), "bad_number", "/x", "2^53"},
        {BYTES("\x81\xa1x\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), "bad_number", "/x", "2^53"},
        {BYTES("\x81\xa1x\xcb\x7e\x37\xe4\x3c\x88\x00\x75\x9c"), "bad_number", "/x",
         "2^53"}, /* 1e300 */
        {BYTES("\x81\xa1x\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), "bad_number", "/x", "NaN"},
        {BYTES("\x81\xa1x\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"), "bad_number", "/x", "NaN"},
        {BYTES("\x81\xa1x\xca\x7f\x80\x00\x00"), "bad_number", "/x", "NaN"},
        {BYTES("\x81\xa1x\xca\xff\xc0\x00\x01"), "bad_number", "/x", "NaN"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        const struct json_value *v;
        struct json_error error;
        if (msgpack_parse((struct span){rows[i].bytes, rows[i].n}, NULL, arena, &v, &error))
            fail_msg("row %zu was accepted", i);
        if (strcmp(error.reason, rows[i].reason) != 0 ||
            (rows[i].place != NULL && strcmp(error.place.p, rows[i].place) != 0) ||
            strstr(error.detail.p, rows[i].sentence) == NULL)
            fail_msg("row %zu -> %s at \"%s\": %s", i, error.reason, error.place.p, error.detail.p);
    }
}

static void depth(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v;
    struct json_error error;
    char bytes[100001];
    memset(bytes, 0x91, sizeof(bytes));
    bytes[JSON_MAX_DEPTH] = 0x01; /* deeper than msgpack-c's own 32, as deep as JSON may be */
    assert_true(msgpack_parse((struct span){bytes, JSON_MAX_DEPTH + 1}, NULL, arena, &v, &error));
    bytes[JSON_MAX_DEPTH] = (char)0x91;
    bytes[JSON_MAX_DEPTH + 1] = 0x01;
    assert_false(msgpack_parse((struct span){bytes, JSON_MAX_DEPTH + 2}, NULL, arena, &v, &error));
    assert_string_equal(error.reason, "too_deep");
    struct json_limits limits = {.max_bytes = 3, .max_depth = 1};
    assert_true(msgpack_parse(SPAN_LIT("\x92\x01\x02"), &limits, arena, &v, &error));
    assert_false(msgpack_parse(SPAN_LIT("\x91\x91\x02"), &limits, arena, &v, &error));
    assert_string_equal(error.place.p, "/0");
    assert_false(msgpack_parse(SPAN_LIT("\x93\x01\x02\x03"), &limits, arena, &v, &error));
    assert_string_equal(error.reason, "too_large");
    bytes[JSON_MAX_DEPTH + 1] = (char)0x91;
    bytes[sizeof(bytes) - 1] = 0x01;
    assert_false(msgpack_parse((struct span){bytes, sizeof(bytes)}, NULL, arena, &v, &error));
    assert_string_equal(error.reason, "too_deep");
}

static const struct json_value *parse(struct span bytes, struct arena *arena)
{
    const struct json_value *v;
    struct json_error error;
    if (!msgpack_parse(bytes, NULL, arena, &v, &error))
        fail_msg("%s", error.detail.p);
    return v;
}

/* Every spelling that msgpack-c's packer knows, for each the JSON it must become. */
static void every_spelling(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    static const struct {
        const char *bytes;
        size_t n;
        const char *json;
    } rows[] = {
        {BYTES("\xc0"), "null"},
        {BYTES("\xc2"), "false"},
        {BYTES("\xc3"), "true"},
        {BYTES("\x00"), "0"},
        {BYTES("\x7f"), "127"},
        {BYTES("\xe0"), "-32"},
        {BYTES("\xff"), "-1"},
        {BYTES("\xcc\xff"), "255"},
        {BYTES("\xcd\xff\xff"), "65535"},
        {BYTES("\xce\xff\xff\xff\xff"), "4294967295"},
        {BYTES("\xcf\x00\x1f\xff\xff\xff\xff\xff\xff"), "9007199254740991"},
        {BYTES("\xd0\x80"), "-128"},
        {BYTES("\xd1\x80\x00"), "-32768"},
        {BYTES("\xd2\x80\x00\x00\x00"), "-2147483648"},
        {BYTES("\xd3\xff\xe0\x00\x00\x00\x00\x00\x01"), "-9007199254740991"},
        {BYTES("\xca\x3f\x00\x00\x00"), "0.5"},
        {BYTES("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"), "0.1"},
        {BYTES("\xcb\x40\x08\x00\x00\x00\x00\x00\x00"), "3"},
        {BYTES("\xa0"), "\"\""},
        {BYTES("\xd9\x01g"), "\"g\""},
        {BYTES("\xda\x00\x01g"), "\"g\""},
        {BYTES("\xdb\x00\x00\x00\x01g"), "\"g\""},
        {BYTES("\xd9\x00"), "\"\""},
        {BYTES("\x90"), "[]"},
        {BYTES("\xdc\x00\x01\xc0"), "[null]"},
        {BYTES("\xdd\x00\x00\x00\x01\xc0"), "[null]"},
        {BYTES("\xdc\x00\x00"), "[]"},
        {BYTES("\x80"), "{}"},
        {BYTES("\xde\x00\x01\xa1x\x90"), "{\"x\":[]}"},
        {BYTES("\xdf\x00\x00\x00\x01\xa0\x80"), "{\"\":{}}"},
        {BYTES("\x82\xa1y\x91\x80\xa1x\xa4\xf0\x9f\x98\x80"),
         "{\"x\":\"\xf0\x9f\x98\x80\",\"y\":[{}]}"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct span bytes = {rows[i].bytes, rows[i].n};
        const struct json_value *v = parse(bytes, arena);
        assert_string_equal(canon_write(v, arena).p, rows[i].json);
        struct span again = msgpack_write(v, arena); /* the shortest spelling of the same content */
        assert_string_equal(canon_write(parse(again, arena), arena).p, rows[i].json);
        msgpack_unpacked reference;
        msgpack_unpacked_init(&reference);
        size_t at = 0;
        assert_int_equal(msgpack_unpack_next(&reference, again.p, again.n, &at),
                         MSGPACK_UNPACK_SUCCESS);
        assert_int_equal(at, again.n);
        msgpack_unpacked_destroy(&reference);
    }
}

static void texts_outlive_the_bytes(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    char bytes[] = "\x81\xa1x\xa3"
                   "abc";
    const struct json_value *v = parse((struct span){bytes, sizeof(bytes) - 1}, arena);
    memset(bytes, 'z', sizeof(bytes));
    assert_string_equal(json_write(v, arena).p, "{\"x\":\"abc\"}");
}

/* Every prefix of a good message is refused, and no single changed byte makes the parser and the
 * scan disagree (that would end the process). */
static void cut_and_damaged(void **state)
{
    (void)state;
    static const char good[] = "\x84\xa4type\xa6submit\xa7task_id\xa2t1\xa5input\x83\xa1"
                               "a\x93\x01\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a\xc0\xa1"
                               "b\xd9\x02hi\xa1"
                               "c\xde\x00\x00\xa8priority\xd1\xff\x00";
    char bytes[sizeof(good)];
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v;
    struct json_error error;
    for (size_t n = 0; n < sizeof(good) - 1; n++)
        assert_false(msgpack_parse((struct span){good, n}, NULL, arena, &v, &error));
    parse((struct span){good, sizeof(good) - 1}, arena);
    int accepted = 0;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        for (int c = 0; c < 256; c++) {
            memcpy(bytes, good, sizeof(good));
            bytes[i] = (char)c;
            if (msgpack_parse((struct span){bytes, sizeof(good) - 1}, NULL, arena, &v, &error))
                accepted += json_is(v, JSON_OBJECT);
            arena_reset(arena);
        }
    }
    assert_true(accepted > 1000);
}

static void first_byte(void **state)
{
    (void)state;
    assert_true(msgpack_is_map(SPAN_LIT("\x80")));
    assert_true(msgpack_is_map(SPAN_LIT("\x8f")));
    assert_true(msgpack_is_map(SPAN_LIT("\xde")));
    assert_true(msgpack_is_map(SPAN_LIT("\xdf")));
    assert_false(msgpack_is_map(SPAN_LIT("\x90")));
    assert_false(msgpack_is_map(SPAN_LIT("{")));
    assert_false(msgpack_is_map(SPAN_LIT("\xef\xbb\xbf{}")));
    assert_false(msgpack_is_map(SPAN_LIT("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_name_reason_and_place),
        cmocka_unit_test(depth),
        cmocka_unit_test(every_spelling),
        cmocka_unit_test(texts_outlive_the_bytes),
        cmocka_unit_test(cut_and_damaged),
        cmocka_unit_test(first_byte),
    };
    return cmocka_run_group_tests_name("MessagePack", tests, NULL, NULL);
}

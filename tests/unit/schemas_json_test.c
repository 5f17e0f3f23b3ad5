/* What json.h promises: what is refused and where, look-ups, building. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "schemas/json.h"

struct refusal {
    const char *text;
    const char *reason;
    const char *place;
    const char *sentence; /* a part of it */
};

static void refusals_name_reason_and_place(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"", "not_json", "byte 0", "empty"},
        {"   ", "not_json", "byte 0", ""},
        {"{", "not_json", "byte 1", "line 1, column 2"},
        {"{\"a\":1,}", "not_json", "byte 6", "trailing comma"},
        {"{\"a\":\n tru}", "not_json", "byte 7", "line 2, column 2"},
        {"{} {}", "not_json", "byte 3", ""},
        {"[01]", "not_json", "byte 1", ""},
        {"[NaN]", "not_json", "byte 1", ""},
        {"[Infinity]", "not_json", "byte 1", ""},
        {"// no\n{}", "not_json", "byte 0", ""},
        {"{\"a\":1,\"a\":2}", "duplicate_key", "/a", "twice"},
        {"{\"x\":[{\"k/~\":1,\"b\":2,\"k/~\":1}]}", "duplicate_key", "/x/0/k~1~0", ""},
        {"{\"a\":1,\"\\u0061\":2}", "duplicate_key", "/a", ""},
        {"{\"x\":9007199254740992}", "bad_number", "/x", "2^53"},
        {"{\"x\":-9007199254740992}", "bad_number", "/x", ""},
        {"{\"x\":[0,9007199254740992.0]}", "bad_number", "/x/1", ""},
        {"{\"x\":1e16}", "bad_number", "/x", "as a text"},
        {"18446744073709551616", "bad_number", "", "the whole value"},
        {"{\"x\":1e999}", "bad_number", "/x", ""},
        {"{\"x\":\"a\\u0000b\"}", "bad_text", "/x", "U+0000"},
        {"{\"a\\u0000\":1}", "bad_text", NULL, "U+0000"},
        {"[\"\\ud800\"]", "bad_text", NULL, ""},
        {"[\"\\udc00\\ud800\"]", "bad_text", NULL, ""},
        {"[\"\xff\"]", "bad_text", NULL, ""},
        {"[\"\xed\xa0\x80\"]", "bad_text", NULL, ""},     /* a surrogate in UTF-8 */
        {"[\"\xc0\x80\"]", "bad_text", NULL, ""},         /* an overlong NUL */
        {"[\"\xf5\x80\x80\x80\"]", "bad_text", NULL, ""}, /* beyond U+10FFFF */
        {"[\"a\nb\"]", "bad_text", NULL, ""},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        const struct json_value *v;
        struct json_error error;
        if (json_parse(span_of(rows[i].text), NULL, arena, &v, &error))
            fail_msg("accepted: %s", rows[i].text);
        if (strcmp(error.reason, rows[i].reason) != 0 ||
            (rows[i].place != NULL && strcmp(error.place.p, rows[i].place) != 0) ||
            strstr(error.detail.p, rows[i].sentence) == NULL)
            fail_msg("%s -> %s at \"%s\": %s", rows[i].text, error.reason, error.place.p,
                     error.detail.p);
    }
}

static const struct json_value *parse(const char *text, struct arena *arena)
{
    const struct json_value *v;
    struct json_error error;
    if (!json_parse(span_of(text), NULL, arena, &v, &error))
        fail_msg("%s: %s", text, error.detail.p);
    return v;
}

static void what_people_type_is_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "\xef\xbb\xbf{\"a\":1}",     " \t\r\n{\"a\":1}\n",
        "{\"a\":9007199254740991}",  "{\"a\":-9007199254740991}",
        "{\"a\":0.1e-300}",          "\"\\ud83d\\ude00\"",
        "{\"a\":{\"a\":{\"a\":1}}}", "null",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        assert_non_null(parse(texts[i], arena));
    }
}

static char *nested(int depth, struct arena *arena)
{
    char *text = arena_alloc(arena, (size_t)depth * 2 + 1);
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    return text;
}

static void depth_and_size_have_limits(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v;
    struct json_error error;
    parse(nested(JSON_MAX_DEPTH, arena), arena);
    assert_false(json_parse(span_of(nested(JSON_MAX_DEPTH + 1, arena)), NULL, arena, &v, &error));
    assert_string_equal(error.reason, "too_deep");
    assert_false(json_parse(span_of(nested(200000, arena)), NULL, arena, &v, &error));
    assert_string_equal(error.reason, "too_deep");
    struct json_limits limits = {.max_bytes = 7, .max_depth = 1};
    assert_true(json_parse(SPAN_LIT("[1,2,3]"), &limits, arena, &v, &error));
    assert_false(json_parse(SPAN_LIT("[1,2,30]"), &limits, arena, &v, &error));
    assert_string_equal(error.reason, "too_large");
    assert_false(json_parse(SPAN_LIT("[[1]]"), &limits, arena, &v, &error));
    assert_string_equal(error.place.p, "/0");
}

static void many_members_with_one_twice(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_add_char(&t, '{');
    for (int i = 0; i < 100000; i++)
        text_addf(&t, "%s\"k%d\":0", i > 0 ? "," : "", i);
    size_t unique = t.n;
    text_add_str(&t, "}");
    const struct json_value *v;
    struct json_error error;
    assert_true(json_parse(text_span(&t), NULL, arena, &v, &error));
    assert_int_equal(json_count(v), 100000);
    t.n = unique;
    text_add_str(&t, ",\"k77777\":1}");
    assert_false(json_parse(text_span(&t), NULL, arena, &v, &error));
    assert_string_equal(error.place.p, "/k77777");
}

static void a_refused_value_can_still_be_shown(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v;
    struct json_error error;
    assert_false(json_parse(SPAN_LIT("{\"task_id\":\"t1\",\"n\":1e300}"), NULL, arena, &v, &error));
    assert_true(span_eq_text(json_text(json_get(v, "task_id")), "t1"));
    assert_false(json_parse(SPAN_LIT("{\"task_id\":"), NULL, arena, &v, &error));
    assert_null(v);
}

static void any_number_when_asked(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_limits limits = {.any_number = true};
    const struct json_value *v;
    struct json_error error;
    assert_true(json_parse(SPAN_LIT("[1e300, 18446744073709551616, 9007199254740993]"), &limits,
                           arena, &v, &error));
    int64_t n;
    assert_false(json_integer(json_at(v, 2), &n));
}

static void look_ups_chain_over_nothing(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v = parse("{\"a\":[10,{\"b\":true}],\"t\":\"x\",\"e\":{}}", arena);
    assert_true(json_bool(json_get(json_at(json_get(v, "a"), 1), "b")));
    assert_null(json_get(json_at(json_get(v, "nope"), 7), "b"));
    assert_true(span_is_null(json_text(json_get(v, "a"))));
    assert_int_equal(json_kind(NULL), JSON_NULL);
    assert_false(json_is(NULL, JSON_NULL));
    assert_int_equal(json_count(json_get(v, "e")), 0);
    assert_int_equal(json_count(json_get(v, "t")), 0);
    int64_t n;
    assert_true(json_integer(json_at(json_get(v, "a"), 0), &n));
    assert_int_equal(n, 10);
    assert_true(json_integer(parse("3e0", arena), &n));
    assert_false(json_integer(parse("3.5", arena), &n));
    assert_false(json_integer(parse("\"3\"", arena), &n));
}

static void pointers(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v =
        parse("{\"steps\":{\"pay\":{\"result\":[1,{\"a/b~\":7}]}},\"\":3}", arena);
    size_t found;
    assert_ptr_equal(json_pointer(v, SPAN_LIT(""), &found), v);
    assert_int_equal(
        (int)json_number(json_pointer(v, SPAN_LIT("/steps/pay/result/1/a~1b~0"), &found)), 7);
    assert_int_equal(found, strlen("/steps/pay/result/1/a~1b~0"));
    assert_int_equal((int)json_number(json_pointer(v, SPAN_LIT("/"), NULL)), 3);
    static const struct {
        const char *pointer;
        const char *found;
    } nowhere[] = {
        {"/steps/ship/result", "/steps"},
        {"/steps/pay/result/2", "/steps/pay/result"},
        {"/nope", ""},
        {"/steps/pay/result/01", "/steps/pay/result"},
        {"/steps/pay/result/-", "/steps/pay/result"},
        {"/steps/pay/result/0/x", "/steps/pay/result/0"},
        {"steps", ""},
        {"/steps/pa~2y", "/steps"},
    };
    for (size_t i = 0; i < COUNT_OF(nowhere); i++) {
        assert_null(json_pointer(v, span_of(nowhere[i].pointer), &found));
        if (found != strlen(nowhere[i].found))
            fail_msg("%s: found %zu bytes", nowhere[i].pointer, found);
    }
    assert_string_equal(json_pointer_append(SPAN_LIT("/x"), SPAN_LIT("a/b~"), arena).p,
                        "/x/a~1b~0");
}

static void iteration_keeps_the_order(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const struct json_value *v = parse("{\"z\":[1,[2,2],3],\"a\":{\"q\":{}},\"m\":4}", arena);
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    struct json_iter it = json_iter(v);
    while (json_next(&it))
        text_addf(&t, "%zu%.*s;", it.index, SPAN_ARG(it.key));
    it = json_iter(json_get(v, "z"));
    while (json_next(&it))
        text_addf(&t, "%zu%s,", it.index, json_kind_name(json_kind(it.value)));
    assert_string_equal(t.p, "0z;1a;2m;0a number,1an array,2a number,");
    it = json_iter(parse("[]", arena));
    assert_false(json_next(&it));
    it = json_iter(NULL);
    assert_false(json_next(&it));
    it = json_iter(json_get(v, "m"));
    assert_false(json_next(&it));
}

static void building(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b), *list = json_new_array(b);
    char key[] = "key";
    json_put_text(b, o, key, SPAN_LIT("a\"b"));
    key[0] = 'X'; /* keys are copied */
    json_put_text(b, o, "absent", SPAN_NULL);
    json_put_integer(b, o, "n", -5);
    json_put_bool(b, o, "t", true);
    json_push(b, list, json_new_number(b, 2.0));
    json_push(b, list, json_new_number(b, 0.5));
    json_push(b, list, json_new_copy(b, parse("{\"c\":[null]}", arena)));
    json_put_node(b, o, "list", list);
    json_set(b, o, SPAN_LIT("n"), json_new_integer(b, 6));
    const char *wanted =
        "{\"key\":\"a\\\"b\",\"absent\":null,\"n\":6,\"t\":true,\"list\":[2,0.5,{\"c\":[null]}]}";
    assert_string_equal(json_build(b, o).p, wanted);
    const struct json_value *v = json_seal(b, o);
    assert_string_equal(json_write(v, arena).p, wanted);
    json_put_raw(b, o, "raw", SPAN_LIT("{\"x\": 1}"));
    assert_non_null(strstr(json_build(b, o).p, "\"raw\":{\"x\": 1}"));
    struct json_error error;
    assert_true(json_check(v, NULL, arena, &error));
}

static void check_finds_what_was_built_wrong(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_integer(b, o, "a", 1);
    json_put_integer(b, o, "big", INT64_C(9007199254740993));
    struct json_error error;
    assert_false(json_check(json_seal(b, o), NULL, arena, &error));
    assert_string_equal(error.place.p, "/big");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusals_name_reason_and_place),
        cmocka_unit_test(what_people_type_is_read),
        cmocka_unit_test(depth_and_size_have_limits),
        cmocka_unit_test(many_members_with_one_twice),
        cmocka_unit_test(a_refused_value_can_still_be_shown),
        cmocka_unit_test(any_number_when_asked),
        cmocka_unit_test(look_ups_chain_over_nothing),
        cmocka_unit_test(pointers),
        cmocka_unit_test(iteration_keeps_the_order),
        cmocka_unit_test(building),
        cmocka_unit_test(check_finds_what_was_built_wrong),
    };
    return cmocka_run_group_tests_name("JSON", tests, NULL, NULL);
}

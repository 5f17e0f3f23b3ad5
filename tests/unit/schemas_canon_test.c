/* RFC 8785 against its public vectors, its own table of numbers, and a JavaScript engine. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schemas/canon.h"
#include "schemas/msgpack.h"

static struct span read_file(const char *path, struct arena *arena)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = arena_alloc(arena, 65536);
    size_t n = fread(text, 1, 65535, file);
    assert_true(feof(file));
    fclose(file);
    return (struct span){text, n};
}

static const struct json_value *parse(struct span text, struct arena *arena)
{
    const struct json_limits any = {.any_number = true};
    const struct json_value *v;
    struct json_error error;
    if (!json_parse(text, &any, arena, &v, &error))
        fail_msg("%.*s\n%s", SPAN_ARG(text), error.detail.p);
    return v;
}

static void public_vectors(void **state)
{
    (void)state;
    static const char *const names[] = {"arrays",  "french", "structures",
                                        "unicode", "values", "weird"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        char path[512];
        snprintf(path, sizeof(path), SOURCE_DIR "/tests/canon/vectors/input/%s.json", names[i]);
        struct span canonical = canon_write(parse(read_file(path, arena), arena), arena);
        snprintf(path, sizeof(path), SOURCE_DIR "/tests/canon/vectors/output/%s.json", names[i]);
        struct span wanted = read_file(path, arena);
        assert_int_equal(canonical.n, wanted.n);
        assert_memory_equal(canonical.p, wanted.p, wanted.n);
    }
}

static double from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static void table_of_the_rfc(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *text;
    } rows[] = {
        /* appendix B; NaN and infinities cannot be parsed and are not numbers here */
        {0x0000000000000000, "0"},
        {0x8000000000000000, "0"},
        {0x0000000000000001, "5e-324"},
        {0x8000000000000001, "-5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0xffefffffffffffff, "-1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},
        {0xc340000000000000, "-9007199254740992"},
        {0x4430000000000000, "295147905179352830000"},
        {0x44b52d02c7e14af5, "9.999999999999997e+22"},
        {0x44b52d02c7e14af6, "1e+23"},
        {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
        {0x444b1ae4d6e2ef4e, "999999999999999700000"},
        {0x444b1ae4d6e2ef4f, "999999999999999900000"},
        {0x444b1ae4d6e2ef50, "1e+21"},
        {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
        {0x3eb0c6f7a0b5ed8d, "0.000001"},
        {0x41b3de4355555553, "333333333.3333332"},
        {0x41b3de4355555554, "333333333.33333325"},
        {0x41b3de4355555555, "333333333.3333333"},
        {0x41b3de4355555556, "333333333.3333334"},
        {0x41b3de4355555557, "333333333.33333343"},
        {0xbecbf647612f3696, "-0.0000033333333333333333"},
        {0x43143ff3c1cb0959, "1424953923781206.2"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[CANON_NUMBER_SIZE];
        size_t n = canon_number(from_bits(rows[i].bits), text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(n, strlen(text));
    }
}

/* ---- node ---- */

static FILE *node(const char *script, const char *seed, const char *count)
{
    char command[512];
    snprintf(command, sizeof(command), "exec node " SOURCE_DIR "/tests/canon/%s %s %s", script,
             seed, count);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    return out;
}

static const char *from_environment(const char *name, const char *otherwise)
{
    const char *v = getenv(name);
    return v != NULL && *v != '\0' ? v : otherwise;
}

static void a_million_numbers(void **state)
{
    (void)state;
    const char *seed = from_environment("HOLDFAST_SEED", "20261201");
    const char *count = from_environment("HOLDFAST_CANON_NUMBERS", "1000000");
    FILE *out = node("numbers.mjs", seed, count);
    char line[128];
    long compared = 0;
    while (fgets(line, sizeof(line), out) != NULL) {
        char *wanted = strchr(line, ' ');
        assert_non_null(wanted);
        *wanted++ = '\0';
        wanted[strcspn(wanted, "\n")] = '\0';
        double v = from_bits(strtoull(line, NULL, 16));
        char text[CANON_NUMBER_SIZE];
        canon_number(v, text);
        if (strcmp(text, wanted) != 0)
            fail_msg("seed %s, bits %s: %s, but JavaScript says %s", seed, line, text, wanted);
        compared++;
    }
    assert_int_equal(pclose(out), 0); /* not 0: no node; scripts/deps --tests installs it */
    assert_int_equal(compared, strtol(count, NULL, 10));
}

static void random_documents_by_both_encodings(void **state)
{
    (void)state;
    const char *seed = from_environment("HOLDFAST_SEED", "20261201");
    FILE *out = node("documents.mjs", seed, "5000");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int compared = 0;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    while ((n = getline(&line, &cap, out)) > 0) {
        char *tab = strchr(line, '\t');
        assert_non_null(tab);
        struct span text = {line, (size_t)(tab - line)};
        struct span wanted = {tab + 1, (size_t)(n - (tab - line) - 2)};
        const struct json_value *v = parse(text, arena), *again;
        struct json_error error;
        if (!span_eq(canon_write(v, arena), wanted))
            fail_msg("seed %s, line %d:\n%.*s\nbut JavaScript says\n%.*s", seed, compared + 1,
                     SPAN_ARG(canon_write(v, arena)), SPAN_ARG(wanted));
        if (!msgpack_parse(msgpack_write(v, arena), NULL, arena, &again, &error))
            fail_msg("seed %s, line %d as MessagePack: %s", seed, compared + 1, error.detail.p);
        if (!span_eq(canon_write(again, arena), wanted))
            fail_msg("seed %s, line %d as MessagePack:\n%.*s\nbut JavaScript says\n%.*s", seed,
                     compared + 1, SPAN_ARG(canon_write(again, arena)), SPAN_ARG(wanted));
        compared++;
        arena_reset(arena);
    }
    free(line);
    assert_int_equal(pclose(out), 0);
    assert_int_equal(compared, 5000);
}

static void canonical_form_is_a_fixed_point(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct span once = canon_write(
        parse(SPAN_LIT("{\"b\":[1.0,-0,1e2],\"a\":{\"\\u00e9\":\"\\/\"}}"), arena), arena);
    assert_string_equal(once.p, "{\"a\":{\"\xc3\xa9\":\"/\"},\"b\":[1,0,100]}");
    assert_true(span_eq(canon_write(parse(once, arena), arena), once));
}

static void members_beyond_the_small_case(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    for (int i = 999; i >= 0; i--)
        json_put_integer(b, o, arena_printf(arena, "k%03d", i), i);
    struct span text = canon_write(json_seal(b, o), arena);
    const struct json_value *v = parse(text, arena);
    struct json_iter it = json_iter(v);
    while (json_next(&it))
        assert_int_equal((int)json_number(it.value), (int)it.index);
    assert_int_equal(json_count(v), 1000);
}

static void digests(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    assert_string_equal(digest_bytes(SPAN_LIT("")).text,
                        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(digest_bytes(SPAN_LIT("abc")).text,
                        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(digest_json(parse(SPAN_LIT(" {\"b\":1e0, \"a\":2}"), arena), arena).text,
                        digest_bytes(SPAN_LIT("{\"a\":2,\"b\":1}")).text);
    struct span d = digest_span(SPAN_LIT("abc"), arena);
    assert_true(digest_is(d));
    assert_false(digest_is(SPAN_LIT("sha256:abc")));
    assert_false(digest_is((struct span){d.p, d.n - 1}));
    assert_false(digest_is(
        SPAN_LIT("sha256:BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")));
    assert_false(digest_is(SPAN_NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(public_vectors),
        cmocka_unit_test(table_of_the_rfc),
        cmocka_unit_test(a_million_numbers),
        cmocka_unit_test(random_documents_by_both_encodings),
        cmocka_unit_test(canonical_form_is_a_fixed_point),
        cmocka_unit_test(members_beyond_the_small_case),
        cmocka_unit_test(digests),
    };
    return cmocka_run_group_tests_name("canonical JSON", tests, NULL, NULL);
}

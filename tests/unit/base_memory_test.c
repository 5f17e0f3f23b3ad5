/* arena, text, span, uuid: what everything else stands on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/uuid.h"

static void arena_hands_out_zeroed_aligned_memory(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    for (int round = 0; round < 3; round++) {
        for (size_t n = 0; n < 5000; n += 7) {
            unsigned char *p = arena_alloc(arena, n);
            assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(p[i], 0);
            memset(p, 0xAB, n); /* what a reset must not leave behind */
        }
        arena_reset(arena);
    }
}

static void arena_gives_more_than_a_block(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    char *small = arena_dup_text(arena, SPAN_LIT("before"));
    char *big = arena_alloc(arena, 10u << 20);
    memset(big, 1, 10u << 20);
    char *after = arena_printf(arena, "%s-%d", "after", 7);
    assert_string_equal(small, "before");
    assert_string_equal(after, "after-7");
}

static int order[3], ended;
static void on_end(void *p)
{
    order[ended++] = *(int *)p;
}

static void arena_ends_foreign_things_in_reverse(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    int numbers[] = {1, 2, 3};
    ended = 0;
    for (int i = 0; i < 2; i++)
        arena_defer(arena, on_end, &numbers[i]);
    arena_reset(arena);
    assert_int_equal(ended, 2);
    assert_int_equal(order[0], 2);
    assert_int_equal(order[1], 1);
    arena_defer(arena, on_end, &numbers[2]);
    arena_free(arena);
    assert_int_equal(ended, 3);
}

static void absent_stays_absent(void **state)
{
    (void)state;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    assert_true(span_is_null(arena_dup(arena, SPAN_NULL)));
    assert_false(span_is_null(arena_dup(arena, SPAN_LIT(""))));
    assert_false(span_eq(SPAN_NULL, SPAN_LIT("")));
    assert_true(span_eq(SPAN_NULL, SPAN_NULL));
    assert_true(span_eq(SPAN_LIT("ab"), SPAN_LIT("ab")));
    assert_false(span_eq(SPAN_LIT("ab"), SPAN_LIT("abc")));
    assert_true(span_order(SPAN_LIT("ab"), SPAN_LIT("abc")) < 0);
    assert_true(span_order(SPAN_LIT("b"), SPAN_LIT("abc")) > 0);
    assert_true(span_order(SPAN_NULL, SPAN_LIT("")) < 0);
}

static void text_grows_and_ends_with_zero(void **state)
{
    (void)state;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    for (int i = 0; i < 1000; i++) {
        text_addf(&t, "%d,", i);
        assert_int_equal(t.p[t.n], 0);
    }
    assert_int_equal(t.n, strlen(t.p));
    assert_true(span_starts_with(text_span(&t), SPAN_LIT("0,1,2,")));
    char *taken = text_take(&t);
    assert_null(t.p);
    free(taken);
    char *empty = text_take(&t);
    assert_string_equal(empty, "");
    free(empty);
}

static void assert_json(struct span in, const char *out)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_add_json(&t, in);
    assert_string_equal(text_span(&t).p, out);
}

static void json_escapes_what_could_break_a_line(void **state)
{
    (void)state;
    assert_json(SPAN_LIT("plain"), "plain");
    assert_json(SPAN_LIT("a\"b\\c\n\t\r\x01\x7f"), "a\\\"b\\\\c\\n\\t\\r\\u0001\\u007f");
    assert_json(SPAN_LIT("zero\0inside"), "zero\\u0000inside");
    assert_json(SPAN_LIT("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
                "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_json(SPAN_LIT("\xff|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80"),
                "\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"
                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    assert_json(SPAN_LIT("cut \xe2\x82"), "cut \xef\xbf\xbd\xef\xbf\xbd");
}

static void uuids_are_ordered_and_read_back(void **state)
{
    (void)state;
    struct uuid last = UUID_NIL;
    for (int i = 0; i < 20000; i++) { /* more than the 4,096 of one millisecond */
        struct uuid u = uuid_v7(), again;
        char s[UUID_TEXT_SIZE];
        assert_true(uuid_order(last, u) < 0);
        uuid_format(u, s);
        assert_int_equal(s[14], '7');
        assert_non_null(strchr("89ab", s[19]));
        assert_true(uuid_parse(span_of(s), &again));
        assert_true(uuid_eq(u, again));
        last = u;
    }
    struct uuid u;
    assert_false(uuid_eq(uuid_v4(), uuid_v4()));
    assert_true(uuid_parse(SPAN_LIT("01890A5D-AC96-774B-BCCE-B302099A8057"), &u));
    const char *const wrong[] = {"",
                                 "01890a5dac96774bbcceb302099a8057",
                                 "01890a5d-ac96-774b-bcce-b302099a805",
                                 "01890a5d-ac96-774b-bcce-b302099a80577",
                                 "01890a5d+ac96-774b-bcce-b302099a8057",
                                 "0189ga5d-ac96-774b-bcce-b302099a8057"};
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_false(uuid_parse(span_of(wrong[i]), &u));
    assert_false(uuid_parse(SPAN_NULL, &u));
    assert_true(uuid_is_nil(UUID_NIL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_hands_out_zeroed_aligned_memory),
        cmocka_unit_test(arena_gives_more_than_a_block),
        cmocka_unit_test(arena_ends_foreign_things_in_reverse),
        cmocka_unit_test(absent_stays_absent),
        cmocka_unit_test(text_grows_and_ends_with_zero),
        cmocka_unit_test(json_escapes_what_could_break_a_line),
        cmocka_unit_test(uuids_are_ordered_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

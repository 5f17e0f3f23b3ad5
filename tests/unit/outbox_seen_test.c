// The recovery's table of rows: what is marked comes back, once, in order of addition.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "outbox/relay_int.h"

enum { MANY = 5000, CHUNK = 700 };

static void test_marked_rows_come_back(void **state)
{
    (void)state;
    static struct uuid ids[MANY];
    struct relay_seen *seen = relay_seen_new();
    relay_seen_mark(seen, uuid_v7()); // nothing is there yet
    for (int i = 0; i < MANY; i++) {
        ids[i] = uuid_v7();
        relay_seen_add(seen, i, ids[i]);
    }
    for (int i = 0; i < MANY; i += 3) {
        relay_seen_mark(seen, ids[i]);
        relay_seen_mark(seen, ids[i]);
        relay_seen_mark(seen, uuid_v4()); // somebody else's
    }
    assert_int_equal(relay_seen_count(seen), MANY);
    int64_t seqs[CHUNK];
    struct uuid got[CHUNK];
    size_t at = 0;
    int64_t expected = 0;
    for (size_t n; (n = relay_seen_marked(seen, &at, CHUNK, seqs, got)) > 0;) {
        for (size_t i = 0; i < n; i++, expected += 3) {
            assert_int_equal(seqs[i], expected);
            assert_true(uuid_eq(got[i], ids[expected]));
        }
    }
    assert_true(expected >= MANY);
    relay_seen_free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_marked_rows_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Times on the wire, against the C library's calendar. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "schemas/rfc3339.h"

static void accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t us;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.000001Z", 1},
        {"1969-12-31T23:59:59.999999Z", -1},
        {"2026-12-01T09:30:00Z", INT64_C(1796117400000000)},
        {"2026-12-01t09:30:00z", INT64_C(1796117400000000)},
        {"2026-12-01 09:30:00Z", INT64_C(1796117400000000)},
        {"2026-12-01T10:30:00+01:00", INT64_C(1796117400000000)},
        {"2026-12-01T04:00:00.0-05:30", INT64_C(1796117400000000)},
        {"2026-12-01T09:30:00.5Z", INT64_C(1796117400500000)},
        {"2026-12-01T09:30:00.123456789Z", INT64_C(1796117400123456)},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000000)},
        {"2000-02-29T00:00:00Z", INT64_C(951782400000000)},
        {"0001-01-01T00:00:00Z", RFC3339_MIN_US},
        {"9999-12-31T23:59:59.999999Z", RFC3339_MAX_US},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t us;
        if (!rfc3339_parse(span_of(rows[i].text), &us))
            fail_msg("refused: %s", rows[i].text);
        if (us != rows[i].us)
            fail_msg("%s: %lld", rows[i].text, (long long)us);
    }
}

static void refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "now",
        "2026-12-01",
        "2026-12-01T09:30:00",
        "2026-12-01T09:30Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-12-01T24:00:00Z",
        "2026-12-01T00:60:00Z",
        "2016-12-31T23:59:60Z",
        "2026-12-01T00:00:00.Z",
        "2026-12-01T00:00:00.1234567890Z",
        "2026-12-01T00:00:00+0100",
        "2026-12-01T00:00:00+24:00",
        "2026-12-01T00:00:00Z ",
        " 2026-12-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-12-1T00:00:00Z",
        "+026-12-01T00:00:00Z",
        "2026-12-01X00:00:00Z",
        "2026-12-01T00:00:00ZZ",
        "1796117400",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int64_t us;
        if (rfc3339_parse(span_of(rows[i]), &us))
            fail_msg("accepted: %s", rows[i]);
    }
    int64_t us;
    assert_false(rfc3339_parse(SPAN_NULL, &us));
    assert_false(rfc3339_parse((struct span){"2026-12-01T00:00:00\0Z", 21}, &us));
}

/* Every 25th hour over all ten thousand years, there and back, and against gmtime where it is fast
 * enough. */
static void there_and_back(void **state)
{
    (void)state;
    const int64_t step = INT64_C(25) * 3600 * 1000000 + 7;
    int64_t n = 0;
    for (int64_t us = RFC3339_MIN_US; us <= RFC3339_MAX_US; us += step, n++) {
        char text[RFC3339_SIZE], reference[32];
        int64_t back;
        rfc3339_format(us, text);
        assert_true(rfc3339_parse(span_of(text), &back));
        assert_int_equal(us, back);
        if (n % 50 != 0)
            continue;
        time_t seconds = (time_t)((us - ((us % 1000000) + 1000000) % 1000000) / 1000000);
        struct tm tm;
        assert_non_null(gmtime_r(&seconds, &tm));
        strftime(reference, sizeof(reference), "-%m-%dT%H:%M:%S.", &tm);
        assert_memory_equal(text + 4, reference, strlen(reference));
    }
    assert_true(n > 3000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),
        cmocka_unit_test(refused),
        cmocka_unit_test(there_and_back),
    };
    return cmocka_run_group_tests_name("RFC 3339", tests, NULL, NULL);
}

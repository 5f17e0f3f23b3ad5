#include "schemas/rfc3339.h"

#include <stdio.h>
#include <string.h>

#define DAY_US INT64_C(86400000000)

/* Days since 1970-01-01 in the proleptic Gregorian calendar; the year is counted from March, so
 * that the leap day comes last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t of_era = y - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_in(int64_t year, int64_t month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

struct reader {
    const char *p;
    size_t left;
    bool ok;
};

static int64_t take_number(struct reader *r, size_t digits, int64_t min, int64_t max)
{
    int64_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (r->left == 0 || *r->p < '0' || *r->p > '9') {
            r->ok = false;
            return min;
        }
        v = v * 10 + (*r->p - '0');
        r->p++, r->left--;
    }
    if (v < min || v > max) {
        r->ok = false;
        return min;
    }
    return v;
}

static char take_one_of(struct reader *r, const char *allowed)
{
    if (r->left == 0 || *r->p == '\0' || strchr(allowed, *r->p) == NULL) {
        r->ok = false;
        return '\0';
    }
    r->left--;
    return *r->p++;
}

static int64_t take_fraction_us(struct reader *r)
{
    if (r->left == 0 || *r->p != '.')
        return 0;
    r->p++, r->left--;
    int64_t us = 0, weight = 100000;
    size_t digits = 0;
    while (r->left > 0 && *r->p >= '0' && *r->p <= '9') {
        us += (*r->p - '0') * weight;
        weight /= 10; /* nanoseconds are read and dropped */
        r->p++, r->left--, digits++;
    }
    if (digits == 0 || digits > 9)
        r->ok = false;
    return us;
}

static int64_t take_offset_us(struct reader *r)
{
    char c = take_one_of(r, "Zz+-");
    if (c == 'Z' || c == 'z' || c == '\0')
        return 0;
    int64_t hours = take_number(r, 2, 0, 23);
    (void)take_one_of(r, ":");
    int64_t minutes = take_number(r, 2, 0, 59);
    int64_t us = (hours * 60 + minutes) * 60000000;
    return c == '-' ? -us : us;
}

bool rfc3339_parse(struct span text, int64_t *ret_us)
{
    if (text.p == NULL)
        return false;
    struct reader r = {text.p, text.n, true};
    int64_t year = take_number(&r, 4, 1, 9999);
    (void)take_one_of(&r, "-");
    int64_t month = take_number(&r, 2, 1, 12);
    (void)take_one_of(&r, "-");
    int64_t day = take_number(&r, 2, 1, days_in(year, month));
    (void)take_one_of(&r, "Tt ");
    int64_t hour = take_number(&r, 2, 0, 23);
    (void)take_one_of(&r, ":");
    int64_t minute = take_number(&r, 2, 0, 59);
    (void)take_one_of(&r, ":");
    int64_t second = take_number(&r, 2, 0, 59);
    int64_t fraction_us = take_fraction_us(&r);
    int64_t offset_us = take_offset_us(&r);
    if (!r.ok || r.left > 0)
        return false;
    int64_t us = days_of(year, month, day) * DAY_US +
                 ((hour * 60 + minute) * 60 + second) * 1000000 + fraction_us - offset_us;
    if (us < RFC3339_MIN_US ||
        us > RFC3339_MAX_US) /* an offset led out of the years that can be written again */
        return false;
    *ret_us = us;
    return true;
}

void rfc3339_format(int64_t us, char ret[RFC3339_SIZE])
{
    CHECK(us >= RFC3339_MIN_US && us <= RFC3339_MAX_US);
    int64_t days = us / DAY_US, rest = us % DAY_US;
    if (rest < 0) {
        days--;
        rest += DAY_US;
    }
    int64_t z = days + 719468;
    int64_t era = z / 146097; /* z is positive from year 1 on */
    int64_t of_era = z - era * 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t m = (5 * of_year + 2) / 153;
    unsigned day = (unsigned)(of_year - (153 * m + 2) / 5 + 1);
    unsigned month = (unsigned)(m < 10 ? m + 3 : m - 9);
    unsigned year = (unsigned)(year_of_era + era * 400 + (month <= 2 ? 1 : 0));
    unsigned second = (unsigned)(rest / 1000000);
    char text[64];
    snprintf(text, sizeof(text), "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", year, month, day,
             second / 3600, second / 60 % 60, second % 60, (unsigned)(rest % 1000000));
    memcpy(ret, text, RFC3339_SIZE);
}

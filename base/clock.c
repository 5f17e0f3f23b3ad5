#include "base/clock.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include "base/check.h"

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    CHECK(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * CLOCK_SECOND + t.tv_nsec / 1000;
}

static int64_t real_mono_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t real_wall_us(void)
{
    return read_clock(CLOCK_REALTIME);
}

static int64_t (*mono_source)(void) = real_mono_us;
static int64_t (*wall_source)(void) = real_wall_us;

int64_t clock_mono_us(void)
{
    return mono_source();
}

int64_t clock_wall_us(void)
{
    return wall_source();
}

void clock_replace(int64_t (*mono_us)(void), int64_t (*wall_us)(void))
{
    mono_source = mono_us ? mono_us : real_mono_us;
    wall_source = wall_us ? wall_us : real_wall_us;
}

int64_t clock_deadline_us(int64_t timeout_us)
{
    int64_t now = clock_mono_us();
    if (timeout_us <= 0)
        return now;
    return timeout_us > CLOCK_FOREVER - now ? CLOCK_FOREVER : now + timeout_us;
}

int clock_poll_ms(int64_t deadline_us)
{
    if (deadline_us == CLOCK_FOREVER)
        return -1;
    int64_t left = deadline_us - clock_mono_us();
    if (left <= 0)
        return 0;
    int64_t ms = (left - 1) / CLOCK_MS + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

char *clock_format(int64_t wall_us, char buf[CLOCK_TEXT_SIZE])
{
    int64_t seconds = wall_us / CLOCK_SECOND;
    int64_t rest = wall_us % CLOCK_SECOND;
    if (rest < 0) {
        rest += CLOCK_SECOND;
        seconds--;
    }
    time_t t = (time_t)seconds;
    struct tm tm;
    if (gmtime_r(&t, &tm) == NULL || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
        snprintf(buf, CLOCK_TEXT_SIZE, "out of range");
        return buf;
    }
    size_t n = strftime(buf, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, CLOCK_TEXT_SIZE - n, ".%06ldZ", (long)rest);
    return buf;
}

#include "base/uuid.h"

#include <errno.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/lock.h"

void uuid_random_bytes(void *p, size_t n)
{
    char *to = p;
    while (n > 0) {
        ssize_t got = getrandom(to, n, 0);
        CHECK(got > 0 || errno == EINTR);
        if (got > 0) {
            to += got;
            n -= (size_t)got;
        }
    }
}

static struct uuid marked(struct uuid u, unsigned version)
{
    u.b[6] = (uint8_t)((u.b[6] & 0x0F) | (version << 4));
    u.b[8] = (uint8_t)((u.b[8] & 0x3F) | 0x80);
    return u;
}

struct uuid uuid_v4(void)
{
    struct uuid u;
    uuid_random_bytes(u.b, sizeof(u.b));
    return marked(u, 4);
}

/* RFC 9562 method 1: the 12 bits behind the milliseconds are a counter. When it is used up, or the
 * wall clock steps back, the milliseconds run ahead of the clock rather than back. */
struct uuid uuid_v7(void)
{
    static struct lock lock = LOCK_INIT;
    static uint64_t last_ms;
    static unsigned counter;

    struct uuid u;
    uuid_random_bytes(u.b, sizeof(u.b));
    uint64_t ms = (uint64_t)(clock_wall_us() / CLOCK_MS);
    unsigned count;
    {
        LOCK_SCOPE(&lock);
        if (ms > last_ms) {
            last_ms = ms;
            counter = u.b[6] & 0x07u; /* a small random start leaves room to count */
        } else if (++counter > 0xFFF) {
            last_ms++;
            counter = 0;
        }
        ms = last_ms;
        count = counter;
    }
    for (int i = 0; i < 6; i++)
        u.b[i] = (uint8_t)(ms >> (40 - 8 * i));
    u.b[6] = (uint8_t)(count >> 8);
    u.b[7] = (uint8_t)count;
    return marked(u, 7);
}

char *uuid_format(struct uuid u, char buf[UUID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *to = buf;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = digits[u.b[i] >> 4];
        *to++ = digits[u.b[i] & 0x0F];
    }
    *to = '\0';
    return buf;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool uuid_parse(struct span s, struct uuid *ret)
{
    if (s.p == NULL || s.n != UUID_TEXT_SIZE - 1)
        return false;
    struct uuid u;
    size_t at = 0;
    for (int i = 0; i < 16; i++) {
        if ((i == 4 || i == 6 || i == 8 || i == 10) && s.p[at++] != '-')
            return false;
        int high = hex_value(s.p[at]);
        int low = hex_value(s.p[at + 1]);
        if (high < 0 || low < 0)
            return false;
        u.b[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    *ret = u;
    return true;
}

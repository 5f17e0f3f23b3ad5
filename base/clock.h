/* The two clocks. Validity and waits are reckoned on the monotonic clock only; the wall clock is
 * for people and for messages. Neither decides about a lease: PostgreSQL's clock does.
 *
 * Thread: any. Times are microseconds in int64_t. Waits with a condition are in lock.h. */
#ifndef HOLDFAST_BASE_CLOCK_H
#define HOLDFAST_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_FOREVER INT64_MAX
#define CLOCK_MS INT64_C(1000)
#define CLOCK_SECOND INT64_C(1000000)

int64_t clock_mono_us(void);
int64_t clock_wall_us(void);

/* now + timeout, saturating; CLOCK_FOREVER stays CLOCK_FOREVER, a negative timeout is "now". */
int64_t clock_deadline_us(int64_t timeout_us);

/* What poll(2) wants until that deadline: rounded up to milliseconds, -1 for CLOCK_FOREVER, 0 when
 * it has passed. */
int clock_poll_ms(int64_t deadline_us);

/* 2026-07-03T12:00:00.000000Z of a wall time. Writes at most CLOCK_TEXT_SIZE bytes and returns buf. */
#define CLOCK_TEXT_SIZE 32
char *clock_format(int64_t wall_us, char buf[CLOCK_TEXT_SIZE]);

/* Seam for tests: replaces both clocks until called with NULL. Not while other threads run. */
void clock_replace(int64_t (*mono_us)(void), int64_t (*wall_us)(void));

#endif

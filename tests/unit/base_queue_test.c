/* queue, lock, clock: nothing is lost or doubled between threads, and waits end when they should.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/queue.h"

enum { PUSHERS = 3, POPPERS = 2, EACH = 20000 };

struct traffic {
    struct queue *queue;
    uintptr_t first;
    unsigned char *seen; /* per popper its own */
};

static void *push_all(void *arg)
{
    struct traffic *t = arg;
    for (uintptr_t i = 0; i < EACH; i++) {
        bool pushed = queue_push(t->queue, (void *)(t->first + i), CLOCK_FOREVER);
        CHECK(pushed);
    }
    return NULL;
}

static void *pop_all(void *arg)
{
    struct traffic *t = arg;
    void *items[16];
    size_t n;
    while ((n = queue_pop_many(t->queue, items, COUNT_OF(items), CLOCK_FOREVER)) > 0)
        for (size_t i = 0; i < n; i++)
            t->seen[(uintptr_t)items[i]]++;
    return NULL;
}

static void everything_arrives_once(void **state)
{
    (void)state;
    struct queue *queue = queue_new(8);
    pthread_t pushers[PUSHERS], poppers[POPPERS];
    struct traffic in[PUSHERS], out[POPPERS];
    for (size_t i = 0; i < POPPERS; i++) {
        out[i] = (struct traffic){queue, 0, memory_new(PUSHERS * EACH + 1, 1)};
        assert_true(thread_start(&poppers[i], "popper", pop_all, &out[i]));
    }
    for (size_t i = 0; i < PUSHERS; i++) {
        in[i] = (struct traffic){queue, 1 + i * EACH, NULL};
        assert_true(thread_start(&pushers[i], "pusher", push_all, &in[i]));
    }
    for (size_t i = 0; i < PUSHERS; i++)
        thread_join(pushers[i]);
    queue_close(queue);
    for (size_t i = 0; i < POPPERS; i++)
        thread_join(poppers[i]);
    for (size_t k = 1; k <= PUSHERS * EACH; k++)
        assert_int_equal(out[0].seen[k] + out[1].seen[k], 1);
    for (size_t i = 0; i < POPPERS; i++)
        free(out[i].seen);
    queue_free(queue);
}

static void a_full_queue_refuses_in_time(void **state)
{
    (void)state;
    int thing;
    struct queue *queue = queue_new(2);
    assert_true(queue_try_push(queue, &thing));
    assert_int_equal(queue_room(queue), 1);
    assert_true(queue_try_push(queue, &thing));
    assert_false(queue_try_push(queue, &thing));
    int64_t start = clock_mono_us();
    assert_false(queue_push(queue, &thing, 20 * CLOCK_MS));
    assert_true(clock_mono_us() - start >= 20 * CLOCK_MS);
    for (int i = 0; i < 100; i++)
        assert_true(queue_force_push(queue, &thing)); /* completions are never refused */
    assert_int_equal(queue_len(queue), 102);
    assert_int_equal(queue_room(queue), 0);
    void *items[200];
    assert_int_equal(queue_pop_many(queue, items, 200, 0), 102);
    queue_free(queue);
}

static void order_survives_growing(void **state)
{
    (void)state;
    struct queue *queue = queue_new(4);
    void *items[3];
    uintptr_t next_in = 1, next_out = 1;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 5; i++)
            assert_true(queue_force_push(queue, (void *)next_in++));
        size_t n = queue_pop_many(queue, items, 3, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal((uintptr_t)items[i], next_out++);
    }
    queue_free(queue);
}

static void a_closed_queue_gives_what_it_has(void **state)
{
    (void)state;
    int thing;
    struct queue *queue = queue_new(2);
    assert_true(queue_try_push(queue, &thing));
    queue_close(queue);
    assert_true(queue_is_closed(queue));
    assert_false(queue_try_push(queue, &thing));
    assert_false(queue_force_push(queue, &thing));
    assert_ptr_equal(queue_pop(queue, CLOCK_FOREVER), &thing);
    assert_null(queue_pop(queue, CLOCK_FOREVER));
    queue_free(queue);
}

static void *nudge(void *arg)
{
    struct queue *queue = arg;
    /* until the popper is there to be nudged: its own return closes the queue */
    while (!queue_is_closed(queue))
        queue_nudge(queue);
    return NULL;
}

static void a_nudge_wakes_with_nothing(void **state)
{
    (void)state;
    struct queue *queue = queue_new(2);
    pthread_t thread;
    assert_true(thread_start(&thread, "nudger", nudge, queue));
    assert_null(queue_pop(queue, CLOCK_FOREVER));
    queue_close(queue);
    thread_join(thread);
    queue_free(queue);
}

static int64_t fixed_now;
static int64_t fixed_clock(void)
{
    return fixed_now;
}

static void deadlines_saturate(void **state)
{
    (void)state;
    fixed_now = 5 * CLOCK_SECOND;
    clock_replace(fixed_clock, fixed_clock);
    assert_int_equal(clock_deadline_us(CLOCK_MS), 5 * CLOCK_SECOND + CLOCK_MS);
    assert_int_equal(clock_deadline_us(CLOCK_FOREVER), CLOCK_FOREVER);
    assert_int_equal(clock_deadline_us(-7), 5 * CLOCK_SECOND);
    assert_int_equal(clock_poll_ms(CLOCK_FOREVER), -1);
    assert_int_equal(clock_poll_ms(fixed_now), 0);
    assert_int_equal(clock_poll_ms(fixed_now + 1), 1); /* rounded up: never a busy loop */
    assert_int_equal(clock_poll_ms(fixed_now + 2500), 3);
    clock_replace(NULL, NULL);
    char s[CLOCK_TEXT_SIZE];
    assert_string_equal(clock_format(INT64_C(1783080000123456), s), "2026-07-03T12:00:00.123456Z");
    assert_string_equal(clock_format(-1, s), "1969-12-31T23:59:59.999999Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives_once),
        cmocka_unit_test(a_full_queue_refuses_in_time),
        cmocka_unit_test(order_survives_growing),
        cmocka_unit_test(a_closed_queue_gives_what_it_has),
        cmocka_unit_test(a_nudge_wakes_with_nothing),
        cmocka_unit_test(deadlines_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The contiguous done prefix: what may be committed, whatever order and thread the records are done
 * in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "broker/offsets_int.h"

struct seen {
    int64_t offset;
    size_t calls;
};

static void remember(void *opaque, const char *topic, int32_t partition, int64_t offset)
{
    struct seen *seen = opaque;
    (void)topic;
    (void)partition;
    seen->offset = offset;
    seen->calls++;
}

static int64_t position(struct broker_offsets *offsets)
{
    struct seen seen = {OFFSET_NONE, 0};
    (void)broker_offsets_dirty(offsets, remember, &seen);
    return seen.offset;
}

static void only_the_contiguous_done_prefix_may_be_committed(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    uint64_t generation = 0;

    for (int64_t i = 0; i < 5; i++)
        generation =
            broker_offsets_hand_out(offsets, part, 10 + 2 * i); /* with gaps, as after compaction */
    assert_int_equal(position(offsets), OFFSET_NONE);
    assert_true(broker_offsets_done(offsets, part, generation, 12));
    assert_int_equal(position(offsets), OFFSET_NONE);
    assert_true(broker_offsets_done(offsets, part, generation, 10));
    assert_int_equal(position(offsets), 13);
    assert_true(broker_offsets_done(offsets, part, generation, 18));
    assert_true(broker_offsets_done(offsets, part, generation, 16));
    assert_int_equal(position(offsets), 13);
    assert_int_equal(broker_offsets_outstanding(offsets), 1);
    assert_true(broker_offsets_done(offsets, part, generation, 14));
    assert_int_equal(position(offsets), 19);
    assert_int_equal(broker_offsets_outstanding(offsets), 0);
    broker_offsets_committed(offsets, "t", 0, 19);
    assert_int_equal(broker_offsets_dirty(offsets, NULL, NULL), 0);
    broker_offsets_unref(offsets);
}

static void done_twice_or_of_an_unknown_offset_is_stale(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    uint64_t generation = broker_offsets_hand_out(offsets, part, 5);

    (void)broker_offsets_hand_out(offsets, part, 6);
    assert_true(broker_offsets_done(offsets, part, generation, 6));
    assert_false(broker_offsets_done(offsets, part, generation, 6));
    assert_false(broker_offsets_done(offsets, part, generation, 7));
    assert_false(broker_offsets_done(offsets, part, generation, 4));
    assert_int_equal(position(offsets), OFFSET_NONE);
    broker_offsets_unref(offsets);
}

static void done_of_an_earlier_assignment_changes_nothing(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    uint64_t first = broker_offsets_hand_out(offsets, part, 0);

    broker_offsets_revoke(offsets, part);
    assert_false(broker_offsets_done(offsets, part, first, 0));
    assert_null(broker_offsets_find(offsets, "t", 0));
    assert_ptr_equal(broker_offsets_assign(offsets, "t", 0), part);
    uint64_t second = broker_offsets_hand_out(offsets, part, 0); /* the same record again */
    assert_int_not_equal(first, second);
    assert_false(broker_offsets_done(offsets, part, first, 0));
    assert_int_equal(position(offsets), OFFSET_NONE);
    assert_true(broker_offsets_done(offsets, part, second, 0));
    assert_int_equal(position(offsets), 1);
    broker_offsets_close(offsets);
    assert_int_equal(broker_offsets_dirty(offsets, NULL, NULL), 0);
    broker_offsets_unref(offsets);
}

static void an_offset_that_goes_back_begins_a_new_generation(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    uint64_t before = broker_offsets_hand_out(offsets, part, 100);
    uint64_t after = broker_offsets_hand_out(offsets, part, 3);

    assert_false(broker_offsets_done(offsets, part, before, 100));
    assert_true(broker_offsets_done(offsets, part, after, 3));
    assert_int_equal(position(offsets), 4);
    broker_offsets_unref(offsets);
}

static void the_end_of_a_partition_passes_markers_once_all_is_done(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    uint64_t generation = broker_offsets_hand_out(offsets, part, 7);

    broker_offsets_end(offsets, part, 9); /* 8 is a transaction's marker */
    assert_int_equal(position(offsets), OFFSET_NONE);
    assert_true(broker_offsets_done(offsets, part, generation, 7));
    assert_int_equal(position(offsets), 9);
    (void)broker_offsets_hand_out(offsets, part, 9);
    broker_offsets_end(offsets, part, 9); /* an end seen before that record says nothing */
    assert_int_equal(position(offsets), 9);
    broker_offsets_unref(offsets);
}

static void pause_all_holds_for_partitions_assigned_later(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    broker_offsets_pause_all(offsets, true);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);

    assert_true(broker_offsets_is_paused(offsets, part));
    assert_true(broker_offsets_pause(offsets, part, true));
    broker_offsets_pause_all(offsets, false);
    assert_true(broker_offsets_is_paused(offsets, part));
    assert_false(broker_offsets_pause(offsets, part, false));
    broker_offsets_unref(offsets);
}

/* ---- Threads ---- */

enum { RECORDS = 20000, WORKERS = 4 };

struct shared {
    struct broker_offsets *offsets;
    struct broker_part *part;
    uint64_t generation;
    int worker;
};

static void *do_every_nth(void *argument)
{
    struct shared *s = argument;
    for (int64_t i = RECORDS - 1 - s->worker; i >= 0; i -= WORKERS)
        (void)broker_offsets_done(s->offsets, s->part, s->generation, i);
    return NULL;
}

static void done_by_many_threads_drains_and_wakes_who_waits(void **state)
{
    (void)state;
    struct broker_offsets *offsets = broker_offsets_new(NULL, NULL);
    struct broker_part *part = broker_offsets_assign(offsets, "t", 0);
    struct shared shared[WORKERS];
    pthread_t threads[WORKERS];
    uint64_t generation = 0;

    for (int64_t i = 0; i < RECORDS; i++)
        generation = broker_offsets_hand_out(offsets, part, i);
    assert_false(broker_offsets_wait_done(offsets, &part, 1, clock_mono_us()));
    for (int i = 0; i < WORKERS; i++) {
        shared[i] = (struct shared){offsets, part, generation, i};
        assert_true(thread_start(&threads[i], "done", do_every_nth, &shared[i]));
    }
    assert_true(broker_offsets_wait_done(offsets, &part, 1, clock_deadline_us(30 * CLOCK_SECOND)));
    for (int i = 0; i < WORKERS; i++)
        thread_join(threads[i]);
    assert_int_equal(position(offsets), RECORDS);
    broker_offsets_unref(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_contiguous_done_prefix_may_be_committed),
        cmocka_unit_test(done_twice_or_of_an_unknown_offset_is_stale),
        cmocka_unit_test(done_of_an_earlier_assignment_changes_nothing),
        cmocka_unit_test(an_offset_that_goes_back_begins_a_new_generation),
        cmocka_unit_test(the_end_of_a_partition_passes_markers_once_all_is_done),
        cmocka_unit_test(pause_all_holds_for_partitions_assigned_later),
        cmocka_unit_test(done_by_many_threads_drains_and_wakes_who_waits),
    };
    return cmocka_run_group_tests_name("broker_offsets", tests, NULL, NULL);
}

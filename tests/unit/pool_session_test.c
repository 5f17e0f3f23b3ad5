/* Local validity may only stop work; doubt ends by a renewal alone; the registry never loses a
 * session. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pool/hints_int.h"
#include "pool/session_int.h"

static int64_t now_us;

static int64_t test_clock(void)
{
    return now_us;
}

static struct sessions *all;
static struct queue *wake;

static int set_up(void **state)
{
    (void)state;
    now_us = 1000000;
    clock_replace(test_clock, NULL);
    all = sessions_new(8);
    wake = queue_new(8);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clock_replace(NULL, NULL);
    sessions_free(all);
    queue_free(wake);
    return 0;
}

#define TTL_US (30 * CLOCK_SECOND)

static struct session *held(uint8_t run, int64_t epoch)
{
    struct fence_acquired row = {
        .epoch = epoch,
        .revision = 3,
        .tenant_id = SPAN_LIT("t"),
        .task_id = SPAN_LIT("task"),
        .handler = SPAN_LIT("plan"),
        .checkpoint = {SPAN_LIT("{\"a\":1}")},
        .traceparent = SPAN_LIT("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    };
    row.run_id.b[15] = run;
    struct session *s = session_new(&row, SPAN_LIT("pod/token"), now_us, TTL_US);
    (void)sessions_add(all, s, wake);
    return s;
}

static struct fence_lease lease_of(const struct session *s)
{
    return (struct fence_lease){s->run_id, s->owner, s->epoch};
}

static void validity_counts_from_before_the_token_was_sent(void **state)
{
    (void)state;
    struct session *s = held(1, 1);
    assert_true(session_is_valid(s));
    now_us += TTL_US - 1;
    assert_true(session_is_valid(s));
    now_us += 1;
    assert_false(session_is_valid(s));
    sessions_end(all, s);
}

static void a_session_keeps_its_own_copy_of_the_context(void **state)
{
    (void)state;
    struct session *s = held(1, 1);
    assert_true(span_eq_text(s->checkpoint, "{\"a\":1}"));
    assert_true(span_is_null(s->operations));
    assert_true(span_eq_text(s->trace_id, "0af7651916cd43dd8448eb211c80319c"));
    session_advance(s, 4, SPAN_LIT("{\"a\":2}"));
    assert_int_equal(s->revision, 4);
    assert_true(span_eq_text(s->checkpoint, "{\"a\":2}"));
    session_advance(s, 5, SPAN_NULL); /* unchanged */
    assert_true(span_eq_text(s->checkpoint, "{\"a\":2}"));
    sessions_end(all, s);
}

static void doubt_ends_by_a_renewal_only(void **state)
{
    (void)state;
    struct session *s = held(1, 1);
    struct fence_lease lease = lease_of(s);
    assert_true(sessions_stop(all, &lease, SESSION_DOUBT, wake));
    assert_false(sessions_stop(all, &lease, SESSION_DOUBT, wake)); /* nothing new */
    assert_int_equal(sessions_in_doubt(all), 1);
    assert_true(sessions_shelve(all, s));
    assert_int_equal(queue_len(wake), 0);
    assert_true(sessions_renewed(all, &lease, now_us + TTL_US, wake));
    assert_ptr_equal(queue_pop(wake, 0), s); /* off the shelf */
    assert_int_equal(session_stopped(s), SESSION_GOES);
    assert_false(sessions_shelve(all, s)); /* nobody doubts any more */
    sessions_end(all, s);
}

static void a_lost_lease_stays_lost(void **state)
{
    (void)state;
    struct session *s = held(1, 1);
    struct fence_lease lease = lease_of(s);
    assert_true(sessions_stop(all, &lease, SESSION_DOUBT, wake));
    assert_true(sessions_shelve(all, s));
    assert_true(sessions_stop(all, &lease, SESSION_LOST, wake));
    assert_ptr_equal(queue_pop(wake, 0), s); /* a worker ends it */
    assert_false(sessions_stop(all, &lease, SESSION_CANCELLED, wake));
    assert_false(sessions_stop(all, &lease, SESSION_DOUBT, wake));
    assert_false(sessions_renewed(all, &lease, now_us + TTL_US, wake));
    assert_int_equal(session_stopped(s), SESSION_LOST);
    sessions_end(all, s);
}

static void a_later_epoch_of_the_same_pod_ends_the_earlier(void **state)
{
    (void)state;
    struct session *old = held(1, 1), *other = held(2, 1);
    struct session *new = held(1, 2);
    assert_int_equal(session_stopped(old), SESSION_LOST);
    assert_int_equal(session_stopped(new), SESSION_GOES);
    assert_int_equal(session_stopped(other), SESSION_GOES);
    struct arena *arena = arena_new();
    struct fence_lease *leases;
    bool *prefiltered;
    /* only what is not lost is renewed: no run twice in a statement */
    assert_int_equal(sessions_leases(all, INT64_MAX, INT64_MAX, arena, &leases, &prefiltered), 2);
    arena_free(arena);
    sessions_end(all, old);
    sessions_end(all, other);
    sessions_end(all, new);
}

static void a_doubtful_one_leaves_the_shelf_when_its_run_comes_back_here(void **state)
{
    (void)state;
    struct session *old = held(1, 1);
    struct fence_lease lease = lease_of(old);
    assert_true(sessions_stop(all, &lease, SESSION_DOUBT, wake));
    assert_true(sessions_shelve(all, old));
    struct session *new = held(1, 2); /* heart will not ask for the old one any more */
    assert_ptr_equal(queue_pop(wake, 0), old);
    assert_int_equal(session_stopped(old), SESSION_LOST);
    sessions_end(all, old);
    sessions_end(all, new);
}

static void heart_asks_for_what_has_little_time_left(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    struct fence_lease *leases;
    bool *prefiltered;
    struct session *early = held(1, 1);
    now_us += 20 * CLOCK_SECOND;
    struct session *late = held(2, 1);
    assert_int_equal(sessions_leases(all, TTL_US / 2, TTL_US / 2, arena, &leases, &prefiltered), 1);
    assert_memory_equal(&leases[0].run_id, &early->run_id, sizeof(struct uuid));
    assert_true(span_eq_text(leases[0].owner, "pod/token"));
    assert_int_equal(sessions_leases(all, INT64_MAX, INT64_MAX, arena, &leases, &prefiltered), 2);
    arena_free(arena);
    sessions_end(all, early);
    sessions_end(all, late);
}

/* A beat that crossed the commit which gives a lease back would be refused as a stale worker's. */
static void heart_leaves_alone_what_is_being_given_back(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    struct fence_lease *leases;
    bool *prefiltered;
    struct session *going = held(1, 1), *leaving = held(2, 1);
    going->prefiltered = true;
    atomic_store(&leaving->leaving, true);
    now_us += 10 * CLOCK_SECOND;
    assert_int_equal(sessions_leases(all, TTL_US, TTL_US / 2, arena, &leases, &prefiltered), 1);
    assert_memory_equal(&leases[0].run_id, &going->run_id, sizeof(struct uuid));
    assert_true(prefiltered[0]);
    now_us += 10 * CLOCK_SECOND; /* the write takes long: the lease must not run out under it */
    assert_int_equal(sessions_leases(all, TTL_US, TTL_US / 2, arena, &leases, &prefiltered), 2);
    arena_free(arena);
    sessions_end(all, going);
    sessions_end(all, leaving);
}

static void draining_wakes_the_shelf(void **state)
{
    (void)state;
    struct session *s = held(1, 1), *t = held(2, 1);
    struct fence_lease lease = lease_of(s);
    assert_true(sessions_stop(all, &lease, SESSION_DOUBT, wake));
    assert_true(sessions_shelve(all, s));
    sessions_stop_all(all, SESSION_DRAIN, wake);
    assert_int_equal(session_stopped(t), SESSION_DRAIN);
    assert_ptr_equal(queue_pop(wake, 0), s);
    sessions_end(all, s);
    sessions_end(all, t);
    assert_true(sessions_wait_empty(all, 0));
}

static void many_runs_are_found_again(void **state)
{
    (void)state;
    struct session *s[200];
    for (int i = 0; i < 200; i++)
        s[i] = held((uint8_t)i, 1);
    assert_int_equal(sessions_count(all), 200);
    for (int i = 199; i >= 0; i -= 2) {
        struct fence_lease lease = lease_of(s[i]);
        assert_true(sessions_stop(all, &lease, SESSION_CANCELLED, wake));
        lease.epoch = 9;
        assert_false(sessions_stop(all, &lease, SESSION_LOST, wake));
    }
    for (int i = 0; i < 200; i++) {
        assert_int_equal(session_stopped(s[i]), i % 2 == 1 ? SESSION_CANCELLED : SESSION_GOES);
        sessions_end(all, s[i]);
    }
}

static void hints_are_bounded_and_in_order(void **state)
{
    (void)state;
    clock_replace(NULL, NULL);
    struct hints *h = hints_new(2);
    struct hint got[4];
    bool nudged;
    assert_true(hints_add(h, (struct hint){{{1}}, 1}));
    assert_true(hints_add(h, (struct hint){{{2}}, 1}));
    assert_false(hints_add(h, (struct hint){{{3}}, 1}));
    hints_nudge(h);
    assert_int_equal(hints_take(h, got, 4, 0, &nudged), 2);
    assert_true(nudged);
    assert_int_equal(got[0].run_id.b[0], 1);
    assert_int_equal(got[1].run_id.b[0], 2);
    assert_int_equal(hints_take(h, got, 4, 0, &nudged), 0);
    assert_false(nudged);
    hints_free(h);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(validity_counts_from_before_the_token_was_sent),
        CASE(a_session_keeps_its_own_copy_of_the_context),
        CASE(doubt_ends_by_a_renewal_only),
        CASE(a_lost_lease_stays_lost),
        CASE(a_later_epoch_of_the_same_pod_ends_the_earlier),
        CASE(a_doubtful_one_leaves_the_shelf_when_its_run_comes_back_here),
        CASE(heart_asks_for_what_has_little_time_left),
        CASE(heart_leaves_alone_what_is_being_given_back),
        CASE(draining_wakes_the_shelf),
        CASE(many_runs_are_found_again),
        CASE(hints_are_bounded_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

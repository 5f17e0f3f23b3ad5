/* Which records and which writes may share a statement, in which order, and what a write's identity
 * covers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/memory.h"
#include "pool/commit_int.h"
#include "pool/record_int.h"

static struct arena *arena;

static int make_arena(void **state)
{
    (void)state;
    arena = arena_new();
    return 0;
}

static int free_arena(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* ---- rounds of records: named by a letter, written as "letter:task/request" ---- */

static struct task_record *record(const char *task, const char *request)
{
    struct task_record *r = arena_alloc(arena, sizeof(*r));
    r->message.tenant_id = SPAN_LIT("t");
    r->message.task_id = span_of(task);
    r->message.request_key = span_of(request);
    return r;
}

static void order_is(struct task_record **records, size_t n, const char *requests)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(records[i]->message.request_key.p[0], requests[i]);
    assert_int_equal(n, strlen(requests));
}

static void one_record_a_task_and_round_in_order(void **state)
{
    (void)state;
    struct task_record *records[] = {record("x", "1"), record("y", "2"), record("x", "3"),
                                     record("x", "4"), record("z", "5"), record("y", "6")};
    size_t n = round_pick(records, 6, 100, arena);
    order_is(records, n, "125");
    order_is(records + n, 6 - n, "346");
    n = round_pick(records + 3, 3, 100, arena);
    order_is(records + 3, n, "36");
    order_is(records + 3 + n, 3 - n, "4");
}

static void a_request_key_is_a_domain_too(void **state)
{
    (void)state;
    struct task_record *records[] = {record("x", "1"), record("y", "1"), record("y", "2"),
                                     record("z", "3")};
    size_t n = round_pick(records, 4, 100, arena);
    /* y/2 must not pass y/1 */
    order_is(records, n, "13");
    order_is(records + n, 4 - n, "12");
}

static void the_limit_keeps_the_order_of_a_task(void **state)
{
    (void)state;
    struct task_record *records[] = {record("x", "1"), record("y", "2"), record("z", "3"),
                                     record("y", "4")};
    size_t n = round_pick(records, 4, 1, arena);
    order_is(records, n, "1");
    order_is(records + n, 4 - n, "234");
    n = round_pick(records + 1, 3, 1, arena);
    order_is(records + 1, n, "2");
    order_is(records + 2, 2, "34");
}

static void controls_of_one_run_are_one_domain(void **state)
{
    (void)state;
    struct task_record *records[] = {record(NULL, "1"), record(NULL, "2"), record("x", "3")};
    for (int i = 0; i < 2; i++) {
        records[i]->message.has_run = true;
        records[i]->message.run_id.b[15] = 7;
    }
    size_t n = round_pick(records, 3, 100, arena);
    order_is(records, n, "13");
    order_is(records + n, 3 - n, "2");
}

static void tenants_do_not_meet(void **state)
{
    (void)state;
    struct task_record *records[] = {record("x", "1"), record("x", "1")};
    records[1]->message.tenant_id = SPAN_LIT("u");
    assert_int_equal(round_pick(records, 2, 100, arena), 2);
}

static void a_long_backlog_drains_in_order(void **state)
{
    (void)state;
    enum { RECORDS = 2000, TASKS = 37 };
    struct task_record **records = arena_array(arena, RECORDS, sizeof(*records));
    int *next = arena_array(arena, TASKS, sizeof(*next));
    for (int i = 0; i < RECORDS; i++) {
        records[i] =
            record(arena_printf(arena, "task%d", i * 7 % TASKS), arena_printf(arena, "%d", i));
        records[i]->tried = i;
    }
    for (int t = 0; t < TASKS; t++)
        next[t] = -1;
    size_t left = RECORDS;
    while (left > 0) {
        size_t n = round_pick(records, left, 25, arena);
        assert_in_range(n, 1, 25);
        for (size_t i = 0; i < n; i++) {
            int task = records[i]->tried * 7 % TASKS;
            assert_true(records[i]->tried > next[task]);
            next[task] = records[i]->tried;
        }
        left -= n;
        memmove(records, records + n, left * sizeof(*records));
    }
}

/* ---- batches of writes ---- */

static struct commit_request *write_of(uint8_t run, int64_t epoch, size_t bytes)
{
    struct commit_request *r = arena_alloc(arena, sizeof(*r));
    r->run_id.b[15] = run;
    r->epoch = epoch;
    r->decision = decision_empty("continue");
    if (bytes > 0)
        r->decision.checkpoint.text = (struct span){arena_alloc(arena, bytes), bytes};
    return r;
}

static void no_run_twice_in_a_statement(void **state)
{
    (void)state;
    struct commit_limits limits = {100, 1 << 20};
    /* an older session's late write and its successor's, and a third run */
    struct commit_request *a = write_of(1, 1, 0), *b = write_of(1, 2, 0), *c = write_of(2, 1, 0);
    struct commit_request *requests[] = {a, b, c};
    assert_int_equal(commit_pick(requests, 3, &limits, arena), 2);
    assert_ptr_equal(requests[0], a);
    assert_ptr_equal(requests[1], c);
    assert_ptr_equal(requests[2], b);
}

static void a_statement_is_bounded_in_items_and_bytes(void **state)
{
    (void)state;
    struct commit_limits limits = {3, 10000};
    struct commit_request *requests[] = {write_of(1, 1, 0), write_of(2, 1, 0), write_of(3, 1, 0),
                                         write_of(4, 1, 0)};
    assert_int_equal(commit_pick(requests, 4, &limits, arena), 3);
    struct commit_request *large[] = {write_of(1, 1, 50000), write_of(2, 1, 0)};
    assert_int_equal(commit_pick(large, 2, &limits, arena), 1); /* alone, but it goes */
    struct commit_request *mixed[] = {write_of(1, 1, 5000), write_of(2, 1, 5000),
                                      write_of(3, 1, 100)};
    assert_int_equal(commit_pick(mixed, 3, &limits, arena), 2);
    assert_int_equal(mixed[2]->run_id.b[15], 2);
}

static void groups_name_their_item(void **state)
{
    (void)state;
    struct commit_request *a = write_of(1, 1, 10), *b = write_of(2, 1, 0);
    struct fence_intent intents[2] = {{.operation_id = SPAN_LIT("o1")},
                                      {.operation_id = SPAN_LIT("o2")}};
    struct span waits[1] = {SPAN_LIT("o2")};
    struct fence_event events[1] = {{.type = SPAN_LIT("seen")}};
    b->decision.intents = intents;
    b->decision.intent_n = 2;
    b->decision.wait_for = waits;
    b->decision.wait_n = 1;
    a->decision.events = events;
    a->decision.event_n = 1;
    a->decision.release = true;
    struct commit_request *requests[] = {a, b};
    struct fence_commit_batch batch;
    commit_build(requests, 2, arena, &batch);
    assert_int_equal(batch.item_n, 2);
    assert_true(batch.items[0].release);
    assert_int_equal(batch.items[0].checkpoint.text.n, 10);
    assert_true(span_is_null(batch.items[1].checkpoint.text));
    assert_true(batch.items[1].wait_until.is_null);
    assert_int_equal(batch.intent_n, 2);
    assert_int_equal(batch.intents[0].item, 2);
    assert_int_equal(batch.intents[1].item, 2);
    assert_int_equal(batch.waits[0].item, 2);
    assert_int_equal(batch.events[0].item, 1);
    assert_int_equal(intents[0].item,
                     0); /* the decision itself stays as it is: it may be offered again */
}

static void a_write_is_identified_by_all_of_its_content(void **state)
{
    (void)state;
    struct commit_request *a = write_of(1, 1, 0), *b = write_of(1, 1, 0);
    a->decision.output.text = SPAN_LIT("ab");
    b->decision.output.text = SPAN_LIT("ab");
    commit_prepare(a);
    commit_prepare(b);
    assert_string_equal(a->digest.text, b->digest.text);
    assert_false(uuid_eq(a->commit_id, b->commit_id));
    /* moved between neighbouring fields */
    b->decision.checkpoint.text = SPAN_LIT("a");
    b->decision.output.text = SPAN_LIT("b");
    commit_prepare(b);
    assert_string_not_equal(a->digest.text, b->digest.text);
    /* absent is not empty */
    b->decision = a->decision;
    b->decision.wait_signal = SPAN_LIT("");
    commit_prepare(b);
    assert_string_not_equal(a->digest.text, b->digest.text);
    b->decision = a->decision;
    b->revision = 1;
    commit_prepare(b);
    assert_string_not_equal(a->digest.text, b->digest.text);
}

static void backoff_grows_to_its_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        assert_in_range(decision_backoff_ms(0, 1000, 60000), 500, 1000);
        assert_in_range(decision_backoff_ms(3, 1000, 60000), 4000, 8000);
        assert_in_range(decision_backoff_ms(40, 1000, 60000), 30000, 60000);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_arena, free_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_record_a_task_and_round_in_order),
        CASE(a_request_key_is_a_domain_too),
        CASE(the_limit_keeps_the_order_of_a_task),
        CASE(controls_of_one_run_are_one_domain),
        CASE(tenants_do_not_meet),
        CASE(a_long_backlog_drains_in_order),
        CASE(no_run_twice_in_a_statement),
        CASE(a_statement_is_bounded_in_items_and_bytes),
        CASE(groups_name_their_item),
        CASE(a_write_is_identified_by_all_of_its_content),
        CASE(backoff_grows_to_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

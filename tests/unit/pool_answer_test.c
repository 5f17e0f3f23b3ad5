/* What an exec handler may decide, and how what it may not is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "pool/exec_int.h"

#define RUN "0190a000-0000-7000-8000-000000000001"

static struct arena *arena;
static struct pool pool;
static struct session session;
static struct plan_tool tools[] = {
    {{"payments", 8}, {"idempotency_key", 15}, {"{\"kind\":\"http\"}", 15}, true},
};

static int64_t noon(void)
{
    return INT64_C(1764590400) * CLOCK_SECOND;
}

static int set_up(void **state)
{
    (void)state;
    arena = arena_new();
    pool.tools = tools;
    pool.tool_n = 1;
    session.tenant = SPAN_LIT("acme");
    assert_true(uuid_parse(SPAN_LIT(RUN), &session.run_id));
    session.first_run_id = session.run_id;
    session.signals = SPAN_NULL;
    atomic_store(&pool.clock_offset_us, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clock_replace(NULL, NULL);
    arena_free(arena);
    return 0;
}

static struct decision read(const char *line)
{
    struct decision d;
    struct span why;
    session.answer = span_of(line);
    if (!answer_read(&pool, &session, arena, &d, &why))
        fail_msg("%s: %.*s", line, SPAN_ARG(why));
    return d;
}

static void refused(const char *line, const char *words)
{
    struct decision d;
    struct span why;
    session.answer = span_of(line);
    assert_false(answer_read(&pool, &session, arena, &d, &why));
    if (strstr(why.p, words) == NULL)
        fail_msg("\"%s\" is not in: %.*s", words, SPAN_ARG(why));
}

static void same(struct span text, const char *wanted)
{
    if (!span_eq_text(text, wanted))
        fail_msg("%.*s\n is not %s", SPAN_ARG(text), wanted);
}

static void the_plain_decisions(void **state)
{
    (void)state;
    struct decision d = read("{\"decision\":\"continue\",\"checkpoint\":{\"n\":1}}");
    same(d.checkpoint.text, "{\"n\":1}");
    assert_false(d.release);
    assert_true(span_is_null(d.finish));

    d = read("{\"decision\":\"succeed\",\"output\":{\"total\":3}}");
    same(d.finish, "succeeded");
    same(d.output.text, "{\"total\":3}");
    assert_true(span_is_null(d.checkpoint.text)); /* unchanged */

    d = read("{\"decision\":\"fail\",\"failure\":{\"reason\":\"no\"}}");
    same(d.finish, "failed");
    same(d.output.text, "{\"reason\":\"no\"}");

    d = read("{\"decision\":\"fail\",\"retry_after_ms\":5000}");
    assert_true(span_is_null(d.finish));
    assert_false(d.retry_ms.is_null);
    assert_int_equal(d.retry_ms.v, 5000);
    assert_true(d.release);
}

static void a_sleep_is_reckoned_on_the_databases_clock(void **state)
{
    (void)state;
    clock_replace(NULL, noon);
    atomic_store(&pool.clock_offset_us, -3 * CLOCK_SECOND);
    struct decision d = read("{\"decision\":\"sleep\",\"ms\":10000}");
    assert_int_equal(d.wait_until.us, noon() + 7 * CLOCK_SECOND);
    same(d.wait_mode, "none");
    assert_true(d.release);
    d = read("{\"decision\":\"sleep\",\"until\":\"2025-12-01T12:00:00Z\"}");
    assert_int_equal(d.wait_until.us, noon());
    refused("{\"decision\":\"sleep\"}", "needs \"ms\" or \"until\"");
    refused("{\"decision\":\"sleep\",\"ms\":1,\"until\":\"2025-12-01T12:00:00Z\"}", "not both");
    refused("{\"decision\":\"sleep\",\"ms\":-1}", "from 0");
    refused("{\"decision\":\"sleep\",\"until\":\"tomorrow\"}", "a time like");
}

/* Whoever takes the run over asks for the same effect under the same name. */
static void an_identity_has_nothing_of_its_session(void **state)
{
    (void)state;
    static const char pay[] = "{\"decision\":\"plan\",\"intents\":[{\"id\":\"pay\",\"tool\":"
                              "\"payments\",\"request\":{}}]}";
    session.owner = SPAN_LIT("p1/1");
    session.epoch = 1;
    struct fence_intent first = read(pay).intents[0];
    session.owner = SPAN_LIT("p2/9");
    session.epoch = 7;
    session.revision = 3;
    struct fence_intent again = read(pay).intents[0];
    same(first.operation_id, "acme/" RUN "/pay/1");
    same(again.operation_id, "acme/" RUN "/pay/1");
    same(again.external_key, "acme/" RUN "/pay/1");
}

static void intents_become_operations_with_an_identity(void **state)
{
    (void)state;
    struct decision d =
        read("{\"decision\":\"plan\",\"intents\":[{\"id\":\"pay\",\"tool\":\"payments\","
             "\"request\":{\"b\":1,\"a\":2},\"effect_version\":2,\"after_settled\":true}],"
             "\"operations\":[\"acme/x\"],\"wait\":\"any\"}");
    assert_int_equal(d.intent_n, 1);
    same(d.intents[0].operation_id, "acme/" RUN "/pay/2");
    same(d.intents[0].body.text, "{\"a\":2,\"b\":1}");
    same(d.intents[0].capability, "idempotency_key");
    assert_true(d.intents[0].after_settled);
    same(d.wait_mode, "any");
    assert_int_equal(d.wait_n, 2);
    same(d.wait_for[0], "acme/x");
    same(d.wait_for[1], "acme/" RUN "/pay/2");
    assert_true(d.release);

    d = read("{\"decision\":\"plan\",\"wait\":\"none\",\"intents\":[{\"id\":\"pay\",\"tool\":"
             "\"payments\"}]}");
    assert_true(span_is_null(d.wait_mode));
    assert_int_equal(d.wait_n, 0);
    assert_false(d.release);
}

static void a_plan_that_cannot_be_is_told(void **state)
{
    (void)state;
    refused("{\"decision\":\"plan\"}", "names nothing to wait for");
    refused("{\"decision\":\"plan\",\"wait\":\"some\",\"operations\":[\"o\"]}",
            "\"all\", \"any\" or \"none\"");
    refused("{\"decision\":\"plan\",\"wait\":\"none\",\"operations\":[\"o\"]}",
            "waits for no operations");
    refused("{\"decision\":\"plan\",\"intents\":[{\"id\":\"a\",\"tool\":\"payment\"}]}",
            "did you mean \"payments\"");
    refused("{\"decision\":\"plan\",\"intents\":[{\"id\":\"a/b\",\"tool\":\"payments\"}]}",
            "A-Z a-z");
    refused(
        "{\"decision\":\"plan\",\"intents\":[{\"id\":\"a\",\"tool\":\"payments\",\"reqest\":{}}]}",
        "did you mean \"request\"");
    refused("{\"decision\":\"plan\",\"intents\":{}}", "must be an array");
}

static void events_and_detached_operations(void **state)
{
    (void)state;
    struct decision d = read(
        "{\"decision\":\"succeed\",\"events\":[{\"type\":\"invoice.sent\",\"body\":{\"no\":1}}],"
        "\"detach\":[\"acme/x\"]}");
    assert_int_equal(d.event_n, 1);
    same(d.events[0].type, "invoice.sent");
    same(d.events[0].body.text, "{\"no\":1}");
    assert_int_equal(d.detach_n, 1);
    same(d.detach[0], "acme/x");
    same(d.output.text, "{}");
    refused("{\"decision\":\"succeed\",\"events\":[{\"type\":\"x\"}]}", "event 0 needs");
    refused("{\"decision\":\"succeed\",\"events\":[{\"type\":\"a b\",\"body\":{}}]}", "event 0: \"type\"");
    refused("{\"decision\":\"succeed\",\"events\":[{\"type\":\"\",\"body\":{}}]}", "1 to 64 characters");
    refused("{\"decision\":\"plan\",\"wait\":\"none\"}", "without anything in it");
}

static void signals_that_were_shown_are_consumed(void **state)
{
    (void)state;
    session.signals = SPAN_LIT("[{\"signal_id\":\"s1\",\"name\":\"go\",\"payload\":null}]");
    struct decision d = read("{\"decision\":\"continue\"}");
    assert_int_equal(d.consume_n, 1);
    same(d.consume[0], "s1");
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    (void)state;
    refused("{\"decision\":\"suceed\"}", "did you mean \"succeed\"");
    refused("{\"decision\":7}", "is no decision");
    refused("{\"decision\":\"succeed\",\"outptu\":{}}", "did you mean \"output\"");
    refused("{\"decision\":\"continue\",\"checkpoint\":[]}", "must be an object");
    refused("{\"decision\":\"wait_signal\"}", "needs \"name\"");
    refused("{\"decision\":\"wait_signal\",\"name\":\"a b\"}", "must be 1 to");
    refused("{\"decision\":\"continue\"", "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_plain_decisions),
        CASE(a_sleep_is_reckoned_on_the_databases_clock),
        CASE(intents_become_operations_with_an_identity),
        CASE(an_identity_has_nothing_of_its_session),
        CASE(a_plan_that_cannot_be_is_told),
        CASE(events_and_detached_operations),
        CASE(signals_that_were_shown_are_consumed),
        CASE(what_is_not_known_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A plan is checked where it is submitted, with the place of what is wrong; and what its ledger
 * says comes next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/text.h"
#include "pool/nearest.h"
#include "pool/plan_int.h"
#include "schemas/canon.h"

#define RUN "0190a000-0000-7000-8000-000000000001"
#define FIRST "0190a000-0000-7000-8000-000000000000"

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

/* ---- checking ---- */

static void refused(const char *input, const char *place, const char *words)
{
    static const struct span names[] = {{"payments", 8}, {"mail", 4}};
    struct plan_names tools = {names, 2};
    struct plan_fault fault;
    assert_false(plan_check(span_of(input), &tools, arena, &fault));
    if (!span_eq_text(fault.place, place))
        fail_msg("place is %.*s, not %s: %.*s", SPAN_ARG(fault.place), place, SPAN_ARG(fault.what));
    if (strstr(fault.what.p, words) == NULL)
        fail_msg("\"%s\" is not in: %.*s", words, SPAN_ARG(fault.what));
}

static void accepted(const char *input)
{
    static const struct span names[] = {{"payments", 8}, {"mail", 4}};
    struct plan_names tools = {names, 2};
    struct plan_fault fault;
    if (!plan_check(span_of(input), &tools, arena, &fault))
        fail_msg("%.*s: %.*s", SPAN_ARG(fault.place), SPAN_ARG(fault.what));
}

static void a_plan_that_can_run_is_accepted(void **state)
{
    (void)state;
    accepted("{\"steps\":[]}");
    accepted("{\"steps\":[{\"id\":\"a\",\"tool\":\"payments\"}]}");
    accepted("{\"steps\":[{\"id\":\"b\",\"tool\":\"mail\",\"after\":[\"a\"],\"request\":"
             "{\"x\":[1,{\"$ref\":\"/steps/a/result/list/0\"}],\"y\":{\"$ref\":\"/steps/a/"
             "remote_id\"}}},"
             "{\"id\":\"a\",\"tool\":\"payments\",\"effect_version\":7,\"request\":{}}]}");
}

static void the_shape_is_checked_with_its_place(void **state)
{
    (void)state;
    refused("[]", "", "must be an object");
    refused("{}", "/steps", "needs \"steps\"");
    refused("{\"step\":[]}", "/step", "did you mean \"steps\"");
    refused("{\"steps\":{}}", "/steps", "an array");
    refused("{\"steps\":[1]}", "/steps/0", "not a number");
    refused("{\"steps\":[{\"tool\":\"mail\"}]}", "/steps/0", "needs \"id\"");
    refused("{\"steps\":[{\"id\":\"a/b\",\"tool\":\"mail\"}]}", "/steps/0/id", "A-Z a-z");
    refused("{\"steps\":[{\"id\":\"a\"}]}", "/steps/0", "needs \"tool\"");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"requst\":{}}]}", "/steps/0/requst",
            "did you mean \"request\"");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"effect_version\":0}]}",
            "/steps/0/effect_version", "from 1");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"after\":\"b\"}]}", "/steps/0/after",
            "array");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"after\":[1]}]}", "/steps/0/after/0",
            "array");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\"},{\"id\":\"a\",\"tool\":\"mail\"}]}",
            "/steps/1/id", "there already, at /steps/0");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"request\":{\"n\":9007199254740993}}]}",
            "/steps/0/request/n", "");
}

static void names_that_lead_nowhere_are_told_with_the_nearest(void **state)
{
    (void)state;
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"paymnets\"}]}", "/steps/0/tool",
            "did you mean \"payments\"");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"xyz\"}]}", "/steps/0/tool",
            "no pod ever declared");
    refused("{\"steps\":[{\"id\":\"reserve\",\"tool\":\"mail\"},"
            "{\"id\":\"b\",\"tool\":\"mail\",\"after\":[\"reserv\"]}]}",
            "/steps/1/after/0", "did you mean \"reserve\"");
    refused("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"request\":{\"x~/y\":[{\"$ref\":\"/steps/"
            "q/result\"}]}}]}",
            "/steps/0/request/x~0~1y/0", "there is no step \"q\"");
}

static void references_are_checked(void **state)
{
    (void)state;
#define WITH(ref)                                                                                  \
    "{\"steps\":[{\"id\":\"b\",\"tool\":\"mail\"},{\"id\":\"a\",\"tool\":\"mail\",\"request\":{"   \
    "\"x\":" ref "}}]}"
    refused(WITH("{\"$ref\":\"/steps/b/output\"}"), "/steps/1/request/x", "is no reference");
    refused(WITH("{\"$ref\":\"steps/b/result\"}"), "/steps/1/request/x", "is no reference");
    refused(WITH("{\"$ref\":\"/steps/b\"}"), "/steps/1/request/x", "is no reference");
    refused(WITH("{\"$ref\":\"/input/b\"}"), "/steps/1/request/x", "is no reference");
    refused(WITH("{\"$ref\":3}"), "/steps/1/request/x", "whole value");
    refused(WITH("{\"$ref\":\"/steps/b/result\",\"more\":1}"), "/steps/1/request/x", "whole value");
#undef WITH
    refused(
        "{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"request\":{\"$ref\":\"/steps/a/result\"}}]}",
        "/steps/0/request", "waits for itself");
}

static void a_cycle_is_named(void **state)
{
    (void)state;
    refused("{\"steps\":[{\"id\":\"free\",\"tool\":\"mail\"},"
            "{\"id\":\"a\",\"tool\":\"mail\",\"after\":[\"free\",\"c\"]},"
            "{\"id\":\"b\",\"tool\":\"mail\",\"after\":[\"a\"]},"
            "{\"id\":\"c\",\"tool\":\"mail\",\"request\":{\"x\":{\"$ref\":\"/steps/b/result\"}}}]}",
            "/steps/1", "a → c → b → a");
    /* a step behind the cycle is not part of it */
    refused("{\"steps\":[{\"id\":\"tail\",\"tool\":\"mail\",\"after\":[\"a\"]},"
            "{\"id\":\"a\",\"tool\":\"mail\",\"after\":[\"b\"]},{\"id\":\"b\",\"tool\":\"mail\","
            "\"after\":[\"a\"]}]}",
            "/steps/1", "a → b → a");
}

static void a_plan_has_at_most_a_thousand_steps(void **state)
{
    (void)state;
    struct text t = TEXT_EMPTY;
    for (int n = 1000; n <= 1001; n++) {
        text_reset(&t);
        text_add_str(&t, "{\"steps\":[");
        for (int i = 0; i < n; i++) {
            text_addf(&t, "%s{\"id\":\"s%d\",\"tool\":\"mail\"", i > 0 ? "," : "", i);
            if (i > 0)
                text_addf(&t, ",\"after\":[\"s%d\"]", i - 1);
            text_add_char(&t, '}');
        }
        text_add_str(&t, "]}");
        if (n == 1000)
            accepted(t.p);
        else
            refused(t.p, "/steps", "at most 1000");
    }
    text_free(&t);
}

/* ---- evaluation ---- */

static struct plan_decision evaluate(const char *input, const char *operations)
{
    static const struct plan_tool tools[] = {
        {{"payments", 8}, {"idempotency_key", 15}, {"{\"kind\":\"http\"}", 15}, true},
        {{"mail", 4}, {"none", 4}, {"{}", 2}, false},
    };
    struct plan_run run = {
        .tenant = SPAN_LIT("acme"), .input = span_of(input), .operations = span_of(operations)};
    assert_true(uuid_parse(SPAN_LIT(RUN), &run.run_id));
    assert_true(uuid_parse(SPAN_LIT(FIRST), &run.first_run_id));
    struct plan_decision d;
    plan_evaluate(&run, tools, 2, arena, &d);
    return d;
}

static void same(struct span text, const char *wanted)
{
    if (!span_eq_text(text, wanted))
        fail_msg("%.*s\n is not %s", SPAN_ARG(text), wanted);
}

#define OP(step, status, more)                                                                     \
    "{\"operation_id\":\"acme/" RUN "/" step "/1\",\"step_id\":\"" step                            \
    "\",\"effect_version\":1,\"status\":\"" status "\"" more "}"

static void an_empty_plan_succeeds_at_once(void **state)
{
    (void)state;
    struct plan_decision d = evaluate("{\"steps\":[]}", NULL);
    assert_int_equal(d.next, PLAN_SUCCEEDED);
    same(d.result, "{\"steps\":{}}");
}

static const char diamond[] =
    "{\"steps\":["
    "{\"id\":\"a\",\"tool\":\"payments\",\"request\":{\"b\":1,\"a\":2.0}},"
    "{\"id\":\"b\",\"tool\":\"mail\"},"
    "{\"id\":\"c\",\"tool\":\"mail\",\"after\":[\"a\",\"b\"],\"request\":"
    "{\"id\":{\"$ref\":\"/steps/a/remote_id\"},\"n\":{\"$ref\":\"/steps/a/result/n\"}}}]}";

static void what_may_start_is_registered_in_one_go(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(diamond, NULL);
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 2);
    same(d.intents[0].operation_id, "acme/" RUN "/a/1");
    same(d.intents[0].external_key, "acme/" FIRST "/a/1"); /* key_scope = submission */
    same(d.intents[0].capability, "idempotency_key");
    same(d.intents[0].declaration, "{\"kind\":\"http\"}");
    same(d.intents[0].body, "{\"a\":2,\"b\":1}");
    struct digest digest = digest_bytes(SPAN_LIT("{\"a\":2,\"b\":1}"));
    same(d.intents[0].digest, digest.text);
    same(d.intents[1].operation_id, "acme/" RUN "/b/1");
    same(d.intents[1].external_key, "acme/" RUN "/b/1");
    same(d.intents[1].body, "{}");
    /* c has not started: any of the two may let it start */
    assert_false(d.wait_all);
    assert_int_equal(d.wait_n, 2);
}

static void a_step_waits_for_all_it_needs(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(
        diamond, "[" OP("a", "succeeded", ",\"remote_id\":\"r1\",\"result\":{\"n\":5}") "," OP(
                     "b", "unknown", "") "]");
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 0);
    assert_int_equal(d.wait_n, 1);
    same(d.wait_for[0], "acme/" RUN "/b/1");
}

static void references_are_resolved_out_of_the_ledger(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(
        diamond,
        "[" OP("a", "succeeded",
               ",\"remote_id\":\"r1\",\"result\":{\"n\":{\"deep\":[1,2]}}") "," OP("b", "succeeded",
                                                                                   "") "]");
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 1);
    same(d.intents[0].body, "{\"id\":\"r1\",\"n\":{\"deep\":[1,2]}}");
    assert_true(d.wait_all); /* nothing is left that could start */
    assert_int_equal(d.wait_n, 1);
}

static void the_output_has_every_step(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(
        "{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\"},{\"id\":\"b\",\"tool\":\"mail\"}]}",
        "[" OP("b", "succeeded", ",\"remote_id\":null,\"result\":[true]") "," OP(
            "a", "succeeded", ",\"remote_id\":\"x\",\"adopted_from\":\"o\",\"result\":null") "]");
    assert_int_equal(d.next, PLAN_SUCCEEDED);
    same(d.result,
         "{\"steps\":{\"a\":{\"status\":\"succeeded\",\"remote_id\":\"x\",\"result\":null},"
         "\"b\":{\"status\":\"succeeded\",\"remote_id\":null,\"result\":[true]}}}");
}

static const char failing[] =
    "{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\"},{\"id\":\"b\",\"tool\":\"mail\"},"
    "{\"id\":\"c\",\"tool\":\"mail\"},{\"id\":\"d\",\"tool\":\"mail\",\"after\":[\"b\"]}]}";

static void after_a_failure_nothing_starts_and_what_is_in_flight_is_waited_for(void **state)
{
    (void)state;
    struct plan_decision d =
        evaluate(failing, "[" OP("a", "failed_final", ",\"result\":{\"error\":\"no\"}") "," OP(
                              "b", "succeeded", "") "," OP("c", "dispatching", "") "]");
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 0); /* d could start */
    assert_true(d.wait_all);
    assert_int_equal(d.wait_n, 1);
    same(d.wait_for[0], "acme/" RUN "/c/1");
}

static void then_the_run_fails_with_the_step_and_the_answer(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(
        failing,
        "[" OP("a", "failed_final", ",\"remote_id\":\"m7\",\"result\":{\"error\":\"no\"}") "," OP(
            "b", "succeeded", "") "," OP("c", "succeeded", "") "]");
    assert_int_equal(d.next, PLAN_FAILED);
    assert_non_null(
        strstr(d.result.p, "\"reason\":\"step_failed\",\"step\":\"a\",\"tool\":\"mail\""));
    assert_non_null(strstr(d.result.p, "\"remote_id\":\"m7\",\"answer\":{\"error\":\"no\"}"));
}

static void an_unknown_step_keeps_the_run_waiting(void **state)
{
    (void)state;
    struct plan_decision d =
        evaluate("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\"}]}", "[" OP("a", "unknown", "") "]");
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 0);
    assert_int_equal(d.wait_n, 1);
}

static void a_reference_to_nothing_fails_the_run_with_its_place(void **state)
{
    (void)state;
    const char *operations =
        "[" OP("a", "succeeded",
               ",\"remote_id\":\"r\",\"result\":{\"m\":5}") "," OP("b", "succeeded", "") "]";
    struct plan_decision d = evaluate(diamond, operations);
    assert_int_equal(d.next, PLAN_FAILED);
    assert_non_null(strstr(
        d.result.p,
        "\"reason\":\"reference_to_nothing\",\"step\":\"c\",\"place\":\"/steps/2/request/n\""));
    /* a remote id that the remote did not give is nothing either */
    d = evaluate(diamond, "[" OP("a", "succeeded", ",\"result\":{\"n\":5}") "," OP("b", "succeeded",
                                                                                   "") "]");
    assert_int_equal(d.next, PLAN_FAILED);
    assert_non_null(strstr(d.result.p, "/steps/2/request/id"));
}

static void a_reference_to_a_number_that_no_digest_holds_fails_the_run(void **state)
{
    (void)state;
    struct plan_decision d = evaluate(
        diamond,
        "[" OP("a", "succeeded", ",\"remote_id\":\"r\",\"result\":{\"n\":9007199254740993}") "," OP(
            "b", "succeeded", "") "]");
    assert_int_equal(d.next, PLAN_FAILED);
    assert_non_null(strstr(d.result.p, "\"reason\":\"request_not_canonical\""));
    assert_non_null(strstr(d.result.p, "/steps/2/request/n"));
}

static void a_tool_of_other_pods_is_no_end_of_the_run(void **state)
{
    (void)state;
    struct plan_decision d = evaluate("{\"steps\":[{\"id\":\"a\",\"tool\":\"elsewhere\"}]}", NULL);
    assert_int_equal(d.next, PLAN_UNABLE);
    assert_non_null(strstr(d.result.p, "/steps/0/tool"));
}

static void operations_of_another_version_are_not_this_plans(void **state)
{
    (void)state;
    struct plan_decision d =
        evaluate("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"effect_version\":2}]}",
                 "[" OP("a", "succeeded", "") "," OP("other", "failed_final", "") "]");
    assert_int_equal(d.next, PLAN_WAIT);
    assert_int_equal(d.intent_n, 1);
    same(d.intents[0].operation_id, "acme/" RUN "/a/2");
    assert_int_equal(d.intents[0].version, 2);
}

static void an_input_that_was_never_checked_fails_the_run(void **state)
{
    (void)state;
    struct plan_decision d =
        evaluate("{\"steps\":[{\"id\":\"a\",\"tool\":\"mail\",\"after\":[\"b\"]},"
                 "{\"id\":\"b\",\"tool\":\"mail\",\"after\":[\"a\"]}]}",
                 NULL);
    assert_int_equal(d.next, PLAN_FAILED);
    assert_non_null(strstr(d.result.p, "\"reason\":\"plan_invalid\""));
}

static void the_nearest_name_is_near(void **state)
{
    (void)state;
    static const struct span names[] = {{"payments", 8}, {"mail", 4}, {"plan", 4}};
    same(nearest_name(SPAN_LIT("paymnets"), names, 3), "payments");
    same(nearest_name(SPAN_LIT("plna"), names, 3), "plan");
    assert_true(span_is_null(nearest_name(SPAN_LIT("warehouse"), names, 3)));
    assert_true(span_is_null(nearest_name(SPAN_LIT("x"), NULL, 0)));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_arena, free_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_plan_that_can_run_is_accepted),
        CASE(the_shape_is_checked_with_its_place),
        CASE(names_that_lead_nowhere_are_told_with_the_nearest),
        CASE(references_are_checked),
        CASE(a_cycle_is_named),
        CASE(a_plan_has_at_most_a_thousand_steps),
        CASE(an_empty_plan_succeeds_at_once),
        CASE(what_may_start_is_registered_in_one_go),
        CASE(a_step_waits_for_all_it_needs),
        CASE(references_are_resolved_out_of_the_ledger),
        CASE(the_output_has_every_step),
        CASE(after_a_failure_nothing_starts_and_what_is_in_flight_is_waited_for),
        CASE(then_the_run_fails_with_the_step_and_the_answer),
        CASE(an_unknown_step_keeps_the_run_waiting),
        CASE(a_reference_to_nothing_fails_the_run_with_its_place),
        CASE(a_reference_to_a_number_that_no_digest_holds_fails_the_run),
        CASE(a_tool_of_other_pods_is_no_end_of_the_run),
        CASE(operations_of_another_version_are_not_this_plans),
        CASE(an_input_that_was_never_checked_fails_the_run),
        CASE(the_nearest_name_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

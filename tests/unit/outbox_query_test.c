// What a remote's answer about an operation in doubt is worth, without a network, case by case.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/http_exchange_int.h"
#include "outbox/reconcile_int.h"

static struct config_tool tool;

static void set(const char *name, const char *value, struct arena *arena)
{
    assert_true(config_tool_set_declared(&tool, name, value, arena));
}

static struct question judge(struct arena *arena, int status, const char *body)
{
    struct question q = {.arena = arena, .declared = &tool};
    q.row.external_key = SPAN_LIT("default/r/pay/1");
    q.row.request_body.text = SPAN_LIT("{\"amount\":7,\"to\":{\"iban\":\"X\"}}");
    q.row.declaration.text = SPAN_LIT("{}");
    const struct http_exchange x = {.head = NULL};
    const struct http_answer answer = {.may_have_been_sent = true,
                                       .fault = status == 0 ? HTTP_FAULT_TIMEOUT : HTTP_FAULT_NONE,
                                       .status = status,
                                       .detail = "",
                                       .body = span_of(body),
                                       .exchange = &x};
    query_judge(&q, &answer);
    return q;
}

static void expect(struct arena *arena, int status, const char *body, enum finding want)
{
    struct question q = judge(arena, status, body);
    if (q.finding != want)
        fail_msg("%d %s: %s, not %s", status, body, finding_word(q.finding), finding_word(want));
    assert_true(q.evidence.n > 2);
}

static void what_was_found_or_not(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    config_tool_forget_declared(&tool, arena);
    expect(arena, 200, "{\"id\":\"a\"}", FOUND_SUCCEEDED);
    expect(arena, 404, "{}", FOUND_ABSENT);
    expect(arena, 200, "<html>", FOUND_NOTHING);
    expect(arena, 500, "{}", FOUND_NOTHING);
    expect(arena, 302, "", FOUND_NOTHING);
    expect(arena, 0, "", FOUND_NOTHING);
    set("query_found", "/items/0", arena);
    expect(arena, 200, "{\"items\":[{\"id\":1}]}", FOUND_SUCCEEDED);
    expect(arena, 200, "{\"items\":[]}", FOUND_ABSENT);
    // No place for it is no word about it.
    expect(arena, 200, "{\"error\":\"down\"}", FOUND_NOTHING);
    set("query_found", "", arena);
    set("query_absent", "/unknown", arena);
    expect(arena, 200, "{\"unknown\":true}", FOUND_ABSENT);
    expect(arena, 200, "{\"unknown\":false}", FOUND_SUCCEEDED);
    set("state", "/state", arena);
    expect(arena, 200, "{\"state\":\"completed\"}", FOUND_SUCCEEDED);
    expect(arena, 200, "{\"state\":\"rejected\"}", FOUND_FAILED);
    expect(arena, 200, "{\"state\":\"working\"}", FOUND_PENDING);
    expect(arena, 200, "{\"status\":\"completed\"}", FOUND_NOTHING);
    arena_free(arena);
}

static void only_what_is_ours_counts(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    config_tool_forget_declared(&tool, arena);
    set("capability", "deterministic_id", arena);
    set("tag", "/tag", arena);
    set("owner", "/owner", arena);
    set("owner_is", "us", arena);
    set("spec", "/spec", arena);
#define OURS "\"tag\":\"default/r/pay/1\",\"owner\":\"us\",\"spec\":"
    expect(arena, 200, "{" OURS "{\"amount\":7,\"to\":{\"iban\":\"X\",\"made\":1},\"more\":[]}}",
           FOUND_SUCCEEDED);
    expect(arena, 200, "{" OURS "{\"amount\":8,\"to\":{\"iban\":\"X\"}}}", FOUND_FOREIGN);
    expect(arena, 200, "{" OURS "{\"amount\":7}}", FOUND_FOREIGN);
    expect(arena, 200, "{\"tag\":\"other\",\"owner\":\"us\",\"spec\":{}}", FOUND_FOREIGN);
    expect(arena, 200, "{\"tag\":\"default/r/pay/1\",\"owner\":\"them\",\"spec\":{}}",
           FOUND_FOREIGN);
    expect(arena, 200, "{}", FOUND_FOREIGN);
    set("spec_is", "/to", arena);
    expect(arena, 200, "{" OURS "{\"iban\":\"X\"}}", FOUND_SUCCEEDED);
    arena_free(arena);
}

static void the_address_is_escaped(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    struct ledger_question row = {.external_key = SPAN_LIT("default/r/p y/1"),
                                  .remote_id = SPAN_NULL};
    tool.query_url = "http://x/{operation_id}?k={operation_id}";
    assert_string_equal(query_url(&tool, &row, arena),
                        "http://x/default%2Fr%2Fp%20y%2F1?k=default%2Fr%2Fp%20y%2F1");
    tool.query_url = "http://x/{remote_id}";
    assert_null(query_url(&tool, &row, arena));
    row.remote_id = SPAN_LIT("../admin");
    assert_string_equal(query_url(&tool, &row, arena), "http://x/..%2Fadmin");
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_found_or_not),
        cmocka_unit_test(only_what_is_ours_counts),
        cmocka_unit_test(the_address_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

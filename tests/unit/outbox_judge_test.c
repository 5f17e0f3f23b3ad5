// What an answer means for the ledger, without a network: the rule of protocol section 9, case by
// case.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "net/http_exchange_int.h"
#include "outbox/dispatch_int.h"
#include "schemas/json.h"

static struct config config = {.dispatch = {.retry_ms = 1000, .retry_max_ms = 60000}};
static struct config_tool declared = {.name = "pay"};

struct given {
    bool sent;
    enum http_fault fault;
    int status;
    const char *body, *head, *declaration;
};

static struct dispatch judge(struct arena *arena, const struct given *g)
{
    static struct outbox outbox;
    static struct tool tool;
    outbox.config = &config;
    tool.config = &declared;
    declared.final_statuses.bits[422 / 64] |= UINT64_C(1) << (422 % 64);
    declared.not_acted_statuses.bits[429 / 64] |= UINT64_C(1) << (429 % 64);
    struct dispatch d = {.arena = arena, .outbox = &outbox, .tool = &tool};
    d.claim.declaration.text = span_of(g->declaration == NULL ? "{}" : g->declaration);
    d.claim.attempt = 1;
    char head[512] = "";
    struct http_exchange x = {.head = head};
    if (g->head != NULL) {
        x.head_n =
            (size_t)snprintf(head, sizeof head, "HTTP/1.1 %d x\r\n%s\r\n\r\n", g->status, g->head);
    }
    const struct http_answer answer = {.may_have_been_sent = g->sent,
                                       .fault = g->fault,
                                       .status = g->status,
                                       .detail = "",
                                       .body = span_of(g->body == NULL ? "" : g->body),
                                       .exchange = &x};
    http_judge(&d, &answer);
    return d;
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        struct given given;
        enum verdict verdict;
    } cases[] = {
        {{true, HTTP_FAULT_NONE, 200, "{\"id\":\"p-1\"}", NULL, NULL}, VERDICT_SUCCEEDED},
        {{true, HTTP_FAULT_NONE, 204, "", NULL, NULL}, VERDICT_SUCCEEDED},
        {{true, HTTP_FAULT_NONE, 200, "<html>", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_NONE, 302, "", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_NONE, 422, "{}", NULL, NULL}, VERDICT_FAILED_FINAL},
        {{true, HTTP_FAULT_NONE, 500, "{}", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_NONE, 503, "{}", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_NONE, 429, "", NULL, NULL}, VERDICT_NOT_SENT},
        // A status that was read is no word of the remote when the answer broke off behind it.
        {{true, HTTP_FAULT_CLOSED, 200, "{\"id\":", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_TOO_LARGE, 422, "{", NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_CLOSED, 429, "", NULL, NULL}, VERDICT_UNKNOWN},
        // Only the hook decides about "sent", whatever the fault is called.
        {{true, HTTP_FAULT_CONNECT, 0, NULL, NULL, NULL}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_RESEND, 0, NULL, NULL, NULL}, VERDICT_UNKNOWN},
        {{false, HTTP_FAULT_TIMEOUT, 0, NULL, NULL, NULL}, VERDICT_NOT_SENT},
        {{false, HTTP_FAULT_DEADLINE, 0, NULL, NULL, NULL}, VERDICT_NOT_SENT},
        // The declaration stored at registration is stronger than today's configuration.
        {{true, HTTP_FAULT_NONE, 422, "{}", NULL, "{\"final_statuses\":[400]}"}, VERDICT_UNKNOWN},
        {{true, HTTP_FAULT_NONE, 400, "{}", NULL, "{\"final_statuses\":[400]}"},
         VERDICT_FAILED_FINAL},
        {{true, HTTP_FAULT_NONE, 429, "", NULL, "{\"not_acted_statuses\":[]}"}, VERDICT_UNKNOWN},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arena *arena = arena_new();
        struct dispatch d = judge(arena, &cases[i].given);
        if (d.verdict != cases[i].verdict) {
            fail_msg("case %zu: %s, not %s", i, verdict_word(d.verdict),
                     verdict_word(cases[i].verdict));
        }
        assert_true(d.evidence.n > 2);
        arena_free(arena);
    }
}

static void test_remote_id_and_retry_after(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    struct dispatch d =
        judge(arena, &(struct given){true, HTTP_FAULT_NONE, 201,
                                     "{\"data\":{\"ref\":7},\"id\":\"x\"}", NULL, NULL});
    assert_true(span_eq_text(d.remote_id, "x"));
    d = judge(arena, &(struct given){true, HTTP_FAULT_NONE, 201, "{\"data\":{\"ref\":7}}", NULL,
                                     "{\"remote_id\":\"/data/ref\"}"});
    assert_true(span_eq_text(d.remote_id, "7"));
    d = judge(arena, &(struct given){true, HTTP_FAULT_NONE, 429, "", "Retry-After: 30", NULL});
    assert_true(d.retry_ms == 30000);
    d = judge(arena, &(struct given){true, HTTP_FAULT_NONE, 429, "", "Retry-After: soon", NULL});
    assert_true(d.retry_ms >= 500 && d.retry_ms <= 1000);
    d = judge(arena,
              &(struct given){true, HTTP_FAULT_NONE, 429, "", "Retry-After: 99999999999", NULL});
    assert_true(d.retry_ms == INT64_C(86400000));
    arena_free(arena);
}

static void test_back_off_doubles_within_bounds(void **state)
{
    (void)state;
    for (int32_t attempts = 1; attempts < 40; attempts++) {
        int64_t full = attempts > 6 ? 60000 : INT64_C(1000) << (attempts - 1);
        int64_t ms = dispatch_back_off_ms(&config.dispatch, attempts);
        assert_true(ms >= full / 2 && ms <= full);
    }
}

// What a remote sends must neither break jsonb nor forge a line.
static void test_evidence_is_harmless(void **state)
{
    (void)state;
    struct arena *arena = arena_new();
    struct http_exchange x = {.head = NULL};
    const char body[] = "a\0b\"\\\n\xff";
    const struct http_answer answer = {.may_have_been_sent = true,
                                       .fault = HTTP_FAULT_NONE,
                                       .status = 500,
                                       .detail = "",
                                       .body = {.p = body, .n = sizeof body - 1},
                                       .exchange = &x};
    struct span evidence = evidence_of_answer(&answer, arena);
    const struct json_value *value = NULL;
    struct json_error error;
    assert_true(json_parse(evidence, NULL, arena, &value, &error));
    assert_true(span_eq_text(json_text(json_get(value, "body")), "a?b\"\\\n\xef\xbf\xbd"));
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_remote_id_and_retry_after),
        cmocka_unit_test(test_back_off_doubles_within_bounds),
        cmocka_unit_test(test_evidence_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

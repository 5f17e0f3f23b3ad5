// outbox/http_judge.c: what an HTTP answer means for the ledger. Whatever is not certain here is
// unknown.
#include "outbox/dispatch_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "schemas/json.h"

enum { RETRY_AFTER_MAX_S = 24 * 3600 };

// The declaration stored at registration decides; a member it lacks is the configuration's.
static bool declared(const struct json_value *declaration, const char *member, int status,
                     const struct config_statuses *configured)
{
    const struct json_value *list = json_get(declaration, member);
    if (!json_is(list, JSON_ARRAY)) {
        return config_status_in(configured, status);
    }
    for (struct json_iter it = json_iter(list); json_next(&it);) {
        int64_t number = 0;
        if (json_integer(it.value, &number) && number == status) {
            return true;
        }
    }
    return false;
}

// Seconds, or an HTTP date. 0: absent or nonsense.
static int64_t retry_after_ms(const struct http_answer *answer)
{
    struct span value = http_answer_header(answer, "retry-after");
    char text[64];
    if (span_is_null(value) || value.n == 0 || value.n >= sizeof text) {
        return 0;
    }
    memcpy(text, value.p, value.n);
    text[value.n] = '\0';
    char *end = NULL;
    long long seconds = strtoll(text, &end, 10);
    if (*end != '\0') {
        struct tm tm = {0};
        end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        if (end == NULL || *end != '\0') {
            return 0;
        }
        seconds = (long long)timegm(&tm) - (long long)(clock_wall_us() / CLOCK_SECOND);
    }
    if (seconds <= 0) {
        return 0;
    }
    return (seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S) * 1000;
}

// The remote's answer as one JSON value: its JSON, or its text where it is none.
static struct span refusal(const struct http_answer *answer, const struct json_value *body,
                           struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "{\"status\":%d", answer->status);
    if (body != NULL) {
        text_add_str(&t, ",\"body\":");
        text_add_span(&t, json_write(body, arena));
    }
    text_add_char(&t, '}');
    return arena_dup(arena, text_span(&t));
}

static struct span remote_id_of(const struct json_value *body, const struct json_value *declaration,
                                struct arena *arena)
{
    struct span pointer = json_text(json_get(declaration, "remote_id"));
    const struct json_value *id =
        json_pointer(body, span_is_null(pointer) ? SPAN_LIT("/id") : pointer, NULL);
    if (json_is(id, JSON_STRING)) {
        return json_text(id);
    }
    return json_is(id, JSON_NUMBER) ? json_write(id, arena) : SPAN_NULL;
}

static void judge_not_sent(struct dispatch *d, int64_t at_least_ms)
{
    d->verdict = VERDICT_NOT_SENT;
    d->retry_ms =
        dispatch_back_off_ms(&d->outbox->config->dispatch, d->claim.attempts_not_sent + 1);
    if (d->retry_ms < at_least_ms) {
        d->retry_ms = at_least_ms;
    }
}

static void judge_unknown(struct dispatch *d, int64_t at_least_ms)
{
    d->verdict = VERDICT_UNKNOWN;
    d->retry_ms = dispatch_back_off_ms(&d->outbox->config->dispatch,
                                       d->claim.attempt - d->claim.attempts_not_sent);
    if (d->retry_ms < at_least_ms) {
        d->retry_ms = at_least_ms;
    }
}

// A 2xx is a verified success when its body is empty or JSON: anything else came from something
// other than the service that was declared (a captive page, a broken gateway).
static void judge_success(struct dispatch *d, const struct http_answer *answer,
                          const struct json_value *body, bool storable,
                          const struct json_value *declaration)
{
    if (body == NULL && answer->body.n > 0) {
        judge_unknown(d, 0);
        return;
    }
    d->verdict = VERDICT_SUCCEEDED;
    d->remote_id = remote_id_of(body, declaration, d->arena);
    // What jsonb or a later digest cannot hold stays in the evidence, as text.
    d->result = body != NULL && storable ? json_write(body, d->arena) : SPAN_LIT("null");
}

void http_judge(struct dispatch *d, const struct http_answer *answer)
{
    d->evidence = evidence_of_answer(answer, d->arena);
    if (!answer->may_have_been_sent) {
        judge_not_sent(d, 0);
        return;
    }
    if (answer->fault != HTTP_FAULT_NONE) {
        judge_unknown(d, 0);
        return;
    }
    struct json_error error;
    const struct json_value *declaration = NULL;
    if (!json_parse(d->claim.declaration.text, NULL, d->arena, &declaration, &error)) {
        declaration = NULL;
    }
    const struct config_tool *tool = d->tool->config;
    const struct json_value *body = NULL;
    const struct json_limits any_number = {.any_number = true};
    bool storable = json_parse(answer->body, NULL, d->arena, &body, &error);
    if (!storable && !json_parse(answer->body, &any_number, d->arena, &body, &error)) {
        body = NULL;
    }
    int status = answer->status;
    if (status >= 200 && status < 300) {
        judge_success(d, answer, body, storable, declaration);
    } else if (declared(declaration, "not_acted_statuses", status, &tool->not_acted_statuses)) {
        judge_not_sent(d, retry_after_ms(answer));
    } else if (declared(declaration, "final_statuses", status, &tool->final_statuses)) {
        d->verdict = VERDICT_FAILED_FINAL;
        d->result = refusal(answer, storable ? body : NULL, d->arena);
    } else {
        judge_unknown(d, retry_after_ms(answer));
    }
}

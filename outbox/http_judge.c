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

// Seconds, or an HTTP date. 0: absent or nonsense.
int64_t http_retry_after_ms(const struct http_answer *answer)
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

// A 2xx is a verified success when its body is empty or JSON: anything else came from something
// other than the service that was declared (a captive page, a broken gateway).
static void judge_success(struct dispatch *d, const struct http_answer *answer,
                          const struct json_value *body, bool storable)
{
    if (body == NULL && answer->body.n > 0) {
        judge_unknown(d, 0);
        return;
    }
    d->verdict = VERDICT_SUCCEEDED;
    d->remote_id = judge_remote_id(body, d->claim.declaration.text, d->arena);
    // What jsonb or a later digest cannot hold stays in the evidence, as text.
    d->result = body != NULL && storable ? json_write(body, d->arena) : SPAN_LIT("null");
}

// What a remote says about a key that it has seen before is not about this request, but about the
// first one under that key. False: it says nothing of that kind.
static bool judge_key(struct dispatch *d, const struct http_answer *answer,
                      const struct config_tool *tool)
{
    int status = answer->status;
    if (tool->capability != CAPABILITY_IDEMPOTENCY_KEY) {
        return false;
    }
    bool first = !judge_is_repeated(d);
    if (first && config_status_in(&tool->final_statuses, status)) {
        return false; // nobody has seen this key: it is about the request
    }
    if (config_status_in(&tool->in_progress_statuses, status)) {
        d->evidence = evidence_with(d->evidence, "reading", SPAN_LIT("in_progress"), d->arena);
        judge_unknown(d, http_retry_after_ms(answer));
        return true;
    }
    if (config_status_in(&tool->conflict_statuses, status)) {
        d->evidence = evidence_with(d->evidence, "reading", SPAN_LIT("key_conflict"), d->arena);
        judge_alarm(d, "the remote knows this key with other parameters");
        judge_unknown(d, d->outbox->config->dispatch.retry_max_ms);
        return true;
    }
    return false;
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
    const struct config_tool *tool =
        declared_tool(d->tool->config, d->claim.declaration.text, d->arena);
    struct json_error error;
    const struct json_value *body = NULL;
    const struct json_limits any_number = {.any_number = true};
    bool storable = json_parse(answer->body, NULL, d->arena, &body, &error);
    if (!storable && !json_parse(answer->body, &any_number, d->arena, &body, &error)) {
        body = NULL;
    }
    int status = answer->status;
    if (status >= 200 && status < 300) {
        judge_success(d, answer, body, storable);
    } else if (config_status_in(&tool->not_acted_statuses, status)) {
        judge_not_sent(d, http_retry_after_ms(answer));
    } else if (judge_key(d, answer, tool)) {
        return;
    } else if (config_status_in(&tool->final_statuses, status)) {
        d->verdict = VERDICT_FAILED_FINAL;
        d->result = refusal(answer, storable ? body : NULL, d->arena);
    } else {
        // Its first error is what the remote will answer to this key again: no use in hurrying.
        judge_unknown(d, tool->replays_errors ? d->outbox->config->dispatch.retry_max_ms
                                              : http_retry_after_ms(answer));
    }
}

// outbox/http_tool.c: makes the request of a tool of kind http out of a claim, and hands its answer
// to the judge.
#include "outbox/adapter.h"

#include "base/clock.h"
#include "base/metric.h"

static const char *method_word(enum config_method method)
{
    static const char *const words[] = {[METHOD_POST] = "POST",
                                        [METHOD_PUT] = "PUT",
                                        [METHOD_PATCH] = "PATCH",
                                        [METHOD_DELETE] = "DELETE"};
    return words[method];
}

static void on_answer(void *opaque, const struct http_answer *answer)
{
    struct dispatch *d = opaque;
    const char *tool = d->tool->config->name;
    http_judge(d, answer);
    if (answer->may_have_been_sent) {
        metric_add(METRIC_OPERATIONS_SENT, LABELS(tool), 1);
        metric_observe(METRIC_TOOL_SECONDS, LABELS(tool), (double)answer->took_us / 1e6);
    }
    CHECK(queue_force_push(d->outbox->to_settle, d));
}

static void http_tool_send(struct dispatch *d)
{
    const struct config_tool *tool =
        declared_tool(d->tool->config, d->claim.declaration.text, d->arena);
    if (!adapter_make_body(d, tool)) {
        return;
    }
    const struct ledger_claimed *c = &d->claim;
    const struct http_identities who = {.key = c->external_key,
                                        .operation_id = c->operation_id,
                                        .run_id = c->run_id,
                                        .epoch = c->epoch,
                                        .traceparent = c->traceparent,
                                        .tracestate = c->tracestate};
    struct http_header_list list = http_tool_headers(tool, &who, d->arena);
    const struct http_request request = {
        .method = method_word(tool->method),
        .url = tool->url,
        .headers = list.headers,
        .headers_n = list.n,
        .body = d->body,
        .connect_timeout_ms = tool->connect_timeout_ms,
        .timeout_ms = tool->timeout_ms,
        .send_before_us = dispatch_send_before_us(d),
        .late_after_us = dispatch_until_us(d),
        .max_response_bytes = (size_t)tool->max_response_bytes,
        .own_connection = span_eq_text(d->claim.capability, "none"),
        .allow_private = tool->allow_private,
    };
    if (http_client_start(d->outbox->http, &request, on_answer, d) != OUTCOME_OK) {
        dispatch_not_sent(d, "not_a_request", "the tool's URL or headers cannot be used");
    }
}

const struct adapter http_adapter = {.kind = "http", .send = http_tool_send};

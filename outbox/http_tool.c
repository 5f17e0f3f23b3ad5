// outbox/http_tool.c: makes the request of a tool of kind http out of a claim, and hands its answer
// to the judge.
#include "outbox/dispatch_int.h"

#include <ctype.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "schemas/canon.h"
#include "schemas/json.h"

enum { HEADERS_OF_OURS = 10 };

static const char *method_word(enum config_method method)
{
    static const char *const words[] = {[METHOD_POST] = "POST",
                                        [METHOD_PUT] = "PUT",
                                        [METHOD_PATCH] = "PATCH",
                                        [METHOD_DELETE] = "DELETE"};
    return words[method];
}

struct header_list {
    struct http_header *headers;
    size_t n;
};

static void add(struct header_list *list, const char *name, const char *value)
{
    if (name[0] != '\0' && value != NULL && value[0] != '\0') {
        list->headers[list->n++] = (struct http_header){.name = name, .value = value};
    }
}

// The identities that a remote needs to refuse what is old, and the key under which it may be asked
// again.
static void add_identities(struct header_list *list, const struct dispatch *d)
{
    const struct config_tool *tool = d->tool->config;
    const struct ledger_claimed *c = &d->claim;
    char run_id[UUID_TEXT_SIZE];
    add(list, tool->idempotency_header,
        arena_printf(d->arena, tool->key_quoted ? "\"%.*s\"" : "%.*s", SPAN_ARG(c->external_key)));
    add(list, "Holdfast-Operation-Id", arena_dup_text(d->arena, c->operation_id));
    add(list, "Holdfast-Run-Id", arena_printf(d->arena, "%s", uuid_format(c->run_id, run_id)));
    add(list, "Holdfast-Epoch", arena_printf(d->arena, "%lld", (long long)c->epoch));
    add(list, "traceparent", arena_dup_text(d->arena, c->traceparent));
    add(list, "tracestate", arena_dup_text(d->arena, c->tracestate));
}

// "Bearer" and a token are two words; a prefix that ends otherwise ("key=") is joined as it stands.
static const char *credential_of(const struct dispatch *d)
{
    const struct config_tool *tool = d->tool->config;
    size_t n = strlen(tool->credential_prefix);
    bool word = n > 0 && isalnum((unsigned char)tool->credential_prefix[n - 1]) != 0;
    return arena_printf(d->arena, "%s%s%s", tool->credential_prefix, word ? " " : "",
                        tool->credential);
}

static struct header_list headers_of(const struct dispatch *d)
{
    const struct config_tool *tool = d->tool->config;
    struct header_list list = {
        .headers = arena_array(d->arena, HEADERS_OF_OURS + tool->n_headers, sizeof *list.headers)};
    add(&list, "Content-Type", "application/json");
    add(&list, "Accept", "application/json");
    add(&list, "User-Agent", "holdfast/" HOLDFAST_VERSION);
    add_identities(&list, d);
    if (tool->credential[0] != '\0') {
        add(&list, tool->credential_header, credential_of(d));
    }
    for (size_t i = 0; i < tool->n_headers; i++) {
        add(&list, tool->headers[i].name, tool->headers[i].value);
    }
    return list;
}

// The bytes that are sent are the canonical form of what the ledger holds; their digest must be the
// ledger's.
static bool make_body(struct dispatch *d)
{
    const struct json_value *request = NULL;
    struct json_error error;
    if (!json_parse(d->claim.request_body.text, NULL, d->arena, &request, &error)) {
        return false;
    }
    d->body = canon_write(request, d->arena);
    struct digest digest = digest_bytes(d->body);
    return span_eq_text(d->claim.request_digest, digest.text);
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

void http_tool_send(struct dispatch *d)
{
    const struct config_tool *tool = d->tool->config;
    if (!make_body(d)) {
        log_event(LOG_ERROR, "dispatch.digest_mismatch",
                  LOG_SPAN("operation_id", d->claim.operation_id), LOG_TEXT("tool", tool->name));
        dispatch_not_sent(d, "digest_mismatch",
                          "the stored request does not have the registered digest");
        return;
    }
    struct header_list list = headers_of(d);
    // A request begun so late that its answer could only come after the claim would be an unknown
    // made by ourselves.
    int64_t ttl_us = d->claim.ttl_ms * CLOCK_MS;
    int64_t reserve_us = tool->timeout_ms * CLOCK_MS;
    if (reserve_us > ttl_us / 2) {
        reserve_us = ttl_us / 2;
    }
    const struct http_request request = {
        .method = method_word(tool->method),
        .url = tool->url,
        .headers = list.headers,
        .headers_n = list.n,
        .body = d->body,
        .connect_timeout_ms = tool->connect_timeout_ms,
        .timeout_ms = tool->timeout_ms,
        .send_before_us = dispatch_until_us(d) - reserve_us,
        .late_after_us = dispatch_until_us(d),
        .max_response_bytes = (size_t)tool->max_response_bytes,
        .own_connection = span_eq_text(d->claim.capability, "none"),
        .allow_private = tool->allow_private,
    };
    if (http_client_start(d->outbox->http, &request, on_answer, d) != OUTCOME_OK) {
        dispatch_not_sent(d, "not_a_request", "the tool's URL or headers cannot be used");
    }
}

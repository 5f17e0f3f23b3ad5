// outbox/judge.c: the pieces that the judges of all adapters are made of.
#include "outbox/dispatch_int.h"

#include "base/log.h"
#include "base/metric.h"

bool judge_is_repeated(const struct dispatch *d)
{
    return d->claim.attempt - d->claim.attempts_not_sent > 1;
}

void judge_not_sent(struct dispatch *d, int64_t at_least_ms)
{
    d->verdict = VERDICT_NOT_SENT;
    d->retry_ms =
        dispatch_back_off_ms(&d->outbox->config->dispatch, d->claim.attempts_not_sent + 1);
    if (d->retry_ms < at_least_ms) {
        d->retry_ms = at_least_ms;
    }
}

void judge_unknown(struct dispatch *d, int64_t at_least_ms)
{
    d->verdict = VERDICT_UNKNOWN;
    d->retry_ms = dispatch_back_off_ms(&d->outbox->config->dispatch,
                                       d->claim.attempt - d->claim.attempts_not_sent);
    if (d->retry_ms < at_least_ms) {
        d->retry_ms = at_least_ms;
    }
}

void judge_alarm(struct dispatch *d, const char *what)
{
    metric_add(METRIC_KEY_CONFLICTS, LABELS(d->tool->config->name), 1);
    log_event(LOG_ERROR, "dispatch.key_conflict", LOG_TEXT("what", what),
              LOG_SPAN("operation_id", d->claim.operation_id), LOG_UUID("run_id", d->claim.run_id),
              LOG_TEXT("tool", d->tool->config->name), LOG_INT("attempt", d->claim.attempt),
              LOG_SPAN("evidence", d->evidence));
}

struct span judge_remote_id(const struct json_value *body, struct span declaration,
                            struct arena *arena)
{
    const struct json_value *root = NULL;
    struct json_error error;
    struct span pointer = SPAN_NULL;
    if (json_parse(declaration, NULL, arena, &root, &error)) {
        pointer = json_text(json_get(root, "remote_id"));
    }
    const struct json_value *id =
        json_pointer(body, span_is_null(pointer) ? SPAN_LIT("/id") : pointer, NULL);
    if (json_is(id, JSON_STRING)) {
        return json_text(id);
    }
    return json_is(id, JSON_NUMBER) ? json_write(id, arena) : SPAN_NULL;
}

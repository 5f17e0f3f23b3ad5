// outbox/evidence.c: what is kept about an attempt. Texts of a remote are cut, and made harmless
// for jsonb and eyes.
#include "outbox/dispatch_int.h"

#include "base/text.h"
#include "schemas/canon.h"

enum { EVIDENCE_BODY_BYTES = 2048, EVIDENCE_HEADER_BYTES = 256 };

// Only these: a remote's other headers may carry cookies and keys.
static const char *const headers_kept[] = {
    "content-type", "date",       "server",      "retry-after",         "location",
    "x-request-id", "request-id", "traceparent", "idempotent-replayed",
};

static void add_text(struct text *t, const char *name, struct span value, size_t max)
{
    if (span_is_null(value)) {
        return;
    }
    struct span cut = {.p = value.p, .n = value.n < max ? value.n : max};
    text_addf(t, ",\"%s\":\"", name);
    for (size_t at = 0; at < cut.n;) { // jsonb has no place for U+0000
        const char *zero = memchr(cut.p + at, '\0', cut.n - at);
        size_t n = zero == NULL ? cut.n - at : (size_t)(zero - cut.p) - at;
        text_add_json(t, (struct span){.p = cut.p + at, .n = n});
        at += n;
        if (zero != NULL) {
            text_add_str(t, "?");
            at++;
        }
    }
    text_add_char(t, '"');
}

static void add_headers(struct text *t, const struct http_answer *answer)
{
    struct text inner CLEANUP(text_free) = TEXT_EMPTY;
    for (size_t i = 0; i < COUNT_OF(headers_kept); i++) {
        add_text(&inner, headers_kept[i], http_answer_header(answer, headers_kept[i]),
                 EVIDENCE_HEADER_BYTES);
    }
    if (inner.n > 0) {
        text_addf(t, ",\"headers\":{%.*s}", (int)inner.n - 1,
                  inner.p + 1); // without the first comma
    }
}

struct span evidence_of_answer(const struct http_answer *answer, struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t,
              "{\"fault\":\"%s\",\"may_have_been_sent\":%s,\"bytes_sent\":%lld,\"took_ms\":%lld",
              http_fault_word(answer->fault), answer->may_have_been_sent ? "true" : "false",
              (long long)answer->bytes_sent, (long long)(answer->took_us / 1000));
    if (answer->sent_late) {
        text_add_str(&t, ",\"sent_late\":true");
    }
    if (answer->detail[0] != '\0') {
        add_text(&t, "detail", span_of(answer->detail), EVIDENCE_HEADER_BYTES);
    }
    if (answer->status != 0) {
        text_addf(&t, ",\"status\":%d", answer->status);
        add_headers(&t, answer);
    }
    if (answer->body.n > 0) {
        struct digest digest = digest_bytes(answer->body);
        text_addf(&t, ",\"body_bytes\":%zu,\"body_digest\":\"%s\"", answer->body.n, digest.text);
        add_text(&t, "body", answer->body, EVIDENCE_BODY_BYTES);
    }
    text_add_char(&t, '}');
    return arena_dup(arena, text_span(&t));
}

struct span evidence_of_fault(const char *fault, const char *detail, struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "{\"fault\":\"%s\",\"may_have_been_sent\":false", fault);
    if (detail[0] != '\0') {
        add_text(&t, "detail", span_of(detail), EVIDENCE_HEADER_BYTES);
    }
    text_add_char(&t, '}');
    return arena_dup(arena, text_span(&t));
}

struct span evidence_with(struct span evidence, const char *name, struct span value,
                          struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    CHECK(evidence.n >= 2);
    add_text(&t, name, value, EVIDENCE_BODY_BYTES);
    struct span more = text_span(&t);
    if (evidence.n == 2 && more.n > 0) { // {}: no comma before the first
        more = (struct span){.p = more.p + 1, .n = more.n - 1};
    }
    return span_of(
        arena_printf(arena, "%.*s%.*s}", (int)evidence.n - 1, evidence.p, SPAN_ARG(more)));
}

struct span evidence_of_output(const struct evidence_output *seen, struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "{\"fault\":\"%s\",\"may_have_been_sent\":%s,\"took_ms\":%lld", seen->fault,
              seen->may_have_been_sent ? "true" : "false", (long long)(seen->took_us / 1000));
    if (seen->exit_code >= 0) {
        text_addf(&t, ",\"exit\":%lld", (long long)seen->exit_code);
    }
    if (seen->detail[0] != '\0') {
        add_text(&t, "detail", span_of(seen->detail), EVIDENCE_HEADER_BYTES);
    }
    if (seen->output.n > 0) {
        struct digest digest = digest_bytes(seen->output);
        text_addf(&t, ",\"body_bytes\":%zu,\"body_digest\":\"%s\"", seen->output.n, digest.text);
        add_text(&t, "body", seen->output, EVIDENCE_BODY_BYTES);
    }
    text_add_char(&t, '}');
    return arena_dup(arena, text_span(&t));
}

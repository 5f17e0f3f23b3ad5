/* context: what a handler is told about its step. */
#include "base/clock.h"
#include "pool/exec_int.h"
#include "schemas/rfc3339.h"

static void put_json(struct json_builder *b, struct json_node *o, const char *key, struct span json,
                     const char *absent)
{
    json_put_raw(b, o, key, span_is_null(json) ? span_of(absent) : json);
}

static void put_run(struct json_builder *b, struct json_node *o, const char *key, struct uuid run)
{
    char text[UUID_TEXT_SIZE];
    json_put_text(b, o, key, span_of(uuid_format(run, text)));
}

static void put_deadline(struct json_builder *b, struct json_node *o, const struct session *s)
{
    const struct pool *p = s->pool;
    if (s->deadline.is_null)
        return;
    char text[RFC3339_SIZE];
    rfc3339_format(s->deadline.us, text);
    json_put_text(b, o, "deadline", span_of(text));
    /* by the database's clock, as last seen */
    int64_t now_us = clock_wall_us() + (p != NULL ? atomic_load(&p->clock_offset_us) : 0);
    json_put_integer(b, o, "time_left_ms", (s->deadline.us - now_us) / CLOCK_MS);
}

void context_write(const struct session *s, struct text *t)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *line = json_new_object(b), *c = json_new_object(b);
    json_put_text(b, c, "tenant_id", s->tenant);
    json_put_text(b, c, "task_id", s->task);
    json_put_text(b, c, "handler", s->handler);
    put_run(b, c, "run_id", s->run_id);
    put_run(b, c, "first_run_id", s->first_run_id);
    if (!s->prev_run_id.is_null)
        put_run(b, c, "prev_run_id", s->prev_run_id.v);
    json_put_integer(b, c, "epoch", s->epoch);
    json_put_integer(b, c, "revision", s->revision);
    json_put_integer(b, c, "attempt", s->attempt);
    json_put_integer(b, c, "failures", s->failures);
    json_put_bool(b, c, "takeover", s->takeover);
    put_json(b, c, "input", s->input, "{}");
    put_json(b, c, "checkpoint", s->checkpoint, "{}");
    put_json(b, c, "operations", s->operations, "[]");
    put_json(b, c, "signals", s->signals, "[]");
    put_json(b, c, "earlier", s->earlier, "[]");
    if (!span_is_null(s->woke_reason))
        json_put_text(b, c, "woke_reason", s->woke_reason);
    put_deadline(b, c, s);
    if (!span_is_null(s->traceparent))
        json_put_text(b, c, "traceparent", s->traceparent);
    if (!span_is_null(s->tracestate))
        json_put_text(b, c, "tracestate", s->tracestate);
    json_put_node(b, line, "context", c);
    text_add_span(t, json_build(b, line));
    text_add_char(t, '\n');
}

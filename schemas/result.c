#include "schemas/result.h"

#include <stdio.h>
#include <string.h>

#include "schemas/canon_int.h"
#include "schemas/json_int.h"
#include "schemas/msgpack.h"
#include "schemas/rfc3339.h"
#include "schemas/shape_int.h"

bool result_type_reserved(struct span type)
{
    return span_starts_with(type, SPAN_LIT("run.")) ||
           span_starts_with(type, SPAN_LIT("operation.")) ||
           span_starts_with(type, SPAN_LIT("submission."));
}

/* ---- value ---- */

static void literal(struct canon_out *out, const char *text)
{
    canon_bytes(out, text, strlen(text));
}

static void member_text(struct canon_out *out, const char *before, struct span v)
{
    literal(out, before);
    canon_text(out, v);
}

static void member_integer(struct canon_out *out, const char *before, int64_t v)
{
    char buf[24];
    literal(out, before);
    canon_bytes(out, buf, (size_t)snprintf(buf, sizeof(buf), "%lld", (long long)v));
}

static void write_envelope(struct canon_out *out, const struct result_event *e, const char *uuid,
                           const char *run, const char *time)
{
    member_text(out, "{\"event_id\":", span_of(uuid));
    member_text(out, ",\"type\":", e->type);
    member_text(out, ",\"tenant_id\":", e->tenant_id);
    member_text(out, ",\"task_id\":", e->task_id);
    if (e->has_run)
        member_text(out, ",\"run_id\":", span_of(run));
    member_integer(out, ",\"epoch\":", e->epoch);
    member_integer(out, ",\"revision\":", e->revision);
    member_integer(out, ",\"timeline\":", e->timeline);
    member_text(out, ",\"time\":", span_of(time));
}

static struct span without_blanks_around(struct span s)
{
    while (s.n > 0 && strchr(" \t\r\n", s.p[0]) != NULL && s.p[0] != '\0')
        s.p++, s.n--;
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL && s.p[s.n - 1] != '\0')
        s.n--;
    return s;
}

/* The product's own bodies are objects whose members join the envelope; what a step gave stays
 * together in "data", so that no step can put a second task_id beside the real one. */
static void write_body(struct canon_out *out, const struct result_event *e)
{
    struct span body = without_blanks_around(e->body);
    if (body.n == 0)
        return;
    if (!result_type_reserved(e->type)) {
        literal(out, ",\"data\":");
        canon_bytes(out, body.p, body.n);
        return;
    }
    CHECK(body.n >= 2 && body.p[0] == '{' && body.p[body.n - 1] == '}');
    struct span inside = without_blanks_around((struct span){body.p + 1, body.n - 2});
    if (inside.n == 0)
        return;
    literal(out, ",");
    canon_bytes(out, inside.p, inside.n);
}

static void write_omitted(struct canon_out *out, const struct result_event *e, const char *run)
{
    struct json_limits limits = {.any_number = true};
    struct json_error error;
    const struct json_value *body;
    bool readable = json_parse(e->body, &limits, out->arena, &body, &error);
    struct digest digest = readable ? digest_json(body, out->arena) : digest_bytes(e->body);
    member_integer(out, ",\"omitted\":{\"bytes\":", (int64_t)e->body.n);
    member_text(out, ",\"digest\":", span_of(digest.text));
    const char *fetch =
        e->has_run ? arena_printf(out->arena, "holdfast show %s --json", run)
                   : arena_printf(out->arena, "holdfast show %.*s --json", SPAN_ARG(e->task_id));
    member_text(out, ",\"fetch\":", span_of(fetch));
    literal(out, "}");
}

static struct span encoded(struct span json, enum result_encoding encoding, struct arena *arena)
{
    struct json_limits limits = {.any_number = true};
    struct json_error error;
    const struct json_value *v;
    if (encoding == RESULT_JSON)
        return json;
    CHECK(json_parse(json, &limits, arena, &v, &error)); /* envelope and jsonb text */
    return msgpack_write(v, arena);
}

static struct span write_value(const struct result_event *e, const struct result_options *options,
                               bool omit, const char *uuid, const char *run, const char *time,
                               struct arena *arena)
{
    struct canon_out out = {.arena = arena};
    write_envelope(&out, e, uuid, run, time);
    if (omit)
        write_omitted(&out, e, run);
    else
        write_body(&out, e);
    literal(&out, "}");
    return encoded(canon_end(&out), options->encoding, arena);
}

/* ---- record ---- */

static void add(struct result *r, const char *name, struct span value)
{
    CHECK(r->n_headers < RESULT_MAX_HEADERS);
    r->headers[r->n_headers++] = (struct raw_header){span_of(name), value};
}

static void add_number(struct result *r, const char *name, int64_t v, struct arena *arena)
{
    add(r, name, span_of(arena_printf(arena, "%lld", (long long)v)));
}

static struct span dataschema(struct span type, struct arena *arena)
{
    if (!result_type_reserved(type))
        return SPAN_LIT(RESULT_SCHEMA_URN "event:1");
    return span_of(arena_printf(arena, RESULT_SCHEMA_URN "%.*s:1", SPAN_ARG(type)));
}

void result_encode(const struct result_event *event, const struct result_options *options,
                   struct arena *arena, struct result *ret)
{
    char *uuid = arena_alloc(arena, UUID_TEXT_SIZE), *run = arena_alloc(arena, UUID_TEXT_SIZE);
    char *time = arena_alloc(arena, RFC3339_SIZE);
    uuid_format(event->event_id, uuid);
    uuid_format(event->run_id, run);
    rfc3339_format(event->at_us, time);

    struct result r = {.key = arena_dup(arena, event->task_id)};
    r.value = write_value(event, options, options->omit_body, uuid, run, time, arena);
    if (options->max_bytes > 0 && r.value.n > options->max_bytes)
        r.value = write_value(event, options, true, uuid, run, time, arena);

    add(&r, "ce_specversion", SPAN_LIT("1.0"));
    add(&r, "ce_id", span_of(uuid));
    add(&r, "ce_type", arena_dup(arena, event->type));
    add(&r, "ce_source", arena_dup(arena, options->source));
    add(&r, "ce_subject", r.key);
    add(&r, "ce_time", span_of(time));
    add(&r, "ce_dataschema", dataschema(event->type, arena));
    add(&r, "content-type",
        options->encoding == RESULT_JSON ? SPAN_LIT("application/json")
                                         : SPAN_LIT("application/msgpack"));
    if (event->has_run) {
        add(&r, "run_id", span_of(run));
        add_number(&r, "epoch", event->epoch, arena);
        add_number(&r, "revision", event->revision, arena);
    }
    if (event->traceparent.n > 0) {
        add(&r, "traceparent", arena_dup(arena, event->traceparent));
        if (event->tracestate.n > 0)
            add(&r, "tracestate", arena_dup(arena, event->tracestate));
    }
    *ret = r;
}

/* ---- reading back ---- */

static const struct shape_field envelope[] = {
    {"event_id", SHAPE_UUID, offsetof(struct result_event, event_id)},
    {"type", SHAPE_TEXT, offsetof(struct result_event, type)},
    {"tenant_id", SHAPE_TEXT, offsetof(struct result_event, tenant_id)},
    {"task_id", SHAPE_TEXT, offsetof(struct result_event, task_id)},
    {"epoch", SHAPE_INTEGER, offsetof(struct result_event, epoch)},
    {"revision", SHAPE_INTEGER, offsetof(struct result_event, revision)},
    {"timeline", SHAPE_INTEGER, offsetof(struct result_event, timeline)},
    {"time", SHAPE_TIME, offsetof(struct result_event, at_us)},
};
static const struct shape_field run_member = {"run_id", SHAPE_UUID,
                                              offsetof(struct result_event, run_id)};

static bool in_envelope(struct span key)
{
    for (size_t i = 0; i < COUNT_OF(envelope); i++)
        if (span_eq_text(key, envelope[i].name))
            return true;
    return span_eq_text(key, run_member.name);
}

bool result_decode(struct span value, struct arena *arena, struct result_event *ret,
                   struct json_error *ret_error)
{
    struct json_limits limits = {.any_number = true};
    const struct json_value *root;
    bool sound = msgpack_is_map(value) ? msgpack_parse(value, &limits, arena, &root, ret_error)
                                       : json_parse(value, &limits, arena, &root, ret_error);
    if (!sound)
        return false;
    if (!json_is(root, JSON_OBJECT))
        return json_refuse(ret_error, arena, REJECT_WRONG_TYPE, SPAN_LIT(""),
                           "a result must be an object, not %s", json_kind_name(json_kind(root)));
    struct json_builder *b = json_builder_new(arena);
    struct json_node *head = json_new_object(b), *run = json_new_object(b),
                     *body = json_new_object(b);
    struct json_iter it = json_iter(root);
    while (json_next(&it)) {
        bool is_run = span_eq_text(it.key, run_member.name);
        json_put(b,
                 is_run                ? run
                 : in_envelope(it.key) ? head
                                       : body,
                 it.key, json_new_copy(b, it.value));
    }
    struct result_event found = {0};
    found.has_run = json_get(root, run_member.name) != NULL;
    if (!shape_read(json_seal(b, head), envelope, COUNT_OF(envelope), arena, &found, ret_error) ||
        (found.has_run && !shape_read(json_seal(b, run), &run_member, 1, arena, &found, ret_error)))
        return false;
    const struct json_value *data =
        result_type_reserved(found.type) ? NULL : json_get(root, "data");
    found.body = data != NULL ? json_write(data, arena) : json_build(b, body);
    *ret = found;
    return true;
}

bool result_event_id(const struct raw_header *headers, size_t n_headers, struct uuid *ret)
{
    for (size_t i = n_headers; i > 0; i--)
        if (span_eq_text(headers[i - 1].name, "ce_id"))
            return uuid_parse(headers[i - 1].value, ret);
    return false;
}

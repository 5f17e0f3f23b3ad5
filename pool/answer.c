/* answer: reads the decision of an exec handler. What it does not know it refuses by name. */
#include <stdint.h>

#include "base/clock.h"
#include "pool/exec_int.h"
#include "pool/nearest.h"
#include "schemas/canon.h"
#include "schemas/message.h"
#include "schemas/rfc3339.h"

/* The longest a run may sleep: a year. */
#define SLEEP_MAX_MS (INT64_C(366) * 24 * 3600 * 1000)
enum { INTENTS_MAX = 1000, EVENTS_MAX = 100 };

struct reading {
    const struct pool *pool;
    const struct session *session;
    const struct json_value *line;
    struct arena *arena;
    struct decision *d;
    struct span why;
};

static bool refuse(struct reading *r, const char *format, ...) PRINTF_LIKE(2, 3);
static bool refuse(struct reading *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    r->why = span_of(arena_vprintf(r->arena, format, args));
    va_end(args);
    return false;
}

static bool known_fields(struct reading *r, const struct json_value *object, const char *where,
                         const struct span *names, size_t n)
{
    struct json_iter it = json_iter(object);
    while (json_next(&it)) {
        bool known = false;
        for (size_t i = 0; i < n && !known; i++)
            known = span_eq(it.key, names[i]);
        if (known)
            continue;
        struct span near = nearest_name(it.key, names, n);
        if (span_is_null(near))
            return refuse(r, "%s: unknown field \"%.*s\"", where, SPAN_ARG(it.key));
        return refuse(r, "%s: unknown field \"%.*s\"; did you mean \"%.*s\"?", where,
                      SPAN_ARG(it.key), SPAN_ARG(near));
    }
    return true;
}

/* ---- parts that every decision may have ---- */

static bool read_checkpoint(struct reading *r)
{
    const struct json_value *v = json_get(r->line, "checkpoint");
    if (v == NULL)
        return true;
    if (!json_is(v, JSON_OBJECT))
        return refuse(r, "\"checkpoint\" must be an object, not %s", json_kind_name(json_kind(v)));
    r->d->checkpoint.text = json_write(v, r->arena);
    return true;
}

static bool read_events(struct reading *r)
{
    static const struct span fields[] = {{"type", 4}, {"body", 4}};
    const struct json_value *events = json_get(r->line, "events");
    if (events == NULL)
        return true;
    if (!json_is(events, JSON_ARRAY) || json_count(events) > EVENTS_MAX)
        return refuse(
            r, "\"events\" must be an array of at most %d objects with \"type\" and \"body\"",
            EVENTS_MAX);
    r->d->events = arena_array(r->arena, json_count(events) + 1, sizeof(*r->d->events));
    struct json_iter it = json_iter(events);
    while (json_next(&it)) {
        struct span type = json_text(json_get(it.value, "type"));
        const struct json_value *body = json_get(it.value, "body");
        if (!json_is(it.value, JSON_OBJECT) || span_is_null(type) || !json_is(body, JSON_OBJECT))
            return refuse(r, "event %zu needs \"type\", a text, and \"body\", an object", it.index);
        if (!known_fields(r, it.value, "event", fields, COUNT_OF(fields)))
            return false;
        if (!identifier_valid(type, MESSAGE_MAX_EVENT))
            return refuse(r, "event %zu: \"type\" must be 1 to %d characters out of %s", it.index,
                          MESSAGE_MAX_EVENT, "A-Z a-z 0-9 _ . : -");
        r->d->events[r->d->event_n++] = (struct fence_event){.type = arena_dup(r->arena, type),
                                                             .body = {json_write(body, r->arena)}};
    }
    return true;
}

static bool read_texts(struct reading *r, const char *member, struct span **ret, size_t *ret_n)
{
    const struct json_value *list = json_get(r->line, member);
    if (list == NULL)
        return true;
    if (!json_is(list, JSON_ARRAY) || json_count(list) > INTENTS_MAX)
        return refuse(r, "\"%s\" must be an array of at most %d operation ids", member,
                      INTENTS_MAX);
    *ret = arena_array(r->arena, json_count(list) + INTENTS_MAX + 1, sizeof(**ret));
    struct json_iter it = json_iter(list);
    while (json_next(&it)) {
        struct span text = json_text(it.value);
        if (span_is_null(text))
            return refuse(r, "\"%s\" must be an array of operation ids", member);
        (*ret)[(*ret_n)++] = arena_dup(r->arena, text);
    }
    return true;
}

/* The signals that this step was shown are consumed by its answer. */
static void consume_signals(struct reading *r)
{
    const struct json_value *signals;
    struct json_error error;
    struct json_limits limits = {.any_number = true};
    if (span_is_null(r->session->signals) ||
        !json_parse(r->session->signals, &limits, r->arena, &signals, &error) ||
        json_count(signals) == 0)
        return;
    r->d->consume = arena_array(r->arena, json_count(signals), sizeof(*r->d->consume));
    struct json_iter it = json_iter(signals);
    while (json_next(&it))
        r->d->consume[r->d->consume_n++] = json_text(json_get(it.value, "signal_id"));
}

/* ---- times ---- */

static struct db_time in_ms(const struct reading *r, int64_t ms)
{
    /* by the database's clock: it decides when the time has come */
    return DB_TIME(clock_wall_us() + atomic_load(&r->pool->clock_offset_us) + ms * CLOCK_MS);
}

/* "until": RFC 3339, or "ms": from now. At most one; *ret_given says whether there was one. */
static bool read_until(struct reading *r, bool *ret_given)
{
    const struct json_value *ms = json_get(r->line, "ms"), *until = json_get(r->line, "until");
    *ret_given = ms != NULL || until != NULL;
    int64_t value;
    if (ms != NULL && until != NULL)
        return refuse(r, "give \"ms\" or \"until\", not both");
    if (ms != NULL) {
        if (!json_integer(ms, &value) || value < 0 || value > SLEEP_MAX_MS)
            return refuse(r, "\"ms\" must be an integer from 0 to %lld", (long long)SLEEP_MAX_MS);
        r->d->wait_until = in_ms(r, value);
    }
    if (until != NULL) {
        if (span_is_null(json_text(until)) || !rfc3339_parse(json_text(until), &value))
            return refuse(r, "\"until\" must be a time like 2026-12-01T06:40:05Z");
        r->d->wait_until = DB_TIME(value);
    }
    return true;
}

/* ---- intents ---- */

static const struct plan_tool *tool_named(const struct pool *p, struct span name)
{
    for (size_t i = 0; i < p->tool_n; i++)
        if (span_eq(p->tools[i].name, name))
            return &p->tools[i];
    return NULL;
}

static bool unknown_tool(struct reading *r, size_t index, struct span name)
{
    struct span *names = arena_array(r->arena, r->pool->tool_n + 1, sizeof(*names));
    for (size_t i = 0; i < r->pool->tool_n; i++)
        names[i] = r->pool->tools[i].name;
    struct span near = nearest_name(name, names, r->pool->tool_n);
    if (span_is_null(near))
        return refuse(r, "intent %zu: this pod declares no tool \"%.*s\"", index, SPAN_ARG(name));
    return refuse(r, "intent %zu: this pod declares no tool \"%.*s\"; did you mean \"%.*s\"?",
                  index, SPAN_ARG(name), SPAN_ARG(near));
}

static struct span identity(struct reading *r, struct uuid run, struct span step, int64_t version)
{
    char text[UUID_TEXT_SIZE];
    return span_of(arena_printf(r->arena, "%.*s/%s/%.*s/%d", SPAN_ARG(r->session->tenant),
                                uuid_format(run, text), SPAN_ARG(step), (int)version));
}

static bool read_intent(struct reading *r, const struct json_value *v, size_t index,
                        struct fence_intent *ret)
{
    static const struct span fields[] = {{"id", 2},
                                         {"tool", 4},
                                         {"request", 7},
                                         {"effect_version", 14},
                                         {"after_settled", 13},
                                         {"compensates", 11}};
    struct span step = json_text(json_get(v, "id")), name = json_text(json_get(v, "tool"));
    const struct json_value *version_value = json_get(v, "effect_version"),
                            *request = json_get(v, "request");
    int64_t version = 1;
    if (!known_fields(r, v, "intent", fields, COUNT_OF(fields)))
        return false;
    if (!json_is(v, JSON_OBJECT) || span_is_null(step) || !identifier_valid(step, MESSAGE_MAX_STEP))
        return refuse(r, "intent %zu needs \"id\": 1 to %d characters out of A-Z a-z 0-9 _ . : -",
                      index, MESSAGE_MAX_STEP);
    if (version_value != NULL &&
        (!json_integer(version_value, &version) || version < 1 || version > 1000000))
        return refuse(r, "intent %zu: \"effect_version\" must be an integer from 1 to 1000000",
                      index);
    if (span_is_null(name))
        return refuse(r, "intent %zu needs \"tool\"", index);
    const struct plan_tool *tool = tool_named(r->pool, name);
    if (tool == NULL)
        return unknown_tool(r, index, name);
    struct span body = request != NULL ? canon_write(request, r->arena) : SPAN_LIT("{}");
    struct span operation_id = identity(r, r->session->run_id, step, version);
    *ret = (struct fence_intent){
        .operation_id = operation_id,
        .step = arena_dup(r->arena, step),
        .version = (int32_t)version,
        .tool = tool->name,
        .digest = digest_span(body, r->arena),
        .body = {body},
        .capability = tool->capability,
        .declaration = {tool->declaration},
        .external_key = tool->submission_key ? identity(r, r->session->first_run_id, step, version)
                                             : operation_id,
        .after_settled = json_bool(json_get(v, "after_settled")),
        .compensates = arena_dup(r->arena, json_text(json_get(v, "compensates"))),
    };
    return true;
}

static bool read_intents(struct reading *r)
{
    const struct json_value *intents = json_get(r->line, "intents");
    if (intents == NULL)
        return true;
    if (!json_is(intents, JSON_ARRAY) || json_count(intents) > INTENTS_MAX)
        return refuse(r, "\"intents\" must be an array of at most %d objects", INTENTS_MAX);
    r->d->intents = arena_array(r->arena, json_count(intents) + 1, sizeof(*r->d->intents));
    struct json_iter it = json_iter(intents);
    while (json_next(&it)) {
        if (!read_intent(r, it.value, it.index, &r->d->intents[r->d->intent_n]))
            return false;
        r->d->intent_n++;
    }
    return true;
}

/* ---- the decisions ---- */

static bool decide_continue(struct reading *r)
{
    r->d->word = "continue";
    return true;
}

/* Registers intents and waits for them and for the named operations, `all` of them unless `any` or
 * `none` is said. */
static bool decide_plan(struct reading *r)
{
    struct decision *d = r->d;
    d->word = "plan";
    bool timed;
    if (!read_intents(r) || !read_texts(r, "operations", &d->wait_for, &d->wait_n) ||
        !read_until(r, &timed))
        return false;
    const struct json_value *wait = json_get(r->line, "wait");
    struct span mode = wait == NULL ? SPAN_LIT("all") : json_text(wait);
    bool none = span_eq_text(mode, "none");
    if (!none && !span_eq_text(mode, "all") && !span_eq_text(mode, "any"))
        return refuse(r, "\"wait\" must be \"all\", \"any\" or \"none\"");
    if (none && (d->wait_n > 0 || timed))
        return refuse(r, "\"wait\": \"none\" waits for no operations and no time");
    if (none && d->intent_n == 0 && span_is_null(d->checkpoint.text) && d->event_n == 0 &&
        d->detach_n == 0)
        return refuse(r,
                      "\"plan\" without anything in it would be asked for again at once, for ever");
    if (none)
        return true;
    if (d->wait_for == NULL)
        d->wait_for = arena_array(r->arena, d->intent_n + 1, sizeof(*d->wait_for));
    for (size_t i = 0; i < d->intent_n; i++)
        d->wait_for[d->wait_n++] = d->intents[i].operation_id;
    if (d->wait_n == 0)
        return refuse(r, "\"plan\" names nothing to wait for: give \"intents\", \"operations\", or "
                         "\"wait\": \"none\"");
    d->wait_mode = arena_dup(r->arena, mode);
    d->release = true;
    return true;
}

static bool decide_sleep(struct reading *r)
{
    bool timed;
    r->d->word = "sleep";
    if (!read_until(r, &timed))
        return false;
    if (!timed)
        return refuse(r, "\"sleep\" needs \"ms\" or \"until\"");
    r->d->wait_mode = SPAN_LIT("none");
    r->d->release = true;
    return true;
}

static bool decide_succeed(struct reading *r)
{
    const struct json_value *output = json_get(r->line, "output");
    r->d->word = "succeed";
    r->d->finish = SPAN_LIT("succeeded");
    r->d->output.text = output != NULL ? json_write(output, r->arena) : SPAN_LIT("{}");
    return true;
}

static bool decide_fail(struct reading *r)
{
    const struct json_value *failure = json_get(r->line, "failure"),
                            *after = json_get(r->line, "retry_after_ms");
    int64_t ms = 0;
    r->d->word = "fail";
    r->d->output.text = failure != NULL ? json_write(failure, r->arena)
                                        : SPAN_LIT("{\"reason\":\"handler_failed\"}");
    if (after == NULL) {
        r->d->finish = SPAN_LIT("failed");
        return true;
    }
    if (!json_integer(after, &ms) || ms < 0 || ms > SLEEP_MAX_MS)
        return refuse(r, "\"retry_after_ms\" must be an integer from 0 to %lld",
                      (long long)SLEEP_MAX_MS);
    r->d->word = "retry";
    r->d->release = true;
    r->d->retry_ms = DB_INT(ms);
    return true;
}

static bool decide_wait_signal(struct reading *r)
{
    bool timed = false; /* a time-out; without one it waits until it is told, or cancelled */
    const struct json_value *name = json_get(r->line, "name");
    if (!read_until(r, &timed))
        return false;
    struct span text = json_text(name);
    if (name == NULL)
        return refuse(r, "\"wait_signal\" needs \"name\"");
    if (span_is_null(text) || !identifier_valid(text, MESSAGE_MAX_SIGNAL_NAME))
        return refuse(r, "\"name\" must be 1 to %d characters of A-Z a-z 0-9 _ . : -",
                      MESSAGE_MAX_SIGNAL_NAME);
    r->d->word = "wait_signal";
    r->d->wait_mode = SPAN_LIT("none");
    r->d->wait_signal = arena_dup(r->arena, text);
    r->d->release = true;
    return true;
}

#define FIELDS_MAX 8
static const struct kind {
    struct span word;
    struct span fields[FIELDS_MAX]; /* besides decision, checkpoint, events, detach */
    bool (*decide)(struct reading *r);
} kinds[] = {
    {{"continue", 8}, {{0}}, decide_continue},
    {{"plan", 4},
     {{"intents", 7}, {"operations", 10}, {"wait", 4}, {"ms", 2}, {"until", 5}},
     decide_plan},
    {{"sleep", 5}, {{"ms", 2}, {"until", 5}}, decide_sleep},
    {{"wait_signal", 11}, {{"name", 4}, {"ms", 2}, {"until", 5}}, decide_wait_signal},
    {{"succeed", 7}, {{"output", 6}}, decide_succeed},
    {{"fail", 4}, {{"failure", 7}, {"retry_after_ms", 14}}, decide_fail},
};

static bool fields_fit(struct reading *r, const struct kind *kind)
{
    struct span names[FIELDS_MAX + 4] = {
        {"decision", 8}, {"checkpoint", 10}, {"events", 6}, {"detach", 6}};
    size_t n = 4;
    for (size_t i = 0; i < FIELDS_MAX && !span_is_null(kind->fields[i]); i++)
        names[n++] = kind->fields[i];
    return known_fields(r, r->line, kind->word.p, names, n);
}

static bool read_decision(struct reading *r)
{
    struct span word = json_text(json_get(r->line, "decision"));
    struct span words[COUNT_OF(kinds)];
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const struct kind *kind = &kinds[i];
        words[i] = kind->word;
        if (!span_eq(word, kind->word))
            continue;
        consume_signals(r);
        return fields_fit(r, kind) && read_checkpoint(r) && read_events(r) &&
               read_texts(r, "detach", &r->d->detach, &r->d->detach_n) && kind->decide(r);
    }
    struct span near = span_is_null(word) ? SPAN_NULL : nearest_name(word, words, COUNT_OF(words));
    if (span_is_null(near))
        return refuse(
            r, "\"%.*s\" is no decision: continue, plan, sleep, wait_signal, succeed or fail",
            SPAN_ARG(word));
    return refuse(r, "\"%.*s\" is no decision; did you mean \"%.*s\"?", SPAN_ARG(word),
                  SPAN_ARG(near));
}

bool answer_read(const struct pool *p, const struct session *s, struct arena *arena,
                 struct decision *ret, struct span *ret_why)
{
    *ret = decision_empty("");
    struct reading r = {.pool = p, .session = s, .arena = arena, .d = ret};
    struct json_error error;
    if (!json_parse(s->answer, NULL, arena, &r.line, &error)) {
        *ret_why = error.detail;
        return false;
    }
    if (read_decision(&r))
        return true;
    *ret_why = r.why;
    return false;
}

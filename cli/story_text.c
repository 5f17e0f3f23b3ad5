// A task's story for a person.
#include "cli/story_text.h"

#include <stdio.h>

enum { TIME_SHOWN = 23 }; // "2026-12-01T06:51:21.820" of the server's rendering

static struct span text_of(const struct json_value *v, const char *member)
{
    struct span s = json_text(json_get(v, member));
    return span_is_null(s) ? SPAN_LIT("") : s;
}

static long long number_of(const struct json_value *v, const char *member)
{
    int64_t n;
    return json_integer(json_get(v, member), &n) ? (long long)n : 0;
}

static bool has(const struct json_value *v, const char *member)
{
    return json_kind(json_get(v, member)) != JSON_NULL;
}

static void add_time(struct text *t, struct span time)
{
    for (size_t i = 0; i < time.n && i < TIME_SHOWN && time.p[i] != '+'; i++)
        text_add_char(t, time.p[i] == 'T' ? ' ' : time.p[i]);
}

// Escapes what a terminal would obey.
static void add_text(struct text *t, struct span s)
{
    text_add_json(t, s);
}

static void add_json(struct text *t, const char *label, const struct json_value *v,
                     struct arena *arena)
{
    if (json_kind(v) == JSON_NULL ||
        ((json_kind(v) == JSON_OBJECT || json_kind(v) == JSON_ARRAY) && json_count(v) == 0))
        return;
    struct span json = json_write(v, arena);
    text_addf(t, "  %-10s ", label);
    text_add_span(t, json);
    text_add_char(t, '\n');
}

static void add_history(struct text *t, const struct json_value *run, struct arena *arena)
{
    struct json_iter it = json_iter(json_get(run, "history"));
    if (json_count(json_get(run, "history")) > 0)
        text_add_str(t, "  history\n");
    while (json_next(&it)) {
        text_add_str(t, "    ");
        add_time(t, text_of(it.value, "at"));
        text_addf(t, "  %-12.*s", SPAN_ARG(text_of(it.value, "kind")));
        if (number_of(it.value, "epoch") > 0)
            text_addf(t, " epoch %lld, revision %lld", number_of(it.value, "epoch"),
                      number_of(it.value, "revision"));
        if (has(it.value, "owner")) {
            text_add_str(t, ", by ");
            add_text(t, text_of(it.value, "owner"));
        }
        if (has(it.value, "detail")) {
            text_add_str(t, "  ");
            text_add_span(t, json_write(json_get(it.value, "detail"), arena));
        }
        text_add_char(t, '\n');
    }
}

static void add_evidence(struct text *t, const struct json_value *operation, struct arena *arena)
{
    struct json_iter it = json_iter(json_get(operation, "evidence"));
    while (json_next(&it)) {
        text_add_str(t, "      ");
        add_time(t, text_of(it.value, "at"));
        text_addf(t, "  %-12.*s", SPAN_ARG(text_of(it.value, "kind")));
        if (has(it.value, "attempt"))
            text_addf(t, " attempt %lld", number_of(it.value, "attempt"));
        if (has(it.value, "dispatch_owner")) {
            text_add_str(t, " by ");
            add_text(t, text_of(it.value, "dispatch_owner"));
        }
        const struct json_value *detail = json_get(it.value, "detail");
        if (json_count(detail) > 0) {
            text_add_str(t, "  ");
            text_add_span(t, json_write(detail, arena));
        }
        text_add_char(t, '\n');
    }
}

static void add_operations(struct text *t, const struct json_value *run, struct arena *arena)
{
    struct json_iter it = json_iter(json_get(run, "operations"));
    if (json_count(json_get(run, "operations")) > 0)
        text_add_str(t, "  operations\n");
    while (json_next(&it)) {
        const struct json_value *o = it.value;
        long long sent = number_of(o, "attempts") - number_of(o, "attempts_not_sent");
        text_addf(t, "    %.*s (version %lld) by %.*s: %.*s", SPAN_ARG(text_of(o, "step_id")),
                  number_of(o, "effect_version"), SPAN_ARG(text_of(o, "tool_name")),
                  SPAN_ARG(text_of(o, "status")));
        if (has(o, "adopted_from"))
            text_addf(t, ", adopted from %.*s", SPAN_ARG(text_of(o, "adopted_from")));
        else if (sent == 0)
            text_add_str(t, ", never sent");
        else
            text_addf(t, ", may have been sent %lld time%s", sent, sent == 1 ? "" : "s");
        if (has(o, "remote_id")) {
            text_add_str(t, ", remote id ");
            add_text(t, text_of(o, "remote_id"));
        }
        text_addf(t, "\n      id %.*s, capability %.*s\n", SPAN_ARG(text_of(o, "operation_id")),
                  SPAN_ARG(text_of(o, "capability")));
        add_evidence(t, o, arena);
    }
}

static void add_refusals(struct text *t, const struct json_value *run)
{
    struct json_iter it = json_iter(json_get(run, "refusals"));
    if (json_count(json_get(run, "refusals")) > 0)
        text_add_str(t, "  refused\n");
    while (json_next(&it)) {
        text_add_str(t, "    ");
        add_time(t, text_of(it.value, "first_at"));
        text_addf(t, "  %.*s of epoch %lld (%.*s)", SPAN_ARG(text_of(it.value, "verb")),
                  number_of(it.value, "epoch"), SPAN_ARG(text_of(it.value, "reason")));
        if (has(it.value, "current_epoch"))
            text_addf(t, ", the epoch was %lld", number_of(it.value, "current_epoch"));
        if (has(it.value, "owner")) {
            text_add_str(t, ", by ");
            add_text(t, text_of(it.value, "owner"));
        }
        text_addf(t, ", %lld time%s\n", number_of(it.value, "count"),
                  number_of(it.value, "count") == 1 ? "" : "s");
    }
}

static void add_condition(struct text *t, const struct json_value *run, struct arena *arena)
{
    struct span condition = text_of(run, "condition");
    text_addf(t, "  %-10s %.*s", "now", SPAN_ARG(condition));
    if (has(run, "owner")) {
        text_add_str(t, " by ");
        add_text(t, text_of(run, "owner"));
        text_add_str(t, " until ");
        add_time(t, text_of(run, "lease_expires_at"));
    }
    if (has(run, "waits_for")) {
        text_add_str(t, ", waits for ");
        text_add_span(t, json_write(json_get(run, "waits_for"), arena));
    }
    if (has(run, "due_at")) {
        text_add_str(t, ", due at ");
        add_time(t, text_of(run, "due_at"));
    }
    text_add_char(t, '\n');
}

static void add_run(struct text *t, const struct json_value *run, struct arena *arena)
{
    text_addf(t, "\nrun %.*s: %.*s, epoch %lld, revision %lld\n", SPAN_ARG(text_of(run, "run_id")),
              SPAN_ARG(text_of(run, "status")), number_of(run, "epoch"),
              number_of(run, "revision"));
    text_addf(t, "  %-10s %.*s", "handler", SPAN_ARG(text_of(run, "handler")));
    text_addf(t, ", attempts %lld, failures %lld of %lld\n", number_of(run, "attempts"),
              number_of(run, "failures"), number_of(run, "max_attempts"));
    if (has(run, "prev_run_id"))
        text_addf(t, "  %-10s %.*s%s\n", "retries", SPAN_ARG(text_of(run, "prev_run_id")),
                  json_bool(json_get(run, "fresh")) ? ", adopting nothing" : "");
    if (!span_eq_text(text_of(run, "condition"), "ended"))
        add_condition(t, run, arena);
    add_json(t, "output", json_get(run, "output"), arena);
    add_json(t, "failure", json_get(run, "failure"), arena);
    add_json(t, "checkpoint", json_get(run, "checkpoint"), arena);
    add_history(t, run, arena);
    add_operations(t, run, arena);
    add_refusals(t, run);
}

static void add_requests(struct text *t, const struct json_value *story)
{
    struct json_iter it = json_iter(json_get(story, "requests"));
    if (json_count(json_get(story, "requests")) > 0)
        text_add_str(t, "\nrequests\n");
    while (json_next(&it)) {
        text_add_str(t, "  ");
        add_time(t, text_of(it.value, "at"));
        text_addf(t, "  %-7.*s %-12.*s ", SPAN_ARG(text_of(it.value, "verb")),
                  SPAN_ARG(text_of(it.value, "outcome")));
        add_text(t, text_of(it.value, "request_key"));
        if (has(it.value, "by")) {
            text_add_str(t, " by ");
            add_text(t, text_of(it.value, "by"));
        }
        text_add_char(t, '\n');
    }
}

void story_text(const struct json_value *story, struct arena *arena, struct text *t)
{
    text_addf(t, "task %.*s of tenant %.*s", SPAN_ARG(text_of(story, "task_id")),
              SPAN_ARG(text_of(story, "tenant_id")));
    size_t runs = json_count(json_get(story, "runs"));
    text_addf(t, ", %zu run%s (all times UTC)\n", runs, runs == 1 ? "" : "s");
    struct json_iter it = json_iter(json_get(story, "runs"));
    while (json_next(&it))
        add_run(t, it.value, arena);
    add_requests(t, story);
}

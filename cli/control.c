// holdfast cancel, holdfast retry: the same requests as records of the tasks topic, made through
// the same decoder, and applied at once so that the answer is the outcome.
#include "cli/commands.h"
#include "cli/session.h"
#include "fence/fence.h"
#include "schemas/message.h"

#include <string.h>

// What the command asks for, as a producer would have written it.
static struct span record_of(const struct invocation *inv, const char *type, const char *request_id,
                             const struct json_value *payload, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    const char *what = invocation_argument(inv, 0);
    struct uuid run;
    json_put_text(b, o, "type", span_of(type));
    json_put_text(b, o, uuid_parse(span_of(what), &run) ? "run_id" : "task_id", span_of(what));
    if (invocation_value(inv, "tenant") != NULL)
        json_put_text(b, o, "tenant_id", span_of(invocation_value(inv, "tenant")));
    bool is_signal = strcmp(type, "signal") == 0;
    json_put_text(b, o, is_signal ? "signal_id" : "request_id", span_of(request_id));
    if (is_signal)
        json_put_text(b, o, "name", span_of(invocation_argument(inv, 1)));
    if (is_signal && payload != NULL)
        json_put_copy(b, o, "payload", payload);
    json_put_text(b, o, "by", span_of(session_by(inv)));
    if (invocation_value(inv, "reason") != NULL)
        json_put_text(b, o, "reason", span_of(invocation_value(inv, "reason")));
    if (invocation_flag(inv, "fresh"))
        json_put_bool(b, o, "fresh", true);
    if (invocation_flag(inv, "allow-unsettled"))
        json_put_bool(b, o, "allow_unsettled", true);
    return json_build(b, o);
}

static bool decode(const struct invocation *inv, const char *type, struct arena *arena,
                   struct message *ret)
{
    char made[37];
    uuid_format(uuid_v7(), made);
    const char *request_id =
        invocation_value(inv, strcmp(type, "signal") == 0 ? "signal-id" : "request-id");
    const char *text = invocation_value(inv, "payload");
    const struct json_value *payload = NULL;
    struct json_error problem;
    if (text != NULL && !json_parse(span_of(text), NULL, arena, &payload, &problem)) {
        say_usage(inv, "--payload is no JSON: %.*s", SPAN_ARG(problem.detail));
        return false;
    }
    struct raw_record record = {
        .cluster = SPAN_LIT("cli"),
        .topic = SPAN_LIT("cli"),
        .value = record_of(inv, type, request_id != NULL ? request_id : made, payload, arena)};
    struct reject reject;
    if (message_decode(&record, NULL, arena, ret, &reject))
        return true;
    say_usage(inv, "%.*s", SPAN_ARG(reject.detail));
    return false;
}

struct answer {
    enum outcome outcome;
    struct span first_outcome;
    struct uuid run_id;
    struct span status;
    struct db_texts operations;
    const char *operations_are; // the member's name and the sentence's beginning
};

static int print_answer(const struct invocation *inv, const struct answer *a, struct arena *arena)
{
    char run[37];
    uuid_format(a->run_id, run);
    bool has_run = !uuid_is_nil(a->run_id);
    if (invocation_flag(inv, "json")) {
        struct json_builder *b = json_builder_new(arena);
        struct json_node *o = json_new_object(b);
        json_put_text(b, o, "outcome", span_of(outcome_word(a->outcome)));
        json_put_text(b, o, "first_outcome", a->first_outcome);
        json_put_text(b, o, "run_id", has_run ? span_of(run) : SPAN_NULL);
        json_put_text(b, o, "status", a->status);
        struct json_node *list = json_new_array(b);
        for (size_t i = 0; i < a->operations.n; i++)
            json_push(b, list, json_new_text(b, a->operations.v[i]));
        json_put_node(b, o, a->operations_are, list);
        session_print_json(b, o);
    } else {
        printf("%s: %s", outcome_word(a->outcome), outcome_sentence(a->outcome));
        if (!span_is_null(a->first_outcome))
            printf(" (%.*s)", SPAN_ARG(a->first_outcome));
        if (has_run)
            printf("; run %s", run);
        if (!span_is_null(a->status))
            printf(" is %.*s", SPAN_ARG(a->status));
        putchar('\n');
        for (size_t i = 0; i < a->operations.n; i++)
            printf("  %s: %.*s\n", a->operations_are, SPAN_ARG(a->operations.v[i]));
        if (a->outcome == OUTCOME_UNSETTLED_OPERATIONS)
            printf("  look at the remote, then: --allow-unsettled --reason 'what you found'\n");
    }
    return outcome_class(a->outcome) == CLASS_DONE ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

static int failed(struct fence *lane, enum outcome outcome)
{
    say_error(outcome_class(outcome) == CLASS_UNKNOWN
                  ? "look with holdfast show; asking again with the same --request-id is safe"
                  : "holdfast doctor",
              "PostgreSQL: %s: %s", outcome_sentence(outcome), fence_error(lane));
    return EXIT_CANNOT_RUN;
}

static enum outcome cancel(struct fence *lane, const struct message *m, struct span source,
                           struct arena *arena, struct answer *ret)
{
    struct fence_cancel_item item = {.tenant = m->tenant_id,
                                     .task = m->task_id,
                                     .key = m->request_key,
                                     .own_key = true,
                                     .digest = m->digest,
                                     .source = source,
                                     .by = m->by,
                                     .run_id = {m->run_id, !m->has_run},
                                     .reason = m->reason,
                                     .record = {m->record}};
    struct fence_cancel_result *r;
    enum outcome outcome = fence_cancel(lane, &item, 1, arena, &r);
    if (outcome == OUTCOME_OK)
        *ret = (struct answer){r->outcome, r->first_outcome, r->run_id,
                               r->status,  r->detached,      "detached"};
    return outcome;
}

static enum outcome retry(struct fence *lane, const struct message *m, struct span source,
                          struct arena *arena, struct answer *ret)
{
    struct fence_retry_item item = {.tenant = m->tenant_id,
                                    .task = m->task_id,
                                    .key = m->request_key,
                                    .own_key = true,
                                    .digest = m->digest,
                                    .source = source,
                                    .by = m->by,
                                    .run_id = {m->run_id, !m->has_run},
                                    .new_run_id = uuid_v7(),
                                    .fresh = m->fresh,
                                    .allow_unsettled = m->allow_unsettled,
                                    .reason = m->reason};
    struct fence_retry_result *r;
    enum outcome outcome = fence_retry(lane, &item, 1, arena, &r);
    if (outcome == OUTCOME_OK)
        *ret = (struct answer){r->outcome, r->first_outcome, r->run_id,
                               SPAN_NULL,  r->unsettled,     "unsettled"};
    return outcome;
}

static enum outcome signal_run(struct fence *lane, const struct message *m, struct span source,
                               struct arena *arena, struct answer *ret)
{
    struct fence_signal_item item = {.tenant = m->tenant_id,
                                     .task = m->task_id,
                                     .key = m->request_key,
                                     .own_key = true,
                                     .digest = m->digest,
                                     .source = source,
                                     .by = m->by,
                                     .run_id = {m->run_id, !m->has_run},
                                     .signal_id = m->signal_id,
                                     .name = m->name,
                                     .payload = {m->payload},
                                     .record = {m->record}};
    struct fence_signal_result *r;
    enum outcome outcome = fence_signal(lane, &item, 1, arena, &r);
    if (outcome == OUTCOME_OK)
        *ret = (struct answer){.outcome = r->outcome,
                               .first_outcome = r->first_outcome,
                               .run_id = r->run_id,
                               .operations_are = "operations"};
    return outcome;
}

static int control(struct invocation *inv, const char *type,
                   enum outcome (*ask)(struct fence *, const struct message *, struct span,
                                       struct arena *, struct answer *))
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_POSTGRES);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct message message;
    if (!decode(inv, type, arena, &message))
        return EXIT_CANNOT_RUN;
    struct fence *lane;
    if (fence_open(cfg, "cli", 0, &lane) != OUTCOME_OK)
        return EXIT_CANNOT_RUN;
    struct answer answer;
    enum outcome outcome = fence_connect(lane, cfg->postgres.connect_timeout_ms * 1000);
    if (outcome == OUTCOME_OK)
        outcome = ask(lane, &message, span_of(arena_printf(arena, "cli:%s", session_by(inv))),
                      arena, &answer);
    int code = outcome == OUTCOME_OK ? print_answer(inv, &answer, arena) : failed(lane, outcome);
    fence_close(lane);
    return code;
}

int command_cancel(struct invocation *inv)
{
    return control(inv, "cancel", cancel);
}

int command_signal(struct invocation *inv)
{
    return control(inv, "signal", signal_run);
}

int command_retry(struct invocation *inv)
{
    if (invocation_flag(inv, "allow-unsettled") && invocation_value(inv, "reason") == NULL)
        return say_usage(inv, "--allow-unsettled needs --reason: it is kept with who and why");
    return control(inv, "retry", retry);
}

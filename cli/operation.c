// holdfast op …: operations in doubt, and what a person decides about them.
#include "cli/commands.h"
#include "cli/operation_calls.h"
#include "cli/session.h"

#include <string.h>

#include "base/clock.h"
#include "schemas/canon.h"

enum { LIST_LIMIT = 50, LIST_LIMIT_MAX = 10000 };

struct acting {
    struct config *cfg;
    struct db *db;
    struct arena *arena;
};

static void acting_end(struct acting *a)
{
    session_db_drop(&a->db);
    config_drop(&a->cfg);
    arena_drop(&a->arena);
}

static bool acting_begin(const struct invocation *inv, struct acting *ret)
{
    ret->arena = arena_new();
    ret->cfg = session_config(inv, CONFIG_NEEDS_POSTGRES);
    ret->db = ret->cfg == NULL ? NULL : session_db(ret->cfg, false);
    return ret->db != NULL;
}

// ---- reading ----

// NULL: printed why not. *ret_code then says how to end.
static const struct json_value *read_story(struct acting *a, const char *operation, int *ret_code,
                                           struct span *ret_text)
{
    const struct op_story_in in = {.operation_id = span_of(operation)};
    struct op_story_row *rows;
    size_t n;
    *ret_code = EXIT_CANNOT_RUN;
    enum outcome outcome = db_call(a->db, &op_story, &in, NULL, a->arena, &rows, &n);
    if (outcome != OUTCOME_OK) {
        session_db_error(a->db, outcome);
        return NULL;
    }
    if (n == 0 || span_is_null(rows[0].story.text)) {
        say_error("holdfast op list, or holdfast show TASK", "there is no operation %s", operation);
        *ret_code = EXIT_HOLDS_NOT;
        return NULL;
    }
    const struct json_limits limits = {.any_number = true};
    const struct json_value *story = NULL;
    struct json_error problem;
    if (!json_parse(rows[0].story.text, &limits, a->arena, &story, &problem)) {
        say_error("use --json", "the story cannot be read: %.*s", SPAN_ARG(problem.detail));
        return NULL;
    }
    *ret_text = rows[0].story.text;
    return story;
}

// A remote's text could hold what moves a terminal's cursor.
static void print_plain(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        putchar((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f ? '?' : s.p[i]);
}

static void print_member(const struct json_value *story, const char *member, const char *label,
                         struct arena *arena)
{
    const struct json_value *v = json_get(story, member);
    if (v == NULL || json_is(v, JSON_NULL))
        return;
    printf("  %-22s ", label);
    print_plain(json_is(v, JSON_STRING) ? json_text(v) : json_write(v, arena));
    putchar('\n');
}

static void print_story(const struct json_value *story, struct arena *arena)
{
    static const struct {
        const char *member, *label;
    } lines[] = {
        {"status", "status"},
        {"may_have_been_sent", "may have been sent"},
        {"tool_name", "tool"},
        {"capability", "capability"},
        {"task_id", "task"},
        {"run_id", "run"},
        {"run_status", "run is"},
        {"revision", "revision"},
        {"attempts", "attempts"},
        {"attempts_not_sent", "of these not sent"},
        {"queries", "questions asked"},
        {"first_sent_at", "first sent"},
        {"key_remembered_until", "key remembered until"},
        {"absent_final_at", "absence is a fact from"},
        {"escalated_at", "escalated"},
        {"when_cancelled", "when cancelled"},
        {"remote_id", "remote id"},
        {"external_key", "key at the remote"},
        {"request_digest", "request digest"},
        {"compensates", "undoes"},
        {"undone_by", "undone by"},
        {"result", "result"},
    };
    print_plain(json_text(json_get(story, "operation_id")));
    putchar('\n');
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        print_member(story, lines[i].member, lines[i].label, arena);
    puts("evidence");
    for (struct json_iter it = json_iter(json_get(story, "evidence")); json_next(&it);) {
        int64_t attempt = 0;
        bool has = json_integer(json_get(it.value, "attempt"), &attempt);
        printf("  %.19s  %-14.*s ", json_text(json_get(it.value, "at")).p,
               SPAN_ARG(json_text(json_get(it.value, "kind"))));
        if (has)
            printf("attempt %lld  ", (long long)attempt);
        print_plain(json_write(json_get(it.value, "detail"), arena));
        putchar('\n');
    }
}

int command_op_show(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    int code;
    struct span text;
    if (!acting_begin(inv, &a))
        return EXIT_CANNOT_RUN;
    const struct json_value *story = read_story(&a, invocation_argument(inv, 0), &code, &text);
    if (story == NULL)
        return code;
    if (invocation_flag(inv, "json"))
        printf("%.*s\n", SPAN_ARG(text));
    else
        print_story(story, a.arena);
    return EXIT_HOLDS;
}

static void print_listed(const struct op_list_row *r)
{
    char at[CLOCK_TEXT_SIZE];
    printf("%.*s  %.*s by %.*s, %d attempts, %d questions, since %.19s%s%s%.*s\n",
           SPAN_ARG(r->operation_id), SPAN_ARG(r->capability), SPAN_ARG(r->tool_name), r->attempts,
           r->queries, r->first_sent_at.is_null ? "?" : clock_format(r->first_sent_at.us, at),
           r->escalated_at.is_null ? "" : ", ESCALATED",
           span_is_null(r->undo) ? "" : ", to be undone: ", (int)r->undo.n,
           span_is_null(r->undo) ? "" : r->undo.p);
}

static void list_json(const struct op_list_row *r, struct arena *arena)
{
    char at[CLOCK_TEXT_SIZE];
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_text(b, o, "operation_id", r->operation_id);
    json_put_text(b, o, "task_id", r->task_id);
    json_put_text(b, o, "run_status", r->run_status);
    json_put_text(b, o, "tool", r->tool_name);
    json_put_text(b, o, "capability", r->capability);
    json_put_integer(b, o, "attempts", r->attempts);
    json_put_integer(b, o, "queries", r->queries);
    json_put_integer(b, o, "revision", r->revision);
    json_put_bool(b, o, "escalated", !r->escalated_at.is_null);
    json_put_text(b, o, "first_sent_at",
                  r->first_sent_at.is_null ? SPAN_NULL
                                           : span_of(clock_format(r->first_sent_at.us, at)));
    session_print_json(b, o);
}

int command_op_list(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    long limit = LIST_LIMIT;
    if (!invocation_integer(inv, "limit", 1, LIST_LIMIT_MAX, &limit))
        return EXIT_CANNOT_RUN;
    if (!acting_begin(inv, &a))
        return EXIT_CANNOT_RUN;
    const struct op_list_in in = {.tool_name = span_of(invocation_value(inv, "tool")),
                                  .row_limit = limit};
    struct op_list_row *rows;
    size_t n;
    enum outcome outcome = db_call(a.db, &op_list, &in, NULL, a.arena, &rows, &n);
    if (outcome != OUTCOME_OK) {
        session_db_error(a.db, outcome);
        return EXIT_CANNOT_RUN;
    }
    bool json = invocation_flag(inv, "json");
    for (size_t i = 0; i < n; i++)
        json ? list_json(&rows[i], a.arena) : print_listed(&rows[i]);
    if (n == 0 && !json)
        puts("no operation is in doubt");
    return EXIT_HOLDS;
}

// ---- acts ----

static bool json_option(const struct invocation *inv, const char *option, struct arena *arena,
                        struct json_span *ret)
{
    const char *text = invocation_value(inv, option);
    const struct json_value *value = NULL;
    struct json_error problem;
    ret->text = SPAN_NULL;
    if (text == NULL)
        return true;
    if (!json_parse(span_of(text), NULL, arena, &value, &problem)) {
        say_usage(inv, "--%s is no JSON: %.*s", option, SPAN_ARG(problem.detail));
        return false;
    }
    ret->text = canon_write(value, arena);
    return true;
}

// Who and why are kept; the revision is the one that the person looked at.
static bool who_and_why(const struct invocation *inv, struct op_act *ret)
{
    long revision = 0;
    if (invocation_value(inv, "reason") == NULL) {
        say_usage(inv, "--reason is missing: it is kept with who and when");
        return false;
    }
    if (invocation_value(inv, "revision") == NULL) {
        say_usage(inv,
                  "--revision is missing: it is the one that holdfast op show printed, so that "
                  "what you decide is about what you saw");
        return false;
    }
    if (!invocation_integer(inv, "revision", 0, 2147483647, &revision))
        return false;
    ret->operation_id = span_of(invocation_argument(inv, 0));
    ret->revision = revision;
    ret->who = span_of(session_by(inv));
    ret->why = span_of(invocation_value(inv, "reason"));
    return true;
}

static void answer_json(const struct op_answer *r, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_text(b, o, "outcome", span_of(outcome_word(r->outcome)));
    json_put_text(b, o, "operation_id", r->operation_id);
    json_put_text(b, o, "status", r->status);
    json_put_integer(b, o, "revision", r->revision);
    json_put_text(b, o, "policy", r->policy);
    json_put_text(b, o, "detail", span_is_null(r->what) ? r->detail : r->what);
    session_print_json(b, o);
}

static int act(const struct invocation *inv, struct acting *a, const struct db_call *call,
               const struct op_act *item)
{
    const struct db_group group = {.items = item, .n = 1};
    struct op_answer *r;
    size_t n;
    enum outcome outcome = db_call(a->db, call, NULL, &group, a->arena, &r, &n);
    if (outcome != OUTCOME_OK || n != 1) {
        session_db_error(a->db, outcome == OUTCOME_OK ? OUTCOME_DB_DRIFT : outcome);
        return EXIT_CANNOT_RUN;
    }
    if (invocation_flag(inv, "json")) {
        answer_json(r, a->arena);
    } else {
        struct span more = span_is_null(r->what) ? r->detail : r->what;
        printf("%s: %s", outcome_word(r->outcome), outcome_sentence(r->outcome));
        if (!span_is_null(r->operation_id))
            printf("; %.*s", SPAN_ARG(r->operation_id));
        if (!span_is_null(r->status))
            printf("; it is %.*s", SPAN_ARG(r->status));
        if (!span_is_null(r->policy))
            printf("; policy %.*s", SPAN_ARG(r->policy));
        if (!span_is_null(more))
            printf("; %.*s", SPAN_ARG(more));
        putchar('\n');
    }
    bool good = outcome_class(r->outcome) == CLASS_DONE || r->outcome == OUTCOME_RESOLVED ||
                r->outcome == OUTCOME_EXISTS;
    return good ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

int command_op_resolve(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    struct op_act item = {0};
    bool succeeded = invocation_flag(inv, "succeeded");
    if (succeeded == invocation_flag(inv, "failed"))
        return say_usage(inv, "say --succeeded or --failed");
    const char *evidence = invocation_value(inv, "evidence");
    if (evidence == NULL)
        return say_usage(inv, "--evidence is missing: what you saw, and where");
    if (!who_and_why(inv, &item) || !acting_begin(inv, &a))
        return EXIT_CANNOT_RUN;
    item.verdict = succeeded ? SPAN_LIT("succeeded") : SPAN_LIT("failed_final");
    item.remote_id = span_of(invocation_value(inv, "remote-id"));
    if (!json_option(inv, "result", a.arena, &item.result))
        return EXIT_CANNOT_RUN;
    struct json_builder *b = json_builder_new(a.arena);
    struct json_node *seen = json_new_object(b);
    json_put_text(b, seen, "seen", span_of(evidence));
    item.evidence.text = json_build(b, seen);
    return act(inv, &a, &op_resolve, &item);
}

int command_op_cancel(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    struct op_act item = {0};
    if (!who_and_why(inv, &item) || !acting_begin(inv, &a))
        return EXIT_CANNOT_RUN;
    return act(inv, &a, &op_cancel, &item);
}

static const char *capability_word(enum config_capability capability)
{
    static const char *const words[] = {[CAPABILITY_NONE] = "none",
                                        [CAPABILITY_IDEMPOTENCY_KEY] = "idempotency_key",
                                        [CAPABILITY_DETERMINISTIC_ID] = "deterministic_id",
                                        [CAPABILITY_QUERY] = "query"};
    return words[capability];
}

// The tool as it is declared now.
static bool with_tool(struct acting *a, struct span name, struct op_act *item)
{
    const struct config_tool *tool =
        span_is_null(name) ? NULL : config_tool(a->cfg, arena_dup_text(a->arena, name));
    if (tool == NULL) {
        say_error("declare it in the configuration, or name one with --tool",
                  "there is no tool \"%.*s\"", (int)name.n, name.n > 0 ? name.p : "");
        return false;
    }
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_tool_declare(tool, &t);
    item->tool = span_of(tool->name);
    item->capability = span_of(capability_word(tool->capability));
    item->declaration.text = arena_dup(a->arena, text_span(&t));
    return true;
}

int command_op_raise(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    struct op_act item = {0};
    int code;
    struct span text;
    if (!who_and_why(inv, &item) || !acting_begin(inv, &a))
        return EXIT_CANNOT_RUN;
    const struct json_value *story = read_story(&a, invocation_argument(inv, 0), &code, &text);
    if (story == NULL)
        return code;
    if (!with_tool(&a, json_text(json_get(story, "tool_name")), &item))
        return EXIT_CANNOT_RUN;
    return act(inv, &a, &op_raise, &item);
}

// What an undoing tool is told unless the person says otherwise.
static struct span undo_body(const struct json_value *story, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_copy(b, o, "operation_id", json_get(story, "operation_id"));
    json_put_copy(b, o, "key", json_get(story, "external_key"));
    json_put_copy(b, o, "remote_id", json_get(story, "remote_id"));
    json_put_copy(b, o, "result", json_get(story, "result"));
    return canon_write(json_seal(b, o), arena);
}

int command_op_compensate(struct invocation *inv)
{
    struct acting a CLEANUP(acting_end) = {0};
    struct op_act item = {.operation_id = span_of(invocation_argument(inv, 0)),
                          .who = span_of(session_by(inv)),
                          .external_key = SPAN_NULL};
    bool cancel = invocation_flag(inv, "remote-cancel");
    int code;
    struct span text;
    if (!acting_begin(inv, &a) || !json_option(inv, "request", a.arena, &item.body))
        return EXIT_CANNOT_RUN;
    const struct json_value *story = read_story(&a, invocation_argument(inv, 0), &code, &text);
    if (story == NULL)
        return code;
    struct span tool = span_of(invocation_value(inv, "tool"));
    if (span_is_null(tool))
        tool = json_text(json_get(json_get(story, "declaration"),
                                  cancel ? "remote_cancel_tool" : "compensate_tool"));
    if (!with_tool(&a, tool, &item))
        return EXIT_CANNOT_RUN;
    if (span_is_null(item.body.text))
        item.body.text = undo_body(story, a.arena);
    item.kind = cancel ? SPAN_LIT("remote_cancel") : SPAN_LIT("compensate");
    item.digest = digest_span(item.body.text, a.arena);
    return act(inv, &a, &op_compensate, &item);
}

// holdfast show: a task's or a run's story.
#include "cli/commands.h"
#include "cli/reads.h"
#include "cli/session.h"
#include "cli/story_text.h"

int command_show(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_POSTGRES);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct db *db CLEANUP(session_db_drop) = session_db(cfg, true);
    if (db == NULL)
        return EXIT_CANNOT_RUN;
    const char *what = invocation_argument(inv, 0);
    struct story_in in = {.tenant = span_of(invocation_value(inv, "tenant")),
                          .task = span_of(what)};
    in.run.is_null = !uuid_parse(span_of(what), &in.run.v);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct story_row *rows;
    size_t n;
    enum outcome outcome = db_call(db, &read_story, &in, NULL, arena, &rows, &n);
    if (outcome != OUTCOME_OK) {
        session_db_error(db, outcome);
        return EXIT_CANNOT_RUN;
    }
    if (n == 0 || span_is_null(rows[0].story.text)) {
        say_error("check the spelling and --tenant; a submission that was refused is in holdfast "
                  "dlq list",
                  "there is no %s %s", in.run.is_null ? "task" : "run", what);
        return EXIT_HOLDS_NOT;
    }
    if (invocation_flag(inv, "json")) {
        printf("%.*s\n", SPAN_ARG(rows[0].story.text));
        return EXIT_HOLDS;
    }
    const struct json_value *story;
    struct json_error problem;
    struct json_limits limits = {.any_number = true};
    if (!json_parse(rows[0].story.text, &limits, arena, &story, &problem)) {
        say_error("use --json", "the story cannot be shown: %.*s", SPAN_ARG(problem.detail));
        return EXIT_CANNOT_RUN;
    }
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    story_text(story, arena, &t);
    fwrite(t.p, 1, t.n, stdout);
    return EXIT_HOLDS;
}

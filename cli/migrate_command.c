// holdfast migrate: installs, upgrades, prints and checks the SQL.
#include "cli/commands.h"
#include "cli/session.h"
#include "schemas/migrate.h"

static int report(const struct invocation *inv, enum outcome outcome, const struct text *lines)
{
    if (invocation_flag(inv, "json")) {
        struct arena *arena CLEANUP(arena_drop) = arena_new();
        struct json_builder *b = json_builder_new(arena);
        struct json_node *root = json_new_object(b);
        json_put_text(b, root, "outcome", span_of(outcome_word(outcome)));
        json_put_integer(b, root, "version", migrate_version());
        json_put_text(b, root, "digest", span_of(migrate_digest()));
        json_put_text(b, root, "report", text_span(lines));
        session_print_json(b, root);
    } else {
        fwrite(lines->p, 1, lines->n, outcome == OUTCOME_OK ? stdout : stderr);
    }
    if (outcome == OUTCOME_OK)
        return EXIT_HOLDS;
    switch (outcome_class(outcome)) {
    case CLASS_RETRY:
    case CLASS_UNKNOWN:
        say_error("check postgres.dsn, then run it again: it is safe to repeat", "%s",
                  outcome_sentence(outcome));
        return EXIT_CANNOT_RUN;
    case CLASS_BUG:
        say_error("use a login that may create roles and schemas", "%s", outcome_sentence(outcome));
        return EXIT_CANNOT_RUN;
    case CLASS_DONE:
    case CLASS_REFUSED:
        break;
    }
    return EXIT_HOLDS_NOT;
}

int command_migrate(struct invocation *inv)
{
    long shards = 8;
    if (!invocation_integer(inv, "shards", 1, 256, &shards))
        return EXIT_CANNOT_RUN;
    bool print = invocation_flag(inv, "print");
    struct config *cfg CLEANUP(config_drop) =
        session_config(inv, print ? 0 : CONFIG_NEEDS_POSTGRES);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct migrate_options options = {
        .dsn = cfg->postgres.dsn,
        .schema = cfg->postgres.schema,
        .role_prefix = cfg->postgres.role_prefix,
        .mode = session_failover_word(cfg),
        .claims_wait_for_relay = session_claims_wait(cfg),
        .shards = (int)shards,
    };
    struct text lines CLEANUP(text_free) = TEXT_EMPTY;
    if (print) {
        enum outcome outcome = migrate_print(&options, &lines);
        if (outcome != OUTCOME_OK)
            return report(inv, outcome, &lines);
        fwrite(lines.p, 1, lines.n, stdout);
        return EXIT_HOLDS;
    }
    bool check = invocation_flag(inv, "check");
    return report(inv, check ? migrate_check(&options, &lines) : migrate_run(&options, &lines),
                  &lines);
}

// holdfast gate …: whether work may be claimed.
#include "cli/commands.h"
#include "cli/reads.h"
#include "cli/session.h"

#include "base/clock.h"

// One call whose answer is one row.
static bool ask(const struct db_call *call, const struct gate_in *in, struct db *db,
                struct arena *arena, void *ret_row)
{
    size_t n = 0;
    enum outcome outcome = db_call(db, call, in, NULL, arena, ret_row, &n);
    if (outcome == OUTCOME_OK && n == 1)
        return true;
    session_db_error(db, outcome == OUTCOME_OK ? OUTCOME_DB_DRIFT : outcome);
    return false;
}

static struct db *connect(const struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_POSTGRES);
    return cfg != NULL ? session_db(cfg, false) : NULL;
}

static void print_time(const char *label, struct db_time time)
{
    char text[CLOCK_TEXT_SIZE];
    if (!time.is_null)
        printf("  %-16s %.23s UTC\n", label, clock_format(time.us, text));
}

static void put_time(struct json_builder *b, struct json_node *o, const char *key, struct db_time t,
                     struct arena *arena)
{
    char text[CLOCK_TEXT_SIZE];
    json_put_text(b, o, key,
                  t.is_null ? SPAN_NULL : arena_dup(arena, span_of(clock_format(t.us, text))));
}

static void print_status_json(const struct gate_row *g, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_bool(b, o, "open", g->open);
    json_put_text(b, o, "reason", g->reason);
    json_put_text(b, o, "mode", g->mode);
    // Beyond 2^53: as text, so that every reader sees all of its digits.
    json_put_text(b, o, "system_identifier",
                  span_of(arena_printf(arena, "%lld", (long long)g->system_identifier)));
    json_put_text(b, o, "known_system",
                  span_of(arena_printf(arena, "%lld", (long long)g->known_system)));
    json_put_integer(b, o, "timeline", g->timeline);
    json_put_integer(b, o, "known_timeline", g->known_timeline);
    json_put_text(b, o, "changed_by", g->changed_by);
    put_time(b, o, "changed_at", g->changed_at, arena);
    put_time(b, o, "sendable_until", g->sendable_until, arena);
    session_print_json(b, o);
}

int command_gate_status(struct invocation *inv)
{
    struct db *db CLEANUP(session_db_drop) = connect(inv);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct gate_row *g;
    if (db == NULL || !ask(&read_gate, NULL, db, arena, &g))
        return EXIT_CANNOT_RUN;
    if (invocation_flag(inv, "json")) {
        print_status_json(g, arena);
        return g->open ? EXIT_HOLDS : EXIT_HOLDS_NOT;
    }
    if (g->open)
        printf("open (%.*s mode)\n", SPAN_ARG(g->mode));
    else
        printf("closed: %.*s (%.*s mode)\n", SPAN_ARG(g->reason), SPAN_ARG(g->mode));
    printf("  %-16s system %lld, timeline %lld\n", "this server", (long long)g->system_identifier,
           (long long)g->timeline);
    printf("  %-16s system %lld, timeline %lld\n", "known", (long long)g->known_system,
           (long long)g->known_timeline);
    print_time("changed", g->changed_at);
    if (!span_is_null(g->changed_by))
        printf("  %-16s %.*s\n", "changed by", SPAN_ARG(g->changed_by));
    print_time("may send until", g->sendable_until);
    return g->open ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

static bool who_and_why(const struct invocation *inv, struct gate_in *ret)
{
    ret->by = span_of(session_by(inv));
    ret->reason = span_of(invocation_value(inv, "reason"));
    ret->restored = invocation_flag(inv, "restored");
    ret->nothing_lost = invocation_flag(inv, "nothing-lost");
    ret->set_back = invocation_flag(inv, "set-back");
    if (span_is_null(ret->reason))
        say_usage(inv, "--reason is missing: it is kept with who and when");
    return !span_is_null(ret->reason);
}

int command_gate_close(struct invocation *inv)
{
    struct gate_in in;
    if (!who_and_why(inv, &in))
        return EXIT_CANNOT_RUN;
    struct db *db CLEANUP(session_db_drop) = connect(inv);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct gate_close_row *row;
    if (db == NULL || !ask(&write_gate_close, &in, db, arena, &row))
        return EXIT_CANNOT_RUN;
    if (invocation_flag(inv, "json")) {
        struct json_builder *b = json_builder_new(arena);
        struct json_node *o = json_new_object(b);
        json_put_text(b, o, "outcome", span_of(outcome_word(row->outcome)));
        put_time(b, o, "sendable_until", row->sendable_until, arena);
        session_print_json(b, o);
    } else {
        puts("closed: nothing new is claimed from here on");
        print_time("may send until", row->sendable_until);
    }
    return EXIT_HOLDS;
}

int command_gate_open(struct invocation *inv)
{
    struct gate_in in;
    if (!who_and_why(inv, &in))
        return EXIT_CANNOT_RUN;
    struct db *db CLEANUP(session_db_drop) = connect(inv);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct gate_open_row *row;
    if (db == NULL || !ask(&write_gate_open, &in, db, arena, &row))
        return EXIT_CANNOT_RUN;
    bool open = outcome_class(row->outcome) == CLASS_DONE;
    if (invocation_flag(inv, "json"))
        printf("{\"outcome\":\"%s\",\"epochs_raised\":%d,\"operations_doubted\":%d}\n",
               outcome_word(row->outcome), row->epochs_raised, row->operations_doubted);
    else if (open)
        printf("open; %d runs got a higher epoch, %d operations are in doubt\n", row->epochs_raised,
               row->operations_doubted);
    else
        printf("not opened: %s %.*s\n", outcome_sentence(row->outcome), SPAN_ARG(row->reason));
    return open ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

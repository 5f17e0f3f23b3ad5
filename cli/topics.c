// holdfast topics …: the topics of an installation.
#include "cli/commands.h"
#include "cli/reads.h"
#include "cli/session.h"

enum { ADMIN_MS = 30000 };

// The number of relay shards is the database's; --shards stands in where it cannot be asked. -1:
// printed.
static long shards_of(const struct invocation *inv, const struct config *cfg)
{
    long shards = 0;
    if (!invocation_integer(inv, "shards", 1, 256, &shards))
        return -1;
    if (shards > 0)
        return shards;
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    if (!config_has(cfg, CONFIG_NEEDS_POSTGRES, &errors)) {
        say_usage(inv, "--shards is missing, or postgres.dsn, where the number is kept");
        return -1;
    }
    struct db *db CLEANUP(session_db_drop) = session_db(cfg, true);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct server_row *rows;
    size_t n;
    if (db == NULL)
        return -1;
    enum outcome outcome = db_call(db, &read_server, NULL, NULL, arena, &rows, &n);
    if (outcome == OUTCOME_OK && n == 1)
        return rows[0].shards;
    session_db_error(db, outcome == OUTCOME_OK ? OUTCOME_DB_DRIFT : outcome);
    return -1;
}

static int report(const struct invocation *inv, const struct broker_topic *topics,
                  const struct broker_topic_state *states, size_t n)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct json_builder *b = json_builder_new(arena);
    struct json_node *root = json_new_object(b), *list = json_new_array(b);
    bool json = invocation_flag(inv, "json"), all = true;
    for (size_t i = 0; i < n; i++) {
        const struct broker_topic_state *s = &states[i];
        all = all && s->ok;
        if (json) {
            struct json_node *o = json_new_object(b);
            json_put_text(b, o, "topic", span_of(topics[i].name));
            json_put_bool(b, o, "exists", s->exists);
            json_put_bool(b, o, "created", s->created);
            json_put_bool(b, o, "ok", s->ok);
            json_put_integer(b, o, "partitions", s->partitions);
            json_put_integer(b, o, "replication", s->replication);
            json_put_integer(b, o, "min_insync", s->min_insync);
            json_put_text(b, o, "detail", span_of(s->detail));
            json_push(b, list, o);
            continue;
        }
        printf("%-8s %-32s %3d partitions, replication %d, min.insync %d\n",
               !s->exists   ? "MISSING"
               : !s->ok     ? "WRONG"
               : s->created ? "made"
                            : "ok",
               topics[i].name, s->partitions, s->replication, s->min_insync);
        if (s->detail[0] != '\0')
            printf("         %s\n", s->detail);
    }
    if (json) {
        json_put_bool(b, root, "ok", all);
        json_put_node(b, root, "topics", list);
        session_print_json(b, root);
    }
    return all ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

static int topics(const struct invocation *inv, bool apply)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    long shards = shards_of(inv, cfg);
    if (shards < 0)
        return EXIT_CANNOT_RUN;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    if (broker == NULL)
        return EXIT_CANNOT_RUN;
    struct broker_topic wanted[BROKER_TOPIC_ROLES];
    struct broker_topic_state states[BROKER_TOPIC_ROLES];
    struct broker_error error;
    broker_topics_of(cfg->topics.prefix, (int32_t)cfg->topics.partitions, (int32_t)shards, wanted);
    enum broker_result result =
        apply ? broker_topics_apply(broker, wanted, COUNT_OF(wanted),
                                    (int)cfg->topics.replication_factor, ADMIN_MS, states, &error)
              : broker_topics_check(broker, wanted, COUNT_OF(wanted), ADMIN_MS, states, &error);
    if (result != BROKER_OK) {
        say_error("check kafka.bootstrap.servers and the login's rights: holdfast doctor",
                  "Kafka: %s", error.text);
        return EXIT_CANNOT_RUN;
    }
    return report(inv, wanted, states, COUNT_OF(wanted));
}

int command_topics_apply(struct invocation *inv)
{
    return topics(inv, true);
}

int command_topics_check(struct invocation *inv)
{
    return topics(inv, false);
}

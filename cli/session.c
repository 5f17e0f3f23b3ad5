// What most commands begin with.
#include "cli/session.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "schemas/migrate.h"

extern char **environ;

struct sets {
    const char **values;
    size_t n;
};

static void add_set(const char *value, void *opaque)
{
    struct sets *sets = opaque;
    sets->values[sets->n++] = value;
}

static void print_lines(const struct text *lines, const char *fix)
{
    fwrite(lines->p, 1, lines->n, stderr);
    if (lines->n > 0 && lines->p[lines->n - 1] != '\n')
        fputc('\n', stderr);
    fprintf(stderr, "  to fix it: %s\n", fix);
}

struct config *session_config(const struct invocation *inv, unsigned needs)
{
    const char *values[256];
    struct sets sets = {values, 0};
    char name[300];
    invocation_each(inv, "set", add_set, &sets);
    if (invocation_value(inv, "name") != NULL && sets.n < COUNT_OF(values)) {
        snprintf(name, sizeof name, "pod.name=%s", invocation_value(inv, "name"));
        values[sets.n++] = name;
    }
    const char *file = invocation_value(inv, "config");
    if (file == NULL)
        file = getenv("HOLDFAST_CONFIG");
    struct config_source source = {.file = file,
                                   .sets = values,
                                   .n_sets = sets.n,
                                   .environment = (const char *const *)environ};
    struct config *cfg = NULL;
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    if (!config_load(&source, &cfg, &errors)) {
        print_lines(&errors, "correct it; holdfast config docs lists every option");
        return NULL;
    }
    if (!config_has(cfg, needs, &errors)) {
        print_lines(&errors,
                    "name a configuration with --config FILE or HOLDFAST_CONFIG, or use --set");
        config_free(cfg);
        return NULL;
    }
    return cfg;
}

struct db *session_db_new(const struct config *cfg, bool any_server)
{
    char *iface = migrate_iface(cfg->postgres.schema);
    struct db_options options = {
        .dsn = cfg->postgres.dsn,
        .schema = cfg->postgres.schema,
        .iface = iface,
        .name = "holdfast cli",
        .connect_timeout_ms = cfg->postgres.connect_timeout_ms,
        .call_timeout_ms = cfg->postgres.call_timeout_ms,
        .pooler = cfg->postgres.pooler,
        .any_server = any_server,
    };
    struct db *db = db_new(&options);
    free(iface);
    return db;
}

struct db *session_db(const struct config *cfg, bool any_server)
{
    struct db *db = session_db_new(cfg, any_server);
    enum outcome outcome = db_connect(db);
    if (outcome != OUTCOME_OK) {
        session_db_error(db, outcome);
        db_free(db);
        return NULL;
    }
    return db;
}

static const char *fix_of(enum outcome outcome)
{
    switch (outcome_class(outcome)) {
    case CLASS_BUG:
        return outcome == OUTCOME_DB_DRIFT ? "holdfast migrate (the schema is missing, or of "
                                             "another version than this program)"
                                           : "check the login's role: grant it holdfast_worker, "
                                             "holdfast_operator or holdfast_viewer";
    case CLASS_UNKNOWN:
        return "it may have happened: look with holdfast show before asking again";
    case CLASS_RETRY:
        return "check postgres.dsn and that the server is up: holdfast doctor";
    case CLASS_DONE:
    case CLASS_REFUSED:
        break;
    }
    return "holdfast doctor";
}

void session_db_error(const struct db *db, enum outcome outcome)
{
    const struct db_error *error = db_error(db);
    say_error(fix_of(outcome), "PostgreSQL: %s%s%s", outcome_sentence(outcome),
              *error->message != '\0' ? ": " : "", error->message);
}

void session_db_drop(struct db **db)
{
    if (*db != NULL)
        db_free(*db);
}

struct broker *session_broker(const struct config *cfg)
{
    struct broker_property *properties = calloc(cfg->n_kafka + 1, sizeof *properties);
    if (properties == NULL)
        abort();
    size_t n = 0;
    for (size_t i = 0; i < cfg->n_kafka; i++) {
        const struct config_kafka *k = &cfg->kafka[i];
        enum broker_scope scope = k->scope == KAFKA_CONSUMER   ? BROKER_CONSUMER
                                  : k->scope == KAFKA_PRODUCER ? BROKER_PRODUCER
                                                               : BROKER_ALL;
        properties[n++] = (struct broker_property){k->name, k->value, scope};
    }
    struct broker *broker = NULL;
    struct broker_error error;
    enum broker_result result = broker_open(properties, n, NULL, &broker, &error);
    free(properties);
    if (result != BROKER_OK) {
        say_error("correct the kafka.* options", "Kafka: %s", error.text);
        return NULL;
    }
    return broker;
}

void session_broker_drop(struct broker **broker)
{
    broker_close(*broker);
}

void session_print_json(struct json_builder *b, const struct json_node *root)
{
    struct span line = json_build(b, root);
    fwrite(line.p, 1, line.n, stdout);
    fputc('\n', stdout);
}

const char *session_by(const struct invocation *inv)
{
    const char *by = invocation_value(inv, "by");
    if (by != NULL)
        return by;
    const struct passwd *entry = getpwuid(getuid());
    return entry != NULL ? entry->pw_name : "unknown";
}

bool session_claims_wait(const struct config *cfg)
{
    return cfg->relay.enabled && cfg->relay.mode == RELAY_EXACTLY_ONCE;
}

const char *session_failover_word(const struct config *cfg)
{
    switch (cfg->failover.mode) {
    case FAILOVER_STRICT:
        return "strict";
    case FAILOVER_ASYNC:
        break;
    }
    return "async";
}

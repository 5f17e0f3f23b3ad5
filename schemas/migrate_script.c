#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schemas/embedded_sql.h"
#include "schemas/migrate_int.h"

char *migrate_iface(const char *schema)
{
    struct text t = TEXT_EMPTY;
    text_addf(&t, "%s_v%d", schema, MIGRATE_INTERFACE);
    return text_take(&t);
}

const char *migrate_digest(void)
{
    return embedded_sql_digest;
}

/* tables/V0012__what.sql -> 12; 0 for every other file. */
int migrate_file_version(const struct embedded_sql *file)
{
    static const char prefix[] = "tables/V";
    if (strncmp(file->path, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    char *end;
    long version = strtol(file->path + sizeof(prefix) - 1, &end, 10);
    CHECK(version > 0 && version < 10000 && strncmp(end, "__", 2) == 0);
    return (int)version;
}

int migrate_version(void)
{
    int newest = 0;
    for (size_t i = 0; i < n_embedded_sql; i++) {
        int version = migrate_file_version(&embedded_sql[i]);
        newest = version > newest ? version : newest;
    }
    return newest;
}

/* Names go into SQL as they are, so they are plain: [a-z_][a-z0-9_]*, at most 48 characters. */
static bool is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n <= 48 && name[n] == '\0' && !isdigit((unsigned char)name[0]);
}

bool migrate_names_are_plain(const struct migrate_options *o, struct text *report)
{
    bool plain = true;
    if (!is_plain(o->schema)) {
        text_addf(report, "postgres.schema \"%s\" is no plain lower-case name\n", o->schema);
        plain = false;
    }
    if (!is_plain(o->role_prefix)) {
        text_addf(report, "postgres.role_prefix \"%s\" is no plain lower-case name\n",
                  o->role_prefix);
        plain = false;
    }
    if (strcmp(o->mode, "async") != 0 && strcmp(o->mode, "strict") != 0) {
        text_addf(report, "failover.mode \"%s\" is neither async nor strict\n", o->mode);
        plain = false;
    }
    if (o->shards < 0 || o->shards > 256) {
        text_addf(report, "%d shards: must be 1 to 256\n", o->shards);
        plain = false;
    }
    return plain;
}

void migrate_expand(struct text *t, struct span sql, const struct migrate_options *o)
{
    char *iface CLEANUP(memory_drop) = migrate_iface(o->schema);
    const struct {
        struct span mark;
        const char *value;
    } places[] = {{SPAN_LIT("@schema@"), o->schema},
                  {SPAN_LIT("@iface@"), iface},
                  {SPAN_LIT("@role@"), o->role_prefix}};
    size_t plain = 0;
    for (size_t i = 0; i < sql.n; i++) {
        struct span rest = {sql.p + i, sql.n - i};
        for (size_t k = 0; rest.p[0] == '@' && k < COUNT_OF(places); k++)
            if (span_starts_with(rest, places[k].mark)) {
                text_add(t, sql.p + plain, i - plain);
                text_add_str(t, places[k].value);
                plain = i + places[k].mark.n;
                i = plain - 1;
                break;
            }
    }
    text_add(t, sql.p + plain, sql.n - plain);
}

/* The same text as schemas/sql/install.py prints; a test compares. */
static const char versions_sql[] = "-- Which table files ran here, and with what content.\n"
                                   "CREATE TABLE IF NOT EXISTS @schema@.schema_version (\n"
                                   "    version    integer     PRIMARY KEY,\n"
                                   "    name       text        NOT NULL,\n"
                                   "    digest     text        NOT NULL,\n"
                                   "    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()\n"
                                   ");\n";

void migrate_add_versions(struct text *t, const struct migrate_options *o)
{
    migrate_expand(t, span_of(versions_sql), o);
}

void migrate_add_version_row(struct text *t, const struct embedded_sql *file,
                             const struct migrate_options *o)
{
    text_addf(t, "INSERT INTO %s.schema_version (version, name, digest) VALUES (%d, '%s', '%s');\n",
              o->schema, migrate_file_version(file), file->path, file->digest);
}

void migrate_add_control(struct text *t, const struct migrate_options *o)
{
    char *iface CLEANUP(memory_drop) = migrate_iface(o->schema);
    text_addf(
        t,
        "-- The control row: made once, by the first migration.\n"
        "INSERT INTO %s.control (system_identifier, timeline, schema_version, shards, "
        "failover_mode)\n"
        "SELECT s.system_identifier, %s.server_timeline(), %d, %d, '%s' FROM pg_control_system() "
        "s\n"
        "ON CONFLICT DO NOTHING;\n"
        "INSERT INTO %s.relay_positions (shard)\n"
        "SELECT g FROM %s.control c, generate_series(0, c.shards - 1) g ON CONFLICT DO NOTHING;\n",
        o->schema, o->schema, migrate_version(), o->shards ? o->shards : MIGRATE_SHARDS, o->mode,
        o->schema, o->schema);
    const char *wait = o->claims_wait_for_relay ? "true" : "false";
    text_addf(
        t,
        "-- As configured now: whether claims wait for the relay's comparison after a start of "
        "the server.\n"
        "UPDATE %s.control SET claims_wait_for_relay = %s WHERE claims_wait_for_relay <> %s;\n",
        o->schema, wait, wait);
    text_addf(t,
              "-- What is installed, for everybody to read.\n"
              "COMMENT ON SCHEMA %s IS 'holdfast tables %d sql %s';\n",
              iface, migrate_version(), embedded_sql_digest);
}

static void add_file(struct text *t, const struct embedded_sql *file,
                     const struct migrate_options *o)
{
    size_t n = file->size;
    while (n > 0 && file->text[n - 1] == '\n')
        n--;
    text_addf(t, "-- %s\n", file->path);
    migrate_expand(t, (struct span){file->text, n}, o);
    text_add_str(t, "\n");
}

enum outcome migrate_print(const struct migrate_options *o, struct text *ret_script)
{
    if (!migrate_names_are_plain(o, ret_script))
        return OUTCOME_INVALID;
    for (size_t i = 0; i < n_embedded_sql; i++) {
        const struct embedded_sql *file = &embedded_sql[i];
        add_file(ret_script, file, o);
        if (migrate_file_version(file))
            migrate_add_version_row(ret_script, file, o);
        text_add_char(ret_script, '\n');
        if (i == 0) { /* roles.sql made the schemas */
            migrate_add_versions(ret_script, o);
            text_add_char(ret_script, '\n');
        }
    }
    migrate_add_control(ret_script, o);
    return OUTCOME_OK;
}

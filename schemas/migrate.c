#include "schemas/migrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schemas/db_int.h"
#include "schemas/migrate_int.h"

enum { LOCK_TIMEOUT_MS = 10000, CONNECT_TIMEOUT_MS = 10000 };

struct migration {
    const struct migrate_options *options;
    struct text *report;
    struct db *db;
    bool has_versions;
    bool has_tables;
};

static void drop_db(struct db **db)
{
    db_free(*db);
}

static enum outcome connect_to(struct migration *m, struct db **ret_db)
{
    char *iface CLEANUP(memory_drop) = migrate_iface(m->options->schema);
    struct db_options options = {.dsn = m->options->dsn,
                                 .schema = m->options->schema,
                                 .iface = iface,
                                 .name = "holdfast migrate",
                                 .connect_timeout_ms = CONNECT_TIMEOUT_MS,
                                 .call_timeout_ms = CONNECT_TIMEOUT_MS};
    m->db = *ret_db = db_new(&options);
    enum outcome o = db_connect(m->db);
    if (o != OUTCOME_OK)
        text_addf(m->report, "cannot migrate: %s\n", db_error(m->db)->message);
    return o;
}

/* Runs SQL of any number of statements and gives the last result. What it was is for the report. */
static enum outcome run(struct migration *m, const char *what, const char *sql, PGresult **ret)
{
    PGresult *result = PQexec(m->db->conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        if (ret)
            *ret = result;
        else
            PQclear(result);
        return OUTCOME_OK;
    }
    enum outcome o = db_fail_result(m->db, result, false);
    const struct db_error *e = db_error(m->db);
    text_addf(m->report, "%s: %s", what, e->message);
    if (e->sqlstate[0])
        text_addf(m->report, " (%s)", e->sqlstate);
    if (e->detail && e->detail[0])
        text_addf(m->report, "; %s", e->detail);
    text_add_str(m->report, "\n");
    PQclear(result);
    return o == OUTCOME_ITEM_ERROR ? OUTCOME_DB_BUG : o; /* there are no items here */
}

static enum outcome run_text(struct migration *m, const char *what, struct text *sql)
{
    return run(m, what, text_span(sql).p, NULL);
}

/* One migration at a time in this database, whatever its schema; and none waits for ever behind a
 * busy table. */
static enum outcome begin(struct migration *m)
{
    int64_t timeout = m->options->lock_timeout_ms ? m->options->lock_timeout_ms : LOCK_TIMEOUT_MS;
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&sql,
              "BEGIN; SET LOCAL client_min_messages = warning; SET LOCAL lock_timeout = '%lldms';"
              " SELECT pg_advisory_xact_lock(hashtextextended('holdfast migrate', 0))",
              (long long)timeout);
    enum outcome o = run_text(m, "another migration is running", &sql);
    if (o == OUTCOME_DB_RETRY)
        text_addf(m->report, "no lock within %lld ms; run it again\n", (long long)timeout);
    return o;
}

static enum outcome look(struct migration *m)
{
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    PGresult *result CLEANUP(db_result_clear) = NULL;
    text_addf(&sql,
              "SELECT to_regclass('%s.schema_version') IS NOT NULL, to_regclass('%s.control') IS "
              "NOT NULL",
              m->options->schema, m->options->schema);
    enum outcome o = run(m, "looking for an installation", sql.p, &result);
    if (o != OUTCOME_OK)
        return o;
    m->has_versions = PQgetvalue(result, 0, 0)[0] == 't';
    m->has_tables = PQgetvalue(result, 0, 1)[0] == 't';
    if (m->has_versions || !m->has_tables)
        return OUTCOME_OK;
    text_addf(m->report,
              "schema %s has tables but no schema_version: it was not made by this program\n",
              m->options->schema);
    return OUTCOME_NOT_ALLOWED;
}

static const struct embedded_sql *file_of(int version)
{
    for (size_t i = 0; version > 0 && i < n_embedded_sql; i++)
        if (migrate_file_version(&embedded_sql[i]) == version)
            return &embedded_sql[i];
    return NULL;
}

/* Refuses a newer schema and a table file that was edited after it ran. done[version] is set for
 * what ran. */
static enum outcome compare_versions(struct migration *m, bool *done)
{
    if (!m->has_versions)
        return OUTCOME_OK;
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    PGresult *result CLEANUP(db_result_clear) = NULL;
    text_addf(&sql, "SELECT version, name, digest FROM %s.schema_version ORDER BY version",
              m->options->schema);
    enum outcome o = run(m, "reading the versions", sql.p, &result);
    for (int i = 0; o == OUTCOME_OK && i < PQntuples(result); i++) {
        int version = (int)strtol(PQgetvalue(result, i, 0), NULL, 10);
        const struct embedded_sql *file = file_of(version);
        if (file == NULL) {
            text_addf(m->report,
                      "schema %s has %s, which this program (up to version %d) does not know: it "
                      "is older\n",
                      m->options->schema, PQgetvalue(result, i, 1), migrate_version());
            return OUTCOME_NOT_ALLOWED;
        }
        if (strcmp(file->digest, PQgetvalue(result, i, 2)) != 0) {
            text_addf(
                m->report,
                "%s ran here with another content; table files are never edited, add a new one\n",
                file->path);
            return OUTCOME_NOT_ALLOWED;
        }
        done[version] = true;
    }
    return o;
}

static enum outcome check_shards(struct migration *m)
{
    if (!m->has_tables || m->options->shards == 0)
        return OUTCOME_OK;
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    PGresult *result CLEANUP(db_result_clear) = NULL;
    text_addf(&sql, "SELECT shards FROM %s.control", m->options->schema);
    enum outcome o = run(m, "reading the number of shards", sql.p, &result);
    if (o != OUTCOME_OK || PQntuples(result) == 0)
        return o;
    int shards = (int)strtol(PQgetvalue(result, 0, 0), NULL, 10);
    if (shards == m->options->shards)
        return OUTCOME_OK;
    text_addf(
        m->report,
        "the relay has %d shards for ever, it cannot have %d: the order of events rests on it\n",
        shards, m->options->shards);
    return OUTCOME_NOT_ALLOWED;
}

static enum outcome run_file(struct migration *m, const struct embedded_sql *file)
{
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    migrate_expand(&sql, (struct span){file->text, file->size}, m->options);
    if (migrate_file_version(file))
        migrate_add_version_row(&sql, file, m->options);
    return run_text(m, file->path, &sql);
}

static enum outcome apply(struct migration *m, const bool *done)
{
    enum outcome o = OUTCOME_OK;
    for (size_t i = 0; o == OUTCOME_OK && i < n_embedded_sql; i++) {
        const struct embedded_sql *file = &embedded_sql[i];
        int version = migrate_file_version(file);
        if (version && done[version])
            continue;
        o = run_file(m, file);
        if (o == OUTCOME_OK && version)
            text_addf(m->report, "applied %s\n", file->path);
        if (o == OUTCOME_OK && i == 0) { /* roles.sql made the schemas */
            struct text sql CLEANUP(text_free) = TEXT_EMPTY;
            migrate_add_versions(&sql, m->options);
            o = run_text(m, "the table of versions", &sql);
        }
    }
    return o;
}

static enum outcome finish(struct migration *m)
{
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    migrate_add_control(&sql, m->options);
    text_addf(&sql, "UPDATE %s.control SET schema_version = %d WHERE schema_version < %d;",
              m->options->schema, migrate_version(), migrate_version());
    enum outcome o = run_text(m, "the control row", &sql);
    return o == OUTCOME_OK ? run(m, "commit", "COMMIT", NULL) : o;
}

enum outcome migrate_run(const struct migrate_options *options, struct text *ret_report)
{
    if (!migrate_names_are_plain(options, ret_report))
        return OUTCOME_INVALID;
    struct migration m = {.options = options, .report = ret_report};
    struct db *db CLEANUP(drop_db) = NULL;
    bool *done CLEANUP(memory_drop) = memory_new((size_t)migrate_version() + 1, sizeof(bool));
    enum outcome (*const steps[])(struct migration *) = {begin, look, check_shards};
    enum outcome o = connect_to(&m, &db);
    for (size_t i = 0; o == OUTCOME_OK && i < COUNT_OF(steps); i++)
        o = steps[i](&m);
    if (o == OUTCOME_OK)
        o = compare_versions(&m, done);
    if (o == OUTCOME_OK)
        o = apply(&m, done);
    if (o == OUTCOME_OK)
        o = finish(&m);
    if (o == OUTCOME_OK)
        text_addf(ret_report, "schema %s is at version %d, interface %s_v%d\n", options->schema,
                  migrate_version(), options->schema, MIGRATE_INTERFACE);
    else
        text_addf(ret_report, "nothing was changed%s\n",
                  outcome_class(o) == CLASS_UNKNOWN
                      ? ", or all of it: the answer was lost; run it again"
                      : "");
    return o; /* closing the connection rolls back what was not committed */
}

/* 'holdfast tables 1 sql <digest>' on the interface schema, which everybody may read. */
static enum outcome compare_comment(struct migration *m, const char *comment)
{
    static const char head[] = "holdfast tables ";
    if (strncmp(comment, head, sizeof(head) - 1) != 0) {
        text_addf(m->report, "schema %s_v%d is not one of holdfast's\n", m->options->schema,
                  MIGRATE_INTERFACE);
        return OUTCOME_MISSING;
    }
    char *end;
    long version = strtol(comment + sizeof(head) - 1, &end, 10);
    bool same = strncmp(end, " sql ", 5) == 0 && strcmp(end + 5, migrate_digest()) == 0;
    if (version < migrate_version()) {
        text_addf(m->report,
                  "schema %s is at version %ld, this program needs %d: run holdfast migrate\n",
                  m->options->schema, version, migrate_version());
        return OUTCOME_STALE;
    }
    text_addf(m->report, "schema %s is at version %ld%s\n", m->options->schema, version,
              same ? "" : ", with the functions of another build");
    return OUTCOME_OK;
}

enum outcome migrate_check(const struct migrate_options *options, struct text *ret_report)
{
    if (!migrate_names_are_plain(options, ret_report))
        return OUTCOME_INVALID;
    struct migration m = {.options = options, .report = ret_report};
    struct db *db CLEANUP(drop_db) = NULL;
    enum outcome o = connect_to(&m, &db);
    if (o != OUTCOME_OK)
        return o;
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    PGresult *result CLEANUP(db_result_clear) = NULL;
    text_addf(&sql,
              "SELECT obj_description(n.oid, 'pg_namespace') FROM pg_namespace n WHERE n.nspname = "
              "'%s_v%d'",
              options->schema, MIGRATE_INTERFACE);
    o = run(&m, "looking for an installation", sql.p, &result);
    if (o != OUTCOME_OK)
        return o;
    if (PQntuples(result) == 0) {
        text_addf(ret_report, "there is no schema %s_v%d here: run holdfast migrate\n",
                  options->schema, MIGRATE_INTERFACE);
        return OUTCOME_MISSING;
    }
    return compare_comment(&m, PQgetvalue(result, 0, 0));
}

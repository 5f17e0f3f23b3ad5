/* Migrations against a real PostgreSQL (HOLDFAST_TEST_DSN, a login that may make roles):
 * installing, doing it again, and refusing what must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "schemas/migrate.h"

static const char *dsn;
static PGconn *admin;
static char schema[32], roles[32];
static struct text report;

static struct migrate_options options(void)
{
    return (struct migrate_options){
        .dsn = dsn, .schema = schema, .role_prefix = roles, .mode = "async", .shards = 4};
}

/* @ stands for the schema. Returns the first value, "" without one. */
static const char *sql(const char *text)
{
    static char value[256];
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    for (const char *p = text; *p; p++)
        *p == '@' ? text_add_str(&t, schema) : text_add_char(&t, *p);
    PGresult *result = PQexec(admin, t.p);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", t.p, PQerrorMessage(admin));
    snprintf(value, sizeof(value), "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return value;
}

static int connect_all(void **state)
{
    (void)state;
    admin = PQconnectdb(dsn);
    if (PQstatus(admin) != CONNECTION_OK) {
        fprintf(stderr, "HOLDFAST_TEST_DSN: %s\n", PQerrorMessage(admin));
        return -1;
    }
    (void)sql("set client_min_messages = error");
    return 0;
}

static int disconnect_all(void **state)
{
    (void)state;
    PQfinish(admin);
    text_free(&report);
    return 0;
}

static int fresh_names(void **state)
{
    (void)state;
    static int n;
    snprintf(schema, sizeof(schema), "mt_%d_%d", (int)getpid(), n);
    snprintf(roles, sizeof(roles), "mt_%d_%d_", (int)getpid(), n++);
    text_reset(&report);
    return 0;
}

static int drop_everything(void **state)
{
    (void)state;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t,
              "drop schema if exists %s, %s_v1 cascade; do $$ declare r text; begin"
              " for r in select rolname from pg_roles where rolname like '%s%%' loop"
              " execute format('drop owned by %%I cascade', r); execute format('drop role %%I', "
              "r); end loop; end $$",
              schema, schema, roles);
    (void)sql(t.p);
    return 0;
}

static void said(const char *words)
{
    if (strstr(text_span(&report).p, words) == NULL)
        fail_msg("said: %s", text_span(&report).p);
}

static enum outcome migrate(void)
{
    struct migrate_options o = options();
    text_reset(&report);
    return migrate_run(&o, &report);
}

static void it_installs_and_may_run_again(void **state)
{
    (void)state;
    struct migrate_options o = options();
    assert_int_equal(migrate_check(&o, &report), OUTCOME_MISSING);
    assert_int_equal(migrate(), OUTCOME_OK);
    said("applied tables/V0001");
    assert_string_equal(sql("select shards || ' ' || failover_mode from @.control"), "4 async");
    assert_int_equal(atoi(sql("select schema_version from @.control")), migrate_version());
    assert_string_equal(sql("select count(*) from @.relay_positions"), "4");
    const char *first = sql("select applied_at from @.schema_version where version = 1");
    char *kept CLEANUP(memory_drop) = memory_copy_text(first);
    assert_int_equal(migrate(), OUTCOME_OK);
    assert_null(strstr(report.p, "applied"));
    assert_string_equal(sql("select applied_at from @.schema_version where version = 1"), kept);
    text_reset(&report);
    assert_int_equal(migrate_check(&o, &report), OUTCOME_OK);
    assert_null(strstr(report.p, "another build"));
}

static void the_printed_script_is_the_same_installation(void **state)
{
    (void)state;
    struct migrate_options o = options();
    struct text script CLEANUP(text_free) = TEXT_EMPTY;
    assert_int_equal(migrate_print(&o, &script), OUTCOME_OK);
    assert_null(strstr(script.p, "@schema@"));
    assert_null(strstr(script.p, "@iface@"));
    assert_null(strstr(script.p, "@role@"));
    PGresult *result = PQexec(admin, script.p);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s", PQerrorMessage(admin));
    PQclear(result);
    text_reset(&report);
    assert_int_equal(migrate_check(&o, &report), OUTCOME_OK);
    assert_int_equal(migrate(), OUTCOME_OK); /* finds nothing to do */
    assert_null(strstr(report.p, "applied"));
}

static void install_py_prints_the_same_script(void **state)
{
    (void)state;
    struct migrate_options o = options();
    struct text script CLEANUP(text_free) = TEXT_EMPTY, other CLEANUP(text_free) = TEXT_EMPTY,
                       command CLEANUP(text_free) = TEXT_EMPTY;
    assert_int_equal(migrate_print(&o, &script), OUTCOME_OK);
    text_addf(&command, "python3 '%s/schemas/sql/install.py' --schema %s --role %s --shards 4",
              SOURCE_DIR, schema, roles);
    FILE *pipe = popen(command.p, "r");
    assert_non_null(pipe);
    char buffer[4096];
    size_t n;
    while ((n = fread(buffer, 1, sizeof(buffer), pipe)) > 0)
        text_add(&other, buffer, n);
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(script.n, other.n);
    assert_memory_equal(script.p, other.p, script.n);
}

static void bad_names_never_reach_the_database(void **state)
{
    (void)state;
    struct migrate_options o = options();
    const char *const names[] = {"",
                                 "Holdfast",
                                 "1st",
                                 "a b",
                                 "a;drop table x",
                                 "a\"",
                                 "averyveryveryveryveryveryveryveryveryverylongname_x"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        o.schema = names[i];
        text_reset(&report);
        assert_int_equal(migrate_run(&o, &report), OUTCOME_INVALID);
        said("no plain lower-case name");
        assert_int_equal(migrate_print(&o, &report), OUTCOME_INVALID);
    }
    o = options();
    o.mode = "a'b";
    assert_int_equal(migrate_run(&o, &report), OUTCOME_INVALID);
    o = options();
    o.shards = 257;
    assert_int_equal(migrate_run(&o, &report), OUTCOME_INVALID);
}

static void what_it_does_not_know_is_not_touched(void **state)
{
    (void)state;
    assert_int_equal(migrate(), OUTCOME_OK);
    struct migrate_options o = options();
    o.shards = 5;
    assert_int_equal(migrate_run(&o, &report), OUTCOME_NOT_ALLOWED);
    said("4 shards for ever");
    o.shards = 0; /* as it is */
    assert_int_equal(migrate_run(&o, &report), OUTCOME_OK);

    (void)sql("insert into @.schema_version values (9999, 'tables/V9999__later.sql', 'x')");
    assert_int_equal(migrate(), OUTCOME_NOT_ALLOWED);
    said("tables/V9999__later.sql, which this program");
    (void)sql("delete from @.schema_version where version = 9999; update @.schema_version set "
              "digest = 'other'");
    assert_int_equal(migrate(), OUTCOME_NOT_ALLOWED);
    said("ran here with another content");
    said("nothing was changed");
    (void)sql("drop table @.schema_version cascade");
    assert_int_equal(migrate(), OUTCOME_NOT_ALLOWED);
    said("was not made by this program");
}

static void whether_claims_wait_is_as_configured_last(void **state)
{
    (void)state;
    struct migrate_options o = options();
    o.claims_wait_for_relay = true;
    assert_int_equal(migrate_run(&o, &report), OUTCOME_OK);
    assert_string_equal(sql("select claims_wait_for_relay from @.control"), "t");
    assert_string_equal(sql("select reason from @_v1.gate_status()"), "relay_unchecked");
    assert_int_equal(migrate(), OUTCOME_OK);
    assert_string_equal(sql("select claims_wait_for_relay from @.control"), "f");
    assert_string_equal(sql("select open from @_v1.gate_status()"), "t");
}

static void an_older_installation_is_stale(void **state)
{
    (void)state;
    struct migrate_options o = options();
    assert_int_equal(migrate(), OUTCOME_OK);
    (void)sql("comment on schema @_v1 is 'holdfast tables 0 sql x'");
    assert_int_equal(migrate_check(&o, &report), OUTCOME_STALE);
    char comment[100];
    (void)snprintf(comment, sizeof comment, "comment on schema @_v1 is 'holdfast tables %d sql x'",
                   migrate_version());
    (void)sql(comment);
    text_reset(&report);
    assert_int_equal(migrate_check(&o, &report), OUTCOME_OK);
    said("another build");
    (void)sql("comment on schema @_v1 is 'somebody else''s'");
    assert_int_equal(migrate_check(&o, &report), OUTCOME_MISSING);
}

static void one_at_a_time_and_none_for_ever(void **state)
{
    (void)state;
    struct migrate_options o = options();
    o.lock_timeout_ms = 200;
    (void)sql("begin; select pg_advisory_xact_lock(hashtextextended('holdfast migrate', 0))");
    int64_t start = clock_mono_us();
    assert_int_equal(migrate_run(&o, &report), OUTCOME_DB_RETRY);
    assert_true(clock_mono_us() - start >= 200 * CLOCK_MS);
    said("another migration is running");
    (void)sql("rollback");
    assert_int_equal(migrate_check(&o, &report), OUTCOME_MISSING);

    assert_int_equal(migrate_run(&o, &report), OUTCOME_OK);
    (void)sql(
        "begin; lock table @.control in access exclusive mode"); /* somebody's long transaction */
    assert_int_equal(migrate_run(&o, &report), OUTCOME_DB_RETRY);
    (void)sql("rollback");
    assert_int_equal(migrate_run(&o, &report), OUTCOME_OK);
}

static void no_server_is_said_plainly(void **state)
{
    (void)state;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "%s port=1", dsn);
    struct migrate_options o = options();
    o.dsn = t.p;
    assert_int_equal(migrate_run(&o, &report), OUTCOME_DB_DOWN);
    said("cannot migrate");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh_names, drop_everything)

int main(void)
{
    dsn = getenv("HOLDFAST_TEST_DSN");
    if (dsn == NULL || *dsn == '\0') {
        fprintf(stderr, "skipped: HOLDFAST_TEST_DSN names no PostgreSQL\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(it_installs_and_may_run_again),      TEST(the_printed_script_is_the_same_installation),
        TEST(install_py_prints_the_same_script),  TEST(whether_claims_wait_is_as_configured_last),
        TEST(bad_names_never_reach_the_database), TEST(what_it_does_not_know_is_not_touched),
        TEST(an_older_installation_is_stale),     TEST(one_at_a_time_and_none_for_ever),
        TEST(no_server_is_said_plainly),
    };
    return cmocka_run_group_tests(tests, connect_all, disconnect_all);
}

/* Every database call of the program, of every room, against a fresh installation (HOLDFAST_TEST_DSN):
 * functions, arguments, columns and their types. What a pod would find out at its start is found here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "base/text.h"
#include "cli/operation_calls.h"
#include "cli/reads.h"
#include "fence/fence_int.h"
#include "outbox/ledger_int.h"
#include "schemas/db.h"
#include "schemas/migrate.h"

static const char *dsn;
static char schema[32], iface[40], roles[32];

static void check(struct db *db, const struct db_call *const calls[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (db_check_calls(db, &calls[i], 1) != OUTCOME_OK)
            fail_msg("%s", db_error(db)->message);
}

static void every_call_fits_the_installed_sql(void **state)
{
    (void)state;
    struct migrate_options install = {
        .dsn = dsn, .schema = schema, .role_prefix = roles, .mode = "async", .shards = 2};
    struct text report CLEANUP(text_free) = TEXT_EMPTY;
    if (migrate_run(&install, &report) != OUTCOME_OK)
        fail_msg("%s", report.p);
    struct db_options options = {.dsn = dsn,
                                 .schema = schema,
                                 .iface = iface,
                                 .name = "holdfast test",
                                 .connect_timeout_ms = 10000,
                                 .call_timeout_ms = 10000};
    struct db *db = db_new(&options);
    assert_int_equal(db_connect(db), OUTCOME_OK);
    const struct db_call *const reads[] = {&read_story, &read_server, &read_gate, &write_gate_close,
                                           &write_gate_open};
    check(db, fence_calls, fence_call_n);
    check(db, ledger_calls, ledger_call_n);
    check(db, ledger_fact_calls, ledger_fact_call_n);
    check(db, op_calls, op_call_n);
    check(db, reads, COUNT_OF(reads));
    db_free(db);
}

static int drop_everything(void **state)
{
    (void)state;
    PGconn *conn = PQconnectdb(dsn);
    struct text sql CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&sql,
              "set client_min_messages = error; drop schema if exists %s, %s cascade; do $$ declare r text;"
              " begin for r in select rolname from pg_roles where rolname like '%s%%' loop"
              " execute format('drop owned by %%I cascade', r); execute format('drop role %%I', r);"
              " end loop; end $$",
              schema, iface, roles);
    PGresult *result = PQexec(conn, sql.p);
    bool dropped = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!dropped)
        fprintf(stderr, "%s", PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
    return dropped ? 0 : -1;
}

int main(void)
{
    dsn = getenv("HOLDFAST_TEST_DSN");
    if (dsn == NULL || *dsn == '\0') {
        fprintf(stderr, "skipped: HOLDFAST_TEST_DSN names no PostgreSQL\n");
        return 77;
    }
    snprintf(schema, sizeof(schema), "ct_%d", (int)getpid());
    snprintf(iface, sizeof(iface), "ct_%d_v1", (int)getpid());
    snprintf(roles, sizeof(roles), "ct_%d_", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_call_fits_the_installed_sql, drop_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

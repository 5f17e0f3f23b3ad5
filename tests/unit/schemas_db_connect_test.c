/* Connecting to a real PostgreSQL (HOLDFAST_TEST_DSN): what each way of not getting in is called,
 * and how a lane comes back. Standbys and promotions are in
 * tests/integration/test_database_server.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>
#include <libpq-fe.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/text.h"
#include "schemas/db.h"

static const char *dsn;

static struct db_options options(void)
{
    return (struct db_options){.dsn = dsn,
                               .schema = "public",
                               .iface = "public",
                               .name = "holdfast test",
                               .connect_timeout_ms = 10000,
                               .call_timeout_ms = 10000};
}

static enum outcome connect_with(const char *more, const char **ret_message)
{
    static char message[512];
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "%s %s", dsn, more);
    struct db_options o = options();
    o.dsn = t.p;
    o.connect_timeout_ms = 3000;
    struct db *other = db_new(&o);
    enum outcome outcome = db_connect(other);
    snprintf(message, sizeof(message), "%s", db_error(other)->message);
    *ret_message = message;
    db_free(other);
    return outcome;
}

static void a_connection_says_why_not(void **state)
{
    (void)state;
    const char *message;
    assert_int_equal(connect_with("", &message), OUTCOME_OK);
    assert_int_equal(connect_with("dbname=no_such_database_here", &message), OUTCOME_DB_REFUSED);
    assert_non_null(strstr(message, "no_such_database_here"));
    assert_null(strstr(message, "LOCATION"));
    assert_int_equal(connect_with("port=1", &message), OUTCOME_DB_DOWN);
    assert_int_equal(connect_with("nonsense=1", &message), OUTCOME_DB_DOWN);
    assert_int_equal(connect_with("options='-c default_transaction_read_only=on'", &message),
                     OUTCOME_NOT_PRIMARY);
    assert_non_null(strstr(message, "read-only"));
}

static void reconnecting_backs_off(void **state)
{
    (void)state;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&t, "%s port=1", dsn);
    struct db_options o = options();
    o.dsn = t.p;
    struct db *nowhere = db_new(&o);
    int64_t last = 0, again = 0;
    assert_int_equal(db_reconnect(nowhere, &again), OUTCOME_DB_DOWN);
    int64_t left = again - clock_mono_us();
    assert_true(left > 0 && left <= 100 * CLOCK_MS);
    last = again;
    assert_int_equal(db_reconnect(nowhere, &again),
                     OUTCOME_DB_DOWN); /* not yet: nothing was tried */
    assert_int_equal(again, last);
    db_free(nowhere);
}

/* ---- the network's end: the connection is gone, and nobody said a word ---- */

struct cut {
    PGconn *admin;
    int socket, pid;
};

/* As soon as the call has arrived there. */
static void *cut_when_it_sleeps(void *arg)
{
    const struct cut *cut = arg;
    char text[128];
    snprintf(text, sizeof(text),
             "select from pg_stat_activity where pid = %d and wait_event = 'PgSleep'", cut->pid);
    int64_t deadline = clock_deadline_us(20 * CLOCK_SECOND);
    for (int sleeps = 0; sleeps == 0 && clock_poll_ms(deadline) > 0;) {
        PGresult *result = PQexec(cut->admin, text);
        sleeps = PQntuples(result);
        PQclear(result);
    }
    shutdown(cut->socket, SHUT_RDWR);
    return NULL;
}

static int other_socket(int but)
{
    for (int fd = 3; fd < 256; fd++) {
        int type;
        socklen_t size = sizeof(type);
        if (fd != but && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0)
            return fd;
    }
    return -1;
}

struct wait_in {
    double seconds;
};
struct wait_row {
    int64_t n;
};

static void what_a_cut_connection_was_asked_to_do_is_unknown(void **state)
{
    (void)state;
    static const struct db_param params[] = {DB_SCALAR(struct wait_in, seconds)};
    static const struct db_column columns[] = {DB_COLUMN(struct wait_row, n)};
    static const struct db_call writes = DB_CALL("db_test_wait", params, columns, 0);
    static const struct db_call reads = DB_CALL("db_test_wait", params, columns, DB_READ);
    struct cut cut = {.admin = PQconnectdb(dsn)};
    PQclear(PQexec(cut.admin,
                   "create or replace function public.db_test_wait(p_seconds float8) returns "
                   "table(n bigint) language sql as 'select 1 from pg_sleep(p_seconds)'"));
    for (int reading = 0; reading < 2; reading++) {
        struct db_options o = options();
        struct db *db = db_new(&o);
        struct arena *arena = arena_new();
        assert_int_equal(db_connect(db), OUTCOME_OK);
        cut.socket = other_socket(PQsocket(cut.admin));
        cut.pid = db_identity(db)->pid;
        struct wait_in in = {30};
        struct wait_row *rows;
        size_t n;
        pthread_t thread;
        assert_true(thread_start(&thread, "cutter", cut_when_it_sleeps, &cut));
        enum outcome outcome = db_call(db, reading ? &reads : &writes, &in, NULL, arena, &rows, &n);
        thread_join(thread);
        assert_int_equal(outcome, reading ? OUTCOME_DB_DOWN : OUTCOME_DB_UNKNOWN);
        assert_false(db_is_connected(db));
        db_free(db);
        arena_free(arena);
    }
    PQclear(PQexec(cut.admin, "drop function public.db_test_wait"));
    PQfinish(cut.admin);
}

int main(void)
{
    dsn = getenv("HOLDFAST_TEST_DSN");
    if (dsn == NULL || *dsn == '\0') {
        fprintf(stderr, "skipped: HOLDFAST_TEST_DSN names no PostgreSQL\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_says_why_not),
        cmocka_unit_test(reconnecting_backs_off),
        cmocka_unit_test(what_a_cut_connection_was_asked_to_do_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

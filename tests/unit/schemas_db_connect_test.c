/* Connecting to a real PostgreSQL (HOLDFAST_TEST_DSN): what each way of not getting in is called, and
 * how a lane comes back. Standbys and promotions are in tests/integration/test_database_server.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

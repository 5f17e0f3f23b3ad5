/* The call runtime against a real PostgreSQL (HOLDFAST_TEST_DSN): values there and back, drift, and
 * what each way of failing is called. */
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
#include "base/lock.h"
#include "base/memory.h"
#include "base/text.h"
#include "schemas/db.h"

static const char *dsn;
static char schema[64];
static PGconn *admin; /* another session, for what the one under test cannot do to itself */
static struct db *db;
static struct arena *arena;

/* ---- setting up: functions of every shape in a schema of this process ---- */

static void sql(const char *text)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    for (const char *p = text; *p; p++)
        *p == '@' ? text_add_str(&t, schema) : text_add_char(&t, *p);
    PGresult *result = PQexec(admin, t.p);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s", t.p, PQerrorMessage(admin));
    PQclear(result);
}

static const char functions[] =
    "create schema @;"
    "create function @.echo(p_b bool[], p_i int[], p_n bigint[], p_d float8[], p_u uuid[], p_t "
    "text[], p_j jsonb[],"
    "  p_at timestamptz[], p_nn bigint[], p_ii int[], p_bb bool[], p_uu uuid[], p_word text, "
    "p_limit bigint)"
    " returns table(item int, outcome text, b bool, i int, n bigint, d float8, u uuid, t text, j "
    "jsonb, at timestamptz,"
    "  nn bigint, ii int, bb bool, uu uuid, word text) language sql as $$"
    "  select x.ord::int, 'ok', x.b, x.i, x.n, x.d, x.u, x.t, x.j, x.at, x.nn, x.ii, x.bb, x.uu, "
    "p_word"
    "  from unnest(p_b, p_i, p_n, p_d, p_u, p_t, p_j, p_at, p_nn, p_ii, p_bb, p_uu) with ordinality"
    "   x(b, i, n, d, u, t, j, at, nn, ii, bb, uu, ord) order by x.ord limit p_limit $$;"
    "create function @.arrays(p_t text[], p_u uuid[], p_n bigint[])"
    " returns table(t text[], u uuid[], n bigint[]) language sql as $$ select p_t, p_u, p_n $$;"
    "create function @.two(p_a_x bigint[], p_b_y text[]) returns table(a bigint, b bigint) "
    "language sql as"
    " $$ select cardinality(p_a_x)::bigint, cardinality(p_b_y)::bigint $$;"
    "create function @.fail(p_code text) returns table(n bigint) language plpgsql as"
    " $$ begin raise exception 'as told' using errcode = p_code, detail = 'the detail'; end $$;"
    "create function @.wait(p_seconds float8) returns table(n bigint) language sql as"
    " $$ select 1::bigint from pg_sleep(p_seconds) $$;"
    "create function @.word(p_word text) returns table(outcome text) language sql as $$ select "
    "p_word $$;"
    "create function @.named_statements() returns table(n bigint) language sql as"
    " $$ select count(*) from pg_prepared_statements $$;"
    "create table @.numbers(n bigint, letter text);"
    "insert into @.numbers select g, chr((96 + g)::int) from generate_series(1, 5) g;"
    "create view @.numbers_view as select n, letter from @.numbers order by n;";

static struct db_options options(void)
{
    return (struct db_options){.dsn = dsn,
                               .schema = schema,
                               .iface = schema,
                               .name = "holdfast test",
                               .connect_timeout_ms = 10000,
                               .call_timeout_ms = 10000};
}

static int connect_all(void **state)
{
    (void)state;
    snprintf(schema, sizeof(schema), "db_test_%d", (int)getpid());
    admin = PQconnectdb(dsn);
    if (PQstatus(admin) != CONNECTION_OK) {
        fprintf(stderr, "HOLDFAST_TEST_DSN: %s\n", PQerrorMessage(admin));
        return -1;
    }
    PGresult *quiet =
        PQexec(admin, "set check_function_bodies = off; set client_min_messages = warning");
    PQclear(quiet);
    sql(functions);
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    sql("drop schema @ cascade");
    PQfinish(admin);
    return 0;
}

static int open_one(void **state)
{
    (void)state;
    struct db_options o = options();
    db = db_new(&o);
    arena = arena_new();
    return db_connect(db) == OUTCOME_OK ? 0 : -1;
}

static int close_one(void **state)
{
    (void)state;
    db_free(db);
    arena_free(arena);
    return 0;
}

/* ---- values ---- */

struct echo_in {
    struct span word;
    int64_t limit;
};
struct echo_item {
    bool b;
    int32_t i;
    int64_t n;
    double d;
    struct uuid u;
    struct span t;
    struct json_span j;
    struct db_time at;
    struct db_int nn;
    struct db_int32 ii;
    struct db_bool bb;
    struct uuid_opt uu;
};
struct echo_row {
    int32_t item;
    enum outcome outcome;
    struct echo_item v;
    struct span word;
};
#define ECHO_PARAM(m) DB_ITEM(0, struct echo_item, m)
#define ECHO_COLUMN(m) DB_COLUMN_AS(#m, struct echo_row, v.m)
// clang-format off
static const struct db_param echo_params[] = {
    ECHO_PARAM(b), ECHO_PARAM(i), ECHO_PARAM(n), ECHO_PARAM(d), ECHO_PARAM(u), ECHO_PARAM(t),
    ECHO_PARAM(j), ECHO_PARAM(at), ECHO_PARAM(nn), ECHO_PARAM(ii), ECHO_PARAM(bb), ECHO_PARAM(uu),
    DB_SCALAR(struct echo_in, word), DB_SCALAR(struct echo_in, limit)};
static const struct db_column echo_columns[] = {
    DB_COLUMN(struct echo_row, item), DB_COLUMN(struct echo_row, outcome),
    ECHO_COLUMN(b), ECHO_COLUMN(i), ECHO_COLUMN(n), ECHO_COLUMN(d), ECHO_COLUMN(u), ECHO_COLUMN(t),
    ECHO_COLUMN(j), ECHO_COLUMN(at), ECHO_COLUMN(nn), ECHO_COLUMN(ii), ECHO_COLUMN(bb), ECHO_COLUMN(uu),
    DB_COLUMN(struct echo_row, word)};
// clang-format on
static const struct db_call echo = DB_CALL("echo", echo_params, echo_columns, 0);

static void assert_same(const struct echo_item *a, const struct echo_item *b)
{
    assert_true(a->b == b->b && a->i == b->i && a->n == b->n && a->d == b->d);
    assert_true(uuid_eq(a->u, b->u));
    assert_true(span_eq(a->t, b->t));
    assert_true(span_eq(a->j.text, b->j.text));
    assert_true(a->at.is_null == b->at.is_null && a->at.us == b->at.us);
    assert_true(a->nn.is_null == b->nn.is_null && a->nn.v == b->nn.v);
    assert_true(a->ii.is_null == b->ii.is_null && a->ii.v == b->ii.v);
    assert_true(a->bb.is_null == b->bb.is_null && a->bb.v == b->bb.v);
    assert_true(a->uu.is_null == b->uu.is_null && uuid_eq(a->uu.v, b->uu.v));
}

static void every_kind_comes_back_as_it_went(void **state)
{
    (void)state;
    struct echo_item items[3] = {
        {true,
         INT32_MIN,
         INT64_MAX,
         -0.125,
         uuid_v7(),
         SPAN_LIT("t\xc3\xa4xt, {\"}"),
         {SPAN_LIT("{\"a\": [1, null]}")},
         DB_TIME(INT64_C(1783080000123456)),
         DB_INT(-1),
         {7, false},
         {true, false},
         UUID_OPT(uuid_v4())},
        {false,
         INT32_MAX,
         INT64_MIN,
         1e300,
         UUID_NIL,
         SPAN_NULL,
         DB_JSON_NULL,
         DB_TIME_NULL,
         DB_INT_NULL,
         {0, true},
         {false, true},
         UUID_OPT_NULL},
        {false,
         0,
         0,
         0,
         UUID_NIL,
         SPAN_LIT(""),
         {SPAN_LIT("null")},
         DB_TIME(INT64_MAX),
         DB_INT(0),
         {0, false},
         {false, false},
         UUID_OPT(UUID_NIL)},
    };
    struct db_group group = {items, COUNT_OF(items)};
    struct echo_in in = {SPAN_LIT("word"), 100};
    struct echo_row *rows;
    size_t n;
    for (int round = 0; round < 8; round++) { /* past the fifth PostgreSQL may use another plan */
        assert_int_equal(db_call(db, &echo, &in, &group, arena, &rows, &n), OUTCOME_OK);
        assert_int_equal(n, 3);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(rows[i].item, i + 1);
            assert_int_equal(rows[i].outcome, OUTCOME_OK);
            assert_same(&rows[i].v, &items[i]);
            assert_true(span_eq(rows[i].word, in.word));
        }
    }
    in.word = SPAN_NULL;
    assert_int_equal(db_call(db, &echo, &in, &group, arena, &rows, &n), OUTCOME_OK);
    assert_true(span_is_null(rows[0].word));
}

static void a_batch_may_be_empty_or_large(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    struct echo_item *items CLEANUP(memory_drop) = memory_new(MANY, sizeof(*items));
    char *texts CLEANUP(memory_drop) = memory_new(MANY, 16);
    for (size_t i = 0; i < MANY; i++) {
        int length = snprintf(texts + i * 16, 16, "item-%zu", i);
        items[i].n = (int64_t)i;
        items[i].t = (struct span){texts + i * 16, (size_t)length};
    }
    struct echo_in in = {SPAN_LIT("w"), MANY};
    struct echo_row *rows;
    size_t n;
    struct db_group group = {items, MANY};
    assert_int_equal(db_call(db, &echo, &in, &group, arena, &rows, &n), OUTCOME_OK);
    assert_int_equal(n, MANY);
    assert_true(span_eq(rows[MANY - 1].v.t, SPAN_LIT("item-4999")));
    group = (struct db_group){NULL, 0};
    assert_int_equal(db_call(db, &echo, &in, &group, arena, &rows, &n), OUTCOME_OK);
    assert_int_equal(n, 0);
    assert_non_null(rows);
}

struct lists {
    struct db_texts t;
    struct db_uuids u;
    struct db_ints n;
};
static const struct db_param arrays_params[] = {
    DB_SCALAR(struct lists, t), DB_SCALAR(struct lists, u), DB_SCALAR(struct lists, n)};
static const struct db_column arrays_columns[] = {
    DB_COLUMN(struct lists, t), DB_COLUMN(struct lists, u), DB_COLUMN(struct lists, n)};
static const struct db_call arrays = DB_CALL("arrays", arrays_params, arrays_columns, 0);

static void arrays_come_back_empty_or_null_or_full(void **state)
{
    (void)state;
    struct span texts[] = {SPAN_LIT("a"), SPAN_NULL, SPAN_LIT("")};
    struct uuid uuids[] = {uuid_v4()};
    int64_t ints[] = {1, -2};
    struct lists full = {{texts, 3, false}, {uuids, 1, false}, {ints, 2, false}}, *rows;
    size_t n;
    assert_int_equal(db_call(db, &arrays, &full, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_int_equal(n, 1);
    assert_int_equal(rows->t.n, 3);
    assert_true(span_eq(rows->t.v[0], texts[0]) && span_is_null(rows->t.v[1]) &&
                span_eq(rows->t.v[2], texts[2]));
    assert_true(rows->u.n == 1 && uuid_eq(rows->u.v[0], uuids[0]));
    assert_true(rows->n.n == 2 && rows->n.v[1] == -2);
    struct lists empty = {{NULL, 0, false}, {NULL, 0, false}, {NULL, 0, true}};
    assert_int_equal(db_call(db, &arrays, &empty, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_true(!rows->t.is_null && rows->t.n == 0 && !rows->u.is_null && rows->u.n == 0 &&
                rows->n.is_null);
}

struct item_a {
    int64_t x;
};
struct item_b {
    struct span y;
};
struct two_row {
    int64_t a, b;
};
static const struct db_param two_params[] = {DB_ITEM_AS("a_x", 0, struct item_a, x),
                                             DB_ITEM_AS("b_y", 1, struct item_b, y)};
static const struct db_column two_columns[] = {DB_COLUMN(struct two_row, a),
                                               DB_COLUMN(struct two_row, b)};
static const struct db_call two = DB_CALL("two", two_params, two_columns, 0);

static void groups_have_lengths_of_their_own(void **state)
{
    (void)state;
    struct item_a a[3] = {{1}, {2}, {3}};
    struct item_b b[1] = {{SPAN_LIT("y")}};
    struct db_group groups[] = {{a, 3}, {b, 1}};
    struct two_row *rows;
    size_t n;
    assert_int_equal(db_call(db, &two, NULL, groups, arena, &rows, &n), OUTCOME_OK);
    assert_true(n == 1 && rows->a == 3 && rows->b == 1);
}

struct number_in {
    struct span letter;
    int64_t row_limit;
};
struct number {
    int64_t n;
    struct span letter;
};
static const struct db_param number_params[] = {DB_SCALAR(struct number_in, letter),
                                                DB_SCALAR(struct number_in, row_limit)};
static const struct db_column number_columns[] = {DB_COLUMN(struct number, n),
                                                  DB_COLUMN(struct number, letter)};
static const struct db_call numbers = DB_VIEW("numbers_view", number_params, number_columns);

static void a_view_is_filtered_and_bounded(void **state)
{
    (void)state;
    struct number *rows;
    size_t n;
    struct number_in all = {SPAN_NULL, 3}, one = {SPAN_LIT("d"), 3};
    assert_int_equal(db_call(db, &numbers, &all, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_int_equal(n, 3);
    assert_int_equal(db_call(db, &numbers, &one, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_true(n == 1 && rows->n == 4);
}

/* ---- drift ---- */

struct wrong {
    int32_t n;
    int64_t word, p;
    struct span item;
};

static void expect_drift(const struct db_call *call, const char *message)
{
    const struct db_call *calls[] = {call};
    assert_int_equal(db_check_calls(db, calls, 1), OUTCOME_DB_DRIFT);
    if (strstr(db_error(db)->message, message) == NULL)
        fail_msg("said: %s", db_error(db)->message);
    assert_true(db_is_connected(db)); /* the others can still be checked */
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    static const struct db_param narrow[] = {DB_SCALAR_AS("word", struct echo_in, limit)};
    static const struct db_param misnamed[] = {DB_SCALAR_AS("wort", struct echo_in, word)};
    static const struct db_column outcome[] = {DB_COLUMN(struct echo_row, outcome)};
    static const struct db_column misnamed_column[] = {
        DB_COLUMN_AS("outcomes", struct echo_row, outcome)};
    static const struct db_column narrow_column[] = {DB_COLUMN_AS("n", struct wrong, n)};
    static const struct db_param code[] = {DB_SCALAR_AS("code", struct echo_in, word)};
    const struct db_call bad[] = {
        DB_CALL("word", narrow, outcome, 0),       DB_CALL("word", misnamed, outcome, 0),
        DB_CALL("word", code, misnamed_column, 0), DB_CALL("fail", code, narrow_column, 0),
        DB_CALL("no_such", code, outcome, 0),      DB_CALL_BARE("word", outcome, 0),
    };
    expect_drift(&bad[0], "word: parameter p_word is text, this program sends bigint");
    expect_drift(&bad[1], "word: function ");
    expect_drift(&bad[2], "word: ");
    expect_drift(&bad[3], "fail: column n is bigint, this program reads integer");
    expect_drift(&bad[4], "no_such: function ");
    expect_drift(&bad[5], "word: function ");
    const struct db_call *good[] = {&echo, &arrays, &two, &numbers};
    assert_int_equal(db_check_calls(db, good, COUNT_OF(good)), OUTCOME_OK);
}

static void a_replaced_function_is_prepared_again(void **state)
{
    (void)state;
    static const struct db_column column[] = {DB_COLUMN_AS("n", struct two_row, a)};
    static const struct db_call changing = DB_CALL_BARE("changing", column, 0);
    struct two_row *rows;
    size_t n;
    sql("create or replace function @.changing() returns table(n bigint) language sql as $$ select "
        "1::bigint $$");
    assert_int_equal(db_call(db, &changing, NULL, NULL, arena, &rows, &n), OUTCOME_OK);
    sql("drop function @.changing(); create function @.changing() returns table(n int) language "
        "sql as $$ select 1 $$");
    assert_int_equal(db_call(db, &changing, NULL, NULL, arena, &rows, &n), OUTCOME_DB_RETRY);
    assert_false(db_is_connected(db));
    assert_int_equal(db_connect(db), OUTCOME_OK);
    assert_int_equal(db_call(db, &changing, NULL, NULL, arena, &rows, &n), OUTCOME_DB_DRIFT);
    sql("drop function @.changing()");
}

static const struct db_param word_params[] = {DB_SCALAR(struct echo_in, word)};
static const struct db_column word_columns[] = {DB_COLUMN(struct echo_row, outcome)};
static const struct db_call word = DB_CALL("word", word_params, word_columns, 0);

static void an_unknown_outcome_is_drift_and_never_ok(void **state)
{
    (void)state;
    struct echo_row *rows;
    size_t n;
    struct echo_in in = {SPAN_LIT("lease_lost"), 0};
    assert_int_equal(db_call(db, &word, &in, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_int_equal(rows->outcome, OUTCOME_LEASE_LOST);
    in.word = SPAN_LIT("fine");
    assert_int_equal(db_call(db, &word, &in, NULL, arena, &rows, &n), OUTCOME_DB_DRIFT);
    assert_non_null(strstr(db_error(db)->message, "\"fine\""));
    in.word = SPAN_NULL;
    assert_int_equal(db_call(db, &word, &in, NULL, arena, &rows, &n), OUTCOME_DB_DRIFT);
}

/* ---- failing ---- */

struct fail_in {
    struct span code;
    double seconds;
};
static const struct db_param fail_params[] = {DB_SCALAR(struct fail_in, code)};
static const struct db_param wait_params[] = {DB_SCALAR(struct fail_in, seconds)};
static const struct db_column n_columns[] = {DB_COLUMN_AS("n", struct two_row, a)};
static const struct db_call failing = DB_CALL("fail", fail_params, n_columns, 0);
static const struct db_call waiting = DB_CALL("wait", wait_params, n_columns, 0);
static const struct db_call waiting_read = DB_CALL("wait", wait_params, n_columns, DB_READ);
static const struct db_call named_statements = DB_CALL_BARE("named_statements", n_columns, 0);

static void each_sqlstate_has_its_outcome(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        enum outcome outcome;
        bool stays;
    } rows[] = {
        // clang-format off
        {"40001", OUTCOME_DB_RETRY, true}, {"40P01", OUTCOME_DB_RETRY, true},
        {"55P03", OUTCOME_DB_RETRY, true}, {"57014", OUTCOME_DB_RETRY, true},
        {"53100", OUTCOME_DB_RETRY, true}, {"22023", OUTCOME_DB_BUG, true},
        {"22P02", OUTCOME_ITEM_ERROR, true}, {"22P05", OUTCOME_ITEM_ERROR, true},
        {"23505", OUTCOME_ITEM_ERROR, true}, {"54001", OUTCOME_ITEM_ERROR, true},
        {"P0001", OUTCOME_ITEM_ERROR, true}, {"42501", OUTCOME_DB_REFUSED, true},
        {"42883", OUTCOME_DB_BUG, true}, {"XX000", OUTCOME_DB_BUG, true},
        {"25006", OUTCOME_NOT_PRIMARY, false}, {"40003", OUTCOME_DB_UNKNOWN, false},
        {"57P01", OUTCOME_DB_UNKNOWN, false},
        // clang-format on
    };
    struct two_row *none;
    size_t n;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fail_in in = {span_of(rows[i].code), 0};
        enum outcome o = db_call(db, &failing, &in, NULL, arena, &none, &n);
        if (o != rows[i].outcome || db_is_connected(db) != rows[i].stays)
            fail_msg("%s became %s", rows[i].code, outcome_word(o));
        assert_string_equal(db_error(db)->sqlstate, rows[i].code);
        assert_string_equal(db_error(db)->message, "as told");
        assert_string_equal(db_error(db)->detail, "the detail");
        if (!rows[i].stays)
            assert_int_equal(db_connect(db), OUTCOME_OK);
    }
}

static void no_answer_in_time_is_unknown(void **state)
{
    (void)state;
    struct fail_in in = {SPAN_NULL, 30};
    struct two_row *rows;
    size_t n;
    db_set_call_timeout(db, 200);
    int64_t start = clock_mono_us();
    assert_int_equal(db_call(db, &waiting, &in, NULL, arena, &rows, &n), OUTCOME_DB_UNKNOWN);
    assert_true(clock_mono_us() - start >= 200 * CLOCK_MS);
    assert_true(clock_mono_us() - start < 20 * CLOCK_SECOND);
    assert_false(db_is_connected(db));
    assert_int_equal(db_call(db, &waiting, &in, NULL, arena, &rows, &n), OUTCOME_DB_DOWN);
    assert_int_equal(db_connect(db), OUTCOME_OK);
    assert_int_equal(db_call(db, &waiting_read, &in, NULL, arena, &rows, &n), OUTCOME_DB_DOWN);
    assert_int_equal(db_connect(db), OUTCOME_OK);
    in.seconds = 0;
    assert_int_equal(db_call(db, &waiting, &in, NULL, arena, &rows, &n), OUTCOME_OK);
}

static void terminate(void)
{
    char text[96];
    snprintf(text, sizeof(text), "select pg_terminate_backend(%d, 10000)", db_identity(db)->pid);
    sql(text);
}

static void a_connection_lost_while_idle_sends_nothing(void **state)
{
    (void)state;
    struct two_row *rows;
    size_t n;
    assert_int_equal(db_call(db, &named_statements, NULL, NULL, arena, &rows, &n), OUTCOME_OK);
    terminate();
    assert_int_equal(db_call(db, &named_statements, NULL, NULL, arena, &rows, &n), OUTCOME_DB_DOWN);
    assert_false(db_is_connected(db));
    int64_t again;
    assert_int_equal(db_reconnect(db, &again), OUTCOME_OK);
    assert_int_equal(db_call(db, &named_statements, NULL, NULL, arena, &rows, &n), OUTCOME_OK);
}

static void *terminate_when_it_sleeps(void *arg)
{
    (void)arg;
    char text[200];
    snprintf(text, sizeof(text),
             "select pg_terminate_backend(pid) from pg_stat_activity where pid = %d and wait_event "
             "= 'PgSleep'",
             db_identity(db)->pid);
    int64_t deadline = clock_deadline_us(20 * CLOCK_SECOND);
    int terminated = 0;
    while (terminated == 0 && clock_poll_ms(deadline) > 0) {
        PGresult *result = PQexec(admin, text);
        terminated = PQntuples(result);
        PQclear(result);
    }
    return NULL;
}

static void a_connection_lost_in_a_call_is_unknown(void **state)
{
    (void)state;
    struct fail_in in = {SPAN_NULL, 30};
    struct two_row *rows;
    size_t n;
    pthread_t thread;
    assert_true(thread_start(&thread, "killer", terminate_when_it_sleeps, NULL));
    assert_int_equal(db_call(db, &waiting, &in, NULL, arena, &rows, &n), OUTCOME_DB_UNKNOWN);
    thread_join(thread);
    assert_false(db_is_connected(db));
}

static void a_pooler_gets_no_named_statements(void **state)
{
    (void)state;
    struct two_row *rows;
    size_t n;
    assert_int_equal(db_call(db, &named_statements, NULL, NULL, arena, &rows, &n), OUTCOME_OK);
    assert_true(rows->a > 0); /* the test can tell */
    struct db_options o = options();
    o.pooler = true;
    db_free(db);
    db = db_new(&o);
    assert_int_equal(db_connect(db), OUTCOME_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(db_call(db, &named_statements, NULL, NULL, arena, &rows, &n), OUTCOME_OK);
        assert_int_equal(rows->a, 0);
    }
    every_kind_comes_back_as_it_went(NULL);
    what_does_not_fit_is_named(NULL);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_one, close_one)

int main(void)
{
    dsn = getenv("HOLDFAST_TEST_DSN");
    if (dsn == NULL || *dsn == '\0') {
        fprintf(stderr, "skipped: HOLDFAST_TEST_DSN names no PostgreSQL\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        TEST(every_kind_comes_back_as_it_went),
        TEST(a_batch_may_be_empty_or_large),
        TEST(arrays_come_back_empty_or_null_or_full),
        TEST(groups_have_lengths_of_their_own),
        TEST(a_view_is_filtered_and_bounded),
        TEST(what_does_not_fit_is_named),
        TEST(a_replaced_function_is_prepared_again),
        TEST(an_unknown_outcome_is_drift_and_never_ok),
        TEST(each_sqlstate_has_its_outcome),
        TEST(no_answer_in_time_is_unknown),
        TEST(a_connection_lost_while_idle_sends_nothing),
        TEST(a_connection_lost_in_a_call_is_unknown),
        TEST(a_pooler_gets_no_named_statements),
    };
    return cmocka_run_group_tests(tests, connect_all, drop_all);
}

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "schemas/db_int.h"

static void add_columns(struct text *t, const struct db_call *call)
{
    text_add_str(t, "select ");
    for (size_t i = 0; i < call->n_columns; i++)
        text_addf(t, "%s%s", i ? ", " : "", call->columns[i].name);
}

static void add_function(struct text *t, const struct db *db, const struct db_call *call)
{
    text_addf(t, " from %s.%s(", db->options.iface, call->name);
    for (size_t i = 0; i < call->n_params; i++)
        text_addf(t, "%sp_%s => $%zu", i ? ", " : "", call->params[i].name, i + 1);
    text_add_char(t, ')');
}

static void add_view(struct text *t, const struct db *db, const struct db_call *call)
{
    const char *joint = " where ";
    size_t limit = 0;
    text_addf(t, " from %s.%s", db->options.schema, call->name);
    for (size_t i = 0; i < call->n_params; i++) {
        const char *name = call->params[i].name;
        if (strcmp(name, "row_limit") == 0) {
            limit = i + 1;
            continue;
        }
        text_addf(t, "%s(%s = $%zu or $%zu is null)", joint, name, i + 1, i + 1);
        joint = " and ";
    }
    if (limit)
        text_addf(t, " limit $%zu", limit);
}

static Oid param_oid(const struct db_param *p)
{
    return p->group == DB_NO_GROUP ? db_kind_oid(p->kind) : db_kind_array_oid(p->kind);
}

struct db_statement *db_statement_of(struct db *db, const struct db_call *call)
{
    for (size_t i = 0; i < db->n_statements; i++)
        if (db->statements[i].call == call)
            return &db->statements[i];
    CHECK(call->n_params <= DB_MAX_PARAMS && call->n_columns > 0);
    db->statements = memory_resize(db->statements, db->n_statements + 1, sizeof(*db->statements));
    struct db_statement *s = &db->statements[db->n_statements];
    *s = (struct db_statement){.call = call};
    db->n_statements++;
    struct text sql = TEXT_EMPTY;
    add_columns(&sql, call);
    if (call->flags & DB_VIEW_OF)
        add_view(&sql, db, call);
    else
        add_function(&sql, db, call);
    s->sql = text_take(&sql);
    for (size_t i = 0; i < call->n_params; i++)
        s->types[i] = param_oid(&call->params[i]);
    return s;
}

/* Number and order are right by construction, names because the text uses them: what is left are
 * the types. */
static enum outcome compare(struct db *db, const struct db_statement *s, const PGresult *described)
{
    const struct db_call *call = s->call;
    if ((size_t)PQnparams(described) != call->n_params ||
        (size_t)PQnfields(described) != call->n_columns)
        return db_fail(db, OUTCOME_DB_DRIFT,
                       "%s: %d parameters and %d columns, this program has %zu and %zu", call->name,
                       PQnparams(described), PQnfields(described), call->n_params, call->n_columns);
    for (size_t i = 0; i < call->n_params; i++)
        if (PQparamtype(described, (int)i) != s->types[i])
            return db_fail(db, OUTCOME_DB_DRIFT, "%s: parameter p_%s is %s, this program sends %s",
                           call->name, call->params[i].name,
                           db_oid_word(PQparamtype(described, (int)i)), db_oid_word(s->types[i]));
    for (size_t i = 0; i < call->n_columns; i++) {
        Oid want = db_kind_oid(call->columns[i].kind);
        if (PQftype(described, (int)i) != want)
            return db_fail(db, OUTCOME_DB_DRIFT, "%s: column %s is %s, this program reads %s",
                           call->name, call->columns[i].name,
                           db_oid_word(PQftype(described, (int)i)), db_oid_word(want));
    }
    return OUTCOME_OK;
}

/* A function, view, schema, argument or column that is not there, or is there twice. */
static bool is_drift(const char *code)
{
    static const char *const codes[] = {"42883", "42P01", "42703", "3F000",
                                        "42725", "42P18", "42804", "42601"};
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return false;
}

static enum outcome fail_prepare(struct db *db, const struct db_call *call, const PGresult *result)
{
    enum outcome o = db_fail_result(db, result, true);
    char code[sizeof(db->error.sqlstate)];
    memcpy(code, db->error.sqlstate, sizeof(code));
    if (is_drift(code)) {
        o = db_fail(db, OUTCOME_DB_DRIFT, "%s: %s", call->name, db->error.message);
        memcpy(db->error.sqlstate, code, sizeof(code));
    }
    return o;
}

/* Takes the results of one command of the pipeline; the last one of them, which tells, goes to
 * *ret. */
static enum outcome pipeline_result(struct db *db, int64_t *deadline_us, ExecStatusType end,
                                    PGresult **ret)
{
    for (;;) {
        PGresult *next = NULL;
        enum outcome o = db_next_result(db, deadline_us, true, &next);
        if (o != OUTCOME_OK)
            return o;
        if (next == NULL && end == PGRES_COMMAND_OK)
            return OUTCOME_OK;
        if (next == NULL && PQstatus(db->conn) == CONNECTION_BAD)
            return db_fail(db, OUTCOME_DB_DOWN, "the connection was lost");
        if (next == NULL)
            continue;
        bool last = PQresultStatus(next) == end && end == PGRES_PIPELINE_SYNC;
        PQclear(*ret);
        *ret = next;
        if (last)
            return OUTCOME_OK;
    }
}

/* Parse and describe in one round trip and, through a pooler, on one server. The types are left to
 * the server, so that it says what the function has instead of casting what we send. */
static enum outcome parse_and_describe(struct db *db, struct db_statement *s, PGresult **ret_parsed,
                                       PGresult **ret_described)
{
    /* A new name for every try: one whose comparison failed stays taken on its connection. */
    snprintf(s->name, sizeof(s->name), "h%u", db->options.pooler ? 0 : ++db->n_names);
    const char *name = db->options.pooler ? "" : s->name;
    int64_t deadline = clock_deadline_us(db->options.call_timeout_ms * CLOCK_MS);
    if (!PQenterPipelineMode(db->conn) || !PQsendPrepare(db->conn, name, s->sql, 0, NULL) ||
        !PQsendDescribePrepared(db->conn, name) || !PQpipelineSync(db->conn))
        return db_fail(db, OUTCOME_DB_DOWN, "%s", PQerrorMessage(db->conn));
    PGresult *sync CLEANUP(db_result_clear) = NULL;
    enum outcome o = pipeline_result(db, &deadline, PGRES_COMMAND_OK, ret_parsed);
    if (o == OUTCOME_OK)
        o = pipeline_result(db, &deadline, PGRES_COMMAND_OK, ret_described);
    if (o == OUTCOME_OK)
        o = pipeline_result(db, &deadline, PGRES_PIPELINE_SYNC, &sync);
    if (o == OUTCOME_OK && !PQexitPipelineMode(db->conn))
        o = db_fail(db, OUTCOME_DB_DOWN, "%s", PQerrorMessage(db->conn));
    return o;
}

enum outcome db_prepare(struct db *db, struct db_statement *s)
{
    if (s->ready)
        return OUTCOME_OK;
    PGresult *parsed CLEANUP(db_result_clear) = NULL;
    PGresult *described CLEANUP(db_result_clear) = NULL;
    enum outcome o = parse_and_describe(db, s, &parsed, &described);
    if (o == OUTCOME_OK && PQresultStatus(parsed) != PGRES_COMMAND_OK)
        o = fail_prepare(db, s->call, parsed);
    else if (o == OUTCOME_OK && PQresultStatus(described) != PGRES_COMMAND_OK)
        o = fail_prepare(db, s->call, described);
    else if (o == OUTCOME_OK)
        o = compare(db, s, described);
    if (o == OUTCOME_OK)
        s->ready = true;
    else if (outcome_class(o) != CLASS_BUG)
        db_close(db); /* lost, or somewhere inside of the pipeline */
    return o;
}

/* A connection that broke while it was idle is found before anything is sent: then nothing
 * happened. A server that goes away says so (FATAL, which comes as a notice) before it closes. */
static bool broke_while_idle(struct db *db)
{
    struct pollfd p = {.fd = PQsocket(db->conn), .events = POLLIN};
    while (!db->server_went && PQstatus(db->conn) == CONNECTION_OK && poll(&p, 1, 0) > 0) {
        if (!PQconsumeInput(db->conn))
            return true;
        (void)PQisBusy(db->conn); /* reads what came */
    }
    return db->server_went || PQstatus(db->conn) != CONNECTION_OK;
}

static bool send_call(struct db *db, const struct db_statement *s)
{
    const struct db_call *call = s->call;
    const char *values[DB_MAX_PARAMS];
    int formats[DB_MAX_PARAMS];
    for (size_t i = 0; i < call->n_params; i++) {
        values[i] = db->encoded.start[i] < 0 ? NULL : db->encoded.bytes.p + db->encoded.start[i];
        formats[i] = 1;
    }
    if (db->options.pooler)
        return PQsendQueryParams(db->conn, s->sql, (int)call->n_params, s->types, values,
                                 db->encoded.length, formats, 1) == 1;
    return PQsendQueryPrepared(db->conn, s->name, (int)call->n_params, values, db->encoded.length,
                               formats, 1) == 1;
}

/* What the server said about a call that is not simply its rows. */
static enum outcome fail_call(struct db *db, const PGresult *result, bool is_read)
{
    enum outcome o = db_fail_result(db, result, is_read);
    bool stale_plan = strcmp(db->error.sqlstate, "0A000") == 0; /* prepared before a migration */
    if (stale_plan || o == OUTCOME_NOT_PRIMARY || o == OUTCOME_DB_UNKNOWN ||
        PQstatus(db->conn) == CONNECTION_BAD)
        db_close(db);
    return o;
}

static enum outcome exchange(struct db *db, const struct db_statement *s, struct arena *arena,
                             void *ret_rows, size_t *ret_n)
{
    bool is_read = (s->call->flags & DB_READ) != 0;
    int64_t deadline = s->call->flags & DB_LONG
                           ? DB_NO_DEADLINE
                           : clock_deadline_us(db->options.call_timeout_ms * CLOCK_MS);
    db->standby_wait_cancelled = false;
    PGresult *result CLEANUP(db_result_clear) = NULL;
    if (!send_call(db, s)) {
        enum outcome o = db_fail(db, is_read ? OUTCOME_DB_DOWN : OUTCOME_DB_UNKNOWN, "%s",
                                 PQerrorMessage(db->conn));
        db_close(db);
        return o;
    }
    enum outcome o = db_only_result(db, deadline, is_read, &result);
    if (o != OUTCOME_OK)
        return o;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        return fail_call(db, result, is_read);
    if (db->standby_wait_cancelled && !is_read) {
        db_close(db);
        return db_fail(db, OUTCOME_DB_UNKNOWN, "the wait for a synchronous standby was cancelled");
    }
    PGresult *taken = result;
    result = NULL;
    return db_decode(db, s->call, taken, arena, ret_rows, ret_n);
}

enum outcome db_call(struct db *db, const struct db_call *call, const void *scalars,
                     const struct db_group *groups, struct arena *arena, void *ret_rows,
                     size_t *ret_n)
{
    int64_t start = clock_mono_us();
    enum outcome o;
    if (db->conn && broke_while_idle(db)) {
        o = db_fail(db, OUTCOME_DB_DOWN, "the connection was lost while idle: %s",
                    PQerrorMessage(db->conn));
        db_close(db);
    } else if (db->conn == NULL) {
        o = db_fail(db, OUTCOME_DB_DOWN, "not connected");
    } else {
        struct db_statement *s = db_statement_of(db, call);
        o = db_prepare(db, s);
        if (o == OUTCOME_OK) {
            db_encode(&db->encoded, call, scalars, groups);
            o = exchange(db, s, arena, ret_rows, ret_n);
        }
    }
    metric_add(METRIC_DB_CALLS, LABELS(call->name, outcome_word(o)), 1);
    metric_observe(METRIC_DB_CALL_SECONDS, LABELS(call->name),
                   (double)(clock_mono_us() - start) / 1e6);
    return o;
}

enum outcome db_check_calls(struct db *db, const struct db_call *const calls[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (db->conn == NULL)
            return db_fail(db, OUTCOME_DB_DOWN, "not connected");
        enum outcome o = db_prepare(db, db_statement_of(db, calls[i]));
        if (o != OUTCOME_OK)
            return o;
    }
    return OUTCOME_OK;
}

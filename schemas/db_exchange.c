#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/metric.h"
#include "schemas/db_int.h"

static atomic_int standby_waits;

bool db_waits_for_standby(void)
{
    return atomic_load(&standby_waits) > 0;
}

void db_result_clear(PGresult **result)
{
    PQclear(*result); /* NULL is fine */
    *result = NULL;
}

const struct db_error *db_error(const struct db *db)
{
    return &db->error;
}

static const char *keep(struct text *t, const char *s)
{
    text_reset(t);
    text_add_str(t, s ? s : "");
    return t->p;
}

enum outcome db_fail(struct db *db, enum outcome o, const char *format, ...)
{
    struct text message CLEANUP(text_free) = TEXT_EMPTY; /* the arguments may be the old error */
    va_list args;
    va_start(args, format);
    text_vaddf(&message, format, args);
    va_end(args);
    memset(db->error.sqlstate, 0, sizeof(db->error.sqlstate));
    db->error.message = keep(&db->error_texts[0], message.p);
    db->error.detail = db->error.context = "";
    return o;
}

/* By class of SQLSTATE; the exceptions first. An error answer means that the transaction was rolled
 * back, except where the server itself went away. */
enum outcome db_classify(const char *sqlstate, bool is_read)
{
    static const struct {
        const char *prefix;
        enum outcome outcome;
    } rows[] = {
        {"40003", OUTCOME_DB_UNKNOWN}, /* statement_completion_unknown */
        {"40", OUTCOME_DB_RETRY},      /* serialization_failure, deadlock_detected */
        {"55P03", OUTCOME_DB_RETRY},   /* lock_not_available */
        {"57014", OUTCOME_DB_RETRY},   /* query_canceled: statement_timeout */
        {"0A000", OUTCOME_DB_RETRY}, /* a plan made before a migration; see fail_call */
        {"25006", OUTCOME_NOT_PRIMARY}, /* read_only_sql_transaction */
        {"53", OUTCOME_DB_RETRY},       /* disk full, out of memory, too many connections */
        {"58", OUTCOME_DB_RETRY},       /* I/O */
        {"08", OUTCOME_DB_UNKNOWN},     /* connection_exception */
        {"57P", OUTCOME_DB_UNKNOWN}, /* shutdown: it may have got as far as waiting */
        {"22023", OUTCOME_DB_BUG},     /* how interface functions refuse to be misused */
        {"22", OUTCOME_ITEM_ERROR},    /* data */
        {"23", OUTCOME_ITEM_ERROR},    /* constraints */
        {"54", OUTCOME_ITEM_ERROR},    /* limits: size, nesting */
        {"P0001", OUTCOME_ITEM_ERROR}, /* raise_exception */
        {"42501", OUTCOME_DB_REFUSED}, /* insufficient_privilege */
        {"28", OUTCOME_DB_REFUSED},    /* authorization */
    };
    enum outcome o = OUTCOME_DB_BUG;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (strncmp(sqlstate, rows[i].prefix, strlen(rows[i].prefix)) == 0) {
            o = rows[i].outcome;
            break;
        }
    return o == OUTCOME_DB_UNKNOWN && is_read ? OUTCOME_DB_DOWN : o;
}

enum outcome db_fail_result(struct db *db, const PGresult *result, bool is_read)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (code == NULL || *code == '\0') /* libpq's own words: the connection broke */
        return db_fail(db, is_read ? OUTCOME_DB_DOWN : OUTCOME_DB_UNKNOWN, "%s",
                       PQresultErrorMessage(result));
    snprintf(db->error.sqlstate, sizeof(db->error.sqlstate), "%s", code);
    db->error.message =
        keep(&db->error_texts[0], PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
    db->error.detail =
        keep(&db->error_texts[1], PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
    db->error.context = keep(&db->error_texts[2], PQresultErrorField(result, PG_DIAG_CONTEXT));
    return db_classify(code, is_read);
}

static enum outcome lose(struct db *db, bool is_read, const char *why)
{
    enum outcome o = db_fail(db, is_read ? OUTCOME_DB_DOWN : OUTCOME_DB_UNKNOWN, "%s", why);
    db_close(db);
    return o;
}

static const char wait_sql[] =
    "select 1 from pg_stat_activity where pid = $1::int and wait_event = 'SyncRep'";

/* Looks, from a connection of its own, whether the backend of db waits for a synchronous standby.
 * */
static bool waits_for_standby(struct db *db)
{
    struct db_options options = db->options;
    options.history = NULL;
    options.wait_for_standby = false;
    struct db *probe = db_new(&options);
    bool waits = false;
    enum outcome o = OUTCOME_OK;
    probe->conn = db_dial(probe, &o);
    if (probe->conn) {
        metric_move(METRIC_DB_CONNECTED, NO_LABELS, 1); /* db_close takes it back */
        char pid[16];
        snprintf(pid, sizeof(pid), "%d", db->identity.pid);
        const char *const values[] = {pid};
        PGresult *result CLEANUP(db_result_clear) = NULL;
        if (PQsendQueryParams(probe->conn, wait_sql, 1, NULL, values, NULL, NULL, 0) &&
            db_only_result(probe, clock_deadline_us(options.connect_timeout_ms * CLOCK_MS), true,
                           &result) == OUTCOME_OK)
            waits = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;
    }
    db_free(probe);
    return waits;
}

/* Until the socket is ready or the deadline. OK: it is ready (or poll was interrupted). */
static enum outcome wait_ready(struct db *db, int64_t *deadline_us, bool is_read, bool to_write)
{
    struct pollfd p = {.fd = PQsocket(db->conn),
                       .events = (short)(POLLIN | (to_write ? POLLOUT : 0))};
    bool counted = false;
    enum outcome o = OUTCOME_OK;
    for (;;) {
        int ready = poll(&p, 1, *deadline_us == DB_NO_DEADLINE ? -1 : clock_poll_ms(*deadline_us));
        if (ready > 0 || (ready < 0 && errno == EINTR))
            break;
        if (ready == 0 && db->options.wait_for_standby && !db->options.pooler &&
            waits_for_standby(db)) {
            if (!counted)
                metric_set(METRIC_DB_WAITS_FOR_STANDBY, NO_LABELS,
                           atomic_fetch_add(&standby_waits, 1) + 1);
            counted = true;
            *deadline_us = clock_deadline_us(db->options.call_timeout_ms * CLOCK_MS);
            continue;
        }
        o = lose(db, is_read,
                 ready == 0 ? "no answer in time; the connection is closed" : "poll failed");
        break;
    }
    if (counted)
        metric_set(METRIC_DB_WAITS_FOR_STANDBY, NO_LABELS, atomic_fetch_sub(&standby_waits, 1) - 1);
    return o;
}

enum outcome db_next_result(struct db *db, int64_t *deadline_us, bool is_read, PGresult **ret)
{
    int unsent;
    while ((unsent = PQflush(db->conn)) > 0 || PQisBusy(db->conn)) {
        if (unsent < 0)
            break; /* the result says why */
        enum outcome o = wait_ready(db, deadline_us, is_read, unsent > 0);
        if (o != OUTCOME_OK)
            return o;
        if (!PQconsumeInput(db->conn))
            break;
    }
    *ret = PQgetResult(db->conn);
    return OUTCOME_OK;
}

enum outcome db_only_result(struct db *db, int64_t deadline_us, bool is_read, PGresult **ret)
{
    PGresult *kept CLEANUP(db_result_clear) = NULL;
    for (;;) {
        PGresult *next = NULL;
        enum outcome o = db_next_result(db, &deadline_us, is_read, &next);
        if (o != OUTCOME_OK)
            return o;
        if (next == NULL)
            break;
        /* after an error libpq may add the loss of the connection: the first error says more */
        if (kept == NULL || PQresultStatus(kept) != PGRES_FATAL_ERROR) {
            PQclear(kept);
            kept = next;
        } else {
            PQclear(next);
        }
    }
    if (kept == NULL)
        return lose(db, is_read, "the server answered nothing");
    *ret = kept;
    kept = NULL;
    return OUTCOME_OK;
}

#include "schemas/db.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "schemas/db_int.h"

struct db_history {
    struct lock lock;
    uint64_t system_identifier; /* 0: none seen */
    uint32_t timeline;          /* the highest */
};

struct db_history *db_history_new(void)
{
    struct db_history *h = memory_new(1, sizeof(*h));
    lock_init(&h->lock);
    return h;
}

void db_history_free(struct db_history *h)
{
    if (h == NULL)
        return;
    lock_destroy(&h->lock);
    free(h);
}

void db_history_forget(struct db_history *h)
{
    LOCK_SCOPE(&h->lock);
    h->system_identifier = 0;
    h->timeline = 0;
}

static enum outcome remember(struct db *db, struct db_history *h)
{
    const struct db_identity *id = &db->identity;
    if (h == NULL || id->in_recovery)
        return OUTCOME_OK;
    LOCK_SCOPE(&h->lock);
    if (h->system_identifier != 0 && h->system_identifier != id->system_identifier)
        return db_fail(db, OUTCOME_OTHER_SYSTEM,
                       "this is the database system %llu, before it was %llu; an operator must "
                       "confirm the change",
                       (unsigned long long)id->system_identifier,
                       (unsigned long long)h->system_identifier);
    if (id->timeline < h->timeline)
        return db_fail(db, OUTCOME_NOT_PRIMARY,
                       "the server is on timeline %u, timeline %u was seen before", id->timeline,
                       h->timeline);
    h->system_identifier = id->system_identifier;
    h->timeline = id->timeline;
    return OUTCOME_OK;
}

struct db *db_new(const struct db_options *options)
{
    struct db *db = memory_new(1, sizeof(*db));
    db->options = *options;
    db->options.dsn = memory_copy_text(options->dsn);
    db->options.schema = memory_copy_text(options->schema);
    db->options.iface = memory_copy_text(options->iface);
    db->options.name = memory_copy_text(options->name ? options->name : "holdfast");
    db->error = (struct db_error){"", "", "", ""};
    return db;
}

void db_free(struct db *db)
{
    if (db == NULL)
        return;
    db_close(db);
    for (size_t i = 0; i < db->n_statements; i++)
        free(db->statements[i].sql);
    free(db->statements);
    text_free(&db->encoded.bytes);
    for (size_t i = 0; i < COUNT_OF(db->error_texts); i++)
        text_free(&db->error_texts[i]);
    free((char *)(size_t)db->options.dsn);
    free((char *)(size_t)db->options.schema);
    free((char *)(size_t)db->options.iface);
    free((char *)(size_t)db->options.name);
    free(db);
}

void db_close(struct db *db)
{
    if (db->conn == NULL)
        return;
    PQfinish(db->conn);
    db->conn = NULL;
    metric_move(METRIC_DB_CONNECTED, NO_LABELS, -1);
}

bool db_is_connected(const struct db *db)
{
    return db->conn != NULL;
}

const struct db_identity *db_identity(const struct db *db)
{
    return &db->identity;
}

void db_set_call_timeout(struct db *db, int64_t call_timeout_ms)
{
    db->options.call_timeout_ms = call_timeout_ms;
}

/* A cancelled or abandoned wait for a synchronous standby is a WARNING on an otherwise successful
 * answer. The name of the C function is the one part of it that no language setting changes. */
static void on_notice(void *arg, const PGresult *notice)
{
    struct db *db = arg;
    const char *source = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    if (source && strcmp(source, "SyncRepWaitForLSN") == 0)
        db->standby_wait_cancelled = true;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && strcmp(severity, "FATAL") == 0)
        db->server_went = true;
}

/* With several hosts libpq looks for the writable one itself, unless the string says what to look
 * for. */
static bool names_several_hosts(const char *dsn)
{
    bool several = false;
    PQconninfoOption *options = PQconninfoParse(dsn, NULL);
    for (PQconninfoOption *o = options; o && o->keyword; o++)
        if ((strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0) && o->val &&
            strchr(o->val, ','))
            several = true;
    PQconninfoFree(options);
    return several;
}

/* What stands before dbname can be overridden by the connection string, what stands behind it
 * cannot. No "options" and no other start-up parameter that a pooler refuses. */
static PGconn *start_dial(const struct db *db)
{
    const char *primary =
        !db->options.any_server && names_several_hosts(db->options.dsn) ? "read-write" : NULL;
    const char *const keywords[] = {
        "fallback_application_name", "keepalives_idle", "keepalives_interval", "keepalives_count",
        "target_session_attrs",      "dbname",          "client_encoding",     NULL};
    const char *const values[] = {db->options.name, "10",   "5", "3", primary,
                                  db->options.dsn,  "UTF8", NULL};
    return PQconnectStartParams(keywords, values, 1);
}

/* "…FATAL:  28P01: password authentication failed…": libpq gives the code of a failed login in
 * verbose text only. */
static void login_sqlstate(const char *message, char ret_code[6])
{
    memcpy(ret_code, "", 1);
    for (const char *p = strstr(message, ":  "); p; p = strstr(p + 1, ":  ")) {
        const char *code = p + 3;
        if (strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 && code[5] == ':') {
            memcpy(ret_code, code, 5);
            ret_code[5] = '\0';
            return;
        }
    }
}

static enum outcome login_outcome(const char *code)
{
    /* wrong password, no such role or database, no right to connect, bad start-up parameter */
    static const char *const final[] = {"28", "3D", "42", "22", "08P01"};
    for (size_t i = 0; i < COUNT_OF(final); i++)
        if (code[0] && strncmp(code, final[i], strlen(final[i])) == 0)
            return OUTCOME_DB_REFUSED;
    return OUTCOME_DB_DOWN;
}

static enum outcome fail_dial(struct db *db, PGconn *conn, const char *otherwise)
{
    const char *message = conn ? PQerrorMessage(conn) : "";
    char code[6] = "";
    login_sqlstate(message, code);
    const char *location = strstr(message, "\nLOCATION:");
    int length = location ? (int)(location - message) : (int)strlen(message);
    while (length > 0 && message[length - 1] == '\n')
        length--;
    enum outcome o = length > 0 ? db_fail(db, login_outcome(code), "%.*s", length, message)
                                : db_fail(db, OUTCOME_DB_DOWN, "%s", otherwise);
    memcpy(db->error.sqlstate, code, sizeof(code));
    return o;
}

PGconn *db_dial(struct db *db, enum outcome *ret_outcome)
{
    int64_t deadline = clock_deadline_us(db->options.connect_timeout_ms * CLOCK_MS);
    PGconn *conn = start_dial(db);
    CHECK(conn != NULL); /* out of memory */
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    PostgresPollingStatusType want =
        PQstatus(conn) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    bool late = false;
    while (want != PGRES_POLLING_OK && want != PGRES_POLLING_FAILED && !late) {
        struct pollfd p = {.fd = PQsocket(conn),
                           .events = want == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        if (poll(&p, 1, clock_poll_ms(deadline)) > 0)
            want = PQconnectPoll(conn);
        else
            late = clock_poll_ms(deadline) == 0;
    }
    if (want == PGRES_POLLING_OK && PQsetnonblocking(conn, 1) == 0) {
        PQsetNoticeReceiver(conn, on_notice, db);
        return conn;
    }
    *ret_outcome = late ? db_fail(db, OUTCOME_DB_DOWN, "no connection within %lld ms",
                                  (long long)db->options.connect_timeout_ms)
                        : fail_dial(db, conn, "no connection");
    PQfinish(conn);
    return NULL;
}

/* Readable by every role, on a standby and through a pooler; the timeline from the WAL that is
 * being written, because the control file lags behind a promotion. */
static const char identity_sql[] =
    "select r.in_recovery, current_setting('transaction_read_only') = 'on', s.system_identifier,"
    " case when r.in_recovery then 0"
    " else ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint end"
    " from pg_control_system() s, (select pg_is_in_recovery() as in_recovery) r";

static enum outcome read_identity(struct db *db)
{
    int64_t deadline = clock_deadline_us(db->options.connect_timeout_ms * CLOCK_MS);
    if (!PQsendQueryParams(db->conn, identity_sql, 0, NULL, NULL, NULL, NULL, 0))
        return db_fail(db, OUTCOME_DB_DOWN, "%s", PQerrorMessage(db->conn));
    PGresult *result CLEANUP(db_result_clear) = NULL;
    enum outcome o = db_only_result(db, deadline, true, &result);
    if (o != OUTCOME_OK)
        return o;
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        return db_fail_result(db, result, true);
    db->identity = (struct db_identity){
        .in_recovery = PQgetvalue(result, 0, 0)[0] == 't',
        .read_only = PQgetvalue(result, 0, 1)[0] == 't',
        .system_identifier = (uint64_t)strtoll(PQgetvalue(result, 0, 2), NULL, 10),
        .timeline = (uint32_t)strtoul(PQgetvalue(result, 0, 3), NULL, 10),
        .version = PQserverVersion(db->conn),
        .pid = PQbackendPID(db->conn),
    };
    if (db->options.any_server)
        return OUTCOME_OK;
    if (db->identity.in_recovery)
        return db_fail(db, OUTCOME_NOT_PRIMARY,
                       "the server is in recovery: a standby, not the primary");
    if (db->identity.read_only)
        return db_fail(db, OUTCOME_NOT_PRIMARY, "the server is read-only for this session");
    return remember(db, db->options.history);
}

enum outcome db_connect(struct db *db)
{
    db_close(db);
    enum outcome o = OUTCOME_OK;
    db->conn = db_dial(db, &o);
    db->server_went = false;
    if (db->conn) {
        metric_move(METRIC_DB_CONNECTED, NO_LABELS, 1);
        for (size_t i = 0; i < db->n_statements; i++)
            db->statements[i].ready = false;
        o = read_identity(db);
        if (o != OUTCOME_OK)
            db_close(db);
    }
    metric_add(METRIC_DB_CONNECTS, LABELS(outcome_word(o)), 1);
    return o;
}

enum outcome db_reconnect(struct db *db, int64_t *ret_again_us)
{
    enum { FIRST_MS = 100, LONGEST_MS = 5000 };
    if (db->conn)
        return OUTCOME_OK;
    int64_t now = clock_mono_us();
    if (db->failures > 0 && now < db->again_us) {
        *ret_again_us = db->again_us;
        return OUTCOME_DB_DOWN;
    }
    enum outcome o = db_connect(db);
    if (o == OUTCOME_OK) {
        db->failures = 0;
        return o;
    }
    int64_t wait_ms = (int64_t)FIRST_MS << (db->failures < 6 ? db->failures : 6);
    if (wait_ms > LONGEST_MS)
        wait_ms = LONGEST_MS;
    uint16_t dice; /* half to whole of it, so that the pods of a cluster do not come back in step */
    uuid_random_bytes(&dice, sizeof(dice));
    db->failures++;
    db->again_us =
        clock_mono_us() + wait_ms * CLOCK_MS / 2 + wait_ms * CLOCK_MS / 2 * dice / UINT16_MAX;
    *ret_again_us = db->again_us;
    return o;
}

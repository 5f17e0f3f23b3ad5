/* The one way to call PostgreSQL. A struct db is one connection; a call is a table of descriptor
 * rows that name the members of hand-written structs; the SQL text, the binary arrays and the check
 * against the live database come from these rows. No SQL is written outside schemas.
 *
 *   struct renew_in   { int64_t ttl_ms; };
 *   struct renew_item { struct uuid run_id; struct span owner; int64_t epoch; };
 *   struct renew_row  { int32_t item; enum outcome outcome; int64_t current_epoch; };
 *
 *   static const struct db_param renew_params[] = {
 *       DB_ITEM_AS("run_ids", 0, struct renew_item, run_id),   group 0: one array per member
 *       DB_ITEM_AS("owners", 0, struct renew_item, owner),
 *       DB_ITEM_AS("epochs", 0, struct renew_item, epoch),
 *       DB_SCALAR(struct renew_in, ttl_ms)};
 *   static const struct db_column renew_columns[] = {
 *       DB_COLUMN(struct renew_row, item), DB_COLUMN(struct renew_row, outcome), …};
 *   static const struct db_call renew = DB_CALL("renew", renew_params, renew_columns, 0);
 *
 *   struct db_group items = {array, n};
 *   struct renew_row *rows; size_t n_rows;
 *   enum outcome o = db_call(db, &renew, &in, &items, arena, &rows, &n_rows);
 *
 * becomes  select item, outcome, … from holdfast_v1.renew(p_run_ids => $1, p_owners => $2, …)
 * Names: parameter "x" is the SQL parameter p_x; a column has the name of its member. Every
 * statement is a transaction of its own. A statement is prepared, and compared with the database,
 * at its first use on a connection.
 *
 * Thread: a struct db is used by one thread at a time; a struct db_history by any.
 * Never: decides, retries or sleeps. */
#ifndef HOLDFAST_SCHEMAS_DB_H
#define HOLDFAST_SCHEMAS_DB_H

#include <stddef.h>

#include "base/arena.h"
#include "base/outcome.h"
#include "schemas/db_row.h"

struct db;
struct db_history;

struct db_options {
    const char *dsn;    /* libpq connection string or URI */
    const char *schema; /* tables, "holdfast" */
    const char *iface;  /* functions, "holdfast_v1" */
    const char *name;   /* application_name, for people: "holdfast commit pod-3" */
    int64_t connect_timeout_ms;
    /* Client-side deadline of a call; after it the connection is closed: db_unknown. */
    int64_t call_timeout_ms;
    bool pooler; /* transaction pooler between: unnamed statements only */
    /* At the deadline look whether the statement waits for a synchronous standby, and if so keep
     * waiting on this connection instead of piling up retries. Not for heartbeats. */
    bool wait_for_standby;
    bool any_server;            /* also a standby: for doctor; never for a pod */
    struct db_history *history; /* shared by all of a process; NULL: remembers nothing */
};

/* What this process has seen of the database's identity. A lower timeline of the known system is a
 * server of a lost history (not_primary), another system is refused until db_history_forget (an
 * operator confirmed it). */
MUST_CHECK struct db_history *db_history_new(void);
void db_history_free(struct db_history *h);
void db_history_forget(struct db_history *h);

/* Opens nothing yet; the options' texts are copied. */
MUST_CHECK struct db *db_new(const struct db_options *options);
void db_free(struct db *db);

/* Connects and checks the server: writable primary, known system, not an older timeline. Closes
 * what was open. OK, db_down, not_primary, other_system, db_refused (login, database or rights:
 * asking again does not help). */
MUST_CHECK enum outcome db_connect(struct db *db);
bool db_is_connected(const struct db *db);
void db_close(struct db *db);

/* For the caller's loop: connects unless connected or still backing off. Never waits beyond
 * connect_timeout_ms. On anything but OK *ret_again_us is the monotonic time of the next useful try
 * (with jitter, 100 ms to 5 s). */
MUST_CHECK enum outcome db_reconnect(struct db *db, int64_t *ret_again_us);

/* Items of a group. n == 0 is an empty array. items may be NULL then. */
struct db_group {
    const void *items;
    size_t n;
};

enum db_call_flags {
    DB_READ = 1,    /* changes nothing: a lost answer is db_down, not db_unknown */
    DB_VIEW_OF = 2, /* made by DB_VIEW */
    DB_LONG = 4,    /* no client-side deadline */
};

struct db_call {
    const char *name;
    const struct db_param *params;
    size_t n_params;
    const struct db_column *columns;
    size_t n_columns;
    unsigned flags;
};

#define DB_CALL(name, params, columns, flags)                                                      \
    {                                                                                              \
        (name), (params), COUNT_OF(params), (columns), COUNT_OF(columns), (flags)                  \
    }
#define DB_CALL_BARE(name, columns, flags)                                                         \
    {                                                                                              \
        (name), NULL, 0, (columns), COUNT_OF(columns), (flags)                                     \
    }
/* Rows of a view of the table schema. Each parameter is an equality filter on the column of its
 * name, a NULL value filters nothing; one called row_limit bounds the rows. */
#define DB_VIEW(name, params, columns) DB_CALL(name, params, columns, DB_READ | DB_VIEW_OF)

/* scalars: the struct of the DB_SCALAR rows; groups: indexed by the group number of the DB_ITEM
 * rows; either NULL where the call has none. Rows, and all spans in them, live in the arena.
 * ret_rows points to a pointer to the row struct; it and ret_n are set only on OK (rows is never
 * NULL then, n may be 0).
 *
 *   OK            see the rows' own outcomes
 *   db_retry      rolled back for a passing reason (serialisation, deadlock, lock or statement
 *                 time-out, resources)
 *   db_unknown    sent, answer lost, timed out, or a cancelled wait for a standby; disconnected
 *   db_down       not connected, nothing was sent; or a DB_READ whose answer was lost
 *   not_primary   the server has become read-only; disconnected
 *   item_error    the data of some item (SQLSTATE 22…, 23…, 54…, P0001); nothing was written:
 *                 split the batch
 *   db_refused    no right to call it
 *   db_drift      function or columns differ from the descriptor
 *   db_bug        everything else, misuse of the function (22023) included */
MUST_CHECK enum outcome db_call(struct db *db, const struct db_call *call, const void *scalars,
                                const struct db_group *groups, struct arena *arena, void *ret_rows,
                                size_t *ret_n);

/* Prepares and compares all of them: number, names and types of arguments, names and types of
 * columns. OK, db_drift (db_error says which call and what differs), db_refused, or what db_call
 * says about a lost connection. */
MUST_CHECK enum outcome db_check_calls(struct db *db, const struct db_call *const calls[],
                                       size_t n);

/* The last outcome that was not OK, for logs: never NULL; texts are borrowed until the next use of
 * db. */
struct db_error {
    char sqlstate[6]; /* "" when it did not come from the server */
    const char *message;
    const char *detail;  /* "" when there is none */
    const char *context; /* where in the function, "" when unknown */
};
const struct db_error *db_error(const struct db *db);

/* The server's identity as of the last connect. */
struct db_identity {
    uint64_t system_identifier;
    uint32_t timeline; /* 0 on a standby */
    int version;       /* 150004 */
    int pid;           /* of the backend; a pooler's is meaningless */
    bool in_recovery;
    bool read_only;
};
const struct db_identity *db_identity(const struct db *db);

/* Is a statement waiting for a synchronous standby right now, on any connection of this process?
 * Thread: any. */
bool db_waits_for_standby(void);

void db_set_call_timeout(struct db *db, int64_t call_timeout_ms);

#endif

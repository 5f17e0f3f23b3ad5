/* Inside of the database call runtime; for db_*.c only. */
#ifndef HOLDFAST_SCHEMAS_DB_INT_H
#define HOLDFAST_SCHEMAS_DB_INT_H

#include <libpq-fe.h>

#include "base/text.h"
#include "schemas/db.h"

enum { DB_MAX_PARAMS = 64 };

/* A call on this connection: its SQL text, made once, and whether the server knows it and it was
 * compared. */
struct db_statement {
    const struct db_call *call;
    char *sql;
    char name[12];
    Oid types[DB_MAX_PARAMS];
    bool ready;
};

/* Parameters of one call in one buffer. Starts are offsets while the buffer grows; -1 is NULL. */
struct db_encoded {
    struct text bytes;
    ssize_t start[DB_MAX_PARAMS];
    int length[DB_MAX_PARAMS];
};

struct db {
    struct db_options options; /* texts owned */
    PGconn *conn;              /* NULL: closed */
    struct db_identity identity;
    bool standby_wait_cancelled; /* said by a notice during this call */
    bool server_went;            /* said by a notice while idle */
    struct db_statement *statements;
    size_t n_statements;
    unsigned n_names; /* of prepared statements, ever */
    struct db_encoded encoded;
    struct db_error error;
    struct text error_texts[3];
    unsigned failures; /* connects in a row */
    int64_t again_us;
};

enum { DB_NO_DEADLINE = 0 };

/* Oids of pg_type.h; fixed by PostgreSQL's on-disk format. */
Oid db_kind_oid(enum db_kind kind);
Oid db_kind_array_oid(enum db_kind kind); /* InvalidOid: no array of it as a group member */
const char *db_oid_word(Oid oid);

/* Remembers an error and returns o. The format is for the message; the other parts are emptied. */
enum outcome db_fail(struct db *db, enum outcome o, const char *format, ...) PRINTF_LIKE(3, 4);
/* Remembers what the server said and classifies it. */
enum outcome db_fail_result(struct db *db, const PGresult *result, bool is_read);
enum outcome db_classify(const char *sqlstate, bool is_read);

/* A connection to db's server within db's connect time-out; NULL with the error remembered and
 * *ret_outcome. */
PGconn *db_dial(struct db *db, enum outcome *ret_outcome);

/* After a PQsend…: flushes, waits, and takes the next result (NULL: the command is complete). OK or
 * db_unknown with the connection closed. deadline_us is moved while the statement waits for a
 * standby. */
enum outcome db_next_result(struct db *db, int64_t *deadline_us, bool is_read, PGresult **ret);
/* The same for a whole simple or extended query: its only result, whatever it says. */
enum outcome db_only_result(struct db *db, int64_t deadline_us, bool is_read, PGresult **ret);

void db_result_clear(PGresult **result); /* for CLEANUP */

/* Makes the call's statement usable on this connection and compares it with the database. */
enum outcome db_prepare(struct db *db, struct db_statement *s);
struct db_statement *db_statement_of(struct db *db, const struct db_call *call);

void db_encode(struct db_encoded *e, const struct db_call *call, const void *scalars,
               const struct db_group *groups);
enum outcome db_decode(struct db *db, const struct db_call *call, PGresult *result,
                       struct arena *arena, void *ret_rows, size_t *ret_n);

#endif

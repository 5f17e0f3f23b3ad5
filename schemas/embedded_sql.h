/* schemas/sql inside of the program, in the order in which a migration runs it. Made by
 * cmake/HoldfastSql.cmake. */
#ifndef HOLDFAST_SCHEMAS_EMBEDDED_SQL_H
#define HOLDFAST_SCHEMAS_EMBEDDED_SQL_H

#include <stddef.h>

struct embedded_sql {
    const char *path; /* relative to schemas/sql */
    const char *text; /* size bytes and a terminating zero */
    size_t size;
    const char *digest; /* sha256 in hex */
};

extern const struct embedded_sql embedded_sql[];
extern const size_t n_embedded_sql;
extern const char embedded_sql_digest[]; /* over paths and digests */

#endif

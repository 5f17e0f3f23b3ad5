/* Installs, upgrades, prints and verifies the SQL that this program was built with (schemas/sql,
 * embedded).
 *
 * Order: roles.sql, tables/Vnnnn files (each once, in order, with its digest kept in
 * <schema>.schema_version), transitions.sql, functions/ in the order of functions/ORDER,
 * the views in order of name, grants.sql; then the control row. Everything but the versions is
 * written to be run again. Placeholders: @schema@, @iface@, @role@. One transaction, under an
 * advisory lock and a lock_timeout; go direct, not through a transaction pooler. Thread: any, one
 * connection of its own. */
#ifndef HOLDFAST_SCHEMAS_MIGRATE_H
#define HOLDFAST_SCHEMAS_MIGRATE_H

#include <stdint.h>

#include "base/outcome.h"
#include "base/text.h"

#define MIGRATE_INTERFACE                                                                          \
    1 /* the interface version that this program speaks: schema <schema>_v1                        \
       */

struct migrate_options {
    const char *dsn;
    const char
        *schema; /* "holdfast": tables; functions live in <schema>_v1. A plain lower-case name */
    const char *role_prefix; /* "holdfast_" */
    const char *mode; /* failover mode, "async" or "strict"; used when the control row is made */
    bool claims_wait_for_relay; /* after a start of the server nothing is claimed before a relay
                                   (exactly once) has compared every shard; kept anew each time */
    int shards; /* relay shards, fixed for ever by the first migration; 0: 8, or what is there */
    int64_t lock_timeout_ms; /* for every lock the migration takes; 0: 10 s */
};

/* "holdfast" -> "holdfast_v1"; the caller frees it. */
MUST_CHECK char *migrate_iface(const char *schema);

/* What happened, or why not, in lines for a person; always ends with a newline. OK: the schema is
 * at this program's version. invalid: bad names in the options. not_allowed: refused to touch it (a
 * newer schema, an edited file, other shards). db_…: as in db.h; nothing was changed. */
MUST_CHECK enum outcome migrate_run(const struct migrate_options *options, struct text *ret_report);

/* The whole script that a fresh installation runs, for psql. */
MUST_CHECK enum outcome migrate_print(const struct migrate_options *options,
                                      struct text *ret_script);

/* What is installed, for a pod's start and doctor; any login may ask. OK (the report says so when
 * the functions are of another build: db_check_calls tells whether they fit), missing (no schema
 * here), stale (older than this program needs). */
MUST_CHECK enum outcome migrate_check(const struct migrate_options *options,
                                      struct text *ret_report);

/* Number of the newest tables/V file in this program. */
int migrate_version(void);
/* sha256 over all embedded files: identifies the SQL of this build. */
const char *migrate_digest(void);

#endif

/* Inside of migrate*.c. */
#ifndef HOLDFAST_SCHEMAS_MIGRATE_INT_H
#define HOLDFAST_SCHEMAS_MIGRATE_INT_H

#include "schemas/embedded_sql.h"
#include "schemas/migrate.h"

enum { MIGRATE_SHARDS = 8 };

int migrate_file_version(const struct embedded_sql *file);
bool migrate_names_are_plain(const struct migrate_options *o, struct text *report);
/* Appends sql with the placeholders filled in. */
void migrate_expand(struct text *t, struct span sql, const struct migrate_options *o);
void migrate_add_versions(struct text *t, const struct migrate_options *o);
void migrate_add_version_row(struct text *t, const struct embedded_sql *file,
                             const struct migrate_options *o);
void migrate_add_control(struct text *t, const struct migrate_options *o);

#endif

/* The configuration of a pod: one table of options (options.tbl.h, named.tbl.h), read from --set,
 * environment, file and defaults in this order of strength.
 *
 *   --set lease.ttl_ms=5000      HOLDFAST_LEASE_TTL_MS=5000      [lease]
 *                                                                ttl_ms = 5000
 *
 * HOLDFAST_…_FILE names a file that holds the value (secrets). What is not known is an error that
 * names the nearest option; what this version does not honour is refused as such; nothing is
 * ignored.
 * Ownership: a struct config owns all texts in it; it is never changed after config_load.
 * Thread: any may read; loading is main's. Texts are never NULL ("" when not set). */
#ifndef HOLDFAST_CONFIG_CONFIG_H
#define HOLDFAST_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/text.h"
#include "config/sections.h"

/* A librdkafka property, passed on untouched. */
enum config_kafka_scope { KAFKA_BOTH, KAFKA_CONSUMER, KAFKA_PRODUCER };
struct config_kafka {
    const char *name;
    const char *value;
    enum config_kafka_scope scope;
};

struct config {
    struct config_postgres postgres;
    struct config_redis redis;
    struct config_topics topics;
    struct config_pod pod;
    struct config_lease lease;
    struct config_pool pool;
    struct config_ingest ingest;
    struct config_sweep sweep;
    struct config_dispatch dispatch;
    struct config_relay relay;
    struct config_admin admin;
    struct config_log log;
    struct config_failover failover;
    struct config_results results;

    /* In the order of the file; for one property a narrower scope is stronger than KAFKA_BOTH. */
    const struct config_kafka *kafka;
    size_t n_kafka;
    const struct config_tool *tools;
    size_t n_tools;
    const struct config_handler *handlers; /* "plan" is always among them */
    size_t n_handlers;

    struct config_origin *origins; /* private: where each value came from */
};

struct config_source {
    const char *file;        /* NULL: none */
    const char *const *sets; /* "section.name=value" */
    size_t n_sets;
    const char *const *environment; /* "NAME=value", ends with NULL; NULL: none. Usually environ */
};

/* False: ret_errors holds one line per error, all of them. */
MUST_CHECK bool config_load(const struct config_source *source, struct config **ret,
                            struct text *ret_errors);
void config_free(struct config *cfg);
void config_drop(struct config **cfg); /* for CLEANUP */

/* Is there what this command needs? Loading alone does not ask, so that "config print" works on
 * half a file. */
enum config_needs { CONFIG_NEEDS_POSTGRES = 1, CONFIG_NEEDS_KAFKA = 2 };
MUST_CHECK bool config_has(const struct config *cfg, unsigned needs, struct text *ret_errors);

/* NULL when there is none. */
const struct config_tool *config_tool(const struct config *cfg, const char *name);
const struct config_handler *config_handler(const struct config *cfg, const char *name);

/* What is stored with each operation of a tool and decides about it whatever the file says later: a
 * JSON object, appended to t. "declared" tells that a member which is not there had its default. */
void config_tool_declare(const struct config_tool *tool, struct text *t);
/* Back again, over a copy of a tool: all such members to their defaults; then one after the other.
 * False: no such member, or no value for it. Texts live in the arena. */
void config_tool_forget_declared(struct config_tool *tool, struct arena *arena);
MUST_CHECK bool config_tool_set_declared(struct config_tool *tool, const char *name,
                                         const char *value, struct arena *arena);

/* The value that is in force for a consumer or producer, NULL when not set. */
const char *config_kafka_value(const struct config *cfg, const char *name,
                               enum config_kafka_scope scope);

static inline bool config_status_in(const struct config_statuses *s, long status)
{
    return status >= 0 && status < 1000 && (s->bits[status / 64] >> (status % 64) & 1U) != 0;
}

/* The effective values with their origin, secrets masked; as a file that can be read again but for
 * the secrets. */
void config_print(const struct config *cfg, struct text *t);
/* docs/CONFIGURATION.md and config/holdfast.conf; tests compare the files. */
void config_print_document(struct text *t);
void config_print_example(struct text *t);

/* May a running pod take over fresh? False: the lines name what changed but needs a restart. */
MUST_CHECK bool config_may_reload(const struct config *running, const struct config *fresh,
                                  struct text *ret_lines);

#endif

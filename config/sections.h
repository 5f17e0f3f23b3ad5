/* The sections of the configuration as structs. Each member is a row in options.tbl.h or
 * named.tbl.h, which say what it means; a member without a row, or of another type than its row,
 * does not compile. Choices are enums in the order of their words in the table. */
#ifndef HOLDFAST_CONFIG_SECTIONS_H
#define HOLDFAST_CONFIG_SECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_postgres {
    const char *dsn;
    const char *schema;
    const char *role_prefix;
    int64_t connect_timeout_ms;
    int64_t call_timeout_ms;
    bool pooler;
};

enum config_on_failure { REDIS_BYPASS, REDIS_HOLD };
enum config_key_life { REDIS_KEYS_SHORT, REDIS_KEYS_LEASE };
struct config_redis {
    const char *url; /* "" : no pre-filter */
    enum config_on_failure on_failure;
    int64_t timeout_ms;
    enum config_key_life key_life;
    int64_t key_ttl_ms;
    const char *prefix;
};

struct config_topics {
    const char *prefix;
    int64_t partitions;
    int64_t replication_factor;
};

struct config_pod {
    const char *name; /* never empty: host-pid when not set */
    bool development;
};

struct config_lease {
    int64_t ttl_ms;
    int64_t heartbeat_ms;
    int64_t heartbeat_timeout_ms;
};

struct config_pool {
    bool enabled;
    int64_t workers;
    int64_t queue;
    int64_t max_running;
    int64_t grace_ms;
    int64_t batch;
};

struct config_ingest {
    bool enabled;
    int64_t max_due;
    int64_t batch;
    const char *control_topic;
    const char *tenants;
    const char *group;
};

struct config_sweep {
    bool enabled;
    int64_t interval_ms;
    int64_t ttl_ms;
    int64_t batch;
};

struct config_dispatch {
    bool enabled;
    int64_t max_in_flight;
    int64_t claim_ttl_ms;
    int64_t batch;
    int64_t interval_ms;
    int64_t retry_ms;
    int64_t retry_max_ms;
    const char *group;
    bool completions;
};

enum config_relay_mode { RELAY_EXACTLY_ONCE, RELAY_AT_LEAST_ONCE };
struct config_relay {
    bool enabled;
    enum config_relay_mode mode;
    int64_t lanes;
    int64_t batch;
    int64_t shard_ttl_ms;
    int64_t interval_ms;
    int64_t transaction_timeout_ms;
};

struct config_admin {
    const char *listen; /* host:port, "" : none */
    const char *token;
};

enum config_log_level { CONFIG_LOG_DEBUG, CONFIG_LOG_INFO, CONFIG_LOG_WARN, CONFIG_LOG_ERROR };
struct config_log {
    enum config_log_level level; /* same order as enum log_level */
    const char *file;
};

enum config_failover_mode { FAILOVER_ASYNC, FAILOVER_STRICT };
struct config_failover {
    enum config_failover_mode mode;
    const char *fencing;
};

enum config_encoding { ENCODING_JSON, ENCODING_MSGPACK };
struct config_results {
    enum config_encoding encoding;
};

/* [tool.NAME] */
enum config_tool_kind { TOOL_HTTP, TOOL_MCP, TOOL_EXEC };
enum config_method { METHOD_POST, METHOD_PUT, METHOD_PATCH, METHOD_DELETE };
enum config_capability {
    CAPABILITY_NONE,
    CAPABILITY_IDEMPOTENCY_KEY,
    CAPABILITY_DETERMINISTIC_ID,
    CAPABILITY_QUERY
};
enum config_key_scope { KEY_SCOPE_RUN, KEY_SCOPE_SUBMISSION };
enum config_on_cancel { ON_CANCEL_FINISH, ON_CANCEL_REMOTE_CANCEL, ON_CANCEL_COMPENSATE };

struct config_header {
    const char *name;
    const char *value;
};
struct config_statuses {
    uint64_t bits[16];
};
enum config_scope { SCOPE_ENDPOINT, SCOPE_ACCOUNT };
struct config_tool {
    const char *name;
    enum config_tool_kind kind;
    const char *url;
    enum config_method method;
    const char *command;
    const struct config_header *headers; /* header.X = … */
    size_t n_headers;
    const char *credential_env;
    const char *credential_file;
    const char *credential_header;
    const char *credential_prefix;
    const char *credential; /* what credential_env or credential_file held, "" : none. Secret */

    enum config_capability capability;
    int64_t retention_ms;
    enum config_scope scope;
    enum config_key_scope key_scope;
    const char *idempotency_header;
    bool key_quoted;
    const char *key_field;
    bool replays_errors;
    struct config_statuses conflict_statuses;
    struct config_statuses in_progress_statuses;

    const char *query_url;
    bool query;
    struct config_statuses query_found_statuses;
    struct config_statuses query_absent_statuses;
    const char *query_found;
    const char *query_absent;
    const char *state;
    const char *state_succeeded;
    const char *state_failed;
    int64_t absent_is_final_after_ms;
    int64_t escalate_after_ms;
    const char *tag;
    const char *owner;
    const char *owner_is;
    const char *spec;
    const char *spec_is;

    int64_t timeout_ms;
    int64_t connect_timeout_ms;
    int64_t max_response_bytes;
    struct config_statuses final_statuses;
    struct config_statuses not_acted_statuses;
    struct config_statuses final_exits;
    struct config_statuses not_acted_exits;
    int64_t max_in_flight;
    int64_t max_in_flight_total;
    int64_t rate_per_s;
    int64_t rate_burst;
    enum config_on_cancel on_cancel;
    const char *compensate_tool;
    const char *remote_id;
    const char *remote_cancel_tool;
    bool allow_private;

    const char *mcp_tool;
    const char *operation_argument;
    bool honest_errors;
};

/* [handler.NAME] */
enum config_handler_kind { HANDLER_PLAN, HANDLER_EXEC, HANDLER_HTTP, HANDLER_PLUGIN };
struct config_handler {
    const char *name;
    enum config_handler_kind kind;
    const char *command;
    int64_t processes;
    int64_t timeout_ms;
    int64_t retry_ms;
    int64_t retry_max_ms;
};

#endif

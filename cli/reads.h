// The calls of the commands, as descriptor rows, and the rows they answer.
#ifndef HOLDFAST_CLI_READS_H
#define HOLDFAST_CLI_READS_H

#include "schemas/db.h"

struct story_in {
    struct span tenant, task;
    struct uuid_opt run;
};
struct story_row {
    struct json_span story; // NULL: there is no such task or run
};
extern const struct db_call read_story;

struct server_row {
    bool in_recovery, read_only, fsync, full_page_writes, gate_open;
    bool login_superuser, login_can_make_temp, login_worker, login_operator, login_viewer;
    struct db_time clock;
    int32_t version_num, schema_version, shards;
    int64_t timeline, max_lease_ttl_ms, max_claim_ttl_ms, max_service_ttl_ms,
        client_connection_check_interval_ms;
    int64_t lock_timeout_ms, statement_timeout_ms, idle_in_transaction_timeout_ms;
    struct span synchronous_commit, synchronous_standby_names, failover_mode, gate_reason, login;
};
extern const struct db_call read_server;

struct gate_row {
    bool open;
    struct span reason, mode, changed_by;
    int64_t system_identifier, timeline, known_system, known_timeline;
    struct db_time changed_at, sendable_until;
};
extern const struct db_call read_gate;

struct gate_in {
    struct span by, reason;
    bool restored, nothing_lost; // gate_open only
    bool set_back;               // gate_close only
};
struct gate_close_row {
    enum outcome outcome;
    struct db_time sendable_until;
};
struct gate_open_row {
    enum outcome outcome;
    struct span reason;
    int32_t epochs_raised, operations_doubted;
};
extern const struct db_call write_gate_close;
extern const struct db_call write_gate_open;

#endif

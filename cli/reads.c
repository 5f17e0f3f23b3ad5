// The calls of the commands.
#include "cli/reads.h"

static const struct db_param story_params[] = {
    DB_SCALAR(struct story_in, tenant),
    DB_SCALAR(struct story_in, task),
    DB_SCALAR(struct story_in, run),
};
static const struct db_column story_columns[] = {DB_COLUMN(struct story_row, story)};
const struct db_call read_story = DB_CALL("story", story_params, story_columns, DB_READ);

#define SERVER(member) DB_COLUMN(struct server_row, member)
static const struct db_column server_columns[] = {
    SERVER(in_recovery),
    SERVER(read_only),
    SERVER(fsync),
    SERVER(full_page_writes),
    SERVER(gate_open),
    SERVER(login_superuser),
    SERVER(login_can_make_temp),
    SERVER(login_worker),
    SERVER(login_operator),
    SERVER(login_viewer),
    SERVER(clock),
    SERVER(version_num),
    SERVER(schema_version),
    SERVER(shards),
    SERVER(timeline),
    SERVER(max_lease_ttl_ms),
    SERVER(max_claim_ttl_ms),
    SERVER(max_service_ttl_ms),
    SERVER(lock_timeout_ms),
    SERVER(client_connection_check_interval_ms),
    SERVER(statement_timeout_ms),
    SERVER(idle_in_transaction_timeout_ms),
    SERVER(synchronous_commit),
    SERVER(synchronous_standby_names),
    SERVER(failover_mode),
    SERVER(gate_reason),
    SERVER(login),
};
const struct db_call read_server = DB_CALL_BARE("server_facts", server_columns, DB_READ);

#define GATE(member) DB_COLUMN(struct gate_row, member)
static const struct db_column gate_columns[] = {
    GATE(open),
    GATE(reason),
    GATE(mode),
    GATE(changed_by),
    GATE(system_identifier),
    GATE(timeline),
    GATE(known_system),
    GATE(known_timeline),
    GATE(changed_at),
    GATE(sendable_until),
};
const struct db_call read_gate = DB_CALL_BARE("gate_status", gate_columns, DB_READ);

static const struct db_param close_params[] = {DB_SCALAR(struct gate_in, by),
                                               DB_SCALAR(struct gate_in, reason),
                                               DB_SCALAR(struct gate_in, set_back)};
static const struct db_column close_columns[] = {DB_COLUMN(struct gate_close_row, outcome),
                                                 DB_COLUMN(struct gate_close_row, sendable_until)};
const struct db_call write_gate_close = DB_CALL("gate_close", close_params, close_columns, DB_LONG);

static const struct db_param open_params[] = {
    DB_SCALAR(struct gate_in, by),
    DB_SCALAR(struct gate_in, reason),
    DB_SCALAR(struct gate_in, restored),
    DB_SCALAR(struct gate_in, nothing_lost),
};
static const struct db_column open_columns[] = {
    DB_COLUMN(struct gate_open_row, outcome),
    DB_COLUMN(struct gate_open_row, reason),
    DB_COLUMN(struct gate_open_row, epochs_raised),
    DB_COLUMN(struct gate_open_row, operations_doubted),
};
const struct db_call write_gate_open = DB_CALL("gate_open", open_params, open_columns, DB_LONG);

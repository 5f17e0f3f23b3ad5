// The calls of holdfast op …, as descriptor rows, and the rows they answer.
#ifndef HOLDFAST_CLI_OPERATION_CALLS_H
#define HOLDFAST_CLI_OPERATION_CALLS_H

#include "schemas/db.h"

struct op_story_in {
    struct span operation_id;
};
struct op_story_row {
    struct json_span story; // NULL: there is no such operation
};

// One item of any of the acts; each call takes its own members.
struct op_act {
    struct span operation_id;
    int64_t revision; // that the person looked at
    struct span verdict, who, why, remote_id;
    struct json_span result, evidence;
    struct span kind, tool, digest, capability, external_key;
    struct json_span body, declaration;
};
struct op_answer {
    enum outcome outcome;
    struct span operation_id;
    struct uuid run_id;
    struct span status;
    int64_t revision;
    struct span policy, what, detail;
};

struct op_list_in {
    struct span tool_name; // NULL: all
    int64_t row_limit;
};
struct op_list_row {
    struct span operation_id, task_id, run_status, tool_name, capability;
    int32_t attempts, queries;
    struct db_time first_sent_at, escalated_at;
    struct span on_cancel, undo;
    int64_t revision;
};

extern const struct db_call op_story, op_resolve, op_cancel, op_raise, op_compensate, op_list;
extern const struct db_call *const op_calls[];
extern const size_t op_call_n;

#endif

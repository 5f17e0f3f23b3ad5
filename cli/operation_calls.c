// The calls of holdfast op …
#include "cli/operation_calls.h"

static const struct db_param story_params[] = {DB_SCALAR(struct op_story_in, operation_id)};
static const struct db_column story_columns[] = {DB_COLUMN(struct op_story_row, story)};
const struct db_call op_story = DB_CALL("operation_story", story_params, story_columns, DB_READ);

#define ACT(parameter, member) DB_ITEM_AS(parameter, 0, struct op_act, member)
#define ACT_NAMED                                                                                  \
    ACT("operation_ids", operation_id), ACT("revisions", revision), ACT("who", who), ACT("why", why)
#define ANSWER(member) DB_COLUMN(struct op_answer, member)

static const struct db_param resolve_params[] = {ACT_NAMED, ACT("verdict", verdict),
                                                 ACT("remote_ids", remote_id),
                                                 ACT("results", result), ACT("evidence", evidence)};
static const struct db_column resolve_columns[] = {ANSWER(outcome), ANSWER(run_id), ANSWER(status),
                                                   ANSWER(revision)};
const struct db_call op_resolve = DB_CALL("resolve", resolve_params, resolve_columns, 0);

static const struct db_param cancel_params[] = {ACT_NAMED};
static const struct db_column cancel_columns[] = {ANSWER(outcome),  ANSWER(run_id), ANSWER(status),
                                                  ANSWER(revision), ANSWER(policy), ANSWER(what)};
const struct db_call op_cancel = DB_CALL("cancel_operation", cancel_params, cancel_columns, 0);

static const struct db_param raise_params[] = {ACT_NAMED, ACT("capability", capability),
                                               ACT("declaration", declaration)};
static const struct db_column raise_columns[] = {ANSWER(outcome), ANSWER(status), ANSWER(revision),
                                                 ANSWER(detail)};
const struct db_call op_raise = DB_CALL("raise_capability", raise_params, raise_columns, 0);

static const struct db_param undo_params[] = {ACT("operation_ids", operation_id),
                                              ACT("kind", kind),
                                              ACT("tool", tool),
                                              ACT("body", body),
                                              ACT("digest", digest),
                                              ACT("capability", capability),
                                              ACT("declaration", declaration),
                                              ACT("external_key", external_key),
                                              ACT("by", who)};
static const struct db_column undo_columns[] = {ANSWER(outcome), ANSWER(operation_id),
                                                ANSWER(run_id), ANSWER(status), ANSWER(detail)};
const struct db_call op_compensate = DB_CALL("compensate", undo_params, undo_columns, 0);

static const struct db_param list_params[] = {DB_SCALAR(struct op_list_in, tool_name),
                                              DB_SCALAR(struct op_list_in, row_limit)};
#define LISTED(member) DB_COLUMN(struct op_list_row, member)
static const struct db_column list_columns[] = {
    LISTED(operation_id), LISTED(task_id),   LISTED(run_status), LISTED(tool_name),
    LISTED(capability),   LISTED(attempts),  LISTED(queries),    LISTED(first_sent_at),
    LISTED(escalated_at), LISTED(on_cancel), LISTED(undo),       LISTED(revision)};
const struct db_call op_list = DB_VIEW("unknown_operations", list_params, list_columns);

const struct db_call *const op_calls[] = {&op_story, &op_resolve,    &op_cancel,
                                          &op_raise, &op_compensate, &op_list};
const size_t op_call_n = COUNT_OF(op_calls);

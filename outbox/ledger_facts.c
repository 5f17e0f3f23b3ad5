// outbox/ledger_facts.c: descriptor rows of the calls about facts: questions to remotes, and what
// they, or a callback, say.
#include "outbox/ledger_int.h"

struct questions_in {
    struct span owner;
    struct uuid token;
    int32_t limit;
    int64_t ttl_ms;
    struct db_texts tools;
};
#define ASK(member) DB_SCALAR(struct questions_in, member)
static const struct db_param questions_params[] = {ASK(owner), ASK(token), ASK(limit), ASK(ttl_ms),
                                                   ASK(tools)};
#define ASKED(member) DB_COLUMN(struct ledger_question, member)
static const struct db_column questions_columns[] = {
    ASKED(item),
    ASKED(outcome),
    ASKED(operation_id),
    ASKED(run_id),
    ASKED(tool_name),
    ASKED(request_digest),
    ASKED(request_body),
    ASKED(external_key),
    ASKED(remote_id),
    ASKED(capability),
    ASKED(declaration),
    ASKED(attempt),
    ASKED(attempts_not_sent),
    ASKED(queries),
    ASKED(epoch),
    ASKED(absent_counts),
    ASKED(ttl_ms),
    ASKED(traceparent),
    ASKED(tracestate),
};
static const struct db_call claim_queries =
    DB_CALL("claim_queries", questions_params, questions_columns, 0);

enum outcome ledger_questions(struct fence *lane, struct span owner, struct uuid token,
                              int32_t limit, int64_t ttl_ms, struct db_texts tools,
                              struct arena *arena, struct ledger_question **ret_rows, size_t *ret_n)
{
    const struct questions_in in = {
        .owner = owner, .token = token, .limit = limit, .ttl_ms = ttl_ms, .tools = tools};
    return fence_call(lane, &claim_queries, &in, NULL, arena, ret_rows, ret_n);
}

#define UNANSWERED(parameter, member) DB_ITEM_AS(parameter, 0, struct ledger_unanswered, member)
static const struct db_param unanswered_params[] = {
    UNANSWERED("operation_ids", operation_id),
    UNANSWERED("owners", owner),
    UNANSWERED("queries", queries),
    UNANSWERED("retry_ms", retry_ms),
    UNANSWERED("evidence", evidence),
};
struct unanswered_out {
    int32_t item;
    enum outcome outcome;
};
static const struct db_column unanswered_columns[] = {DB_COLUMN(struct unanswered_out, item),
                                                      DB_COLUMN(struct unanswered_out, outcome)};
static const struct db_call record_query =
    DB_CALL("record_query", unanswered_params, unanswered_columns, 0);

enum outcome ledger_unanswered(struct fence *lane, const struct ledger_unanswered *items, size_t n,
                               struct arena *arena)
{
    const struct db_group group = {.items = items, .n = n};
    struct unanswered_out *rows = NULL;
    size_t rows_n = 0;
    return fence_call(lane, &record_query, NULL, &group, arena, &rows, &rows_n);
}

#define FACT(parameter, member) DB_ITEM_AS(parameter, 0, struct ledger_fact, member)
static const struct db_param fact_params[] = {
    FACT("operation_ids", operation_id),
    FACT("attempts", attempt),
    FACT("owners", owner),
    FACT("digests", digest),
    FACT("verdicts", verdict),
    FACT("remote_ids", remote_id),
    FACT("results", result),
    FACT("evidence", evidence),
    FACT("by", by),
};
#define CONVERGED(member) DB_COLUMN(struct ledger_recorded, member)
static const struct db_column fact_columns[] = {
    CONVERGED(item), CONVERGED(outcome), CONVERGED(run_id),
    CONVERGED(woke), CONVERGED(epoch),   CONVERGED(status),
};
static const struct db_call converge = DB_CALL("converge", fact_params, fact_columns, 0);

enum outcome ledger_converge(struct fence *lane, const struct ledger_fact *facts, size_t n,
                             struct arena *arena, struct ledger_recorded **ret_rows, size_t *ret_n)
{
    const struct db_group group = {.items = facts, .n = n};
    return fence_call(lane, &converge, NULL, &group, arena, ret_rows, ret_n);
}

const struct db_call *const ledger_fact_calls[] = {&claim_queries, &record_query, &converge};
const size_t ledger_fact_call_n = COUNT_OF(ledger_fact_calls);

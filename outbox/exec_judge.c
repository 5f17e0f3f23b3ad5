// outbox/exec_judge.c: what a program is told, and what its end means for the ledger.
#include "outbox/exec_int.h"

#include <string.h>
#include <unistd.h>

#include "base/text.h"

// Ours are taken out of what the program inherits: they may hold passwords.
static const char prefix[] = "HOLDFAST_";

static void set(const char **at, struct arena *arena, const char *name, struct span value)
{
    *at = arena_printf(arena, "%s=%.*s", name, (int)value.n, span_is_null(value) ? "" : value.p);
}

const char *const *exec_environment(const struct dispatch *d)
{
    enum { OURS = 8 };
    size_t n = 0;
    while (environ[n] != NULL) {
        n++;
    }
    const char **made = arena_array(d->arena, n + OURS + 1, sizeof *made);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], prefix, sizeof prefix - 1) != 0) {
            made[m++] = environ[i];
        }
    }
    const struct ledger_claimed *c = &d->claim;
    char run_id[UUID_TEXT_SIZE];
    set(&made[m++], d->arena, "HOLDFAST_OPERATION_ID", c->operation_id);
    set(&made[m++], d->arena, "HOLDFAST_KEY", c->external_key);
    set(&made[m++], d->arena, "HOLDFAST_RUN_ID", span_of(uuid_format(c->run_id, run_id)));
    made[m++] = arena_printf(d->arena, "HOLDFAST_EPOCH=%lld", (long long)c->epoch);
    made[m++] = arena_printf(d->arena, "HOLDFAST_ATTEMPT=%d", c->attempt);
    set(&made[m++], d->arena, "HOLDFAST_TRACEPARENT", c->traceparent);
    set(&made[m++], d->arena, "HOLDFAST_CREDENTIAL", span_of(d->tool->config->credential));
    return made;
}

static void judge_exit(struct dispatch *d, const struct config_tool *tool,
                       const struct program_end *end)
{
    const struct json_value *body = NULL;
    struct json_error error;
    bool is_json = json_parse(end->output, NULL, d->arena, &body, &error);
    struct span result = is_json ? json_write(body, d->arena) : SPAN_LIT("null");
    if (end->exit_code == 0 && (is_json || end->output.n == 0)) {
        d->verdict = VERDICT_SUCCEEDED;
        d->remote_id = judge_remote_id(body, d->claim.declaration.text, d->arena);
        d->result = result;
    } else if (config_status_in(&tool->not_acted_exits, end->exit_code)) {
        judge_not_sent(d, 0);
    } else if (config_status_in(&tool->final_exits, end->exit_code)) {
        d->verdict = VERDICT_FAILED_FINAL;
        d->result = span_of(arena_printf(d->arena, "{\"exit\":%d,\"body\":%.*s}", end->exit_code,
                                         SPAN_ARG(result)));
    } else {
        judge_unknown(d, 0);
    }
}

void exec_judge(struct dispatch *d, const struct config_tool *tool, const struct program_end *end)
{
    const struct evidence_output seen = {
        .fault = !end->spawned        ? "not_started"
                 : end->timed_out     ? "timeout"
                 : end->too_large     ? "too_large"
                 : end->exit_code < 0 ? "killed"
                                      : "none",
        .may_have_been_sent = end->spawned,
        .took_us = end->took_us,
        .exit_code = end->exit_code,
        .detail = end->detail,
        .output = end->output,
    };
    d->evidence = evidence_of_output(&seen, d->arena);
    if (!end->spawned) {
        judge_not_sent(d, 0);
    } else if (end->timed_out || end->too_large || end->exit_code < 0) {
        judge_unknown(d, 0);
    } else {
        judge_exit(d, tool, end);
    }
}

#include "schemas/completion.h"

#include <string.h>

static bool refuse(struct arena *arena, struct span *ret_why, const char *what)
{
    *ret_why = span_of(arena_printf(arena, "%s", what));
    return false;
}

static bool known_fields(const struct json_value *root, struct arena *arena, struct span *ret_why)
{
    static const char *const names[] = {"operation_id", "run_id",    "request_digest", "verdict",
                                        "attempt",      "remote_id", "result"};
    for (struct json_iter it = json_iter(root); json_next(&it);) {
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(names) && !known; i++)
            known = span_eq_text(it.key, names[i]);
        if (!known) {
            *ret_why = span_of(arena_printf(arena, "unknown field \"%.*s\"", SPAN_ARG(it.key)));
            return false;
        }
    }
    return true;
}

/* tenant/run/step/version: what answers a run names it twice, and both must agree. */
static bool is_of_run(struct span operation, struct span run)
{
    const char *slash = memchr(operation.p, '/', operation.n);
    if (slash == NULL)
        return false;
    struct span rest = {slash + 1, operation.n - (size_t)(slash + 1 - operation.p)};
    return rest.n > run.n && memcmp(rest.p, run.p, run.n) == 0 && rest.p[run.n] == '/';
}

bool completion_decode(struct span value, struct arena *arena, struct completion *ret,
                       struct span *ret_why)
{
    const struct json_value *root = NULL;
    struct json_error error;
    if (!json_parse(value, NULL, arena, &root, &error)) {
        *ret_why = error.detail;
        return false;
    }
    if (!json_is(root, JSON_OBJECT))
        return refuse(arena, ret_why, "a completion is an object");
    if (!known_fields(root, arena, ret_why))
        return false;
    struct span run = json_text(json_get(root, "run_id"));
    struct completion found = {
        .operation_id = json_text(json_get(root, "operation_id")),
        .request_digest = json_text(json_get(root, "request_digest")),
        .verdict = json_text(json_get(root, "verdict")),
        .remote_id = json_text(json_get(root, "remote_id")),
    };
    if (span_is_null(found.operation_id) || span_is_null(found.request_digest))
        return refuse(arena, ret_why, "operation_id and request_digest must be texts");
    char formal[UUID_TEXT_SIZE];
    if (span_is_null(run) || !uuid_parse(run, &found.run_id) ||
        !is_of_run(found.operation_id, span_of(uuid_format(found.run_id, formal))))
        return refuse(arena, ret_why, "run_id must be the run of operation_id");
    if (!span_eq_text(found.verdict, "succeeded") && !span_eq_text(found.verdict, "failed_final"))
        return refuse(arena, ret_why, "verdict must be succeeded or failed_final");
    const struct json_value *attempt = json_get(root, "attempt");
    if (attempt != NULL &&
        (!json_integer(attempt, &found.attempt) || found.attempt < 1 || found.attempt > INT32_MAX))
        return refuse(arena, ret_why, "attempt must be a whole number from 1");
    const struct json_value *id = json_get(root, "remote_id");
    if (id != NULL && !json_is(id, JSON_NULL) && !json_is(id, JSON_STRING))
        return refuse(arena, ret_why, "remote_id must be a text");
    found.result = json_get(root, "result") == NULL ? SPAN_LIT("null")
                                                    : json_write(json_get(root, "result"), arena);
    found.said = json_write(root, arena);
    *ret = found;
    return true;
}

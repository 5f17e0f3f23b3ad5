#include <inttypes.h>
#include <string.h>

#include "config/config_int.h"

/* What a tool's section must say so that its capability can be kept. Every refusal names the line:
 * that of the option it speaks of, or else the first of the section. */

struct tool_check {
    struct loading *l;
    const struct config_tool *t;
    const char *section;
};

static const char *place_of(const struct tool_check *c, const char *option)
{
    const struct config_origin *o = c->l->cfg->origins;
    const struct setting *s = config_setting(c->l->cfg, c->section, option);
    for (size_t i = 0; s == NULL && i < o->n; i++)
        if (strcmp(o->settings[i].section, c->section) == 0)
            s = &o->settings[i];
    return s == NULL ? "configuration" : s->origin;
}

static void PRINTF_LIKE(3, 4)
    wrong(const struct tool_check *c, const char *option, const char *format, ...)
{
    text_addf(c->l->errors, "%s: %s: ", place_of(c, option), c->section);
    va_list args;
    va_start(args, format);
    text_vaddf(c->l->errors, format, args);
    va_end(args);
    text_add_char(c->l->errors, '\n');
}

static bool is_set(const struct tool_check *c, const char *option)
{
    return config_setting(c->l->cfg, c->section, option) != NULL;
}

static bool is_web(const char *url)
{
    return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
}

/* "" or "/…" */
static bool is_pointer(const char *pointer)
{
    return pointer[0] == '\0' || pointer[0] == '/';
}

static bool overlap(const struct config_statuses *a, const struct config_statuses *b)
{
    for (size_t i = 0; i < COUNT_OF(a->bits); i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
}

static bool has_success(const struct config_statuses *s)
{
    for (long status = 200; status < 300; status++)
        if (config_status_in(s, status))
            return true;
    return false;
}

static void check_reach(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    switch (t->kind) {
    case TOOL_HTTP:
        if (!is_web(t->url))
            wrong(c, "url", "url \"%s\" is neither http://… nor https://…", t->url);
        if (t->command[0] != '\0')
            wrong(c, "command", "kind = http runs no command");
        break;
    case TOOL_EXEC:
        if (t->command[0] == '\0')
            wrong(c, "kind", "kind = exec needs a command");
        if (t->url[0] != '\0')
            wrong(c, "url", "kind = exec has no url");
        break;
    case TOOL_MCP:
        if ((t->url[0] == '\0') == (t->command[0] == '\0'))
            wrong(c, "kind", "kind = mcp needs a url (streamable HTTP) or a command (stdio)");
        if (t->url[0] != '\0' && !is_web(t->url))
            wrong(c, "url", "url \"%s\" is neither http://… nor https://…", t->url);
        break;
    }
    if (t->kind != TOOL_MCP && (t->mcp_tool[0] || t->operation_argument[0] || t->honest_errors))
        wrong(c,
              t->mcp_tool[0]     ? "mcp_tool"
              : t->honest_errors ? "honest_errors"
                                 : "operation_argument",
              "mcp_tool, operation_argument and honest_errors are for kind = mcp");
}

static void check_key(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    bool key = t->capability == CAPABILITY_IDEMPOTENCY_KEY;
    if (key && t->retention_ms == 0)
        wrong(c, "capability",
              "capability = idempotency_key needs retention_ms: how long the remote knows a key");
    if (!key && t->retention_ms != 0)
        wrong(c, "retention_ms", "retention_ms without capability = idempotency_key says nothing");
    if (!key && t->replays_errors)
        wrong(c, "replays_errors",
              "replays_errors without capability = idempotency_key says nothing");
    if (key && t->kind == TOOL_HTTP && t->idempotency_header[0] == '\0' && t->key_field[0] == '\0')
        wrong(c, "idempotency_header",
              "capability = idempotency_key needs an idempotency_header or a key_field: the remote "
              "would never see the key");
    if (key && t->kind == TOOL_MCP && t->operation_argument[0] == '\0' && t->key_field[0] == '\0')
        wrong(c, "capability",
              "capability = idempotency_key needs an operation_argument: code of a tool does not "
              "see _meta");
    if (t->key_field[0] != '\0' && (t->key_field[0] != '/' || t->key_field[1] == '\0'))
        wrong(c, "key_field", "key_field \"%s\" is no JSON pointer to a member", t->key_field);
    if (key && overlap(&t->conflict_statuses, &t->in_progress_statuses))
        wrong(c, "conflict_statuses", "a status is in conflict_statuses and in_progress_statuses");
    if (overlap(&t->in_progress_statuses, &t->final_statuses) && is_set(c, "in_progress_statuses"))
        wrong(c, "in_progress_statuses", "a status is in in_progress_statuses and final_statuses");
}

static void check_query_pointers(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    const struct {
        const char *option, *pointer;
    } pointers[] = {{"query_found", t->query_found},
                    {"query_absent", t->query_absent},
                    {"state", t->state},
                    {"tag", t->tag},
                    {"owner", t->owner},
                    {"spec", t->spec},
                    {"spec_is", t->spec_is}};
    for (size_t i = 0; i < COUNT_OF(pointers); i++)
        if (!is_pointer(pointers[i].pointer))
            wrong(c, pointers[i].option, "%s \"%s\" is no JSON pointer: it begins with /",
                  pointers[i].option, pointers[i].pointer);
    if (overlap(&t->query_found_statuses, &t->query_absent_statuses))
        wrong(c, "query_absent_statuses",
              "a status is in query_found_statuses and query_absent_statuses");
}

static void check_query(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    bool asks = t->capability == CAPABILITY_QUERY || t->capability == CAPABILITY_DETERMINISTIC_ID;
    const char *word = t->capability == CAPABILITY_QUERY ? "query" : "deterministic_id";
    bool has_url = t->query_url[0] != '\0';
    /* An MCP server may make tasks, and be asked about them by their identity. */
    if (asks && !has_url && !(t->kind == TOOL_MCP && t->capability == CAPABILITY_QUERY))
        wrong(c, "capability",
              "capability = %s needs a query_url: where the remote is asked what became of an "
              "operation",
              word);
    if (has_url && !is_web(t->query_url))
        wrong(c, "query_url", "query_url \"%s\" is neither http://… nor https://…", t->query_url);
    if (has_url && strstr(t->query_url, "{operation_id}") == NULL &&
        strstr(t->query_url, "{remote_id}") == NULL)
        wrong(c, "query_url",
              "query_url names no operation: it needs {operation_id} or {remote_id}");
    if (t->query && (t->capability != CAPABILITY_IDEMPOTENCY_KEY || !has_url))
        wrong(c, "query", "query = true is for capability = idempotency_key with a query_url");
    if (has_url && !asks && !t->query)
        wrong(c, "query_url",
              "query_url is never asked: set capability = query, or query = true beside "
              "idempotency_key");
    if (!asks && !t->query && t->absent_is_final_after_ms != 0)
        wrong(c, "absent_is_final_after_ms",
              "absent_is_final_after_ms without a query says nothing");
    check_query_pointers(c);
}

static void check_comparison(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    bool named = t->capability == CAPABILITY_DETERMINISTIC_ID;
    if (named && t->tag[0] == '\0')
        wrong(c, "capability",
              "capability = deterministic_id needs tag: without it a resource of another operation "
              "would pass for ours");
    if (named && t->kind == TOOL_HTTP && t->key_field[0] == '\0' &&
        t->idempotency_header[0] == '\0')
        wrong(
            c, "capability",
            "capability = deterministic_id needs a key_field or an idempotency_header: the remote "
            "would never learn the name");
    if (!named && (t->tag[0] || t->owner[0] || t->spec[0]))
        wrong(c,
              t->tag[0]     ? "tag"
              : t->owner[0] ? "owner"
                            : "spec",
              "tag, owner and spec are for capability = deterministic_id");
    if ((t->owner[0] == '\0') != (t->owner_is[0] == '\0'))
        wrong(c, t->owner[0] ? "owner" : "owner_is", "owner and owner_is belong together");
    if (t->spec_is[0] != '\0' && t->spec[0] == '\0')
        wrong(c, "spec_is", "spec_is without spec says nothing");
}

static void check_undo(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    if (t->remote_id[0] != '/')
        wrong(c, "remote_id", "remote_id must be a JSON pointer like /id or /payment/id");
    if (t->on_cancel == ON_CANCEL_REMOTE_CANCEL && t->remote_cancel_tool[0] == '\0')
        wrong(c, "on_cancel", "on_cancel = remote_cancel needs remote_cancel_tool");
    if (t->on_cancel == ON_CANCEL_COMPENSATE && t->compensate_tool[0] == '\0')
        wrong(c, "on_cancel", "on_cancel = compensate needs compensate_tool");
    if (t->compensate_tool[0] && config_tool(c->l->cfg, t->compensate_tool) == NULL)
        wrong(c, "compensate_tool", "there is no [tool.%s] (compensate_tool)", t->compensate_tool);
    if (t->remote_cancel_tool[0] && config_tool(c->l->cfg, t->remote_cancel_tool) == NULL)
        wrong(c, "remote_cancel_tool", "there is no [tool.%s] (remote_cancel_tool)",
              t->remote_cancel_tool);
    if (strcmp(t->compensate_tool, t->name) == 0 || strcmp(t->remote_cancel_tool, t->name) == 0)
        wrong(c, "compensate_tool", "a tool does not undo itself");
}

static void check_times(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    int64_t claim_ttl_ms = c->l->cfg->dispatch.claim_ttl_ms;
    if (t->connect_timeout_ms > t->timeout_ms)
        wrong(c, "connect_timeout_ms", "connect_timeout_ms is more than timeout_ms");
    if (claim_ttl_ms <= t->timeout_ms)
        wrong(c, "timeout_ms",
              "timeout_ms (%" PRId64 ") must be less than dispatch.claim_ttl_ms (%" PRId64
              "), or answers come after their claim",
              t->timeout_ms, claim_ttl_ms);
    if (t->capability == CAPABILITY_IDEMPOTENCY_KEY && t->retention_ms != 0 &&
        t->retention_ms <= claim_ttl_ms)
        wrong(c, "retention_ms",
              "retention_ms (%" PRId64 ") must be more than dispatch.claim_ttl_ms (%" PRId64
              "): a key is repeated only when the whole claim lies inside it",
              t->retention_ms, claim_ttl_ms);
    if (t->rate_burst != 0 && t->rate_per_s == 0)
        wrong(c, "rate_burst", "rate_burst without rate_per_s says nothing");
}

static void check_statuses(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    if (overlap(&t->final_statuses, &t->not_acted_statuses))
        wrong(c, "final_statuses", "a status is in final_statuses and in not_acted_statuses");
    if (has_success(&t->final_statuses) || has_success(&t->not_acted_statuses))
        wrong(c, has_success(&t->final_statuses) ? "final_statuses" : "not_acted_statuses",
              "a status of 200 to 299 is a success and neither final nor not acted");
    if (overlap(&t->final_exits, &t->not_acted_exits))
        wrong(c, "final_exits", "an exit code is in final_exits and in not_acted_exits");
}

/* What this version does not honour. */
static void check_support(const struct tool_check *c)
{
    const struct config_tool *t = c->t;
    if (t->kind == TOOL_MCP)
        wrong(c, "kind", "kind = mcp is not supported in this version");
    if (t->on_cancel == ON_CANCEL_REMOTE_CANCEL)
        wrong(c, "on_cancel", "on_cancel = remote_cancel is not supported in this version");
    if (t->on_cancel == ON_CANCEL_COMPENSATE)
        wrong(c, "on_cancel", "on_cancel = compensate is not supported in this version");
}

void config_check_tools(struct loading *l)
{
    for (size_t i = 0; i < l->cfg->n_tools; i++) {
        const struct config_tool *t = &l->cfg->tools[i];
        const struct tool_check c = {
            .l = l, .t = t, .section = arena_printf(l->arena, "tool.%s", t->name)};
        check_support(&c);
        check_reach(&c);
        check_key(&c);
        check_query(&c);
        check_comparison(&c);
        check_undo(&c);
        check_times(&c);
        check_statuses(&c);
    }
}

// holdfast tool check: what a tool's declaration lets the product promise, and whether it can be
// reached the way the product will reach it. Dry: nothing that is asked could have an effect.
#include "cli/commands.h"
#include "cli/session.h"

#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/uuid.h"
#include "net/http_client.h"

struct probe {
    const char *what;
    bool tried, good;
    struct text said;
};

static const char *promise(const struct config_tool *tool)
{
    switch (tool->capability) {
    case CAPABILITY_NONE:
        return "at most one execution an operation; an outcome that is not known stays unknown "
               "until "
               "a person decides";
    case CAPABILITY_IDEMPOTENCY_KEY:
        return tool->query ? "one effect in the end: the remote is asked first, then the same key "
                             "is repeated "
                             "inside its retention"
                           : "one effect in the end: the same key is repeated inside its "
                             "retention; what is "
                             "still in doubt after it stays unknown until a person decides";
    case CAPABILITY_DETERMINISTIC_ID:
        return "one resource of its name: it is looked up, and compared by tag, owner and "
               "specification before it counts as ours";
    case CAPABILITY_QUERY:
        return tool->absent_is_final_after_ms > 0
                   ? "one effect in the end: the remote is asked, and its word that there is none "
                     "counts from the declared time on"
                   : "the remote is asked; its word that there is none is never a fact "
                     "(absent_is_final_after_ms is 0), and such an operation stays unknown";
    }
    return "";
}

// ---- probes ----

static void on_answer(void *opaque, const struct http_answer *answer)
{
    struct probe *p = opaque;
    p->tried = true;
    p->good = answer->fault == HTTP_FAULT_NONE;
    if (p->good)
        text_addf(&p->said, "status %d", answer->status);
    else
        text_addf(&p->said, "%s: %s", http_fault_word(answer->fault), answer->detail);
}

static int ask(const struct config_tool *tool, const char *method, const char *url, struct probe *p)
{
    struct http_client *http = NULL;
    if (http_client_open(2, &http) != OUTCOME_OK)
        return EXIT_CANNOT_RUN;
    struct text credential CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&credential, "%s%s", tool->credential_prefix, tool->credential);
    struct http_header headers[2] = {{"Accept", "application/json"}};
    size_t n = 1;
    if (tool->credential[0] != '\0')
        headers[n++] = (struct http_header){tool->credential_header, credential.p};
    const int64_t until = clock_deadline_us(tool->timeout_ms * CLOCK_MS);
    const struct http_request request = {
        .method = method,
        .url = url,
        .headers = headers,
        .headers_n = n,
        .body = SPAN_LIT(""),
        .connect_timeout_ms = tool->connect_timeout_ms,
        .timeout_ms = tool->timeout_ms,
        .send_before_us = until,
        .late_after_us = until,
        .max_response_bytes = (size_t)tool->max_response_bytes,
        .allow_private = tool->allow_private,
    };
    if (http_client_start(http, &request, on_answer, p) != OUTCOME_OK) {
        p->tried = true;
        text_add_str(&p->said, "the address or a header cannot be used");
    }
    while (http_client_in_flight(http) > 0)
        http_client_poll(http, CLOCK_SECOND);
    http_client_close(http);
    return EXIT_HOLDS;
}

// An operation that cannot exist: the remote must say so in the way that is declared.
static void probe_query(const struct config_tool *tool, struct arena *arena, struct probe *p)
{
    p->what = "a question about an operation that never was";
    if (strstr(tool->query_url, "{remote_id}") != NULL)
        return; // it has none
    char nobody[UUID_TEXT_SIZE];
    uuid_format(uuid_v4(), nobody);
    const char *at = strstr(tool->query_url, "{operation_id}");
    const char *url = arena_printf(arena, "%.*sholdfast-check-%s%s", (int)(at - tool->query_url),
                                   tool->query_url, nobody, at + strlen("{operation_id}"));
    (void)ask(tool, "GET", url, p);
    int status = 0;
    if (!p->good || sscanf(p->said.p, "status %d", &status) != 1)
        return;
    bool declared = config_status_in(&tool->query_absent_statuses, status) ||
                    config_status_in(&tool->query_found_statuses, status);
    p->good = declared;
    text_add_str(&p->said, declared ? ", as declared"
                                    : ", which is in neither query_found_statuses nor "
                                      "query_absent_statuses");
}

static void probe_reach(const struct config_tool *tool, struct arena *arena, struct probe *p)
{
    if (tool->url[0] != '\0') {
        p->what = "its address (OPTIONS: asks for nothing)";
        (void)ask(tool, "OPTIONS", tool->url, p);
        return;
    }
    p->what = "its program";
    struct child child = CHILD_NONE;
    int status = -1;
    size_t n = strcspn(tool->command, " ");
    const char *line = arena_printf(arena, "command -v -- \"$1\"");
    const char *const argv[] = {
        "/bin/sh", "-c", line, "check", arena_dup_text(arena, (struct span){tool->command, n}),
        NULL};
    p->tried = true;
    p->good =
        child_spawn(argv, &child) && child_reap(&child, 5 * CLOCK_SECOND, &status) && status == 0;
    child_end(&child, 0);
    text_addf(&p->said, "%.*s %s", (int)n, tool->command, p->good ? "is there" : "is not there");
}

// ---- the answer ----

static void print_probe(const struct probe *p)
{
    if (p->what != NULL)
        printf("  %-46s %s%s%s\n", p->what,
               !p->tried ? "not tried: it needs a remote_id"
               : p->good ? "ok: "
                         : "NOT AS DECLARED: ",
               p->tried && p->said.n > 0 ? p->said.p : "", "");
}

static void probe_json(struct json_builder *b, struct json_node *list, const struct probe *p)
{
    if (p->what == NULL)
        return;
    struct json_node *o = json_new_object(b);
    json_put_text(b, o, "what", span_of(p->what));
    json_put_bool(b, o, "tried", p->tried);
    json_put_bool(b, o, "good", p->good);
    json_put_text(b, o, "said", span_of(p->said.n > 0 ? p->said.p : ""));
    json_push(b, list, o);
}

int command_tool_check(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, 0);
    const char *name = invocation_argument(inv, 0);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    const struct config_tool *tool = config_tool(cfg, name);
    if (tool == NULL) {
        say_error("declare it: a section [tool.NAME]", "there is no tool \"%s\"", name);
        return EXIT_CANNOT_RUN;
    }
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct probe reach = {.said = TEXT_EMPTY}, query = {.said = TEXT_EMPTY};
    probe_reach(tool, arena, &reach);
    if (tool->query_url[0] != '\0')
        probe_query(tool, arena, &query);
    bool good = reach.good && (query.what == NULL || !query.tried || query.good);
    struct text declared CLEANUP(text_free) = TEXT_EMPTY;
    config_tool_declare(tool, &declared);
    if (invocation_flag(inv, "json")) {
        struct json_builder *b = json_builder_new(arena);
        struct json_node *o = json_new_object(b);
        json_put_text(b, o, "tool", span_of(name));
        json_put_bool(b, o, "good", good);
        json_put_text(b, o, "promise", span_of(promise(tool)));
        json_put_raw(b, o, "declaration", text_span(&declared));
        struct json_node *list = json_new_array(b);
        probe_json(b, list, &reach);
        probe_json(b, list, &query);
        json_put_node(b, o, "probes", list);
        session_print_json(b, o);
    } else {
        printf("%s promises: %s\n", name, promise(tool));
        if (tool->escalate_after_ms > 0)
            printf("  a doubt older than %lld ms is a person's business\n",
                   (long long)tool->escalate_after_ms);
        if (tool->max_in_flight_total > 0 || tool->rate_per_s > 0)
            printf("  over all pods: %lld in flight, %lld/s (0: no limit)\n",
                   (long long)tool->max_in_flight_total, (long long)tool->rate_per_s);
        print_probe(&reach);
        print_probe(&query);
        printf("  stored with each operation: %s\n", declared.p);
    }
    text_free(&reach.said);
    text_free(&query.said);
    return good ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

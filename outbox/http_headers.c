// outbox/http_headers.c: the headers of every request to a tool.
#include "outbox/adapter.h"

#include <ctype.h>
#include <string.h>

enum { HEADERS_OF_OURS = 10 };

static void add(struct http_header_list *list, const char *name, const char *value)
{
    if (name[0] != '\0' && value != NULL && value[0] != '\0') {
        list->headers[list->n++] = (struct http_header){.name = name, .value = value};
    }
}

// The identities that a remote needs to refuse what is old, and the key under which it may be asked
// again.
static void add_identities(struct http_header_list *list, const struct config_tool *tool,
                           const struct http_identities *who, struct arena *arena)
{
    char run_id[UUID_TEXT_SIZE];
    if (!span_is_null(who->key)) {
        add(list, tool->idempotency_header,
            arena_printf(arena, tool->key_quoted ? "\"%.*s\"" : "%.*s", SPAN_ARG(who->key)));
    }
    add(list, "Holdfast-Operation-Id", arena_dup_text(arena, who->operation_id));
    add(list, "Holdfast-Run-Id", arena_printf(arena, "%s", uuid_format(who->run_id, run_id)));
    add(list, "Holdfast-Epoch", arena_printf(arena, "%lld", (long long)who->epoch));
    add(list, "traceparent", arena_dup_text(arena, who->traceparent));
    add(list, "tracestate", arena_dup_text(arena, who->tracestate));
}

// "Bearer" and a token are two words; a prefix that ends otherwise ("key=") is joined as it stands.
static const char *credential_of(const struct config_tool *tool, struct arena *arena)
{
    size_t n = strlen(tool->credential_prefix);
    bool word = n > 0 && isalnum((unsigned char)tool->credential_prefix[n - 1]) != 0;
    return arena_printf(arena, "%s%s%s", tool->credential_prefix, word ? " " : "",
                        tool->credential);
}

struct http_header_list http_tool_headers(const struct config_tool *tool,
                                          const struct http_identities *who, struct arena *arena)
{
    struct http_header_list list = {
        .headers = arena_array(arena, HEADERS_OF_OURS + HTTP_HEADERS_MORE + tool->n_headers,
                               sizeof *list.headers)};
    add(&list, "Content-Type", "application/json");
    add(&list, "Accept",
        tool->kind == TOOL_MCP ? "application/json, text/event-stream" : "application/json");
    add(&list, "User-Agent", "holdfast/" HOLDFAST_VERSION);
    add_identities(&list, tool, who, arena);
    if (tool->credential[0] != '\0') {
        add(&list, tool->credential_header, credential_of(tool, arena));
    }
    for (size_t i = 0; i < tool->n_headers; i++) {
        add(&list, tool->headers[i].name, tool->headers[i].value);
    }
    return list;
}

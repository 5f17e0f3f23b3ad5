#include "pool/names_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "pool/nearest.h"
#include "schemas/canon.h"

#define REFRESH_US CLOCK_SECOND

/* A set of names that was read from the database; replaced whole. */
struct name_set {
    struct span *names;
    size_t n;
};

struct names {
    struct arena *own; /* declarations, for good */
    struct span pod;
    struct fence_declaration *declarations;
    size_t declaration_n;
    struct plan_tool *tools;
    size_t tool_n;

    struct arena *known; /* of the sets */
    struct name_set handlers, known_tools;
    int64_t refreshed_us;
};

/* ---- what this pod declares ---- */

static const char *capability_word(enum config_capability capability)
{
    switch (capability) {
    case CAPABILITY_NONE:
        return "none";
    case CAPABILITY_IDEMPOTENCY_KEY:
        return "idempotency_key";
    case CAPABILITY_DETERMINISTIC_ID:
        return "deterministic_id";
    case CAPABILITY_QUERY:
        return "query";
    }
    return "none";
}

static const char *handler_kind_word(enum config_handler_kind kind)
{
    switch (kind) {
    case HANDLER_PLAN:
        return "plan";
    case HANDLER_EXEC:
        return "exec";
    case HANDLER_HTTP:
        return "http";
    case HANDLER_PLUGIN:
        return "plugin";
    }
    return "";
}

/* What is stored with every operation and decides about it: names as in the configuration, no
 * address, no secret. */
static struct span tool_declaration(const struct config_tool *tool, struct arena *arena)
{
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_tool_declare(tool, &t);
    const struct json_value *value = NULL;
    struct json_error error;
    bool good = json_parse(text_span(&t), NULL, arena, &value, &error);
    CHECK(good);
    return canon_write(value, arena);
}

static struct span handler_declaration(const struct config_handler *handler, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *d = json_new_object(b);
    json_put_text(b, d, "kind", span_of(handler_kind_word(handler->kind)));
    json_put_integer(b, d, "timeout_ms", handler->timeout_ms);
    return canon_write(json_seal(b, d), arena);
}

static void declare(struct names *n, struct span kind, const char *name, struct span declaration)
{
    n->declarations[n->declaration_n++] = (struct fence_declaration){
        .kind = kind,
        .name = span_of(name),
        .digest = digest_span(declaration, n->own),
        .declaration = {declaration},
    };
}

struct names *names_new(const struct config *cfg)
{
    struct names *n = memory_new(1, sizeof(*n));
    n->own = arena_new();
    n->known = arena_new();
    n->pod = span_of(cfg->pod.name);
    n->declarations =
        arena_array(n->own, cfg->n_handlers + cfg->n_tools + 1, sizeof(*n->declarations));
    n->tools = arena_array(n->own, cfg->n_tools + 1, sizeof(*n->tools));
    for (size_t i = 0; i < cfg->n_handlers; i++)
        declare(n, SPAN_LIT("handler"), cfg->handlers[i].name,
                handler_declaration(&cfg->handlers[i], n->own));
    for (size_t i = 0; i < cfg->n_tools; i++) {
        const struct config_tool *tool = &cfg->tools[i];
        struct span declaration = tool_declaration(tool, n->own);
        declare(n, SPAN_LIT("tool"), tool->name, declaration);
        n->tools[n->tool_n++] = (struct plan_tool){
            .name = span_of(tool->name),
            .capability = span_of(capability_word(tool->capability)),
            .declaration = declaration,
            .submission_key = tool->key_scope == KEY_SCOPE_SUBMISSION,
        };
    }
    return n;
}

void names_free(struct names *n)
{
    if (n == NULL)
        return;
    arena_free(n->own);
    arena_free(n->known);
    free(n);
}

const struct plan_tool *names_plan_tools(const struct names *n, size_t *ret_n)
{
    *ret_n = n->tool_n;
    return n->tools;
}

enum outcome names_register(const struct names *n, struct fence *f)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    return fence_register(f, n->pod, n->declarations, n->declaration_n, arena);
}

/* ---- what any pod declared ---- */

/* Own names too: they are known before the registration has reached the database. */
static struct name_set join(const struct names *n, struct span kind, const struct fence_known *rows,
                            size_t row_n, struct arena *arena)
{
    struct name_set set = {arena_array(arena, row_n + n->declaration_n + 1, sizeof(struct span)),
                           0};
    for (size_t i = 0; i < row_n; i++)
        set.names[set.n++] = rows[i].name;
    for (size_t i = 0; i < n->declaration_n; i++)
        if (span_eq(n->declarations[i].kind, kind))
            set.names[set.n++] = n->declarations[i].name;
    return set;
}

enum outcome names_refresh(struct names *n, struct fence *f)
{
    int64_t now_us = clock_mono_us();
    if (n->refreshed_us != 0 && now_us - n->refreshed_us < REFRESH_US)
        return OUTCOME_OK;
    struct arena *arena = arena_new();
    struct fence_known *handlers = NULL, *tools = NULL;
    size_t handler_n = 0, tool_n = 0;
    struct span handler = SPAN_LIT("handler"), tool = SPAN_LIT("tool");
    enum outcome o = fence_known(f, handler, arena, &handlers, &handler_n);
    if (o == OUTCOME_OK)
        o = fence_known(f, tool, arena, &tools, &tool_n);
    if (o != OUTCOME_OK) {
        arena_free(arena);
        return o;
    }
    n->handlers = join(n, handler, handlers, handler_n, arena);
    n->known_tools = join(n, tool, tools, tool_n, arena);
    arena_free(n->known);
    n->known = arena;
    n->refreshed_us = now_us;
    return o;
}

bool names_has_handler(const struct names *n, struct span name)
{
    for (size_t i = 0; i < n->handlers.n; i++)
        if (span_eq(n->handlers.names[i], name))
            return true;
    return false;
}

struct span names_nearest_handler(const struct names *n, struct span name)
{
    return nearest_name(name, n->handlers.names, n->handlers.n);
}

struct plan_names names_tools(const struct names *n)
{
    return (struct plan_names){n->known_tools.names, n->known_tools.n};
}

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "config/config_int.h"

bool config_is_named(const char *section, const char *kind)
{
    size_t n = strlen(kind);
    return strncmp(section, kind, n) == 0 && section[n] == '.';
}

static bool is_good_name(const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= 40 && name[n] == '\0';
}

/* Names of [kind.NAME] in the order of their first setting. */
static size_t collect_names(struct loading *l, const char *kind, const char **ret_names)
{
    const struct config_origin *o = l->cfg->origins;
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++) {
        if (!config_is_named(o->settings[i].section, kind))
            continue;
        const char *name = o->settings[i].section + strlen(kind) + 1;
        bool seen = false;
        for (size_t k = 0; k < n; k++)
            seen |= strcmp(ret_names[k], name) == 0;
        if (seen)
            continue;
        if (is_good_name(name))
            ret_names[n++] = name;
        else
            config_error(l, o->settings[i].origin,
                         "[%s]: a name is 1 to 40 letters, digits, - and _",
                         o->settings[i].section);
    }
    return n;
}

static void apply(struct loading *l, const char *kind, const char *name, void *base)
{
    const char *section = arena_printf(l->arena, "%s.%s", kind, name);
    for (size_t i = 0; i < n_config_named; i++) {
        const struct option *o = &config_named[i];
        if (strcmp(o->section, kind) != 0)
            continue;
        const char *reason = NULL;
        bool preset = config_set_value(o, base, o->preset, l->arena, &reason);
        CHECK(preset);
        const struct setting *s = config_setting(l->cfg, section, o->name);
        if (s && !config_set_value(o, base, s->value, l->arena, &reason))
            config_error(l, s->origin, "%s.%s: %s", section, o->name, reason);
    }
}

static bool is_header_name(const char *name)
{
    size_t n = strspn(
        name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~");
    return n > 0 && name[n] == '\0';
}

static bool is_header_value(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || *value == 0x7F)
            return false;
    return true;
}

/* header.X = value; the strongest one of each name. */
static void collect_headers(struct loading *l, struct config_tool *tool)
{
    static const char prefix[] = "header.";
    const struct config_origin *o = l->cfg->origins;
    const char *section = arena_printf(l->arena, "tool.%s", tool->name);
    struct config_header *headers = arena_array(l->arena, o->n, sizeof(*headers));
    for (size_t i = 0; i < o->n; i++) {
        const struct setting *s = &o->settings[i];
        if (strcmp(s->section, section) != 0 || strncmp(s->name, prefix, strlen(prefix)) != 0 ||
            config_setting(l->cfg, section, s->name) != s)
            continue;
        const char *name = s->name + strlen(prefix);
        if (!is_header_name(name) || !is_header_value(s->value))
            config_error(l, s->origin, "%s.%s is no HTTP header", section, s->name);
        headers[tool->n_headers++] = (struct config_header){name, s->value};
    }
    tool->headers = headers;
}

static const char *variable(const struct loading *l, const char *name)
{
    size_t n = strlen(name);
    for (const char *const *e = l->environment; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return *e + n + 1;
    return NULL;
}

static void load_credential(struct loading *l, struct config_tool *tool)
{
    const char *section = arena_printf(l->arena, "tool.%s", tool->name);
    bool from_env = tool->credential_env[0] != '\0', from_file = tool->credential_file[0] != '\0';
    tool->credential = "";
    /* A file cannot hold a value that ends with a blank. */
    size_t n = strlen(tool->credential_prefix);
    if (n > 0 && isalnum((unsigned char)tool->credential_prefix[n - 1]))
        tool->credential_prefix = arena_printf(l->arena, "%s ", tool->credential_prefix);
    if (!from_env && !from_file)
        return;
    const char *value = NULL;
    if (from_env && from_file)
        config_error(l, section, "credential_env and credential_file are both set");
    else if (from_env && (value = variable(l, tool->credential_env)) == NULL)
        config_error(l, section, "the environment variable %s (credential_env) is not set",
                     tool->credential_env);
    else if (from_file && (value = config_slurp(l->arena, tool->credential_file)) == NULL)
        config_error(l, section, "cannot read %s (credential_file): %s", tool->credential_file,
                     strerror(errno));
    if (value && !is_header_value(value))
        config_error(l, section, "the credential has control characters in it");
    else if (value)
        tool->credential = arena_dup_text(l->arena, span_of(value));
}

static void apply_tools(struct loading *l, const char **names)
{
    size_t n = collect_names(l, "tool", names);
    struct config_tool *tools = arena_array(l->arena, n, sizeof(*tools));
    for (size_t i = 0; i < n; i++) {
        tools[i].name = names[i];
        apply(l, "tool", names[i], &tools[i]);
        collect_headers(l, &tools[i]);
        load_credential(l, &tools[i]);
    }
    l->cfg->tools = tools;
    l->cfg->n_tools = n;
}

/* The handler "plan" is built in: without a section it has the presets. */
static void apply_handlers(struct loading *l, const char **names)
{
    size_t n = collect_names(l, "handler", names);
    struct config_handler *handlers = arena_array(l->arena, n + 1, sizeof(*handlers));
    bool has_plan = false;
    for (size_t i = 0; i < n; i++) {
        bool is_plan = strcmp(names[i], "plan") == 0;
        handlers[i].name = names[i];
        apply(l, "handler", names[i], &handlers[i]);
        if (is_plan && config_setting(l->cfg, "handler.plan", "kind") == NULL)
            handlers[i].kind = HANDLER_PLAN;
        has_plan |= is_plan;
    }
    if (!has_plan) {
        apply(l, "handler", "plan", &handlers[n]);
        handlers[n].name = "plan";
        handlers[n++].kind = HANDLER_PLAN;
    }
    l->cfg->handlers = handlers;
    l->cfg->n_handlers = n;
}

void config_apply_named(struct loading *l)
{
    const char **names = arena_array(l->arena, l->cfg->origins->n + 1, sizeof(*names));
    apply_tools(l, names);
    apply_handlers(l, names);
}

const struct config_tool *config_tool(const struct config *cfg, const char *name)
{
    for (size_t i = 0; i < cfg->n_tools; i++)
        if (strcmp(cfg->tools[i].name, name) == 0)
            return &cfg->tools[i];
    return NULL;
}

const struct config_handler *config_handler(const struct config *cfg, const char *name)
{
    for (size_t i = 0; i < cfg->n_handlers; i++)
        if (strcmp(cfg->handlers[i].name, name) == 0)
            return &cfg->handlers[i];
    return NULL;
}

#include <string.h>

#include "config/config_int.h"

/* The part of a tool's section that is stored with each of its operations, and read back from
 * there. */

static const struct option *declared_option(const char *name)
{
    for (size_t i = 0; i < n_config_named; i++) {
        const struct option *o = &config_named[i];
        if ((o->flags & DECLARED) && strcmp(o->section, "tool") == 0 && strcmp(o->name, name) == 0)
            return o;
    }
    return NULL;
}

static void add_value(struct text *t, const struct option *o, struct span value)
{
    text_addf(t, ",\"%s\":", o->name);
    if (o->kind == KIND_INT || o->kind == KIND_BOOL) {
        text_add_span(t, value);
        return;
    }
    text_add_char(t, '"');
    text_add_json(t, value);
    text_add_char(t, '"');
}

/* What people and SQL look for is always there; of the rest what differs from the default. The
 * limits over all pods are the database's to keep: it reads them out of the registration. */
static bool is_always(const struct option *o)
{
    static const char *const always[] = {"kind", "capability", "key_scope", "on_cancel",
                                         "timeout_ms"};
    for (size_t i = 0; i < COUNT_OF(always); i++)
        if (strcmp(o->name, always[i]) == 0)
            return true;
    return false;
}

static bool is_limit(const struct option *o)
{
    return strcmp(o->name, "max_in_flight_total") == 0 || strcmp(o->name, "rate_per_s") == 0 ||
           strcmp(o->name, "rate_burst") == 0;
}

void config_tool_declare(const struct config_tool *tool, struct text *t)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct text value CLEANUP(text_free) = TEXT_EMPTY;
    struct text preset CLEANUP(text_free) = TEXT_EMPTY;
    struct config_tool presets = {0};
    text_add_str(t, "{\"declared\":true");
    for (size_t i = 0; i < n_config_named; i++) {
        const struct option *o = &config_named[i];
        if (strcmp(o->section, "tool") != 0)
            continue;
        const char *reason;
        bool good = config_set_value(o, &presets, o->preset, arena, &reason);
        CHECK(good);
        text_reset(&value);
        text_reset(&preset);
        config_value_text(o, tool, &value);
        config_value_text(o, &presets, &preset);
        bool differs = !span_eq(text_span(&value), text_span(&preset));
        if (is_always(o) || (differs && ((o->flags & DECLARED) || is_limit(o))))
            add_value(t, o, text_span(&value));
    }
    text_add_char(t, '}');
}

void config_tool_forget_declared(struct config_tool *tool, struct arena *arena)
{
    for (size_t i = 0; i < n_config_named; i++) {
        const struct option *o = &config_named[i];
        if (strcmp(o->section, "tool") != 0 || !(o->flags & DECLARED))
            continue;
        const char *reason;
        bool good = config_set_value(o, tool, o->preset, arena, &reason);
        CHECK(good);
    }
}

bool config_tool_set_declared(struct config_tool *tool, const char *name, const char *value,
                              struct arena *arena)
{
    const struct option *o = declared_option(name);
    const char *reason;
    return o != NULL && config_set_value(o, tool, value, arena, &reason);
}

#include <inttypes.h>
#include <string.h>

#include "config/config_int.h"

static const char secret_mark[] = "********";

/* Of Kafka's properties those whose names say it. */
static bool names_a_secret(const char *name)
{
    static const char *const words[] = {"password",    "secret", "sasl.jaas",
                                        "ssl.key.pem", "token",  "sasl.oauthbearer.config"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

/* A header of a tool may carry a key, whatever its name: none is shown. */
static bool is_header(const char *name)
{
    return strncmp(name, "header.", 7) == 0;
}

static void add_line(struct text *t, const char *name, struct span value, bool secret,
                     const char *origin)
{
    size_t start = t->n;
    text_addf(t, "%s = ", name);
    if (secret && value.n > 0)
        text_add_str(t, secret_mark);
    else
        text_add_span(t, value);
    size_t width = t->n - start;
    text_addf(t, "%*s ; %s\n", width < 40 ? (int)(40 - width) : 0, "", origin);
}

static const char *origin_of(const struct config *cfg, const char *section, const char *name)
{
    const struct setting *s = config_setting(cfg, section, name);
    return s ? s->origin : "default";
}

static void print_options(const struct config *cfg, struct text *t)
{
    const char *section = "";
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        if (strcmp(section, o->section) != 0)
            text_addf(t, "%s[%s]\n", i ? "\n" : "", o->section);
        section = o->section;
        struct text value CLEANUP(text_free) = TEXT_EMPTY;
        config_value_text(o, cfg, &value);
        add_line(t, o->name, text_span(&value), o->flags & SECRET,
                 origin_of(cfg, o->section, o->name));
    }
}

static void print_named(const struct config *cfg, struct text *t, const char *kind,
                        const char *name, const void *base)
{
    struct text section CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&section, "%s.%s", kind, name);
    text_addf(t, "\n[%s]\n", section.p);
    for (size_t i = 0; i < n_config_named; i++) {
        const struct option *o = &config_named[i];
        if (strcmp(o->section, kind) != 0)
            continue;
        struct text value CLEANUP(text_free) = TEXT_EMPTY;
        config_value_text(o, base, &value);
        add_line(t, o->name, text_span(&value), o->flags & SECRET,
                 origin_of(cfg, section.p, o->name));
    }
    const struct config_origin *all = cfg->origins;
    for (size_t i = 0; i < all->n; i++) {
        const struct setting *s = &all->settings[i];
        if (strcmp(s->section, section.p) == 0 && is_header(s->name) &&
            config_setting(cfg, s->section, s->name) == s)
            add_line(t, s->name, span_of(s->value), true, s->origin);
    }
}

void config_print(const struct config *cfg, struct text *t)
{
    print_options(cfg, t);
    text_add_str(t, "\n[kafka]\n");
    const struct config_origin *all = cfg->origins;
    for (size_t i = 0; i < all->n; i++) {
        const struct setting *s = &all->settings[i];
        if (strcmp(s->section, "kafka") == 0 && config_setting(cfg, "kafka", s->name) == s)
            add_line(t, s->name, span_of(s->value), names_a_secret(s->name), s->origin);
    }
    for (size_t i = 0; i < cfg->n_tools; i++)
        print_named(cfg, t, "tool", cfg->tools[i].name, &cfg->tools[i]);
    for (size_t i = 0; i < cfg->n_handlers; i++)
        print_named(cfg, t, "handler", cfg->handlers[i].name, &cfg->handlers[i]);
}

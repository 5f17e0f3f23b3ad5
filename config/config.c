#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "config/config_int.h"

void config_error(struct loading *l, const char *origin, const char *format, ...)
{
    text_addf(l->errors, "%s: ", origin);
    va_list args;
    va_start(args, format);
    text_vaddf(l->errors, format, args);
    va_end(args);
    text_add_char(l->errors, '\n');
}

const struct setting *config_setting(const struct config *cfg, const char *section,
                                     const char *name)
{
    const struct config_origin *o = cfg->origins;
    for (size_t i = o->n; i > 0; i--) {
        const struct setting *s = &o->settings[i - 1];
        if (strcmp(s->section, section) == 0 && strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

static bool is_known(const struct setting *s)
{
    if (strcmp(s->section, "kafka") == 0)
        return true;
    for (size_t i = 0; i < n_config_options; i++)
        if (strcmp(s->section, config_options[i].section) == 0 &&
            strcmp(s->name, config_options[i].name) == 0)
            return true;
    for (size_t i = 0; i < n_config_named; i++)
        if (config_is_named(s->section, config_named[i].section) &&
            strcmp(s->name, config_named[i].name) == 0)
            return true;
    return config_is_named(s->section, "tool") && strncmp(s->name, "header.", 7) == 0;
}

static void refuse_unknown(struct loading *l)
{
    const struct config_origin *o = l->cfg->origins;
    for (size_t i = 0; i < o->n; i++) {
        const struct setting *s = &o->settings[i];
        if (is_known(s))
            continue;
        const char *near = config_nearest(l, s->section, s->name);
        config_error(l, s->origin, "there is no option %s.%s%s%s%s", s->section, s->name,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
}

static void apply_options(struct loading *l)
{
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        const char *reason = NULL;
        bool preset = config_set_value(o, l->cfg, o->preset, l->arena, &reason);
        CHECK(preset);
        const struct setting *s = config_setting(l->cfg, o->section, o->name);
        if (s == NULL || config_set_value(o, l->cfg, s->value, l->arena, &reason))
            continue;
        if (o->flags & SECRET)
            reason = "not a good value";
        config_error(l, s->origin, "%s.%s: %s", o->section, o->name, reason);
    }
}

/* The one default that is not a constant. */
static void name_pod(struct loading *l)
{
    char host[64] = "pod";
    if (l->cfg->pod.name[0] != '\0')
        return;
    if (gethostname(host, sizeof(host) - 1) != 0)
        memcpy(host, "pod", sizeof("pod"));
    l->cfg->pod.name = arena_printf(l->arena, "%s-%d", host, (int)getpid());
}

bool config_load(const struct config_source *source, struct config **ret, struct text *ret_errors)
{
    struct arena *arena = arena_new();
    struct config *cfg = arena_alloc(arena, sizeof(*cfg));
    cfg->origins = arena_alloc(arena, sizeof(*cfg->origins));
    cfg->origins->arena = arena;
    struct loading l = {cfg, arena, ret_errors, source->environment};
    size_t before = ret_errors->n;

    if (source->file)
        config_read_file(&l, source->file);
    config_read_environment(&l);
    for (size_t i = 0; i < source->n_sets; i++)
        config_read_set(&l, source->sets[i]);

    refuse_unknown(&l);
    apply_options(&l);
    name_pod(&l);
    config_apply_kafka(&l);
    config_apply_named(&l);
    if (ret_errors->n == before) /* values that could not be read would only make more noise */
        config_check_rules(&l);
    if (ret_errors->n != before) {
        arena_free(arena);
        return false;
    }
    *ret = cfg;
    return true;
}

void config_free(struct config *cfg)
{
    if (cfg)
        arena_free(cfg->origins->arena);
}

void config_drop(struct config **cfg)
{
    config_free(*cfg);
    *cfg = NULL;
}

bool config_has(const struct config *cfg, unsigned needs, struct text *ret_errors)
{
    size_t before = ret_errors->n;
    if ((needs & CONFIG_NEEDS_POSTGRES) && cfg->postgres.dsn[0] == '\0')
        text_add_str(
            ret_errors,
            "postgres.dsn is not set (HOLDFAST_POSTGRES_DSN, or dsn in section [postgres])\n");
    const char *brokers = config_kafka_value(cfg, "bootstrap.servers", KAFKA_BOTH);
    if ((needs & CONFIG_NEEDS_KAFKA) && (brokers == NULL || brokers[0] == '\0'))
        text_add_str(ret_errors,
                     "kafka.bootstrap.servers is not set (HOLDFAST_KAFKA_BOOTSTRAP_SERVERS, or "
                     "bootstrap.servers in section [kafka])\n");
    return ret_errors->n == before;
}

static bool same_named(const struct config *a, const struct config *b)
{
    const struct config_origin *x = a->origins, *y = b->origins;
    for (size_t i = 0; i < x->n; i++) {
        const struct setting *s = &x->settings[i];
        if (strcmp(s->section, "kafka") != 0 && strchr(s->section, '.') == NULL)
            continue;
        const struct setting *t = config_setting(b, s->section, s->name);
        if (t == NULL || strcmp(config_setting(a, s->section, s->name)->value, t->value) != 0)
            return false;
    }
    for (size_t i = 0; i < y->n; i++) {
        const struct setting *s = &y->settings[i];
        if ((strcmp(s->section, "kafka") == 0 || strchr(s->section, '.')) &&
            config_setting(a, s->section, s->name) == NULL)
            return false;
    }
    return true;
}

bool config_may_reload(const struct config *running, const struct config *fresh,
                       struct text *ret_lines)
{
    size_t before = ret_lines->n;
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        struct text old CLEANUP(text_free) = TEXT_EMPTY, new CLEANUP(text_free) = TEXT_EMPTY;
        config_value_text(o, running, &old);
        config_value_text(o, fresh, &new);
        if (!(o->flags & RELOAD) && !span_eq(text_span(&old), text_span(&new)))
            text_addf(ret_lines, "%s.%s changed: takes a restart\n", o->section, o->name);
    }
    if (!same_named(running, fresh))
        text_add_str(ret_lines,
                     "a section [kafka], [tool.…] or [handler.…] changed: takes a restart\n");
    return ret_lines->n == before;
}

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_int.h"

/* inih's own limits, which it does not report: a longer line is read as two, a longer section is
 * cut. */
enum { LONGEST_SECTION = 49 };

void config_add_setting(struct loading *l, const char *section, const char *name, const char *value,
                        const char *origin)
{
    struct config_origin *o = l->cfg->origins;
    if (o->n == o->cap) {
        size_t cap = o->cap ? o->cap * 2 : 64;
        struct setting *more = arena_array(l->arena, cap, sizeof(*more));
        if (o->n > 0)
            memcpy(more, o->settings, o->n * sizeof(*more));
        o->settings = more;
        o->cap = cap;
    }
    o->settings[o->n++] = (struct setting){
        arena_dup_text(l->arena, span_of(section)), arena_dup_text(l->arena, span_of(name)),
        arena_dup_text(l->arena, span_of(value)), arena_dup_text(l->arena, span_of(origin))};
}

struct file_reading {
    struct loading *l;
    const char *path;
    FILE *file;
    int line;
    bool continues;    /* this line begins with a blank */
    size_t first;      /* first setting of this file */
    bool has_previous; /* a line that a continuation belongs to */
    bool kept;         /* and that became the last setting */
};

static const char *origin_of(const struct file_reading *r)
{
    return arena_printf(r->l->arena, "%s:%d", r->path, r->line);
}

static char *read_line(char *buffer, int size, void *stream)
{
    struct file_reading *r = stream;
    if (fgets(buffer, size, r->file) == NULL)
        return NULL;
    r->line++;
    size_t n = strlen(buffer);
    if (n > 0 && buffer[n - 1] != '\n' && !feof(r->file)) {
        config_error(r->l, origin_of(r),
                     "the line is longer than %d bytes; go on in the next line, indented",
                     size - 2);
        int c;
        while ((c = fgetc(r->file)) != EOF && c != '\n')
            ;
        buffer[0] = '\0';
    }
    r->continues = isblank((unsigned char)buffer[0]);
    if (buffer[0] == '[') {
        r->has_previous = false;
        if (strcspn(buffer, "]") > LONGEST_SECTION) {
            config_error(r->l, origin_of(r), "the name of the section is too long");
            buffer[0] = '\0';
        }
    }
    return buffer;
}

static bool is_again(const struct file_reading *r, const char *section, const char *name)
{
    const struct config_origin *o = r->l->cfg->origins;
    for (size_t i = r->first; i < o->n; i++)
        if (strcmp(o->settings[i].section, section) == 0 && strcmp(o->settings[i].name, name) == 0)
            return true;
    return false;
}

static int on_setting(void *user, const char *section, const char *name, const char *value)
{
    struct file_reading *r = user;
    struct config_origin *o = r->l->cfg->origins;
    if (r->continues && r->has_previous) {
        if (r->kept) {
            struct setting *previous = &o->settings[o->n - 1];
            previous->value = arena_printf(r->l->arena, "%s %s", previous->value, value);
        }
        return 1;
    }
    r->has_previous = true;
    r->kept = false;
    if (section[0] == '\0') {
        config_error(r->l, origin_of(r), "\"%s\" stands before any [section]", name);
    } else if (is_again(r, section, name)) {
        config_error(r->l, origin_of(r), "%s.%s is set a second time in this file", section, name);
    } else {
        config_add_setting(r->l, section, name, value, origin_of(r));
        r->kept = true;
    }
    return 1;
}

void config_read_file(struct loading *l, const char *path)
{
    struct file_reading r = {
        .l = l, .path = path, .file = fopen(path, "re"), .first = l->cfg->origins->n};
    if (r.file == NULL) {
        config_error(l, path, "%s", strerror(errno));
        return;
    }
    int wrong = ini_parse_stream(read_line, &r, on_setting, &r);
    if (wrong > 0)
        config_error(l, arena_printf(l->arena, "%s:%d", path, wrong),
                     "neither [section] nor name = value");
    else if (wrong < 0 || ferror(r.file))
        config_error(l, path, "cannot be read");
    fclose(r.file);
}

const char *config_slurp(struct arena *arena, const char *path)
{
    enum { LARGEST = 65536 };
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return NULL;
    char *text = arena_alloc(arena, LARGEST + 1);
    size_t n = fread(text, 1, LARGEST, file);
    bool whole = !ferror(file) && feof(file);
    fclose(file);
    if (!whole || memchr(text, '\0', n)) {
        errno = whole ? EINVAL : EFBIG;
        return NULL;
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        text[--n] = '\0';
    return text;
}

static const char prefix[] = "HOLDFAST_";

/* HOLDFAST_LEASE_TTL_MS */
static const char *variable_of(struct arena *arena, const struct option *o)
{
    char *name = arena_printf(arena, "%s%s_%s", prefix, o->section, o->name);
    for (char *p = name; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return name;
}

/* A service of that name makes Kubernetes set HOLDFAST_REDIS_PORT, HOLDFAST_REDIS_SERVICE_HOST and
 * so on. */
static bool is_service_link(const char *name)
{
    const char *port = strstr(name, "_PORT");
    return strstr(name, "_SERVICE_") != NULL ||
           (port != NULL && (port[5] == '\0' || port[5] == '_'));
}

static const struct option *option_of(struct arena *arena, const char *name)
{
    for (size_t i = 0; i < n_config_options; i++)
        if (strcmp(variable_of(arena, &config_options[i]), name) == 0)
            return &config_options[i];
    return NULL;
}

static void unknown_variable(struct loading *l, const char *name)
{
    const char *near = NULL;
    size_t nearest = 3; /* other programs may use the prefix, too */
    bool known_section = false;
    for (size_t i = 0; i < n_config_options; i++) {
        const char *variable = variable_of(l->arena, &config_options[i]);
        size_t section = strlen(prefix) + strlen(config_options[i].section) + 1;
        known_section |= strncmp(variable, name, section) == 0;
        size_t distance = config_distance(name, variable);
        if (distance < nearest || (distance < strlen(name) / 3 && near == NULL && known_section)) {
            nearest = distance;
            near = variable;
        }
    }
    if (near)
        config_error(l, name, "no such option; did you mean %s?", near);
    else if (known_section)
        config_error(l, name, "no such option");
}

/* HOLDFAST_KAFKA_BOOTSTRAP_SERVERS is kafka.bootstrap.servers. */
static void add_kafka(struct loading *l, const char *name, const char *value, const char *origin)
{
    char *property = arena_dup_text(l->arena, span_of(name));
    for (char *p = property; *p; p++)
        *p = *p == '_' ? '.' : (char)tolower((unsigned char)*p);
    config_add_setting(l, "kafka", property, value, origin);
}

static const char *without_file_suffix(struct arena *arena, const char *name)
{
    static const char suffix[] = "_FILE";
    size_t n = strlen(name);
    if (n <= sizeof(suffix) || strcmp(name + n - (sizeof(suffix) - 1), suffix) != 0)
        return NULL;
    return arena_dup_text(arena, (struct span){name, n - (sizeof(suffix) - 1)});
}

static void read_variable(struct loading *l, const char *name, const char *value)
{
    const char *origin = name;
    bool is_kafka = strncmp(name, "HOLDFAST_KAFKA_", 15) == 0;
    const struct option *o = option_of(l->arena, name);
    const char *base = o ? NULL : without_file_suffix(l->arena, name);
    if (base && (is_kafka || option_of(l->arena, base))) {
        const char *path = value;
        value = config_slurp(l->arena, path);
        if (value == NULL) {
            config_error(l, origin, "cannot read %s: %s", path, strerror(errno));
            return;
        }
        name = base;
        o = option_of(l->arena, base);
    }
    if (o)
        config_add_setting(l, o->section, o->name, value, origin);
    else if (is_service_link(name))
        return;
    else if (is_kafka)
        add_kafka(l, name + 15, value, origin);
    else
        unknown_variable(l, name);
}

void config_read_environment(struct loading *l)
{
    for (const char *const *e = l->environment; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        if (equals == NULL || strncmp(*e, prefix, strlen(prefix)) != 0)
            continue;
        read_variable(l, arena_dup_text(l->arena, (struct span){*e, (size_t)(equals - *e)}),
                      equals + 1);
    }
}

void config_read_set(struct loading *l, const char *set)
{
    const char *equals = strchr(set, '=');
    char *key =
        equals ? arena_dup_text(l->arena, (struct span){set, (size_t)(equals - set)}) : NULL;
    char *dot = key ? strchr(key, '.') : NULL;
    if (dot && (strncmp(key, "tool.", 5) == 0 || strncmp(key, "handler.", 8) == 0))
        dot = strchr(dot + 1, '.');
    if (dot == NULL || dot[1] == '\0') {
        config_error(l, "--set", "\"%s\" is not section.name=value", set);
        return;
    }
    *dot = '\0';
    config_add_setting(l, key, dot + 1, equals + 1,
                       arena_printf(l->arena, "--set %s.%s", key, dot + 1));
}

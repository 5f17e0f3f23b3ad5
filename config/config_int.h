/* Inside of the config room. */
#ifndef HOLDFAST_CONFIG_CONFIG_INT_H
#define HOLDFAST_CONFIG_CONFIG_INT_H

#include "base/arena.h"
#include "config/config.h"

enum option_kind { KIND_TEXT, KIND_INT, KIND_BOOL, KIND_CHOICE, KIND_STATUSES };
/* DECLARED: of a tool, stored with each operation and decides about it for ever. */
enum option_flags { RELOAD = 1, SECRET = 2, REQUIRED = 4, DECLARED = 8 };

struct option {
    const char *section;
    const char *name;
    enum option_kind kind;
    size_t offset; /* in struct config, or in struct config_tool, struct config_handler */
    const char *preset;
    int64_t min;
    int64_t max;
    const char *unit; /* CHOICE: the words */
    unsigned flags;
    const char *sentence;
};

extern const struct option config_options[]; /* fixed sections, in the order of the table */
extern const size_t n_config_options;
extern const struct option config_named[]; /* sections "tool" and "handler" */
extern const size_t n_config_named;

/* One value that somebody wrote, with its place: later ones in the list are stronger. */
struct setting {
    const char *section; /* "lease", "tool.pay", "kafka" */
    const char *name;
    const char *value;
    const char *origin; /* "holdfast.conf:12", "HOLDFAST_LEASE_TTL_MS", "--set" */
};

struct config_origin {
    struct arena *arena; /* everything of the configuration, itself included */
    struct setting *settings;
    size_t n;
    size_t cap;
};

/* What loading works on. Errors are lines. */
struct loading {
    struct config *cfg;
    struct arena *arena;
    struct text *errors;
    const char *const *environment;
};

void config_error(struct loading *l, const char *origin, const char *format, ...) PRINTF_LIKE(3, 4);
void config_add_setting(struct loading *l, const char *section, const char *name, const char *value,
                        const char *origin);

void config_read_file(struct loading *l, const char *path);
void config_read_environment(struct loading *l);
void config_read_set(struct loading *l, const char *set);
/* The whole file without trailing line ends; NULL with errno. Arena. */
const char *config_slurp(struct arena *arena, const char *path);

/* Strongest setting of a name, NULL if nobody wrote one. */
const struct setting *config_setting(const struct config *cfg, const char *section,
                                     const char *name);

/* Parses value into the member of base; false with a reason for people in *ret_reason (arena). */
bool config_set_value(const struct option *o, void *base, const char *value, struct arena *arena,
                      const char **ret_reason);
/* The value as it would be written in a file. */
void config_value_text(const struct option *o, const void *base, struct text *t);

bool config_is_named(const char *section, const char *kind); /* "tool.pay", "tool" */
void config_apply_named(struct loading *l);
void config_apply_kafka(struct loading *l);
void config_check_rules(struct loading *l);
void config_check_tools(struct loading *l); /* tool_rules.c */

/* The known name nearest to a wrong one, NULL when none is near. "lease.tl_ms" -> "lease.ttl_ms" */
const char *config_nearest(struct loading *l, const char *section, const char *name);
size_t config_distance(const char *a, const char *b);

#endif

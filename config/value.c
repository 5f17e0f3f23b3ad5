#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_int.h"

static bool parse_int(const char *s, int64_t *ret)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end != '\0' || errno != 0)
        return false;
    *ret = v;
    return true;
}

static bool set_int(const struct option *o, char *to, const char *value, struct arena *arena,
                    const char **ret_reason)
{
    int64_t v;
    if (!parse_int(value, &v) || v < o->min || v > o->max) {
        *ret_reason =
            arena_printf(arena, "\"%s\" is no whole number from %" PRId64 " to %" PRId64 "%s%s",
                         value, o->min, o->max, o->unit[0] ? " " : "", o->unit);
        return false;
    }
    memcpy(to, &v, sizeof(v));
    return true;
}

static bool set_bool(char *to, const char *value, struct arena *arena, const char **ret_reason)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};
    for (size_t i = 0; i < COUNT_OF(yes); i++) {
        bool is_yes = strcmp(value, yes[i]) == 0;
        if (is_yes || strcmp(value, no[i]) == 0) {
            memcpy(to, &is_yes, sizeof(is_yes));
            return true;
        }
    }
    *ret_reason = arena_printf(arena, "\"%s\" is neither true nor false", value);
    return false;
}

static bool set_choice(const struct option *o, char *to, const char *value, struct arena *arena,
                       const char **ret_reason)
{
    size_t n = strlen(value);
    int index = 0;
    for (const char *word = o->unit;; index++) {
        size_t length = strcspn(word, "|");
        if (length == n && memcmp(word, value, n) == 0) {
            memcpy(to, &index, sizeof(index));
            return true;
        }
        if (word[length] == '\0')
            break;
        word += length + 1;
    }
    struct text words CLEANUP(text_free) = TEXT_EMPTY;
    for (const char *p = o->unit; *p; p++)
        text_add(&words, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
    *ret_reason = arena_printf(arena, "\"%s\" is none of: %s", value, words.p);
    return false;
}

/* "400-404,410" */
static bool set_statuses(const struct option *o, char *to, const char *value, struct arena *arena,
                         const char **ret_reason)
{
    struct config_statuses s = {{0}};
    const char *p = value;
    while (*p) {
        char *end;
        long from = strtol(p, &end, 10);
        long until = from;
        bool good = end != p;
        if (good && *end == '-') {
            p = end + 1;
            until = strtol(p, &end, 10);
            good = end != p;
        }
        if (!good || from < o->min || until > o->max || from > until || (*end != '\0' && *end != ',')) {
            *ret_reason =
                o->min < 100
                    ? arena_printf(arena, "\"%s\" is no list of exit codes like 64,70-75", value)
                    : arena_printf(arena, "\"%s\" is no list of statuses like 400-404,410", value);
            return false;
        }
        for (long status = from; status <= until; status++)
            s.bits[status / 64] |= UINT64_C(1) << (status % 64);
        p = *end ? end + 1 + strspn(end + 1, " ") : end;
    }
    memcpy(to, &s, sizeof(s));
    return true;
}

bool config_set_value(const struct option *o, void *base, const char *value, struct arena *arena,
                      const char **ret_reason)
{
    char *to = (char *)base + o->offset;
    switch (o->kind) {
    case KIND_TEXT: {
        const char *copy = arena_dup_text(arena, span_of(value));
        memcpy(to, &copy, sizeof(copy));
        return true;
    }
    case KIND_INT:
        return set_int(o, to, value, arena, ret_reason);
    case KIND_BOOL:
        return set_bool(to, value, arena, ret_reason);
    case KIND_CHOICE:
        return set_choice(o, to, value, arena, ret_reason);
    case KIND_STATUSES:
        return set_statuses(o, to, value, arena, ret_reason);
    }
    NOT_REACHED("a kind of option");
    return false;
}

static void add_choice(const struct option *o, const char *from, struct text *t)
{
    int index;
    memcpy(&index, from, sizeof(index));
    const char *word = o->unit;
    for (; index > 0; index--)
        word += strcspn(word, "|") + 1;
    text_add(t, word, strcspn(word, "|"));
}

static void add_statuses(const char *from, struct text *t)
{
    struct config_statuses s;
    memcpy(&s, from, sizeof(s));
    const char *comma = "";
    for (long status = 0; status < 600; status++) {
        if (!config_status_in(&s, status))
            continue;
        long first = status;
        while (config_status_in(&s, status + 1))
            status++;
        text_addf(t, "%s%ld", comma, first);
        if (status > first)
            text_addf(t, "-%ld", status);
        comma = ",";
    }
}

void config_value_text(const struct option *o, const void *base, struct text *t)
{
    const char *from = (const char *)base + o->offset;
    switch (o->kind) {
    case KIND_TEXT: {
        const char *s;
        memcpy(&s, from, sizeof(s));
        text_add_str(t, s);
        break;
    }
    case KIND_INT: {
        int64_t v;
        memcpy(&v, from, sizeof(v));
        text_addf(t, "%" PRId64, v);
        break;
    }
    case KIND_BOOL: {
        bool v;
        memcpy(&v, from, sizeof(v));
        text_add_str(t, v ? "true" : "false");
        break;
    }
    case KIND_CHOICE:
        add_choice(o, from, t);
        break;
    case KIND_STATUSES:
        add_statuses(from, t);
        break;
    }
}

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/config_int.h"

/* Edits (insert, delete, replace, swap of neighbours) from a to b. */
size_t config_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), width = m + 1;
    size_t *d CLEANUP(memory_drop) = memory_new((n + 1) * width, sizeof(*d));
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            size_t *cell = &d[i * width + j];
            if (i == 0 || j == 0) {
                *cell = i + j;
                continue;
            }
            size_t replace = d[(i - 1) * width + j - 1] + (a[i - 1] != b[j - 1]);
            size_t remove = d[(i - 1) * width + j] + 1;
            size_t insert = d[i * width + j - 1] + 1;
            *cell = replace < remove ? replace : remove;
            if (insert < *cell)
                *cell = insert;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[(i - 2) * width + j - 2] + 1 < *cell)
                *cell = d[(i - 2) * width + j - 2] + 1;
        }
    return d[n * width + m];
}

struct candidate {
    const char *key;
    size_t distance;
};

static void consider(struct candidate *best, const char *wanted, const char *key)
{
    size_t distance = config_distance(wanted, key);
    if (distance < best->distance)
        *best = (struct candidate){key, distance};
}

const char *config_nearest(struct loading *l, const char *section, const char *name)
{
    const char *wanted = arena_printf(l->arena, "%s.%s", section, name);
    struct candidate best = {NULL, strlen(wanted) / 3 + 1};
    for (size_t i = 0; i < n_config_options; i++)
        consider(
            &best, wanted,
            arena_printf(l->arena, "%s.%s", config_options[i].section, config_options[i].name));
    const char *dot = strchr(section, '.');
    for (size_t i = 0; dot && i < n_config_named; i++)
        consider(
            &best, wanted,
            arena_printf(l->arena, "%s%s.%s", config_named[i].section, dot, config_named[i].name));
    return best.key;
}

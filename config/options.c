#include "config/config_int.h"

/* clang-format off */
/* A row whose kind does not fit its member's type does not compile: the array gets a negative size.
 * */
#define KIND_FITS(kind, member)                                                                    \
    (0 * sizeof(char[_Generic((member), int64_t: (kind) == KIND_INT, bool: (kind) == KIND_BOOL,   \
                         const char *: (kind) == KIND_TEXT,                                       \
                         struct config_statuses: (kind) == KIND_STATUSES,                         \
                         default: (kind) == KIND_CHOICE && sizeof(member) == sizeof(int))         \
                         ? 1                                                                       \
                         : -1]))

#define ROW(type, member, section, name, kind, preset, min, max, unit, flags, sentence)            \
    {#section, #name,  KIND_##kind, offsetof(type, member) + KIND_FITS(KIND_##kind, ((type *)0)->member), \
     preset,   min,    max,         unit,                                                          \
     flags,    sentence},
/* clang-format on */

const struct option config_options[] = {
#define OPTION(section, name, ...) ROW(struct config, section.name, section, name, __VA_ARGS__)
#include "config/options.tbl.h"
#undef OPTION
};
const size_t n_config_options = COUNT_OF(config_options);

const struct option config_named[] = {
#define NAMED(section, name, ...) ROW(struct config_##section, name, section, name, __VA_ARGS__)
#include "config/named.tbl.h"
#undef NAMED
};
const size_t n_config_named = COUNT_OF(config_named);

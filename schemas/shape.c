#include "schemas/canon.h"
#include "schemas/json_int.h"
#include "schemas/rfc3339.h"
#include "schemas/shape_int.h"

static bool read_integer(const struct json_value *v, int64_t max, int64_t *ret)
{
    int64_t n;
    if (!json_integer(v, &n) || n < 0 || n > max)
        return false;
    *ret = n;
    return true;
}

static bool read_one(const struct shape_field *field, const struct json_value *v, void *at,
                     const char **ret_wanted)
{
    struct span text = json_text(v);
    int64_t n;
    switch (field->kind) {
    case SHAPE_TEXT:
        *ret_wanted = "a text";
        *(struct span *)at = text;
        return text.n > 0;
    case SHAPE_DIGEST:
        *ret_wanted = "a digest (sha256: and 64 hexadecimal digits)";
        *(struct span *)at = text;
        return digest_is(text);
    case SHAPE_UUID:
        *ret_wanted = "a UUID";
        return text.p != NULL && uuid_parse(text, at);
    case SHAPE_INTEGER:
        *ret_wanted = "a whole number, not negative";
        return read_integer(v, JSON_SAFE_INTEGER, at);
    case SHAPE_INT32:
        *ret_wanted = "a whole number from 0 to 2147483647";
        if (!read_integer(v, INT32_MAX, &n))
            return false;
        *(int32_t *)at = (int32_t)n;
        return true;
    case SHAPE_TIME:
        *ret_wanted = "a time of RFC 3339";
        return rfc3339_parse(text, at);
    case SHAPE_SKIP:
        break;
    }
    return true;
}

static const struct shape_field *find(const struct shape_field *fields, size_t n_fields,
                                      struct span name)
{
    for (size_t i = 0; i < n_fields; i++)
        if (span_eq_text(name, fields[i].name))
            return &fields[i];
    return NULL;
}

bool shape_read(const struct json_value *object, const struct shape_field *fields, size_t n_fields,
                struct arena *arena, void *ret, struct json_error *ret_error)
{
    if (!json_is(object, JSON_OBJECT))
        return json_refuse(ret_error, arena, REJECT_WRONG_TYPE, SPAN_LIT(""),
                           "the message must be an object, not %s",
                           json_kind_name(json_kind(object)));
    struct json_iter it = json_iter(object);
    while (json_next(&it)) {
        const struct shape_field *field = find(fields, n_fields, it.key);
        struct span place = json_pointer_append(SPAN_LIT(""), it.key, arena);
        const char *wanted = NULL;
        if (field == NULL)
            return json_refuse(ret_error, arena, REJECT_UNKNOWN_FIELD, place,
                               "%s: no such field is known", place.p);
        if (!read_one(field, it.value, (char *)ret + field->at, &wanted))
            return json_refuse(ret_error, arena, REJECT_WRONG_TYPE, place, "%s must be %s", place.p,
                               wanted);
    }
    for (size_t i = 0; i < n_fields; i++)
        if (json_get(object, fields[i].name) == NULL)
            return json_refuse(ret_error, arena, REJECT_MISSING_FIELD,
                               json_pointer_append(SPAN_LIT(""), span_of(fields[i].name), arena),
                               "the field \"%s\" is missing", fields[i].name);
    return true;
}

#include <stdlib.h>
#include <string.h>

#include "schemas/canon_int.h"
#include "schemas/message_int.h"
#include "schemas/rfc3339.h"

#define AT(member) offsetof(struct message, member)

/* Sorted by name: that is the canonical order, too. request_id and signal_id are read by message.c,
 * which makes the request's key of them. */
const struct field message_fields[] = {
    {"allow_unsettled", FIELD_BOOL, IN_SUBMIT | IN_RETRY, 0, false, AT(allow_unsettled), 0, 0, 0},
    {"by", FIELD_TEXT, IN_ALL, 0, true, AT(by), 0, 1, MESSAGE_MAX_BY},
    {"concurrency_key", FIELD_FUTURE, IN_SUBMIT, 0, false, 0, 0, 0, 0},
    {"deadline", FIELD_TIME, IN_SUBMIT, 0, false, AT(deadline_us), AT(has_deadline), 0, 0},
    {"fresh", FIELD_BOOL, IN_RETRY, 0, false, AT(fresh), 0, 0, 0},
    {"handler", FIELD_IDENTIFIER, IN_SUBMIT, IN_SUBMIT, false, AT(handler), 0, 1,
     MESSAGE_MAX_HANDLER},
    {"input", FIELD_OBJECT, IN_SUBMIT, 0, false, AT(input), 0, 0, 0},
    {"labels", FIELD_LABELS, IN_SUBMIT, 0, false, AT(labels), 0, 0, 0},
    {"max_attempts", FIELD_INTEGER, IN_SUBMIT, 0, false, AT(max_attempts), 0, 1,
     MESSAGE_MAX_ATTEMPTS},
    {"name", FIELD_IDENTIFIER, IN_SIGNAL, IN_SIGNAL, false, AT(name), 0, 1,
     MESSAGE_MAX_SIGNAL_NAME},
    {"not_before", FIELD_TIME, IN_SUBMIT, 0, false, AT(not_before_us), AT(has_not_before), 0, 0},
    {"on_active", FIELD_ON_ACTIVE, IN_SUBMIT, 0, false, AT(cancel_previous), 0, 0, 0},
    {"payload", FIELD_JSON, IN_SIGNAL, 0, false, AT(payload), 0, 0, 0},
    {"priority", FIELD_INTEGER, IN_SUBMIT, 0, false, AT(priority), 0, MESSAGE_MIN_PRIORITY,
     MESSAGE_MAX_PRIORITY},
    {"reason", FIELD_TEXT, IN_CANCEL | IN_RETRY, 0, false, AT(reason), 0, 1, MESSAGE_MAX_REASON},
    {"request_id", FIELD_IDENTIFIER, IN_SUBMIT | IN_CANCEL | IN_RETRY, 0, true, AT(request_id), 0,
     1, MESSAGE_MAX_REQUEST},
    {"run_id", FIELD_UUID, IN_CANCEL | IN_RETRY | IN_SIGNAL, 0, false, AT(run_id), AT(has_run), 0,
     0},
    {"signal_id", FIELD_IDENTIFIER, IN_SIGNAL, IN_SIGNAL, false, AT(signal_id), 0, 1,
     MESSAGE_MAX_REQUEST},
    {"task_id", FIELD_IDENTIFIER, IN_ALL, IN_SUBMIT, false, AT(task_id), 0, 1, MESSAGE_MAX_TASK},
    {"tenant_id", FIELD_IDENTIFIER, IN_ALL, 0, false, AT(tenant_id), 0, 1, MESSAGE_MAX_TENANT},
    {"type", FIELD_TYPE, IN_ALL, 0, false, AT(type), 0, 0, 0},
};
const size_t message_field_count = COUNT_OF(message_fields);

const struct field *message_field(struct span name)
{
    size_t low = 0, high = COUNT_OF(message_fields);
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = span_order(name, span_of(message_fields[middle].name));
        if (order == 0)
            return &message_fields[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- nearest match ---- */

enum { NEAREST_LONGEST = 32 };

/* Steps of inserting, dropping or replacing a character that turn a into b (Levenshtein), both
 * short. */
static size_t distance(struct span a, struct span b)
{
    size_t row[NEAREST_LONGEST + 1];
    for (size_t j = 0; j <= b.n; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t best = diagonal + (a.p[i - 1] != b.p[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b.n];
}

static void consider(struct span word, const char *candidate, const char **best,
                     size_t *best_distance)
{
    size_t d = distance(word, span_of(candidate));
    if (d < *best_distance) {
        *best = candidate;
        *best_distance = d;
    }
}

/* More than a third of the word wrong (and never more than 3 steps) is not a typo. */
static size_t near_enough(struct span word)
{
    size_t third = word.n / 3 + 1;
    return (third < 3 ? third : 3) + 1;
}

const char *message_nearest_field(struct span name, enum message_type type)
{
    const char *best = NULL;
    size_t best_distance = near_enough(name);
    if (name.n == 0 || name.n > NEAREST_LONGEST)
        return NULL;
    for (size_t i = 0; i < COUNT_OF(message_fields); i++)
        if (message_fields[i].in & (1u << type) && message_fields[i].kind != FIELD_FUTURE)
            consider(name, message_fields[i].name, &best, &best_distance);
    return best;
}

const char *nearest_word(struct span word, const char *const *words)
{
    const char *best = NULL;
    size_t best_distance = near_enough(word);
    if (word.n == 0 || word.n > NEAREST_LONGEST)
        return NULL;
    for (; *words != NULL; words++)
        consider(word, *words, &best, &best_distance);
    return best;
}

/* ---- reading one field ---- */

bool identifier_valid(struct span text, size_t max)
{
    if (text.p == NULL || text.n < 1 || text.n > max)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '.' && c != ':' && c != '-')
            return false;
    }
    return true;
}

struct reading {
    const struct field *field;
    struct arena *arena;
    struct reject *reject;
};

static struct span place_of(const struct reading *r)
{
    return json_pointer_append(SPAN_LIT(""), span_of(r->field->name), r->arena);
}

static bool wrong_kind(const struct reading *r, const struct json_value *v, const char *wanted)
{
    const char *advice = json_is(v, JSON_NULL) ? "; leave the field out instead" : "";
    return message_refuse(r->reject, r->arena, REJECT_WRONG_TYPE, place_of(r),
                          "\"%s\" must be %s, not %s%s", r->field->name, wanted,
                          json_kind_name(json_kind(v)), advice);
}

static bool read_identifier(const struct reading *r, const struct json_value *v, struct span *ret)
{
    struct span text = json_text(v);
    if (text.p == NULL)
        return wrong_kind(r, v, "a text");
    if (!identifier_valid(text, (size_t)r->field->max))
        return message_refuse(
            r->reject, r->arena, REJECT_BAD_IDENTIFIER, place_of(r),
            "\"%s\" must be 1 to %d characters out of A-Z a-z 0-9 _ . : - (it has %zu bytes)",
            r->field->name, (int)r->field->max, text.n);
    *ret = text;
    return true;
}

static bool read_text(const struct reading *r, const struct json_value *v, struct span *ret)
{
    struct span text = json_text(v);
    if (text.p == NULL)
        return wrong_kind(r, v, "a text");
    if (text.n < (size_t)r->field->min || text.n > (size_t)r->field->max)
        return message_refuse(r->reject, r->arena, REJECT_OUT_OF_RANGE, place_of(r),
                              "\"%s\" must be 1 to %d bytes long, not %zu", r->field->name,
                              (int)r->field->max, text.n);
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 0x20 || text.p[i] == 0x7f)
            return message_refuse(r->reject, r->arena, REJECT_BAD_TEXT, place_of(r),
                                  "\"%s\" must not hold control characters such as line breaks",
                                  r->field->name);
    *ret = text;
    return true;
}

static bool read_uuid(const struct reading *r, const struct json_value *v, struct message *m)
{
    struct span text = json_text(v);
    if (text.p == NULL)
        return wrong_kind(r, v, "a text");
    if (!uuid_parse(text, &m->run_id))
        return message_refuse(r->reject, r->arena, REJECT_BAD_IDENTIFIER, place_of(r),
                              "\"%s\" must be a UUID such as 0192f0c1-7a3b-7cde-8f01-23456789abcd",
                              r->field->name);
    m->has_run = true;
    return true;
}

static bool read_integer(const struct reading *r, const struct json_value *v, int32_t *ret)
{
    int64_t n;
    int min = (int)r->field->min, max = (int)r->field->max;
    if (!json_is(v, JSON_NUMBER))
        return wrong_kind(r, v, "a whole number");
    if (!json_integer(v, &n) || n < min || n > max)
        return message_refuse(r->reject, r->arena, REJECT_OUT_OF_RANGE, place_of(r),
                              "\"%s\" must be a whole number from %d to %d", r->field->name, min,
                              max);
    *ret = (int32_t)n;
    return true;
}

static bool read_time(const struct reading *r, const struct json_value *v, int64_t *ret,
                      bool *ret_has)
{
    struct span text = json_text(v);
    if (text.p == NULL)
        return wrong_kind(r, v, "a text");
    if (!rfc3339_parse(text, ret))
        return message_refuse(
            r->reject, r->arena, REJECT_BAD_TIME, place_of(r),
            "\"%s\" must be a time of RFC 3339 with its offset, such as 2026-12-01T09:30:00Z",
            r->field->name);
    *ret_has = true;
    return true;
}

static bool read_on_active(const struct reading *r, const struct json_value *v, bool *ret_cancel)
{
    static const char *const words[] = {"cancel_previous", "reject", NULL};
    struct span text = json_text(v);
    if (text.p == NULL)
        return wrong_kind(r, v, "a text");
    *ret_cancel = span_eq_text(text, words[0]);
    if (*ret_cancel || span_eq_text(text, words[1]))
        return true;
    const char *near = nearest_word(text, words);
    return message_refuse(r->reject, r->arena, REJECT_OUT_OF_RANGE, place_of(r),
                          "\"on_active\" must be \"reject\" or \"cancel_previous\"%s%s%s",
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool read_labels(const struct reading *r, const struct json_value *v, struct span *ret)
{
    if (!json_is(v, JSON_OBJECT))
        return wrong_kind(r, v, "an object of texts");
    if (json_count(v) > MESSAGE_MAX_LABELS)
        return message_refuse(r->reject, r->arena, REJECT_OUT_OF_RANGE, place_of(r),
                              "\"labels\" may have %d members, not %zu", MESSAGE_MAX_LABELS,
                              json_count(v));
    struct json_iter it = json_iter(v);
    while (json_next(&it)) {
        struct span text = json_text(it.value);
        struct span place = json_pointer_append(place_of(r), it.key, r->arena);
        if (!identifier_valid(it.key, MESSAGE_MAX_LABEL_KEY))
            return message_refuse(
                r->reject, r->arena, REJECT_BAD_IDENTIFIER, place,
                "a label's key must be 1 to %d characters out of A-Z a-z 0-9 _ . : -",
                MESSAGE_MAX_LABEL_KEY);
        if (text.p == NULL)
            return message_refuse(r->reject, r->arena, REJECT_WRONG_TYPE, place,
                                  "a label must be a text, not %s",
                                  json_kind_name(json_kind(it.value)));
        if (text.n > MESSAGE_MAX_LABEL_VALUE)
            return message_refuse(r->reject, r->arena, REJECT_OUT_OF_RANGE, place,
                                  "a label may be %d bytes long, not %zu", MESSAGE_MAX_LABEL_VALUE,
                                  text.n);
    }
    *ret = canon_write(v, r->arena);
    return true;
}

static bool read_object(const struct reading *r, const struct json_value *v, struct message *m)
{
    if (!json_is(v, JSON_OBJECT))
        return wrong_kind(r, v, "an object");
    m->input_value = v;
    m->input = canon_write(v, r->arena);
    return true;
}

bool message_read_field(const struct field *field, const struct json_value *v, struct arena *arena,
                        struct message *m, struct reject *ret_reject)
{
    struct reading r = {field, arena, ret_reject};
    void *at = (char *)m + field->at;
    switch (field->kind) {
    case FIELD_TYPE:
        return true;
    case FIELD_IDENTIFIER:
        return read_identifier(&r, v, at);
    case FIELD_TEXT:
        return read_text(&r, v, at);
    case FIELD_UUID:
        return read_uuid(&r, v, m);
    case FIELD_INTEGER:
        return read_integer(&r, v, at);
    case FIELD_BOOL:
        if (!json_is(v, JSON_BOOL))
            return wrong_kind(&r, v, "true or false");
        *(bool *)at = json_bool(v);
        return true;
    case FIELD_TIME:
        return read_time(&r, v, at, (bool *)((char *)m + field->has));
    case FIELD_ON_ACTIVE:
        return read_on_active(&r, v, at);
    case FIELD_OBJECT:
        return read_object(&r, v, m);
    case FIELD_LABELS:
        return read_labels(&r, v, at);
    case FIELD_JSON:
        *(struct span *)at = canon_write(v, arena);
        return true;
    case FIELD_FUTURE:
        break;
    }
    return message_refuse(ret_reject, arena, REJECT_NOT_SUPPORTED, place_of(&r),
                          "\"%s\" is not supported in this version", field->name);
}

/* ---- the canonical record ---- */

static bool field_present(const struct field *field, const struct message *m)
{
    const char *at = (const char *)m + field->at;
    switch (field->kind) {
    case FIELD_IDENTIFIER:
    case FIELD_TEXT:
    case FIELD_OBJECT:
    case FIELD_LABELS:
    case FIELD_JSON:
        return ((const struct span *)(const void *)at)->p != NULL;
    case FIELD_UUID:
    case FIELD_TIME:
        return *(const bool *)((const char *)m + field->has);
    case FIELD_TYPE:
    case FIELD_INTEGER:
    case FIELD_BOOL:
    case FIELD_ON_ACTIVE:
        return true;
    case FIELD_FUTURE:
        break;
    }
    return false;
}

static void write_field(struct canon_out *out, const struct field *field, const struct message *m)
{
    const void *at = (const char *)m + field->at;
    char buf[UUID_TEXT_SIZE > CANON_NUMBER_SIZE ? UUID_TEXT_SIZE : CANON_NUMBER_SIZE];
    switch (field->kind) {
    case FIELD_TYPE:
        canon_text(out, span_of(message_type_word(m->type)));
        return;
    case FIELD_IDENTIFIER:
    case FIELD_TEXT:
        canon_text(out, *(const struct span *)at);
        return;
    case FIELD_OBJECT:
    case FIELD_LABELS:
    case FIELD_JSON:
        canon_bytes(out, ((const struct span *)at)->p, ((const struct span *)at)->n);
        return;
    case FIELD_UUID:
        canon_text(out, span_of(uuid_format(*(const struct uuid *)at, buf)));
        return;
    case FIELD_TIME:
        rfc3339_format(*(const int64_t *)at, buf);
        canon_text(out, span_of(buf));
        return;
    case FIELD_INTEGER:
        canon_bytes(out, buf, canon_number(*(const int32_t *)at, buf));
        return;
    case FIELD_BOOL:
        canon_bytes(out, *(const bool *)at ? "true" : "false", *(const bool *)at ? 4 : 5);
        return;
    case FIELD_ON_ACTIVE:
        canon_text(out, span_of(*(const bool *)at ? "cancel_previous" : "reject"));
        return;
    case FIELD_FUTURE:
        return;
    }
}

struct span message_canonical(const struct message *m, bool for_digest, struct arena *arena)
{
    struct canon_out out = {.arena = arena};
    canon_bytes(&out, "{", 1);
    for (size_t i = 0; i < COUNT_OF(message_fields); i++) {
        const struct field *field = &message_fields[i];
        if (!(field->in & (1u << m->type)) || (for_digest && field->names_only) ||
            !field_present(field, m))
            continue;
        if (out.n > 1)
            canon_bytes(&out, ",", 1);
        canon_text(&out, span_of(field->name));
        canon_bytes(&out, ":", 1);
        write_field(&out, field, m);
    }
    canon_bytes(&out, "}", 1);
    return canon_end(&out);
}

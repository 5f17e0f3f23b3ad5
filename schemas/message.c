#include "schemas/message.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "schemas/canon.h"
#include "schemas/message_int.h"
#include "schemas/msgpack.h"

static const char *const type_words[] = {[MESSAGE_SUBMIT] = "submit",
                                         [MESSAGE_CANCEL] = "cancel",
                                         [MESSAGE_RETRY] = "retry",
                                         [MESSAGE_SIGNAL] = "signal",
                                         NULL};

const char *message_type_word(enum message_type type)
{
    return type_words[type];
}

bool message_refuse(struct reject *ret, struct arena *arena, enum reject_reason reason,
                    struct span place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sentence = arena_vprintf(arena, format, args);
    va_end(args);
    ret->reason = reason;
    ret->place = arena_dup(arena, place);
    ret->detail = span_of(sentence);
    return false;
}

static bool refuse_json(struct reject *ret, const struct json_error *error)
{
    CHECK(reject_from_word(error->reason, &ret->reason)); /* both come out of one table */
    ret->place = error->place;
    ret->detail = error->detail;
    return false;
}

/* ---- headers ---- */

/* The last of a name counts, as in Kafka's own clients. */
static struct span header(const struct raw_record *record, const char *name)
{
    for (size_t i = record->n_headers; i > 0; i--) {
        const struct raw_header *h = &record->headers[i - 1];
        if (h->name.n == strlen(name) && strncasecmp(h->name.p, name, h->name.n) == 0)
            return h->value;
    }
    return SPAN_NULL;
}

static struct span trimmed(struct span s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static bool same_word(struct span s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

enum content { CONTENT_JSON, CONTENT_MSGPACK, CONTENT_SNIFF, CONTENT_OTHER };

static enum content content_of(struct span content_type)
{
    if (trimmed(content_type).n == 0)
        return CONTENT_SNIFF;
    const char *semicolon = memchr(content_type.p, ';', content_type.n);
    struct span media = content_type, parameter = SPAN_LIT("");
    if (semicolon != NULL) {
        media.n = (size_t)(semicolon - content_type.p);
        parameter = (struct span){semicolon + 1, content_type.n - media.n - 1};
    }
    media = trimmed(media);
    parameter = trimmed(parameter);
    bool utf8 = parameter.n == 0 || same_word(parameter, "charset=utf-8") ||
                same_word(parameter, "charset=\"utf-8\"");
    if (same_word(media, "application/json") && utf8)
        return CONTENT_JSON;
    if (parameter.n == 0 &&
        (same_word(media, "application/msgpack") || same_word(media, "application/vnd.msgpack") ||
         same_word(media, "application/x-msgpack")))
        return CONTENT_MSGPACK;
    return CONTENT_OTHER;
}

/* Printable ASCII only: header bytes go into a sentence that is logged. */
static const char *shown(struct span s, struct arena *arena)
{
    char *text = arena_dup_text(arena, (struct span){s.p, s.n < 80 ? s.n : 80});
    for (char *c = text; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7e)
            *c = '?';
    return text;
}

static bool is_hex(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    return true;
}

static bool all_zero(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != '0')
            return false;
    return true;
}

/* W3C trace context: version 00 exactly; a later version may be longer. */
static bool traceparent_valid(struct span t)
{
    enum { LENGTH = 55 };
    if (t.n < LENGTH || t.p[2] != '-' || t.p[35] != '-' || t.p[52] != '-')
        return false;
    struct span version = {t.p, 2}, trace = {t.p + 3, 32}, parent = {t.p + 36, 16},
                flags = {t.p + 53, 2};
    bool hex = is_hex(version) && is_hex(trace) && is_hex(parent) && is_hex(flags);
    if (!hex || all_zero(trace) || all_zero(parent) || memcmp(version.p, "ff", 2) == 0)
        return false;
    return memcmp(version.p, "00", 2) == 0 ? t.n == LENGTH
                                           : t.n == LENGTH || (t.p[LENGTH] == '-' && t.n <= 256);
}

static bool printable(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 0x20 || s.p[i] > 0x7e)
            return false;
    return true;
}

static void read_trace(const struct raw_record *record, struct arena *arena, struct message *m)
{
    struct span parent = header(record, "traceparent"), state = header(record, "tracestate");
    if (parent.p == NULL || !traceparent_valid(parent) || !printable(parent))
        return;
    m->traceparent = arena_dup(arena, parent);
    if (state.p != NULL && state.n > 0 && state.n <= 512 && printable(state))
        m->tracestate = arena_dup(arena, state);
}

/* ---- identity: what a refused record can still be recorded and answered by ---- */

static void read_origin(const struct raw_record *record, struct arena *arena, struct message *m)
{
    m->source = span_of(arena_printf(arena, "%.*s/%d/%lld/%lld", SPAN_ARG(record->topic),
                                     (int)record->partition, (long long)record->offset,
                                     (long long)record->timestamp_ms));
}

static void make_request_key(const struct raw_record *record, struct arena *arena,
                             struct message *m)
{
    struct span own = m->type == MESSAGE_SIGNAL ? m->signal_id : m->request_id;
    m->own_key = own.p != NULL;
    const char *key = m->own_key ? arena_printf(arena, "r:%.*s", SPAN_ARG(own))
                                 : arena_printf(arena, "kafka:%.*s/%.*s", SPAN_ARG(record->cluster),
                                                SPAN_ARG(m->source));
    m->request_key = span_of(key);
}

static struct span readable_identifier(const struct json_value *root, const char *name, size_t max)
{
    struct span text = json_text(json_get(root, name));
    return identifier_valid(text, max) ? text : SPAN_NULL;
}

/* Fills the identity of a refused record as far as it can be read; false: not enough to record it.
 */
static bool salvage(const struct json_value *root, const struct raw_record *record,
                    const struct message_limits *limits, struct arena *arena, struct message *m)
{
    struct message found = {.type = m->type, .source = m->source};
    found.task_id = readable_identifier(root, "task_id", MESSAGE_MAX_TASK);
    found.tenant_id = readable_identifier(root, "tenant_id", MESSAGE_MAX_TENANT);
    if (limits->tenant.p != NULL)
        found.tenant_id = arena_dup(
            arena,
            limits->tenant); /* an event of somebody else's tenant must not come from this topic */
    else if (json_get(root, "tenant_id") == NULL)
        found.tenant_id = SPAN_LIT("default");
    found.request_id = readable_identifier(root, "request_id", MESSAGE_MAX_REQUEST);
    found.signal_id = readable_identifier(root, "signal_id", MESSAGE_MAX_REQUEST);
    make_request_key(record, arena, &found);
    found.digest = digest_span(record->value, arena);
    *m = found;
    return m->task_id.p != NULL && m->tenant_id.p != NULL;
}

/* ---- decode ---- */

static bool read_value(const struct raw_record *record, const struct message_limits *limits,
                       struct arena *arena, const struct json_value **ret_root,
                       struct reject *ret_reject)
{
    struct json_limits json_limits = {.max_bytes = limits->max_bytes > 0 ? limits->max_bytes
                                                                         : MESSAGE_MAX_BYTES};
    struct json_error error;
    struct span type = header(record, "content-type"), coding = header(record, "content-encoding");
    if (record->value.p == NULL || record->value.n == 0)
        return message_refuse(ret_reject, arena, REJECT_EMPTY, SPAN_LIT(""),
                              "the record has no value");
    if (trimmed(coding).n > 0 && !same_word(trimmed(coding), "identity"))
        return message_refuse(
            ret_reject, arena, REJECT_CONTENT_TYPE, SPAN_LIT("header content-encoding"),
            "content-encoding \"%s\" is not supported; let the Kafka client compress",
            shown(coding, arena));
    enum content content = content_of(type);
    if (content == CONTENT_OTHER)
        return message_refuse(
            ret_reject, arena, REJECT_CONTENT_TYPE, SPAN_LIT("header content-type"),
            "content-type \"%s\" is not supported; use application/json or application/msgpack",
            shown(type, arena));
    if (content == CONTENT_SNIFF)
        content = msgpack_is_map(record->value) ? CONTENT_MSGPACK : CONTENT_JSON;
    bool sound = content == CONTENT_MSGPACK
                     ? msgpack_parse(record->value, &json_limits, arena, ret_root, &error)
                     : json_parse(record->value, &json_limits, arena, ret_root, &error);
    if (!sound)
        return refuse_json(ret_reject, &error);
    if (!json_is(*ret_root, JSON_OBJECT))
        return message_refuse(ret_reject, arena, REJECT_WRONG_TYPE, SPAN_LIT(""),
                              "a record must be an object, not %s",
                              json_kind_name(json_kind(*ret_root)));
    return true;
}

static bool read_type(const struct json_value *root, struct arena *arena, enum message_type *ret,
                      struct reject *ret_reject)
{
    const struct json_value *v = json_get(root, "type");
    if (v == NULL)
        return true; /* a submission */
    struct span word = json_text(v);
    if (word.p == NULL)
        return message_refuse(ret_reject, arena, REJECT_WRONG_TYPE, SPAN_LIT("/type"),
                              "\"type\" must be a text, not %s", json_kind_name(json_kind(v)));
    for (size_t i = 0; type_words[i] != NULL; i++) {
        if (span_eq_text(word, type_words[i])) {
            *ret = (enum message_type)i;
            return true;
        }
    }
    const char *near = nearest_word(word, type_words);
    return message_refuse(ret_reject, arena, REJECT_OUT_OF_RANGE, SPAN_LIT("/type"),
                          "\"type\" must be submit, cancel, retry or signal%s%s%s",
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool refuse_field(struct span name, const struct field *known, enum message_type type,
                         struct arena *arena, struct reject *ret_reject)
{
    struct span place = json_pointer_append(SPAN_LIT(""), name, arena);
    const char *record = type == MESSAGE_SUBMIT ? "submission" : message_type_word(type);
    if (known != NULL)
        return message_refuse(ret_reject, arena, REJECT_UNKNOWN_FIELD, place,
                              "a %s has no field \"%s\"", record, known->name);
    const char *near = message_nearest_field(name, type);
    return message_refuse(ret_reject, arena, REJECT_UNKNOWN_FIELD, place,
                          "a %s has no field \"%s\"%s%s%s", record, shown(name, arena),
                          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool read_fields(const struct json_value *root, struct arena *arena, struct message *m,
                        struct reject *ret_reject)
{
    struct json_iter it = json_iter(root);
    while (json_next(&it)) {
        const struct field *field = message_field(it.key);
        if (field == NULL || !(field->in & (1u << m->type)))
            return refuse_field(it.key, field, m->type, arena, ret_reject);
        if (!message_read_field(field, it.value, arena, m, ret_reject))
            return false;
    }
    for (size_t i = 0; i < message_field_count; i++) {
        const struct field *field = &message_fields[i];
        if (field->required & (1u << m->type) && json_get(root, field->name) == NULL)
            return message_refuse(ret_reject, arena, REJECT_MISSING_FIELD,
                                  json_pointer_append(SPAN_LIT(""), span_of(field->name), arena),
                                  "the field \"%s\" is missing", field->name);
    }
    return true;
}

static bool check_together(const struct message_limits *limits, struct arena *arena,
                           struct message *m, struct reject *ret_reject)
{
    if (m->task_id.p == NULL && !m->has_run)
        return message_refuse(ret_reject, arena, REJECT_MISSING_FIELD, SPAN_LIT("/task_id"),
                              "a %s names a task (\"task_id\") or a run (\"run_id\")",
                              message_type_word(m->type));
    if (m->has_deadline && m->has_not_before && m->deadline_us <= m->not_before_us)
        return message_refuse(
            ret_reject, arena, REJECT_OUT_OF_RANGE, SPAN_LIT("/deadline"),
            "\"deadline\" is not after \"not_before\": the run could never start");
    if (limits->tenant.p != NULL && m->tenant_id.p != NULL &&
        !span_eq(limits->tenant, m->tenant_id))
        return message_refuse(ret_reject, arena, REJECT_TENANT, SPAN_LIT("/tenant_id"),
                              "this topic belongs to tenant \"%.*s\"; the record says \"%.*s\"",
                              SPAN_ARG(limits->tenant), SPAN_ARG(m->tenant_id));
    if (m->tenant_id.p == NULL)
        m->tenant_id =
            limits->tenant.p != NULL ? arena_dup(arena, limits->tenant) : SPAN_LIT("default");
    if (m->type == MESSAGE_SUBMIT && m->input.p == NULL) {
        m->input = SPAN_LIT("{}");
        struct json_builder *b = json_builder_new(arena);
        m->input_value = json_seal(b, json_new_object(b));
    }
    if (m->type == MESSAGE_SUBMIT && m->labels.p == NULL)
        m->labels = SPAN_LIT("{}");
    return true;
}

struct span message_record(const struct message *m, struct arena *arena)
{
    return message_canonical(m, false, arena);
}

static bool decode(const struct raw_record *record, const struct message_limits *limits,
                   struct arena *arena, const struct json_value **ret_root, struct message *m,
                   struct reject *ret_reject)
{
    if (!read_value(record, limits, arena, ret_root, ret_reject) ||
        !read_type(*ret_root, arena, &m->type, ret_reject) ||
        !read_fields(*ret_root, arena, m, ret_reject) ||
        !check_together(limits, arena, m, ret_reject))
        return false;
    make_request_key(record, arena, m);
    read_trace(record, arena, m);
    if (m->type != MESSAGE_SUBMIT)
        m->record = message_record(m, arena);
    m->digest = digest_span(message_canonical(m, true, arena), arena);
    return true;
}

bool message_decode(const struct raw_record *record, const struct message_limits *limits,
                    struct arena *arena, struct message *ret, struct reject *ret_reject)
{
    static const struct message_limits none = {0, {NULL, 0}};
    const struct json_value *root = NULL;
    if (limits == NULL)
        limits = &none;
    *ret = (struct message){.type = MESSAGE_SUBMIT, .max_attempts = MESSAGE_DEFAULT_ATTEMPTS};
    *ret_reject = (struct reject){0};
    read_origin(record, arena, ret);
    if (decode(record, limits, arena, &root, ret, ret_reject))
        return true;
    bool ambiguous = ret_reject->reason == REJECT_DUPLICATE_KEY &&
                     (span_eq_text(ret_reject->place, "/task_id") ||
                      span_eq_text(ret_reject->place, "/tenant_id"));
    ret_reject->has_task = salvage(root, record, limits, arena, ret) && !ambiguous;
    return false;
}

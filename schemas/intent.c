#include "schemas/intent.h"

#include <stdio.h>

#include "schemas/canon_int.h"
#include "schemas/json_int.h"
#include "schemas/rfc3339.h"
#include "schemas/shape_int.h"

/* ---- intents ---- */

static void put_uuid(struct json_builder *b, struct json_node *o, const char *key, struct uuid u)
{
    char buf[UUID_TEXT_SIZE];
    json_put_text(b, o, key, span_of(uuid_format(u, buf)));
}

struct span intent_encode(const struct intent *intent, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    char time[RFC3339_SIZE];
    switch (intent->kind) {
    case INTENT_REGISTERED:
        json_put_text(b, o, "operation_id", intent->operation_id);
        put_uuid(b, o, "run_id", intent->run_id);
        json_put_text(b, o, "tool_name", intent->tool_name);
        json_put_text(b, o, "request_digest", intent->request_digest);
        break;
    case INTENT_CLAIMED:
        rfc3339_format(intent->until_us, time);
        json_put_text(b, o, "kind", SPAN_LIT("claimed"));
        json_put_text(b, o, "operation_id", intent->operation_id);
        json_put_integer(b, o, "attempt", intent->attempt);
        json_put_integer(b, o, "timeline", intent->timeline);
        json_put_text(b, o, "until", span_of(time));
        break;
    }
    return json_build(b, o);
}

bool intent_decode(struct span value, struct arena *arena, struct intent *ret,
                   struct json_error *ret_error)
{
    static const struct shape_field registered[] = {
        {"operation_id", SHAPE_TEXT, offsetof(struct intent, operation_id)},
        {"run_id", SHAPE_UUID, offsetof(struct intent, run_id)},
        {"tool_name", SHAPE_TEXT, offsetof(struct intent, tool_name)},
        {"request_digest", SHAPE_DIGEST, offsetof(struct intent, request_digest)},
    };
    static const struct shape_field claimed[] = {
        {"kind", SHAPE_SKIP, 0},
        {"operation_id", SHAPE_TEXT, offsetof(struct intent, operation_id)},
        {"attempt", SHAPE_INT32, offsetof(struct intent, attempt)},
        {"timeline", SHAPE_INTEGER, offsetof(struct intent, timeline)},
        {"until", SHAPE_TIME, offsetof(struct intent, until_us)},
    };
    const struct json_value *root;
    if (!json_parse(value, NULL, arena, &root, ret_error))
        return false;
    struct intent found = {.kind = INTENT_REGISTERED};
    const struct json_value *kind = json_get(root, "kind");
    if (kind == NULL) {
        if (!shape_read(root, registered, COUNT_OF(registered), arena, &found, ret_error))
            return false;
    } else {
        if (!span_eq_text(json_text(kind), "claimed"))
            return json_refuse(ret_error, arena, REJECT_OUT_OF_RANGE, SPAN_LIT("/kind"),
                               "/kind must be \"claimed\"; an intent has no kind");
        found.kind = INTENT_CLAIMED;
        if (!shape_read(root, claimed, COUNT_OF(claimed), arena, &found, ret_error))
            return false;
    }
    *ret = found;
    return true;
}

/* ---- wake-ups ---- */

struct span wakeup_encode(const struct wakeup *wakeup, struct arena *arena)
{
    char buf[UUID_TEXT_SIZE];
    return span_of(arena_printf(arena, "{\"run_id\":\"%s\",\"epoch\":%lld}",
                                uuid_format(wakeup->run_id, buf), (long long)wakeup->epoch));
}

bool wakeup_decode(struct span value, struct arena *arena, struct wakeup *ret,
                   struct json_error *ret_error)
{
    static const struct shape_field fields[] = {
        {"run_id", SHAPE_UUID, offsetof(struct wakeup, run_id)},
        {"epoch", SHAPE_INTEGER, offsetof(struct wakeup, epoch)},
    };
    const struct json_value *root;
    struct wakeup found = {0};
    if (!json_parse(value, NULL, arena, &root, ret_error) ||
        !shape_read(root, fields, COUNT_OF(fields), arena, &found, ret_error))
        return false;
    *ret = found;
    return true;
}

/* ---- the relay's identity records ---- */

struct span relay_identity_encode(const struct relay_identity *identity, struct arena *arena)
{
    struct canon_out out = {.arena = arena};
    char buf[96], uuid[UUID_TEXT_SIZE];
    int n = snprintf(buf, sizeof(buf),
                     "{\"shard\":%d,\"batch\":%lld,\"system_identifier\":", (int)identity->shard,
                     (long long)identity->batch);
    canon_bytes(&out, buf, (size_t)n);
    canon_text(&out, identity->system_identifier);
    n = snprintf(buf, sizeof(buf), ",\"timeline\":%lld,\"lsn\":", (long long)identity->timeline);
    canon_bytes(&out, buf, (size_t)n);
    canon_text(&out, identity->lsn);
    canon_bytes(&out, ",\"events\":[", 11);
    for (size_t i = 0; i < identity->n_pairs; i++) {
        n = snprintf(buf, sizeof(buf), "%s[%lld,\"%s\"]", i > 0 ? "," : "",
                     (long long)identity->pairs[i].seq,
                     uuid_format(identity->pairs[i].event_id, uuid));
        canon_bytes(&out, buf, (size_t)n);
    }
    canon_bytes(&out, "]}", 2);
    return canon_end(&out);
}

static bool read_pair(const struct json_value *v, struct relay_pair *ret)
{
    struct span id = json_text(json_at(v, 1));
    return json_is(v, JSON_ARRAY) && json_count(v) == 2 && json_integer(json_at(v, 0), &ret->seq) &&
           id.p != NULL && uuid_parse(id, &ret->event_id);
}

static bool read_pairs(const struct json_value *events, struct arena *arena,
                       struct relay_identity *ret, struct json_error *ret_error)
{
    if (!json_is(events, JSON_ARRAY))
        return json_refuse(ret_error, arena, REJECT_WRONG_TYPE, SPAN_LIT("/events"),
                           "/events must be an array");
    struct relay_pair *pairs = arena_array(arena, json_count(events) + 1, sizeof(*pairs));
    struct json_iter it = json_iter(events);
    while (json_next(&it)) {
        if (!read_pair(it.value, &pairs[it.index])) {
            char *place = arena_printf(arena, "/events/%zu", it.index);
            return json_refuse(ret_error, arena, REJECT_WRONG_TYPE, span_of(place),
                               "%s must be a pair of sequence number and event UUID", place);
        }
    }
    ret->pairs = pairs;
    ret->n_pairs = json_count(events);
    return true;
}

bool relay_identity_decode(struct span value, struct arena *arena, struct relay_identity *ret,
                           struct json_error *ret_error)
{
    static const struct shape_field fields[] = {
        {"shard", SHAPE_INT32, offsetof(struct relay_identity, shard)},
        {"batch", SHAPE_INTEGER, offsetof(struct relay_identity, batch)},
        {"system_identifier", SHAPE_TEXT, offsetof(struct relay_identity, system_identifier)},
        {"timeline", SHAPE_INTEGER, offsetof(struct relay_identity, timeline)},
        {"lsn", SHAPE_TEXT, offsetof(struct relay_identity, lsn)},
        {"events", SHAPE_SKIP, 0},
    };
    const struct json_value *root;
    struct relay_identity found = {0};
    if (!json_parse(value, NULL, arena, &root, ret_error) ||
        !shape_read(root, fields, COUNT_OF(fields), arena, &found, ret_error) ||
        !read_pairs(json_get(root, "events"), arena, &found, ret_error))
        return false;
    *ret = found;
    return true;
}

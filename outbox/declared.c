// outbox/declared.c: what was declared when an operation was registered decides about it; and the
// bytes that are sent.
#include "outbox/dispatch_int.h"

#include <string.h>

#include "schemas/canon.h"

// A member as configuration would have it; lists of numbers, as registrations of older versions and
// other writers have them, too.
static const char *value_text(const struct json_value *value, struct arena *arena)
{
    if (json_is(value, JSON_STRING)) {
        return arena_dup_text(arena, json_text(value));
    }
    if (!json_is(value, JSON_ARRAY)) {
        return arena_dup_text(arena, json_write(value, arena));
    }
    struct span list = json_write(value, arena);
    return arena_dup_text(arena, (struct span){.p = list.p + 1, .n = list.n - 2});
}

const struct config_tool *declared_tool(const struct config_tool *now, struct span declaration,
                                        struct arena *arena)
{
    const struct json_value *root = NULL;
    struct json_error error;
    if (!json_parse(declaration, NULL, arena, &root, &error) || !json_is(root, JSON_OBJECT)) {
        return now;
    }
    struct config_tool *tool = arena_alloc(arena, sizeof *tool);
    *tool = *now;
    if (json_bool(json_get(root, "declared"))) {
        config_tool_forget_declared(tool, arena);
    }
    for (struct json_iter it = json_iter(root); json_next(&it);) {
        // What this version does not know was not decided by it either.
        (void)!config_tool_set_declared(tool, arena_dup_text(arena, it.key),
                                        value_text(it.value, arena), arena);
    }
    return tool;
}

// ---- the body ----

// The value with `text` as a new member at the pointer's rest; objects on the way are made. NULL:
// there is something already, or something that is no object is in the way.
static struct json_node *with_text(struct json_builder *b, const struct json_value *value,
                                   struct span rest, struct span text)
{
    if (value != NULL && !json_is(value, JSON_OBJECT)) {
        return NULL;
    }
    const char *slash = rest.n == 0 ? NULL : memchr(rest.p, '/', rest.n);
    struct span name = {.p = rest.p, .n = slash == NULL ? rest.n : (size_t)(slash - rest.p)};
    const struct json_value *present = json_get_span(value, name);
    struct json_node *object = json_new_object(b);
    for (struct json_iter it = json_iter(value); value != NULL && json_next(&it);) {
        if (!span_eq(it.key, name)) {
            json_put(b, object, it.key, json_new_copy(b, it.value));
        }
    }
    struct json_node *member = NULL;
    if (slash != NULL) {
        struct span deeper = {.p = slash + 1, .n = rest.n - name.n - 1};
        member = with_text(b, present, deeper, text);
    } else if (present == NULL) {
        member = json_new_text(b, text);
    }
    if (member == NULL) {
        return NULL;
    }
    json_put(b, object, name, member);
    return object;
}

bool declared_body(struct dispatch *d, const struct config_tool *tool, const char **ret_refused)
{
    *ret_refused = NULL;
    const struct json_value *request = NULL;
    struct json_error error;
    if (!json_parse(d->claim.request_body.text, NULL, d->arena, &request, &error)) {
        return false;
    }
    d->body = canon_write(request, d->arena);
    struct digest digest = digest_bytes(d->body);
    if (!span_eq_text(d->claim.request_digest, digest.text)) {
        return false;
    }
    if (tool->key_field[0] == '\0') {
        return true;
    }
    struct json_builder *b = json_builder_new(d->arena);
    struct json_node *root =
        with_text(b, request, span_of(tool->key_field + 1), d->claim.external_key);
    if (root == NULL) {
        *ret_refused = "the request has no place for the key at the tool's key_field";
        return false;
    }
    d->body = canon_write(json_seal(b, root), d->arena);
    return true;
}

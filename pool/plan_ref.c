/* plan_ref: references to results of earlier steps. */
#include "pool/plan_int.h"

#include <stdarg.h>

void plan_fault_set(struct plan_fault *fault, struct arena *arena, struct span place,
                    const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault->what = span_of(arena_vprintf(arena, format, args));
    va_end(args);
    fault->place = arena_dup(arena, place);
}

bool plan_is_ref(const struct json_value *v)
{
    return json_is(v, JSON_OBJECT) && json_get(v, "$ref") != NULL;
}

/* The token before the next '/', which is cut off `rest` together with its slash. */
static struct span next_token(struct span *rest)
{
    const char *slash = memchr(rest->p, '/', rest->n);
    struct span token = {rest->p, slash ? (size_t)(slash - rest->p) : rest->n};
    *rest = slash ? (struct span){slash + 1, rest->n - token.n - 1}
                  : (struct span){rest->p + rest->n, 0};
    return token;
}

bool plan_ref_read(const struct json_value *v, struct span place, struct arena *arena,
                   struct plan_ref *ret, struct plan_fault *ret_fault)
{
    struct span pointer = json_text(json_get(v, "$ref"));
    if (json_count(v) != 1 || span_is_null(pointer)) {
        plan_fault_set(
            ret_fault, arena, place,
            "a reference stands for a whole value: an object with the one member \"$ref\", a text");
        return false;
    }
    struct span steps = SPAN_LIT("/steps/");
    if (span_starts_with(pointer, steps)) {
        struct span rest = {pointer.p + steps.n, pointer.n - steps.n};
        struct span id = next_token(&rest);
        struct span from = rest;
        struct span member = next_token(&rest);
        if (id.n > 0 && (span_eq_text(member, "result") || span_eq_text(member, "remote_id"))) {
            /* the pointer within {"result":…,"remote_id":…} begins at the slash before the member
             */
            *ret = (struct plan_ref){id, {from.p - 1, from.n + 1}};
            return true;
        }
    }
    plan_fault_set(
        ret_fault, arena, place,
        "\"%.*s\" is no reference: use \"/steps/<id>/result/…\" or \"/steps/<id>/remote_id\"",
        SPAN_ARG(pointer));
    return false;
}

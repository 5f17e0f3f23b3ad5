/* plan_check: reads a plan and says, with its place, what could never run. */
#include <stdint.h>

#include "pool/nearest.h"
#include "pool/plan_int.h"
#include "schemas/message.h"

static uint64_t hash(struct span s)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * UINT64_C(1099511628211);
    return h ^ (h >> 29);
}

size_t plan_find(const struct plan_graph *graph, struct span id)
{
    for (size_t at = hash(id) & (graph->slot_n - 1); graph->slots[at] != 0;
         at = (at + 1) & (graph->slot_n - 1))
        if (span_eq(graph->steps[graph->slots[at] - 1].id, id))
            return graph->slots[at] - 1;
    return SIZE_MAX;
}

static void place_id(struct plan_graph *graph, size_t index)
{
    size_t at = hash(graph->steps[index].id) & (graph->slot_n - 1);
    while (graph->slots[at] != 0)
        at = (at + 1) & (graph->slot_n - 1);
    graph->slots[at] = index + 1;
}

static struct span place_of(struct arena *arena, struct span parent, const char *member)
{
    return json_pointer_append(parent, span_of(member), arena);
}

static bool known_fields(const struct json_value *object, struct span place,
                         const struct span *names, size_t n, struct arena *arena,
                         struct plan_fault *fault)
{
    struct json_iter it = json_iter(object);
    while (json_next(&it)) {
        bool known = false;
        for (size_t i = 0; i < n && !known; i++)
            known = span_eq(it.key, names[i]);
        if (known)
            continue;
        struct span near = nearest_name(it.key, names, n);
        struct span at = json_pointer_append(place, it.key, arena);
        if (span_is_null(near))
            plan_fault_set(fault, arena, at, "\"%.*s\" is no field of a plan here",
                           SPAN_ARG(it.key));
        else
            plan_fault_set(fault, arena, at,
                           "\"%.*s\" is no field of a plan here; did you mean \"%.*s\"?",
                           SPAN_ARG(it.key), SPAN_ARG(near));
        return false;
    }
    return true;
}

static bool read_identifier(const struct json_value *step, const char *member, size_t max,
                            struct span place, struct arena *arena, struct span *ret,
                            struct plan_fault *fault)
{
    const struct json_value *v = json_get(step, member);
    *ret = json_text(v);
    if (v == NULL)
        plan_fault_set(fault, arena, place, "a step needs \"%s\"", member);
    else if (span_is_null(*ret) || !identifier_valid(*ret, max))
        plan_fault_set(fault, arena, place_of(arena, place, member),
                       "\"%s\" must be a text of 1 to %zu characters out of A-Z a-z 0-9 _ . : -",
                       member, max);
    else
        return true;
    return false;
}

static bool read_version(const struct json_value *step, struct span place, struct arena *arena,
                         int32_t *ret, struct plan_fault *fault)
{
    const struct json_value *v = json_get(step, "effect_version");
    int64_t version = 1;
    if (v != NULL && (!json_integer(v, &version) || version < 1 || version > 1000000)) {
        plan_fault_set(fault, arena, place_of(arena, place, "effect_version"),
                       "\"effect_version\" must be an integer from 1 to 1000000");
        return false;
    }
    *ret = (int32_t)version;
    return true;
}

static bool read_step(const struct json_value *v, size_t index, const struct json_value *empty,
                      struct arena *arena, struct plan_step *ret, struct plan_fault *fault)
{
    static const struct span fields[] = {
        {"id", 2}, {"tool", 4}, {"request", 7}, {"after", 5}, {"effect_version", 14}};
    ret->place = span_of(arena_printf(arena, "/steps/%zu", index));
    if (!json_is(v, JSON_OBJECT)) {
        plan_fault_set(fault, arena, ret->place, "a step must be an object, not %s",
                       json_kind_name(json_kind(v)));
        return false;
    }
    ret->request = json_get(v, "request");
    if (ret->request == NULL)
        ret->request = empty;
    return known_fields(v, ret->place, fields, COUNT_OF(fields), arena, fault) &&
           read_identifier(v, "id", MESSAGE_MAX_STEP, ret->place, arena, &ret->id, fault) &&
           read_identifier(v, "tool", MESSAGE_MAX_HANDLER, ret->place, arena, &ret->tool, fault) &&
           read_version(v, ret->place, arena, &ret->version, fault);
}

/* ---- edges ---- */

/* What one step needs, while it is read. `marked` has the number of the last step that named it. */
struct edges {
    const struct plan_graph *graph;
    size_t self;
    size_t *needs, *marked;
    size_t n;
    struct arena *arena;
    struct plan_fault *fault;
};

static bool add_edge(struct edges *e, struct span id, struct span place)
{
    size_t to = plan_find(e->graph, id);
    if (to == SIZE_MAX) {
        struct span *names = arena_array(e->arena, e->graph->n, sizeof(*names));
        for (size_t i = 0; i < e->graph->n; i++)
            names[i] = e->graph->steps[i].id;
        struct span near = nearest_name(id, names, e->graph->n);
        if (span_is_null(near))
            plan_fault_set(e->fault, e->arena, place, "there is no step \"%.*s\"", SPAN_ARG(id));
        else
            plan_fault_set(e->fault, e->arena, place,
                           "there is no step \"%.*s\"; did you mean \"%.*s\"?", SPAN_ARG(id),
                           SPAN_ARG(near));
        return false;
    }
    if (to == e->self) {
        plan_fault_set(e->fault, e->arena, place, "step \"%.*s\" waits for itself", SPAN_ARG(id));
        return false;
    }
    if (e->marked[to] != e->self + 1) {
        e->marked[to] = e->self + 1;
        e->needs[e->n++] = to;
    }
    return true;
}

static bool add_after(struct edges *e, const struct json_value *after, struct span place)
{
    if (after == NULL)
        return true;
    if (!json_is(after, JSON_ARRAY)) {
        plan_fault_set(e->fault, e->arena, place, "\"after\" must be an array of step ids");
        return false;
    }
    struct json_iter it = json_iter(after);
    while (json_next(&it)) {
        struct span at = span_of(arena_printf(e->arena, "%.*s/%zu", SPAN_ARG(place), it.index));
        struct span id = json_text(it.value);
        if (span_is_null(id)) {
            plan_fault_set(e->fault, e->arena, at, "\"after\" must be an array of step ids");
            return false;
        }
        if (!add_edge(e, id, at))
            return false;
    }
    return true;
}

/* References anywhere in a request. The parser bounds the depth. */
static bool add_references(struct edges *e, const struct json_value *v, struct span place)
{
    if (plan_is_ref(v)) {
        struct plan_ref ref;
        return plan_ref_read(v, place, e->arena, &ref, e->fault) && add_edge(e, ref.step, place);
    }
    if (!json_is(v, JSON_ARRAY) && !json_is(v, JSON_OBJECT))
        return true;
    struct json_iter it = json_iter(v);
    while (json_next(&it)) {
        if (!json_is(it.value, JSON_ARRAY) && !json_is(it.value, JSON_OBJECT))
            continue;
        struct span at =
            span_is_null(it.key)
                ? span_of(arena_printf(e->arena, "%.*s/%zu", SPAN_ARG(place), it.index))
                : json_pointer_append(place, it.key, e->arena);
        if (!add_references(e, it.value, at))
            return false;
    }
    return true;
}

static bool read_edges(struct plan_graph *graph, const struct json_value *steps,
                       struct arena *arena, struct plan_fault *fault)
{
    size_t *marked = arena_array(arena, graph->n + 1, sizeof(*marked));
    size_t *scratch = arena_array(arena, graph->n + 1, sizeof(*scratch));
    struct json_iter it = json_iter(steps);
    while (json_next(&it)) {
        struct plan_step *step = &graph->steps[it.index];
        struct edges e = {graph, it.index, scratch, marked, 0, arena, fault};
        if (!add_after(&e, json_get(it.value, "after"), place_of(arena, step->place, "after")) ||
            !add_references(&e, step->request, place_of(arena, step->place, "request")))
            return false;
        step->need_n = e.n;
        step->needs = arena_array(arena, e.n + 1, sizeof(*step->needs));
        memcpy(step->needs, scratch, e.n * sizeof(*scratch));
    }
    return true;
}

static bool read_steps(struct plan_graph *graph, const struct json_value *steps,
                       struct arena *arena, struct plan_fault *fault)
{
    struct json_builder *builder = json_builder_new(arena);
    const struct json_value *empty = json_seal(builder, json_new_object(builder));
    struct json_iter it = json_iter(steps);
    while (json_next(&it)) {
        struct plan_step *step = &graph->steps[it.index];
        if (!read_step(it.value, it.index, empty, arena, step, fault))
            return false;
        size_t other = plan_find(graph, step->id);
        if (other != SIZE_MAX) {
            plan_fault_set(fault, arena, place_of(arena, step->place, "id"),
                           "step \"%.*s\" is there already, at %.*s", SPAN_ARG(step->id),
                           SPAN_ARG(graph->steps[other].place));
            return false;
        }
        place_id(graph, it.index);
    }
    return true;
}

bool plan_read(const struct json_value *input, struct arena *arena, struct plan_graph *ret,
               struct plan_fault *ret_fault)
{
    static const struct span fields[] = {{"steps", 5}};
    struct span root = SPAN_LIT("");
    if (!json_is(input, JSON_OBJECT)) {
        plan_fault_set(ret_fault, arena, root,
                       "the input of a plan must be an object with \"steps\"");
        return false;
    }
    if (!known_fields(input, root, fields, COUNT_OF(fields), arena, ret_fault))
        return false;
    const struct json_value *steps = json_get(input, "steps");
    if (!json_is(steps, JSON_ARRAY)) {
        plan_fault_set(ret_fault, arena, SPAN_LIT("/steps"), "a plan needs \"steps\", an array");
        return false;
    }
    if (json_count(steps) > PLAN_STEPS_MAX) {
        plan_fault_set(ret_fault, arena, SPAN_LIT("/steps"), "a plan has at most %d steps, not %zu",
                       PLAN_STEPS_MAX, json_count(steps));
        return false;
    }
    struct plan_graph graph = {.n = json_count(steps), .slot_n = 4};
    while (graph.slot_n < graph.n * 2 + 1)
        graph.slot_n *= 2;
    graph.steps = arena_array(arena, graph.n + 1, sizeof(*graph.steps));
    graph.slots = arena_array(arena, graph.slot_n, sizeof(*graph.slots));
    if (!read_steps(&graph, steps, arena, ret_fault) ||
        !read_edges(&graph, steps, arena, ret_fault))
        return false;
    *ret = graph;
    return true;
}

/* ---- cycles ---- */

/* Names one cycle: from any step that is left, going to a step it needs and that is left, until one
 * comes again. */
static void name_cycle(const struct plan_graph *graph, const bool *done, size_t from,
                       struct arena *arena, struct plan_fault *fault)
{
    size_t *seen = arena_array(arena, graph->n, sizeof(*seen)); /* position on the path + 1 */
    size_t *path = arena_array(arena, graph->n + 1, sizeof(*path));
    size_t n = 0, at = from;
    while (seen[at] == 0) {
        path[n++] = at;
        seen[at] = n;
        const struct plan_step *step = &graph->steps[at];
        for (size_t i = 0; i < step->need_n; i++)
            if (!done[step->needs[i]]) {
                at = step->needs[i];
                break;
            }
    }
    struct span text = graph->steps[at].id;
    for (size_t i = seen[at]; i <= n; i++) {
        size_t next = i < n ? path[i] : at;
        text = span_of(
            arena_printf(arena, "%.*s → %.*s", SPAN_ARG(text), SPAN_ARG(graph->steps[next].id)));
    }
    plan_fault_set(fault, arena, graph->steps[at].place, "these steps wait for each other: %.*s",
                   SPAN_ARG(text));
}

bool plan_acyclic(const struct plan_graph *graph, struct arena *arena, struct plan_fault *ret_fault)
{
    size_t n = graph->n;
    size_t *missing = arena_array(arena, n + 1, sizeof(*missing));
    size_t *first =
        arena_array(arena, n + 2, sizeof(*first)); /* edges backwards: who needs step i */
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        missing[i] = graph->steps[i].need_n;
        total += missing[i];
        for (size_t k = 0; k < graph->steps[i].need_n; k++)
            first[graph->steps[i].needs[k] + 2]++;
    }
    for (size_t i = 2; i < n + 2; i++)
        first[i] += first[i - 1];
    size_t *back = arena_array(arena, total + 1, sizeof(*back));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < graph->steps[i].need_n; k++)
            back[first[graph->steps[i].needs[k] + 1]++] = i;
    bool *done = arena_array(arena, n + 1, sizeof(*done));
    size_t *order = arena_array(arena, n + 1, sizeof(*order));
    size_t ordered = 0;
    for (size_t i = 0; i < n; i++)
        if (missing[i] == 0)
            order[ordered++] = i;
    for (size_t at = 0; at < ordered; at++) {
        done[order[at]] = true;
        for (size_t k = first[order[at]]; k < first[order[at] + 1]; k++)
            if (--missing[back[k]] == 0)
                order[ordered++] = back[k];
    }
    for (size_t i = 0; i < n; i++)
        if (!done[i]) {
            name_cycle(graph, done, i, arena, ret_fault);
            return false;
        }
    return true;
}

static bool tools_known(const struct plan_graph *graph, const struct plan_names *tools,
                        struct arena *arena, struct plan_fault *fault)
{
    for (size_t i = 0; i < graph->n; i++) {
        const struct plan_step *step = &graph->steps[i];
        bool known = false;
        for (size_t k = 0; k < tools->n && !known; k++)
            known = span_eq(step->tool, tools->names[k]);
        if (known)
            continue;
        struct span near = nearest_name(step->tool, tools->names, tools->n);
        struct span place = place_of(arena, step->place, "tool");
        if (span_is_null(near))
            plan_fault_set(fault, arena, place, "no pod ever declared a tool \"%.*s\"",
                           SPAN_ARG(step->tool));
        else
            plan_fault_set(fault, arena, place,
                           "no pod ever declared a tool \"%.*s\"; did you mean \"%.*s\"?",
                           SPAN_ARG(step->tool), SPAN_ARG(near));
        return false;
    }
    return true;
}

bool plan_check_value(const struct json_value *input, const struct plan_names *tools,
                      struct arena *arena, struct plan_fault *ret_fault)
{
    struct plan_graph graph;
    return plan_read(input, arena, &graph, ret_fault) && plan_acyclic(&graph, arena, ret_fault) &&
           (tools == NULL || tools_known(&graph, tools, arena, ret_fault));
}

bool plan_check(struct span input, const struct plan_names *tools, struct arena *arena,
                struct plan_fault *ret_fault)
{
    const struct json_value *value;
    struct json_error error;
    if (!json_parse(input, NULL, arena, &value, &error)) {
        *ret_fault = (struct plan_fault){error.place, error.detail};
        return false;
    }
    return plan_check_value(value, tools, arena, ret_fault);
}

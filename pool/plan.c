/* plan: what a run's ledger says comes next in its graph. */
#include "pool/plan.h"

#include <stdint.h>

#include "pool/plan_int.h"
#include "schemas/canon.h"

enum step_state { STEP_ABSENT, STEP_OPEN, STEP_SUCCEEDED, STEP_FAILED };

/* A step and its operation in the ledger. */
struct step_now {
    enum step_state state;
    struct span operation_id, status, remote_id;
    const struct json_value *result;
};

struct evaluation {
    const struct plan_run *run;
    const struct plan_tool *tools;
    size_t tool_n;
    struct plan_graph graph;
    struct step_now *now; /* by step */
    struct arena *arena;
    struct plan_decision *ret;
    struct span failure; /* why nothing more may start; the null span: none */
};

/* ---- reading the ledger ---- */

static enum step_state state_of(struct span status)
{
    if (span_eq_text(status, "succeeded"))
        return STEP_SUCCEEDED;
    if (span_eq_text(status, "failed_final") || span_eq_text(status, "cancelled"))
        return STEP_FAILED;
    return STEP_OPEN; /* prepared, dispatching, unknown: not settled */
}

static bool read_operations(struct evaluation *e, struct json_error *ret_error)
{
    if (span_is_null(e->run->operations))
        return true;
    /* Results are remotes' words: a number that no digest could hold is refused only where a
     * reference uses it. */
    struct json_limits limits = {.any_number = true};
    const struct json_value *operations;
    if (!json_parse(e->run->operations, &limits, e->arena, &operations, ret_error))
        return false;
    struct json_iter it = json_iter(operations);
    while (json_next(&it)) {
        struct span id = json_text(json_get(it.value, "step_id"));
        int64_t version;
        size_t step = span_is_null(id) ? SIZE_MAX : plan_find(&e->graph, id);
        if (step == SIZE_MAX || !json_integer(json_get(it.value, "effect_version"), &version) ||
            version != e->graph.steps[step].version)
            continue; /* not this plan's */
        struct step_now *now = &e->now[step];
        now->operation_id = json_text(json_get(it.value, "operation_id"));
        now->status = json_text(json_get(it.value, "status"));
        now->remote_id = json_text(json_get(it.value, "remote_id"));
        now->result = json_get(it.value, "result");
        now->state = state_of(now->status);
    }
    return true;
}

/* ---- failures: one object each, the same at every evaluation ---- */

static struct span failure_at(struct evaluation *e, const char *reason, struct span step,
                              struct span place, struct span detail)
{
    struct json_builder *b = json_builder_new(e->arena);
    struct json_node *failure = json_new_object(b);
    json_put_text(b, failure, "reason", span_of(reason));
    if (!span_is_null(step))
        json_put_text(b, failure, "step", step);
    json_put_text(b, failure, "place", place);
    json_put_text(b, failure, "detail", detail);
    return json_build(b, failure);
}

static struct span failure_of_step(struct evaluation *e, size_t index)
{
    const struct plan_step *step = &e->graph.steps[index];
    const struct step_now *now = &e->now[index];
    struct json_builder *b = json_builder_new(e->arena);
    struct json_node *failure = json_new_object(b);
    json_put_text(b, failure, "reason", SPAN_LIT("step_failed"));
    json_put_text(b, failure, "step", step->id);
    json_put_text(b, failure, "tool", step->tool);
    json_put_text(b, failure, "operation_id", now->operation_id);
    json_put_text(b, failure, "status", now->status);
    json_put_text(b, failure, "remote_id", now->remote_id);
    json_put_copy(b, failure, "answer", now->result);
    json_put_text(
        b, failure, "detail",
        span_of(arena_printf(e->arena,
                             "step \"%.*s\" ended %.*s; see answer for the words of tool \"%.*s\"",
                             SPAN_ARG(step->id), SPAN_ARG(now->status), SPAN_ARG(step->tool))));
    return json_build(b, failure);
}

/* ---- requests with their references resolved ---- */

struct resolving {
    struct evaluation *e;
    struct json_builder *b;
    struct span place;  /* of the fault */
    struct span detail; /* not null: a fault */
};

static struct json_node *resolve(struct resolving *r, const struct json_value *v,
                                 struct span place);

static struct json_node *resolve_reference(struct resolving *r, const struct json_value *v,
                                           struct span place)
{
    struct arena *arena = r->e->arena;
    struct plan_ref ref;
    struct plan_fault fault;
    if (!plan_ref_read(v, place, arena, &ref, &fault)) {
        r->place = fault.place;
        r->detail = fault.what;
        return NULL;
    }
    const struct step_now *now = &r->e->now[plan_find(&r->e->graph, ref.step)];
    struct span member = SPAN_LIT("/remote_id");
    if (span_eq(ref.rest, member) && !span_is_null(now->remote_id))
        return json_new_text(r->b, now->remote_id);
    struct span result = SPAN_LIT("/result");
    if (span_starts_with(ref.rest, result) &&
        (ref.rest.n == result.n || ref.rest.p[result.n] == '/') && now->result != NULL) {
        struct span rest = {ref.rest.p + result.n, ref.rest.n - result.n};
        const struct json_value *value = json_pointer(now->result, rest, NULL);
        if (value != NULL)
            return json_new_copy(r->b, value);
    }
    r->place = place;
    r->detail =
        span_of(arena_printf(arena, "\"%.*s\" points to nothing in what step \"%.*s\" answered",
                             SPAN_ARG(json_text(json_get(v, "$ref"))), SPAN_ARG(ref.step)));
    return NULL;
}

static struct json_node *resolve_children(struct resolving *r, const struct json_value *v,
                                          struct span place)
{
    bool array = json_is(v, JSON_ARRAY);
    struct json_node *to = array ? json_new_array(r->b) : json_new_object(r->b);
    struct json_iter it = json_iter(v);
    while (json_next(&it)) {
        struct span at =
            array ? span_of(arena_printf(r->e->arena, "%.*s/%zu", SPAN_ARG(place), it.index))
                  : json_pointer_append(place, it.key, r->e->arena);
        struct json_node *child = resolve(r, it.value, at);
        if (child == NULL)
            return NULL;
        if (array)
            json_push(r->b, to, child);
        else
            json_put(r->b, to, it.key, child);
    }
    return to;
}

/* NULL: a fault, in r. */
static struct json_node *resolve(struct resolving *r, const struct json_value *v, struct span place)
{
    if (plan_is_ref(v))
        return resolve_reference(r, v, place);
    if (json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT))
        return resolve_children(r, v, place);
    return json_new_copy(r->b, v);
}

/* The canonical request of a step; false: the failure is set. */
static bool resolve_request(struct evaluation *e, const struct plan_step *step, struct span *ret)
{
    struct resolving r = {e, json_builder_new(e->arena), SPAN_NULL, SPAN_NULL};
    struct span place = json_pointer_append(step->place, SPAN_LIT("request"), e->arena);
    struct json_node *root = resolve(&r, step->request, place);
    if (root == NULL) {
        e->failure = failure_at(e, "reference_to_nothing", step->id, r.place, r.detail);
        return false;
    }
    /* Parsed again under the strict rules: what came in by reference must be fit for a digest. */
    const struct json_value *value;
    struct json_error error;
    if (!json_parse(json_build(r.b, root), NULL, e->arena, &value, &error)) {
        e->failure = failure_at(
            e, "request_not_canonical", step->id,
            span_of(arena_printf(e->arena, "%.*s%.*s", SPAN_ARG(place), SPAN_ARG(error.place))),
            error.detail);
        return false;
    }
    *ret = canon_write(value, e->arena);
    return true;
}

/* ---- intents ---- */

static const struct plan_tool *tool_of(const struct evaluation *e, struct span name)
{
    for (size_t i = 0; i < e->tool_n; i++)
        if (span_eq(e->tools[i].name, name))
            return &e->tools[i];
    return NULL;
}

static struct span identity(struct evaluation *e, struct uuid run, const struct plan_step *step)
{
    char text[UUID_TEXT_SIZE];
    return span_of(arena_printf(e->arena, "%.*s/%s/%.*s/%d", SPAN_ARG(e->run->tenant),
                                uuid_format(run, text), SPAN_ARG(step->id), (int)step->version));
}

static bool add_intent(struct evaluation *e, size_t index)
{
    const struct plan_step *step = &e->graph.steps[index];
    const struct plan_tool *tool = tool_of(e, step->tool);
    if (tool == NULL) {
        e->ret->next = PLAN_UNABLE;
        e->ret->result =
            failure_at(e, "tool_not_declared", step->id,
                       json_pointer_append(step->place, SPAN_LIT("tool"), e->arena),
                       span_of(arena_printf(e->arena, "this pod declares no tool \"%.*s\"",
                                            SPAN_ARG(step->tool))));
        return false;
    }
    struct span body;
    if (!resolve_request(e, step, &body))
        return false;
    struct plan_intent *intent = &e->ret->intents[e->ret->intent_n++];
    struct span operation_id = identity(e, e->run->run_id, step);
    *intent = (struct plan_intent){
        .operation_id = operation_id,
        .step = step->id,
        .tool = step->tool,
        .digest = digest_span(body, e->arena),
        .body = body,
        .capability = tool->capability,
        .declaration = tool->declaration,
        .external_key =
            tool->submission_key ? identity(e, e->run->first_run_id, step) : operation_id,
        .version = step->version,
    };
    return true;
}

static bool may_start(const struct evaluation *e, size_t index)
{
    const struct plan_step *step = &e->graph.steps[index];
    if (e->now[index].state != STEP_ABSENT)
        return false;
    for (size_t i = 0; i < step->need_n; i++)
        if (e->now[step->needs[i]].state != STEP_SUCCEEDED)
            return false;
    return true;
}

/* ---- decisions ---- */

static struct span output_of(struct evaluation *e)
{
    struct json_builder *b = json_builder_new(e->arena);
    struct json_node *output = json_new_object(b);
    struct json_node *steps = json_new_object(b);
    for (size_t i = 0; i < e->graph.n; i++) {
        struct json_node *step = json_new_object(b);
        json_put_text(b, step, "status", e->now[i].status);
        json_put_text(b, step, "remote_id", e->now[i].remote_id);
        json_put_copy(b, step, "result", e->now[i].result);
        json_put(b, steps, e->graph.steps[i].id, step);
    }
    json_put_node(b, output, "steps", steps);
    return json_build(b, output);
}

/* Parks on what is open. While steps are left that have not started, any end may let one start;
 * else only all matter. */
static void wait_for_open(struct evaluation *e, bool all)
{
    struct plan_decision *d = e->ret;
    d->next = PLAN_WAIT;
    d->wait_all = all;
    d->wait_for = arena_array(e->arena, e->graph.n + 1, sizeof(*d->wait_for));
    for (size_t i = 0; i < e->graph.n; i++)
        if (e->now[i].state == STEP_OPEN)
            d->wait_for[d->wait_n++] = e->now[i].operation_id;
    for (size_t i = 0; i < d->intent_n; i++)
        d->wait_for[d->wait_n++] = d->intents[i].operation_id;
}

/* Nothing more starts. What is in flight is waited for, then the run fails with the first failure
 * in the plan's order. */
static void decide_failed(struct evaluation *e, size_t open_n)
{
    e->ret->intent_n = 0;
    if (open_n > 0) {
        wait_for_open(e, true);
        return;
    }
    e->ret->next = PLAN_FAILED;
    e->ret->result = e->failure;
}

static void decide(struct evaluation *e)
{
    size_t open_n = 0, succeeded_n = 0;
    for (size_t i = 0; i < e->graph.n; i++) {
        open_n += e->now[i].state == STEP_OPEN ? 1 : 0;
        succeeded_n += e->now[i].state == STEP_SUCCEEDED ? 1 : 0;
        if (e->now[i].state == STEP_FAILED && span_is_null(e->failure))
            e->failure = failure_of_step(e, i);
    }
    if (succeeded_n == e->graph.n) {
        e->ret->next = PLAN_SUCCEEDED;
        e->ret->result = output_of(e);
        return;
    }
    e->ret->intents = arena_array(e->arena, e->graph.n + 1, sizeof(*e->ret->intents));
    for (size_t i = 0; i < e->graph.n && span_is_null(e->failure); i++)
        if (may_start(e, i) && !add_intent(e, i) && e->ret->next == PLAN_UNABLE)
            return;
    if (!span_is_null(e->failure)) {
        decide_failed(e, open_n);
        return;
    }
    CHECK(open_n + e->ret->intent_n > 0); /* plan_acyclic: something is open or may start */
    wait_for_open(e, succeeded_n + open_n + e->ret->intent_n == e->graph.n);
}

static void fail_plan(struct evaluation *e, const char *reason, struct span place,
                      struct span detail)
{
    e->ret->next = PLAN_FAILED;
    e->ret->result = failure_at(e, reason, SPAN_NULL, place, detail);
}

void plan_evaluate(const struct plan_run *run, const struct plan_tool *tools, size_t tool_n,
                   struct arena *arena, struct plan_decision *ret)
{
    *ret = (struct plan_decision){.next = PLAN_WAIT};
    struct evaluation e = {
        .run = run, .tools = tools, .tool_n = tool_n, .arena = arena, .ret = ret};
    const struct json_value *input;
    struct json_error error;
    if (!json_parse(run->input, NULL, arena, &input, &error)) {
        fail_plan(&e, "plan_invalid", error.place, error.detail);
        return;
    }
    struct plan_fault fault;
    if (!plan_read(input, arena, &e.graph, &fault) || !plan_acyclic(&e.graph, arena, &fault)) {
        fail_plan(&e, "plan_invalid", fault.place, fault.what);
        return;
    }
    e.now = arena_array(arena, e.graph.n + 1, sizeof(*e.now));
    if (!read_operations(&e, &error)) {
        fail_plan(&e, "ledger_unreadable", error.place, error.detail);
        return;
    }
    decide(&e);
}

/* A plan's graph in memory; private to the files plan*.c and their tests. Everything lives in the
 * reader's arena. */
#ifndef HOLDFAST_POOL_PLAN_INT_H
#define HOLDFAST_POOL_PLAN_INT_H

#include "pool/plan.h"
#include "schemas/json.h"

struct plan_step {
    struct span id, tool;
    const struct json_value *request; /* never NULL; an absent request is {} */
    struct span place;                /* "/steps/3" */
    int32_t version;
    size_t *needs; /* steps whose success it waits for: after, and what its references point to;
                      each once */
    size_t need_n;
};

struct plan_graph {
    struct plan_step *steps;
    size_t n;
    size_t *slots; /* hash of ids: index + 1; 0 is free */
    size_t slot_n; /* a power of two */
};

/* Reads and checks the shape, identifiers and references, not the tools' names and not for cycles.
 */
MUST_CHECK bool plan_read(const struct json_value *input, struct arena *arena,
                          struct plan_graph *ret, struct plan_fault *ret_fault);
/* False, with the steps of one cycle named in the fault. */
MUST_CHECK bool plan_acyclic(const struct plan_graph *graph, struct arena *arena,
                             struct plan_fault *ret_fault);
/* SIZE_MAX: no step of that id. */
size_t plan_find(const struct plan_graph *graph, struct span id);

/* A reference {"$ref": "/steps/<id>/result/…"}: which step, and the pointer within its
 * {"result","remote_id"}. */
struct plan_ref {
    struct span step, rest;
};
/* True when v is an object with a member "$ref" (well formed or not). */
bool plan_is_ref(const struct json_value *v);
MUST_CHECK bool plan_ref_read(const struct json_value *v, struct span place, struct arena *arena,
                              struct plan_ref *ret, struct plan_fault *ret_fault);

void plan_fault_set(struct plan_fault *fault, struct arena *arena, struct span place,
                    const char *format, ...) PRINTF_LIKE(4, 5);

#endif

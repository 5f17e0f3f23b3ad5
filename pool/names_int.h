/* names: what this pod declares, and what any pod ever declared. */
#ifndef HOLDFAST_POOL_NAMES_INT_H
#define HOLDFAST_POOL_NAMES_INT_H

#include "schemas/json.h"

#include "fence/fence.h"
#include "pool/plan.h"

struct names;

MUST_CHECK struct names *names_new(const struct config *cfg);
void names_free(struct names *n);

/* The pod's tools as plans need them; live as long as names. */
const struct plan_tool *names_plan_tools(const struct names *n, size_t *ret_n);

/* Declares this pod's handlers and tools. Thread: any, one lane each. */
MUST_CHECK enum outcome names_register(const struct names *n, struct fence *f);

/* Reads what is known; asked for again at most once a second, so that a flood of typos costs
 * nothing. Thread: submit. */
enum outcome names_refresh(struct names *n, struct fence *f);
/* Thread: submit. */
bool names_has_handler(const struct names *n, struct span name);
struct span names_nearest_handler(const struct names *n, struct span name);
struct plan_names names_tools(const struct names *n);

#endif

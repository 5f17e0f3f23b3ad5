/* plan: a graph of tool calls written as data,
 * {"steps":[{"id","tool","request","after","effect_version"}]}.
 *
 * Purpose    plan_check() tells at submission whether a plan can ever run, with the place of what
 * is wrong. plan_evaluate() looks at a run's input and ledger and says what comes next: operations
 * to register, what to wait for, or how the run ends. It is a pure function: the plan keeps no
 * state but the ledger's. Ownership  Results live in the caller's arena. Inputs are borrowed.
 * Threads    any.
 * Errors     A refused plan is described by struct plan_fault: a JSON pointer into the input, and a
 * sentence. Never      talks to anything.
 */
#ifndef HOLDFAST_POOL_PLAN_H
#define HOLDFAST_POOL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"

enum { PLAN_STEPS_MAX = 1000 };

struct plan_fault {
    struct span place; /* JSON pointer into the input, "/steps/3/after/0" */
    struct span what;  /* a sentence, with the nearest match where a name is unknown */
};

/* Tool names that a plan may use. NULL set: names are not checked (a CLI without a database). */
struct plan_names {
    const struct span *names;
    size_t n;
};

MUST_CHECK bool plan_check(struct span input, const struct plan_names *tools, struct arena *arena,
                           struct plan_fault *ret_fault);

/* The same for an input that is parsed already. */
struct json_value;
MUST_CHECK bool plan_check_value(const struct json_value *input, const struct plan_names *tools,
                                 struct arena *arena, struct plan_fault *ret_fault);

/* A tool as this pod declares it: what is stored with an operation and decides about it. */
struct plan_tool {
    struct span name;
    struct span capability;
    struct span declaration; /* JSON */
    bool submission_key;     /* key_scope = submission: the remote sees the chain's key */
};

struct plan_run {
    struct span tenant;
    struct uuid run_id, first_run_id;
    struct span input;
    struct span operations; /* JSON array as acquire answers it; NULL: none */
};

struct plan_intent {
    struct span operation_id, step, tool, digest, body, capability, declaration, external_key;
    int32_t version;
};

enum plan_next {
    PLAN_WAIT,      /* register the intents (may be none), park until the wait is met */
    PLAN_SUCCEEDED, /* result is the output */
    PLAN_FAILED,    /* result is the failure */
    PLAN_UNABLE,    /* this pod does not declare a tool it needs: the attempt fails, another may do;
                       result says so */
};
struct plan_decision {
    enum plan_next next;
    struct plan_intent *intents;
    size_t intent_n;
    bool wait_all; /* all of wait_for, else any of it */
    struct span *wait_for;
    size_t wait_n;
    struct span result; /* JSON */
};

/* Always gives a decision: a plan that cannot go on fails its run and names the place, once nothing
 * is in flight. */
void plan_evaluate(const struct plan_run *run, const struct plan_tool *tools, size_t tool_n,
                   struct arena *arena, struct plan_decision *ret);

#endif

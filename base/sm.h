/* A small state machine kit: states and events are enums of the user, the moves are a table, and
 * what is not in the table does not happen. Pure: no threads, no memory, no actions.
 *
 *   static const struct sm_move moves[] = {{IDLE, START, RUNNING}, {RUNNING, END, IDLE}};
 *   static const struct sm machine = {"relay", state_names, event_names, moves, COUNT_OF(moves)};
 *   if (!sm_step(&machine, &state, START)) … refused, state unchanged */
#ifndef HOLDFAST_BASE_SM_H
#define HOLDFAST_BASE_SM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"
#include "base/text.h"

struct sm_move {
    int from;
    int event;
    int to;
};

struct sm {
    const char *name;
    const char *const *state_names; /* indexed by state */
    const char *const *event_names; /* indexed by event */
    const struct sm_move *moves;
    size_t n_moves;
};

/* False: this event is not allowed in this state, which stays as it is. */
MUST_CHECK bool sm_step(const struct sm *machine, int *state, int event);
bool sm_allows(const struct sm *machine, int state, int event);

/* The table as a Mermaid state diagram, for docs. */
void sm_print(const struct sm *machine, struct text *t);

#endif

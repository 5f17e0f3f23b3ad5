#include "base/sm.h"

static const struct sm_move *move_of(const struct sm *machine, int state, int event)
{
    for (size_t i = 0; i < machine->n_moves; i++)
        if (machine->moves[i].from == state && machine->moves[i].event == event)
            return &machine->moves[i];
    return NULL;
}

bool sm_allows(const struct sm *machine, int state, int event)
{
    return move_of(machine, state, event) != NULL;
}

bool sm_step(const struct sm *machine, int *state, int event)
{
    const struct sm_move *move = move_of(machine, *state, event);
    if (move == NULL)
        return false;
    *state = move->to;
    return true;
}

void sm_print(const struct sm *machine, struct text *t)
{
    text_add_str(t, "stateDiagram-v2\n");
    for (size_t i = 0; i < machine->n_moves; i++) {
        const struct sm_move *m = &machine->moves[i];
        text_addf(t, "    %s --> %s: %s\n", machine->state_names[m->from],
                  machine->state_names[m->to], machine->event_names[m->event]);
    }
}

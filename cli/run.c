// holdfast run: a production pod.
#include "cli/commands.h"
#include "cli/pod.h"
#include "cli/session.h"

int command_run(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) =
        session_config(inv, CONFIG_NEEDS_POSTGRES | CONFIG_NEEDS_KAFKA);
    return cfg != NULL ? pod_run(cfg) : EXIT_CANNOT_RUN;
}

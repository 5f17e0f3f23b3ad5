// pod: one process of the product. Wires configuration, pool, outbox and console together, and
// waits at the start for what is not up yet, saying so.
//
// Threads: main. Ownership: the configuration is borrowed and must outlive the pod.
#ifndef HOLDFAST_CLI_POD_H
#define HOLDFAST_CLI_POD_H

#include "config/config.h"

// Runs until SIGTERM or SIGINT (which are blocked and taken by this function). 0 after a graceful
// end, 2 when it cannot run as configured. A second signal ends the process at once.
int pod_run(const struct config *cfg);

#endif

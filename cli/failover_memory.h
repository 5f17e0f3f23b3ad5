// What Kafka remembers of runs and operations, for the audit of a failover.
//
// Ownership: the caller's, freed with memory_of_kafka_free; spans live as long. Threads: one.
#ifndef HOLDFAST_CLI_FAILOVER_MEMORY_H
#define HOLDFAST_CLI_FAILOVER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"
#include "broker/broker.h"
#include "config/config.h"

struct remembered {
    struct span key; // of a run its id as text, else the operation_id
    bool is_run;
    struct uuid run_id;
    int64_t timeline; // of the latest history that speaks of it
    int64_t epoch, revision;
    struct span status;       // how it ended or was settled; null: it was not
    struct span tool, digest; // operations; null: nobody said
    int32_t attempt;          // operations: the highest that a claim is known of; 0: none
};

struct memory_of_kafka {
    struct arena *arena;
    struct remembered **slots;
    size_t n_slots, n;
    size_t events, claims;
};

void memory_of_kafka_free(struct memory_of_kafka *memory);
// Reads the result topic and the intents topic, both whole. False: ret_error says why.
MUST_CHECK bool memory_of_kafka_read(struct memory_of_kafka *memory, struct broker *broker,
                                     const struct config *cfg, struct broker_error *ret_error);

#endif

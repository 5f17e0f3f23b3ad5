// The read calls of the commands, as descriptor rows.
#ifndef HOLDFAST_CLI_READS_H
#define HOLDFAST_CLI_READS_H

#include "schemas/db.h"

struct story_in {
    struct span tenant, task;
    struct uuid_opt run;
};
struct story_row {
    struct json_span story; // NULL: there is no such task or run
};
extern const struct db_call read_story;

#endif

// The read calls of the commands.
#include "cli/reads.h"

static const struct db_param story_params[] = {
    DB_SCALAR(struct story_in, tenant),
    DB_SCALAR(struct story_in, task),
    DB_SCALAR(struct story_in, run),
};
static const struct db_column story_columns[] = {DB_COLUMN(struct story_row, story)};
const struct db_call read_story = DB_CALL("story", story_params, story_columns, DB_READ);

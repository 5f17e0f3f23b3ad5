// A task's story for a person; the JSON is what the SQL function story() answers.
#ifndef HOLDFAST_CLI_STORY_TEXT_H
#define HOLDFAST_CLI_STORY_TEXT_H

#include "base/text.h"
#include "schemas/json.h"

// Pure. Texts out of the story are printed with control characters escaped: they came from outside.
void story_text(const struct json_value *story, struct arena *arena, struct text *t);

#endif

#include <string.h>

#include "schemas/json.h"
#include "schemas/message.h"

static const struct {
    const char *word;
    const char *meaning;
} reasons[] = {
#define REJECT(ID, word, meaning) [REJECT_##ID] = {word, meaning},
#include "schemas/reject.tbl.h"
#undef REJECT
};

const char *reject_word(enum reject_reason reason)
{
    CHECK((size_t)reason < COUNT_OF(reasons));
    return reasons[reason].word;
}

const char *reject_meaning(enum reject_reason reason)
{
    CHECK((size_t)reason < COUNT_OF(reasons));
    return reasons[reason].meaning;
}

bool reject_from_word(const char *word, enum reject_reason *ret)
{
    for (size_t i = 0; i < COUNT_OF(reasons); i++) {
        if (strcmp(reasons[i].word, word) == 0) {
            *ret = (enum reject_reason)i;
            return true;
        }
    }
    return false;
}

struct span reject_json(const struct reject *reject, struct arena *arena)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *o = json_new_object(b);
    json_put_text(b, o, "reason", span_of(reject_word(reject->reason)));
    json_put_text(b, o, "place", reject->place);
    json_put_text(b, o, "detail", reject->detail);
    return json_build(b, o);
}

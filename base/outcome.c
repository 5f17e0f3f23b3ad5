#include "base/outcome.h"

struct row {
    const char *word;
    enum outcome_class class;
    const char *sentence;
};

static const struct row rows[OUTCOME_COUNT] = {
#define OUTCOME(code, word, class, sentence) [OUTCOME_##code] = {word, CLASS_##class, sentence},
#include "base/outcome.tbl.h"
#undef OUTCOME
};

static const struct row *row_of(enum outcome o)
{
    CHECK((unsigned)o < OUTCOME_COUNT);
    return &rows[o];
}

const char *outcome_word(enum outcome o)
{
    return row_of(o)->word;
}

enum outcome_class outcome_class(enum outcome o)
{
    return row_of(o)->class;
}

const char *outcome_sentence(enum outcome o)
{
    return row_of(o)->sentence;
}

const char *outcome_class_word(enum outcome_class c)
{
    switch (c) {
    case CLASS_DONE:
        return "done";
    case CLASS_REFUSED:
        return "refused";
    case CLASS_RETRY:
        return "retry";
    case CLASS_UNKNOWN:
        return "unknown";
    case CLASS_BUG:
        return "bug";
    }
    NOT_REACHED("an outcome class");
    return "";
}

bool outcome_from_word(struct span word, enum outcome *ret)
{
    for (unsigned i = 0; i < OUTCOME_COUNT; i++)
        if (span_eq_text(word, rows[i].word)) {
            *ret = (enum outcome)i;
            return true;
        }
    return false;
}

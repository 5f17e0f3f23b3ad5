/* One outcome type for the whole house. The word is the same in SQL, log, metric and document, from
 * one table (outcome.tbl.h); the class says what the caller may do next.
 *
 * A switch over outcomes has no default: a new row makes the compiler name every place that must
 * decide. */
#ifndef HOLDFAST_BASE_OUTCOME_H
#define HOLDFAST_BASE_OUTCOME_H

#include <stdbool.h>

#include "base/check.h"
#include "base/span.h"

enum outcome {
#define OUTCOME(code, word, class, sentence) OUTCOME_##code,
#include "base/outcome.tbl.h"
#undef OUTCOME
    OUTCOME_COUNT
};

enum outcome_class {
    CLASS_DONE,    /* it happened, now or before */
    CLASS_REFUSED, /* it did not happen and will not by asking again */
    CLASS_RETRY,   /* it did not happen; the same may be asked again, within a budget */
    CLASS_UNKNOWN, /* it may have happened: ask again with the same identity, never guess */
    CLASS_BUG      /* this program, its rights or its schema are wrong */
};

/* Thread: any. */
const char *outcome_word(enum outcome o);
enum outcome_class outcome_class(enum outcome o);
const char *outcome_sentence(enum outcome o); /* for people, without a full stop at the end */
const char *outcome_class_word(enum outcome_class c);
MUST_CHECK bool outcome_from_word(struct span word, enum outcome *ret);

#endif

#ifndef HOLDFAST_SCHEMAS_MESSAGE_INT_H
#define HOLDFAST_SCHEMAS_MESSAGE_INT_H

/* The fields of a task record: one table for reading, defaults, canonical writing and the advice in
 * errors. */

#include "schemas/message.h"

enum field_kind {
    FIELD_TYPE,       /* read before all others */
    FIELD_IDENTIFIER, /* -> struct span */
    FIELD_TEXT,       /* -> struct span; no control characters */
    FIELD_UUID,       /* -> struct uuid, has -> bool */
    FIELD_INTEGER,    /* -> int32_t */
    FIELD_BOOL,       /* -> bool */
    FIELD_TIME,       /* -> int64_t, has -> bool */
    FIELD_ON_ACTIVE,  /* -> bool cancel_previous */
    FIELD_OBJECT,     /* -> struct span, canonical */
    FIELD_LABELS,     /* -> struct span, canonical */
    FIELD_JSON,       /* -> struct span, canonical */
    FIELD_FUTURE      /* known, not honoured by this version */
};

#define IN_SUBMIT (1u << MESSAGE_SUBMIT)
#define IN_CANCEL (1u << MESSAGE_CANCEL)
#define IN_RETRY (1u << MESSAGE_RETRY)
#define IN_SIGNAL (1u << MESSAGE_SIGNAL)
#define IN_ALL (IN_SUBMIT | IN_CANCEL | IN_RETRY | IN_SIGNAL)

struct field {
    const char *name;
    enum field_kind kind;
    unsigned in;       /* types of record that have it */
    unsigned required; /* types that must have it */
    bool names_only;   /* names the request or who sent it: not part of the digest */
    size_t at;         /* in struct message */
    size_t has;        /* of the bool beside it, FIELD_UUID and FIELD_TIME */
    int64_t min, max;  /* of a number, or characters of a text */
};

extern const struct field message_fields[]; /* sorted by name */
extern const size_t message_field_count;

const struct field *message_field(struct span name);
/* The name of a field of this type that is nearest to a mistyped one; NULL: none is near. */
const char *message_nearest_field(struct span name, enum message_type type);
/* Of a list of words, ended by NULL. */
const char *nearest_word(struct span word, const char *const *words);

/* Fills *ret; always false. The place is "/<field>" or deeper. */
bool message_refuse(struct reject *ret, struct arena *arena, enum reject_reason reason,
                    struct span place, const char *format, ...) PRINTF_LIKE(5, 6);

/* Reads one value into *m, checked. */
MUST_CHECK bool message_read_field(const struct field *field, const struct json_value *v,
                                   struct arena *arena, struct message *m,
                                   struct reject *ret_reject);

/* The canonical record with defaults; for_digest leaves out what only names the request. */
struct span message_canonical(const struct message *m, bool for_digest, struct arena *arena);

#endif

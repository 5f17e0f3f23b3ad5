#ifndef HOLDFAST_SCHEMAS_MESSAGE_H
#define HOLDFAST_SCHEMAS_MESSAGE_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"
#include "schemas/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Records of the task topic: submit, cancel, retry, signal, in JSON or MessagePack, decoded and
 * checked completely. What leaves here needs no further check before SQL, except what only a
 * handler knows (a plan's graph). Pure: no I/O, no clock. Threads: any, one arena each. Unknown
 * fields are refused by name, with the nearest match.
 */

struct raw_header {
    struct span name;
    struct span value;
};

/* A record as Kafka gave it; all borrowed. */
struct raw_record {
    struct span cluster; /* Kafka's cluster id */
    struct span topic;
    int32_t partition;
    int64_t offset;
    int64_t timestamp_ms;
    struct span key;   /* null span: none */
    struct span value; /* null span: none */
    const struct raw_header *headers;
    size_t n_headers;
};

struct message_limits {
    size_t max_bytes;   /* of a record's value; 0: MESSAGE_MAX_BYTES */
    struct span tenant; /* what configuration maps the topic to; null span: the record says it */
};

#define MESSAGE_MAX_BYTES 900000
#define MESSAGE_MAX_TENANT 64
#define MESSAGE_MAX_STEP 64
#define MESSAGE_MAX_HANDLER 64
#define MESSAGE_MAX_EVENT 64 /* the type of an event that a step emits */
#define MESSAGE_MAX_SIGNAL_NAME 64
#define MESSAGE_MAX_TASK 200
#define MESSAGE_MAX_REQUEST 200
#define MESSAGE_MAX_BY 200
#define MESSAGE_MAX_REASON 1000
#define MESSAGE_MAX_LABELS 32
#define MESSAGE_MAX_LABEL_KEY 64
#define MESSAGE_MAX_LABEL_VALUE 256
#define MESSAGE_MIN_PRIORITY (-1000)
#define MESSAGE_MAX_PRIORITY 1000
#define MESSAGE_MAX_ATTEMPTS 1000
#define MESSAGE_DEFAULT_ATTEMPTS 3

enum message_type { MESSAGE_SUBMIT, MESSAGE_CANCEL, MESSAGE_RETRY, MESSAGE_SIGNAL };
const char *message_type_word(enum message_type type);

/* Texts live in the arena and end in NUL; the null span where absent. */
struct message {
    enum message_type type;
    struct span tenant_id;
    struct span task_id; /* null span: the record names a run only */
    bool has_run;
    struct uuid run_id;

    struct span request_key; /* "r:<request_id>" or
                                "kafka:<cluster>/<topic>/<partition>/<offset>/<timestamp ms>" */
    struct span request_id;  /* the producer's; the null span: none */
    bool own_key;            /* request_key is the producer's */
    struct span digest;      /* over the canonical record, defaults filled in; see below */
    struct span source;      /* "<topic>/<partition>/<offset>/<timestamp ms>" */
    struct span by;
    struct span record; /* of a cancel, retry or signal: message_record(), kept while it waits */
    struct span
        traceparent; /* well formed, or the null span: a broken one is dropped, as W3C asks */
    struct span tracestate;

    /* submit */
    struct span handler;
    struct span input; /* canonical JSON object */
    const struct json_value *input_value;
    int32_t priority;
    bool has_not_before, has_deadline;
    int64_t not_before_us, deadline_us; /* Unix time */
    int32_t max_attempts;
    bool cancel_previous; /* on_active */
    struct span labels;   /* canonical JSON object of texts */

    /* submit and retry */
    bool allow_unsettled;

    /* retry */
    bool fresh;

    /* cancel and retry */
    struct span reason;

    /* signal; its request key is "r:<signal_id>" */
    struct span signal_id;
    struct span name;
    struct span payload; /* canonical JSON; the null span: none */
};

/*
 * What the digest covers: everything that changes the effect: type, tenant, task, run, and all
 * fields of the type with their defaults, times as instants. Not covered: request_id (it names the
 * request), by, trace headers: the same request sent again by another process of the producer is
 * the same request.
 */

enum reject_reason {
#define REJECT(ID, word, meaning) REJECT_##ID,
#include "schemas/reject.tbl.h"
#undef REJECT
};
const char *reject_word(enum reject_reason reason);
const char *reject_meaning(enum reject_reason reason);
MUST_CHECK bool reject_from_word(const char *word,
                                 enum reject_reason *ret); /* json_error's reason */

struct reject {
    enum reject_reason reason;
    struct span place;  /* JSON pointer, "byte 17" or "header content-type"; ends in NUL */
    struct span detail; /* the sentence a person reads, place included; ends in NUL */
    bool has_task;      /* tenant, task, request key, digest and source of *ret are set: it can be
                           recorded and answered */
};

/*
 * True: *ret is complete. False: *ret_reject says why; if has_task, the identity in *ret is set
 * (digest over the bytes as they came) and the refusal belongs on record as `invalid`; dead-letter
 * it in either case.
 */
MUST_CHECK bool message_decode(const struct raw_record *record, const struct message_limits *limits,
                               struct arena *arena, struct message *ret, struct reject *ret_reject);

/* The record itself in canonical form with its defaults: decodes to the same message again. */
struct span message_record(const struct message *m, struct arena *arena);

/* {"reason","place","detail"} for p_reject and the event submission.rejected. */
struct span reject_json(const struct reject *reject, struct arena *arena);

/* True: 1 to max characters out of A-Z a-z 0-9 _ . : - */
bool identifier_valid(struct span text, size_t max);

#endif

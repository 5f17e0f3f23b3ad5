#ifndef HOLDFAST_SCHEMAS_RESULT_H
#define HOLDFAST_SCHEMAS_RESULT_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"
#include "schemas/message.h"

/*
 * Result events: an outbox row to a Kafka record (key, value, CloudEvents 1.0 headers in binary
 * mode) and back. Threads: any, one arena each. Nothing here fails for its content: what is too
 * large is published by reference.
 */

/* A row of outbox_events; all borrowed. */
struct result_event {
    struct uuid event_id;
    struct span tenant_id;
    struct span task_id;
    bool has_run;
    struct uuid run_id;
    struct span type;
    int64_t epoch;
    int64_t revision;
    int64_t timeline;
    int64_t at_us; /* Unix time */
    struct span
        body; /* JSON object: the type's own member; of a step's own event: what the step gave */
    struct span traceparent;
    struct span tracestate;
};

enum result_encoding { RESULT_JSON, RESULT_MSGPACK };

struct result_options {
    enum result_encoding encoding;
    struct span source; /* ce_source, a URI reference, e.g. "/holdfast/default" */
    size_t max_bytes; /* of the value; beyond it the body is replaced by its size, digest and way to
                         fetch; 0: none */
    bool omit_body;   /* the broker refused it all the same */
};

#define RESULT_MAX_HEADERS 16
#define RESULT_SCHEMA_URN "urn:holdfast:schema:result:" /* ce_dataschema: this, the type, ":1" */

/* In the arena; values end in NUL. */
struct result {
    struct span key; /* task_id */
    struct span value;
    struct raw_header headers[RESULT_MAX_HEADERS];
    size_t n_headers;
};

void result_encode(const struct result_event *event, const struct result_options *options,
                   struct arena *arena, struct result *ret);

/* A result record read back (recovery of the relay, tail): the fields are those of the value. */
MUST_CHECK bool result_decode(struct span value, struct arena *arena, struct result_event *ret,
                              struct json_error *ret_error);

/* ce_id of a record without decoding its value; false if there is none. */
MUST_CHECK bool result_event_id(const struct raw_header *headers, size_t n_headers,
                                struct uuid *ret);

/* True for names that only the product may give (run.…, operation.…, submission.…): a step may not
 * emit them. */
bool result_type_reserved(struct span type);

#endif

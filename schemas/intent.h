#ifndef HOLDFAST_SCHEMAS_INTENT_H
#define HOLDFAST_SCHEMAS_INTENT_H

#include "base/arena.h"
#include "base/check.h"
#include "base/span.h"
#include "base/uuid.h"
#include "schemas/json.h"

/*
 * The small messages between pods. They carry no authority: the ledger and the lease table decide.
 * Encoders return texts in the arena; decoders refuse unknown fields and say why. Threads: any.
 */

/* holdfast.intents, key run_id. */
enum intent_kind {
    INTENT_REGISTERED, /* an operation was registered: dispatch it */
    INTENT_CLAIMED     /* a claim, for the audit: dispatchers skip it */
};
struct intent {
    enum intent_kind kind;
    struct span operation_id;
    struct uuid run_id;         /* registered */
    struct span tool_name;      /* registered */
    struct span request_digest; /* registered */
    int32_t attempt;            /* claimed */
    int64_t timeline;           /* claimed */
    int64_t until_us;           /* claimed */
};
struct span intent_encode(const struct intent *intent, struct arena *arena);
MUST_CHECK bool intent_decode(struct span value, struct arena *arena, struct intent *ret,
                              struct json_error *ret_error);

/* holdfast.wakeups, key run_id: this run is due at this epoch. */
struct wakeup {
    struct uuid run_id;
    int64_t epoch;
};
struct span wakeup_encode(const struct wakeup *wakeup, struct arena *arena);
MUST_CHECK bool wakeup_decode(struct span value, struct arena *arena, struct wakeup *ret,
                              struct json_error *ret_error);

/* holdfast.relay, key the shard's number, partition = shard: the batch that this Kafka transaction
 * published. */
struct relay_pair {
    int64_t seq;
    struct uuid event_id;
};
struct relay_identity {
    int32_t shard;
    int64_t batch;
    struct span system_identifier; /* decimal text: beyond 2^53 */
    int64_t timeline;
    struct span lsn; /* PostgreSQL's text form, "0/16B3748" */
    const struct relay_pair *pairs;
    size_t n_pairs;
};
struct span relay_identity_encode(const struct relay_identity *identity, struct arena *arena);
MUST_CHECK bool relay_identity_decode(struct span value, struct arena *arena,
                                      struct relay_identity *ret, struct json_error *ret_error);

#endif

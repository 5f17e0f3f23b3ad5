#ifndef HOLDFAST_TESTS_FUZZ_TARGETS_H
#define HOLDFAST_TESTS_FUZZ_TARGETS_H

/*
 * What must hold for any bytes. libFuzzer drives one target (fuzz.c, tests/fuzz/run);
 * tests/unit/schemas_fuzz_test.c replays the corpus and a fixed number of mutations of it with any
 * compiler. A broken rule ends the process (CHECK).
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "schemas/canon.h"
#include "schemas/intent.h"
#include "schemas/message.h"
#include "schemas/msgpack.h"
#include "schemas/result.h"
#include "schemas/rfc3339.h"

typedef void fuzz_target(struct span bytes, struct arena *arena);

static inline void fuzz_error_is_whole(const struct json_error *error)
{
    CHECK(error->reason != NULL && error->detail.p != NULL && error->detail.n > 0);
    CHECK(error->detail.p[error->detail.n] == '\0' && error->place.p[error->place.n] == '\0');
}

/* What was accepted has one canonical form, which is accepted, means the same, and survives
 * MessagePack. */
static inline void fuzz_value(const struct json_value *v, struct arena *arena)
{
    struct json_error error;
    const struct json_value *again;
    struct span canonical = canon_write(v, arena);
    CHECK(json_parse(canonical, NULL, arena, &again, &error));
    CHECK(span_eq(canon_write(again, arena), canonical));
    CHECK(json_parse(json_write(v, arena), NULL, arena, &again, &error));
    CHECK(span_eq(canon_write(again, arena), canonical));
    CHECK(msgpack_parse(msgpack_write(v, arena), NULL, arena, &again, &error));
    CHECK(span_eq(canon_write(again, arena), canonical));
    struct json_builder *b = json_builder_new(arena);
    CHECK(span_eq(canon_write(json_seal(b, json_new_copy(b, v)), arena), canonical));
}

static inline void fuzz_json(struct span bytes, struct arena *arena)
{
    const struct json_value *v;
    struct json_error error;
    if (json_parse(bytes, NULL, arena, &v, &error))
        fuzz_value(v, arena);
    else
        fuzz_error_is_whole(&error);
}

static inline void fuzz_msgpack(struct span bytes, struct arena *arena)
{
    const struct json_value *v;
    struct json_error error;
    if (msgpack_parse(bytes, NULL, arena, &v, &error))
        fuzz_value(v, arena);
    else
        fuzz_error_is_whole(&error);
}

/* The first byte chooses the content-type, the rest is the record. */
static inline void fuzz_message(struct span bytes, struct arena *arena)
{
    static const struct raw_header headers[] = {
        {{"content-type", 12}, {"application/json", 16}},
        {{"content-type", 12}, {"application/msgpack", 19}}};
    struct message m, again;
    struct reject reject;
    if (bytes.n == 0)
        return;
    struct raw_record record = {
        .cluster = SPAN_LIT("c"), .topic = SPAN_LIT("t"), .value = {bytes.p + 1, bytes.n - 1}};
    unsigned char how = (unsigned char)bytes.p[0] % 3;
    record.headers = &headers[how == 2];
    record.n_headers = how > 0;
    if (!message_decode(&record, NULL, arena, &m, &reject)) {
        CHECK(reject.detail.n > 0 && reject.detail.p[reject.detail.n] == '\0' &&
              reject.place.p != NULL);
        CHECK(!reject.has_task ||
              (identifier_valid(m.task_id, MESSAGE_MAX_TASK) && digest_is(m.digest) &&
               m.request_key.n > 0 && m.tenant_id.n > 0));
        (void)reject_json(&reject, arena);
        return;
    }
    record.value = message_record(&m, arena);
    record.n_headers = 0;
    CHECK(message_decode(&record, NULL, arena, &again, &reject));
    CHECK(span_eq(m.digest, again.digest) && span_eq(record.value, message_record(&again, arena)) &&
          span_eq(m.request_key, again.request_key));
}

/* The first byte chooses the decoder. */
static inline void fuzz_small(struct span bytes, struct arena *arena)
{
    struct json_error error;
    struct intent intent;
    struct wakeup wakeup;
    struct relay_identity identity;
    struct result_event event;
    int64_t us;
    char time[RFC3339_SIZE];
    if (bytes.n == 0)
        return;
    struct span rest = {bytes.p + 1, bytes.n - 1};
    switch ((unsigned char)bytes.p[0] % 5) {
    case 0:
        if (intent_decode(rest, arena, &intent, &error))
            CHECK(intent_decode(intent_encode(&intent, arena), arena, &intent, &error));
        break;
    case 1:
        if (wakeup_decode(rest, arena, &wakeup, &error))
            CHECK(wakeup_decode(wakeup_encode(&wakeup, arena), arena, &wakeup, &error));
        break;
    case 2:
        if (relay_identity_decode(rest, arena, &identity, &error))
            CHECK(relay_identity_decode(relay_identity_encode(&identity, arena), arena, &identity,
                                        &error));
        break;
    case 3:
        (void)!result_decode(rest, arena, &event, &error);
        break;
    default:
        if (rfc3339_parse(rest, &us)) {
            int64_t back;
            rfc3339_format(us, time);
            CHECK(rfc3339_parse(span_of(time), &back) && back == us);
        }
    }
}

/* Eight bytes are a double: what is printed reads back as the same one, in at most 17 digits. */
static inline void fuzz_number(struct span bytes, struct arena *arena)
{
    (void)arena;
    double v, back;
    char text[CANON_NUMBER_SIZE];
    if (bytes.n < sizeof(v))
        return;
    memcpy(&v, bytes.p, sizeof(v));
    if (!isfinite(v))
        return;
    size_t n = canon_number(v, text), digits = 0;
    CHECK(n == strlen(text));
    back = strtod(text, NULL);
    CHECK(back == v);
    for (const char *c = text; *c != '\0' && *c != 'e'; c++)
        digits += *c >= '1' && *c <= '9';
    CHECK(digits <= 17);
}

static const struct {
    const char *name;
    fuzz_target *run;
} fuzz_targets[] = {
    {"json", fuzz_json},   {"msgpack", fuzz_msgpack}, {"message", fuzz_message},
    {"small", fuzz_small}, {"number", fuzz_number},
};

#endif

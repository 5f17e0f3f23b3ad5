#include "pool/record_int.h"

#include <stdlib.h>

#include "base/memory.h"

struct task_record *record_new(struct broker_record *raw)
{
    struct task_record *r = memory_new(1, sizeof(*r));
    r->raw = raw;
    r->arena = arena_new();
    return r;
}

void record_free(struct task_record *r)
{
    if (r == NULL)
        return;
    broker_record_free(r->raw);
    arena_free(r->arena);
    free(r);
}

void record_done(struct task_record *r)
{
    if (r->raw != NULL)
        broker_done(r->raw);
    record_free(r);
}

struct raw_record record_raw(const struct broker_record *raw, struct span cluster,
                             struct arena *arena)
{
    struct raw_header *headers = arena_array(arena, raw->header_count + 1, sizeof(*headers));
    for (size_t i = 0; i < raw->header_count; i++)
        headers[i] = (struct raw_header){raw->headers[i].name, raw->headers[i].value};
    return (struct raw_record){
        .cluster = cluster,
        .topic = span_of(raw->topic),
        .partition = raw->partition,
        .offset = raw->offset,
        .timestamp_ms = raw->timestamp_ms,
        .key = raw->key,
        .value = raw->value,
        .headers = headers,
        .n_headers = raw->header_count,
    };
}

void record_reject(struct task_record *r, enum reject_reason reason, struct span place,
                   struct span detail)
{
    struct reject reject = {
        .reason = reason,
        .place = arena_dup(r->arena, place),
        .detail = arena_dup(r->arena, detail),
        .has_task = true,
    };
    r->reject = reject_json(&reject, r->arena);
    r->dead_reason = span_of(reject_word(reason));
    r->dead_detail = reject.detail;
}

/* decision: the endings of a step that the pool itself makes. */
#include "pool/decision_int.h"

struct decision decision_succeed(struct span output)
{
    struct decision d = decision_empty("succeed");
    d.finish = SPAN_LIT("succeeded");
    d.output.text = output;
    return d;
}

struct decision decision_fail(struct span failure)
{
    struct decision d = decision_empty("fail");
    d.finish = SPAN_LIT("failed");
    d.output.text = failure;
    return d;
}

struct decision decision_retry(struct span failure, int64_t retry_ms)
{
    struct decision d = decision_empty("retry");
    d.output.text = failure;
    d.release = true;
    d.retry_ms = DB_INT(retry_ms);
    return d;
}

struct span decision_failure(struct arena *arena, const char *reason, struct span detail)
{
    struct json_builder *b = json_builder_new(arena);
    struct json_node *failure = json_new_object(b);
    json_put_text(b, failure, "reason", span_of(reason));
    json_put_text(b, failure, "detail", detail);
    return json_build(b, failure);
}

int64_t decision_backoff_ms(int32_t failures, int64_t first_ms, int64_t last_ms)
{
    int64_t ms = first_ms > 0 ? first_ms : 1;
    for (int32_t i = 0; i < failures && ms < last_ms; i++)
        ms *= 2;
    if (ms > last_ms)
        ms = last_ms;
    uint16_t random;
    uuid_random_bytes(&random, sizeof(random));
    return ms / 2 + ms * random / (2 * (int64_t)UINT16_MAX);
}

// outbox/dispatch.c: life of one claimed operation between the three threads, and the tools'
// places.
#include "outbox/dispatch_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/uuid.h"

// ---- tools ----

void tools_open(struct outbox *outbox)
{
    const struct config *config = outbox->config;
    outbox->tools = memory_new(config->n_tools + 1, sizeof *outbox->tools);
    outbox->tools_n = config->n_tools;
    for (size_t i = 0; i < config->n_tools; i++) {
        outbox->tools[i].config = &config->tools[i];
        atomic_init(&outbox->tools[i].in_flight, 0);
    }
}

void tools_close(struct outbox *outbox)
{
    free(outbox->tools);
    outbox->tools = NULL;
    outbox->tools_n = 0;
}

struct tool *tools_find(struct outbox *outbox, struct span name)
{
    for (size_t i = 0; i < outbox->tools_n; i++) {
        if (span_eq_text(name, outbox->tools[i].config->name)) {
            return &outbox->tools[i];
        }
    }
    return NULL;
}

int64_t tool_room(const struct tool *tool)
{
    int64_t room = tool->config->max_in_flight - (int64_t)atomic_load(&tool->in_flight);
    return room > 0 ? room : 0;
}

// ---- one claim ----

const char *verdict_word(enum verdict verdict)
{
    static const char *const words[] = {
        [VERDICT_SUCCEEDED] = "succeeded",
        [VERDICT_FAILED_FINAL] = "failed_final",
        [VERDICT_NOT_SENT] = "not_sent",
        [VERDICT_UNKNOWN] = "unknown",
    };
    return words[verdict];
}

struct dispatch *dispatch_new(struct outbox *outbox, struct tool *tool, struct span owner,
                              const struct ledger_claimed *row, int64_t claimed_us)
{
    struct arena *arena = arena_new();
    struct dispatch *d = arena_alloc(arena, sizeof *d);
    d->arena = arena;
    d->outbox = outbox;
    d->tool = tool;
    d->owner = arena_dup(arena, owner);
    d->claimed_us = claimed_us;
    d->claim = *row;
    struct ledger_claimed *c = &d->claim;
    struct span *const texts[] = {
        &c->operation_id, &c->tenant_id,      &c->task_id,           &c->step_id,
        &c->tool_name,    &c->request_digest, &c->external_key,      &c->capability,
        &c->traceparent,  &c->tracestate,     &c->request_body.text, &c->declaration.text,
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        *texts[i] = arena_dup(arena, *texts[i]);
    }
    atomic_fetch_add(&outbox->in_flight, 1);
    if (tool != NULL) {
        atomic_fetch_add(&tool->in_flight, 1);
        metric_add(METRIC_OPERATIONS_CLAIMED, LABELS(tool->config->name), 1);
        metric_move(METRIC_REQUESTS_IN_FLIGHT, LABELS(tool->config->name), 1);
    }
    return d;
}

void dispatch_free(struct dispatch *d)
{
    if (d->tool != NULL) {
        atomic_fetch_sub(&d->tool->in_flight, 1);
        metric_move(METRIC_REQUESTS_IN_FLIGHT, LABELS(d->tool->config->name), -1);
    }
    atomic_fetch_sub(&d->outbox->in_flight, 1);
    arena_free(d->arena);
}

int64_t dispatch_until_us(const struct dispatch *d)
{
    return d->claimed_us + d->claim.ttl_ms * CLOCK_MS;
}

int64_t dispatch_send_before_us(const struct dispatch *d)
{
    int64_t ttl_us = d->claim.ttl_ms * CLOCK_MS;
    int64_t reserve_us = d->tool->config->timeout_ms * CLOCK_MS;
    if (reserve_us > ttl_us / 2) {
        reserve_us = ttl_us / 2;
    }
    return dispatch_until_us(d) - reserve_us;
}

void dispatch_not_sent(struct dispatch *d, const char *fault, const char *detail)
{
    d->verdict = VERDICT_NOT_SENT;
    d->evidence = evidence_of_fault(fault, detail, d->arena);
    d->retry_ms =
        dispatch_back_off_ms(&d->outbox->config->dispatch, d->claim.attempts_not_sent + 1);
    CHECK(queue_force_push(d->outbox->to_settle, d));
}

void dispatch_refuse(struct dispatch *d, const char *fault, const char *detail)
{
    d->verdict = VERDICT_FAILED_FINAL;
    d->evidence = evidence_of_fault(fault, detail, d->arena);
    d->result = evidence_with(SPAN_LIT("{}"), "refused", span_of(detail), d->arena);
    CHECK(queue_force_push(d->outbox->to_settle, d));
}

int64_t dispatch_back_off_ms(const struct config_dispatch *config, int32_t attempts)
{
    int64_t ms = config->retry_ms;
    for (int32_t i = 1; i < attempts && ms < config->retry_max_ms; i++) {
        ms *= 2;
    }
    if (ms > config->retry_max_ms) {
        ms = config->retry_max_ms;
    }
    uint32_t random = 0;
    uuid_random_bytes(&random, sizeof random);
    return ms / 2 + (int64_t)(random % (uint32_t)(ms / 2 + 1));
}

// outbox/reconcile.c: thread `reconcile`. Asks remotes what became of operations in doubt, many at
// once on one loop of its own, and takes what they say to the ledger, which decides what it is
// worth.
//
// Several reconcilers do not meet: a question is claimed. A remote that does not answer holds its
// own few places only. What is not asked here: the same key again (claim_unknown, by thread claim),
// and what a person must decide.
#include "outbox/reconcile_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/stop_point.h"
#include "outbox/adapter.h"

enum {
    QUESTIONS_PER_TOOL = 32, // in flight, per pod
    QUESTIONS_AT_ONCE = 256,
    CONNECT_MS = 500,
    TRIES = 3,
    KEY_LOOKS = 4,
    IDLE_POLL_MS = 1000,
};

struct reconciler {
    struct outbox *outbox;
    struct fence *lane;
    struct arena *arena; // of one round
    struct http_client *http;
    struct question *answered;
    size_t answered_n;
    int64_t look_us;
    unsigned looks;
};

static bool is_stopping(const struct reconciler *r)
{
    return atomic_load(&r->outbox->stop_claiming);
}

// ---- asking ----

static void answered(struct question *q)
{
    struct reconciler *r = q->outbox->reconciler;
    metric_add(METRIC_QUERIES, LABELS(q->tool->config->name, finding_word(q->finding)), 1);
    q->tool->questions--;
    q->next = r->answered;
    r->answered = q;
    r->answered_n++;
}

static void on_answer(void *opaque, const struct http_answer *answer)
{
    struct question *q = opaque;
    query_judge(q, answer);
    answered(q);
}

static void not_asked(struct question *q, const char *why)
{
    q->finding = FOUND_NOTHING;
    q->evidence = evidence_of_fault("not_asked", why, q->arena);
    q->retry_ms = (struct db_int){.is_null = true};
    answered(q);
}

static void ask(struct reconciler *r, struct question *q)
{
    const struct config_tool *tool = q->declared;
    const char *url = query_url(tool, &q->row, q->arena);
    if (tool->query_url[0] == '\0' || url == NULL) {
        not_asked(q, url == NULL ? "its remote_id is not known" : "this pod has no query_url");
        return;
    }
    const struct http_identities who = {.operation_id = q->row.operation_id,
                                        .run_id = q->row.run_id,
                                        .epoch = q->row.epoch,
                                        .traceparent = q->row.traceparent,
                                        .tracestate = q->row.tracestate};
    struct http_header_list list = http_tool_headers(tool, &who, q->arena);
    const struct http_request request = {
        .method = "GET",
        .url = url,
        .headers = list.headers,
        .headers_n = list.n,
        .body = SPAN_LIT(""),
        .connect_timeout_ms = tool->connect_timeout_ms,
        .timeout_ms = tool->timeout_ms,
        .send_before_us = q->until_us,
        .late_after_us = q->until_us,
        .max_response_bytes = (size_t)tool->max_response_bytes,
        .allow_private = tool->allow_private,
    };
    if (http_client_start(r->http, &request, on_answer, q) != OUTCOME_OK) {
        not_asked(q, "the tool's query_url or headers cannot be used");
    }
}

static struct question *question_new(struct reconciler *r, const struct ledger_question *row,
                                     struct tool *tool, int64_t asked_us)
{
    struct arena *arena = arena_new();
    struct question *q = arena_alloc(arena, sizeof *q);
    *q = (struct question){.arena = arena,
                           .outbox = r->outbox,
                           .tool = tool,
                           .owner = r->outbox->session,
                           .row = *row};
    struct ledger_question *c = &q->row;
    struct span *const texts[] = {
        &c->operation_id, &c->tool_name,  &c->request_digest,    &c->external_key,
        &c->remote_id,    &c->capability, &c->request_body.text, &c->declaration.text,
        &c->traceparent,  &c->tracestate,
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        *texts[i] = arena_dup(arena, *texts[i]);
    }
    q->declared = declared_tool(tool->config, c->declaration.text, arena);
    q->until_us = asked_us + row->ttl_ms * CLOCK_MS;
    q->result = SPAN_LIT("null");
    q->remote_id = SPAN_NULL;
    tool->questions++;
    return q;
}

static void claim(struct reconciler *r, const struct span *tools, size_t n, int32_t limit)
{
    struct ledger_question *rows = NULL;
    size_t rows_n = 0;
    int64_t asked_us = clock_mono_us();
    enum outcome outcome = ledger_questions(
        r->lane, r->outbox->session, uuid_v4(), limit, r->outbox->config->dispatch.claim_ttl_ms,
        (struct db_texts){.v = tools, .n = n}, r->arena, &rows, &rows_n);
    if (outcome != OUTCOME_OK) { // what it may have claimed is due again when its time is over
        log_event(LOG_WARN, "reconcile.claim_failed", LOG_OUTCOME(outcome),
                  LOG_TEXT("detail", fence_error(r->lane)));
        return;
    }
    for (size_t i = 0; i < rows_n; i++) {
        struct tool *tool =
            rows[i].outcome == OUTCOME_CLAIMED ? tools_find(r->outbox, rows[i].tool_name) : NULL;
        if (tool != NULL) {
            STOP_POINT("reconcile.after_claim");
            ask(r, question_new(r, &rows[i], tool, asked_us));
        }
    }
}

static bool may_be_asked(const struct config_tool *tool)
{
    return tool->query_url[0] != '\0' || tool->capability == CAPABILITY_QUERY ||
           tool->capability == CAPABILITY_DETERMINISTIC_ID;
}

// Tools without a question in flight share one call; one with some gets a call of its own, cut to
// its room: so a remote that does not answer takes no place of another.
static void look(struct reconciler *r)
{
    struct outbox *outbox = r->outbox;
    struct span *wide = arena_array(r->arena, outbox->tools_n + 1, sizeof *wide);
    size_t wide_n = 0;
    for (size_t i = 0; i < outbox->tools_n; i++) {
        struct tool *tool = &outbox->tools[i];
        struct span name = span_of(tool->config->name);
        // A key that was asked about may be repeated, too, as soon as it may be asked about again:
        // asking every time would never let it.
        bool has_key = tool->config->capability == CAPABILITY_IDEMPOTENCY_KEY;
        if (!may_be_asked(tool->config) || (has_key && r->looks % KEY_LOOKS != 0)) {
            continue;
        }
        if (tool->questions == 0) {
            wide[wide_n++] = name;
        } else if (tool->questions < QUESTIONS_PER_TOOL) {
            claim(r, &name, 1, (int32_t)(QUESTIONS_PER_TOOL - tool->questions));
        }
    }
    if (wide_n > 0) {
        size_t limit = wide_n * QUESTIONS_PER_TOOL;
        claim(r, wide, wide_n, (int32_t)(limit < QUESTIONS_AT_ONCE ? limit : QUESTIONS_AT_ONCE));
    }
}

// ---- what they said ----

// A word that the ledger will take as a fact. "None" is one only when this question was late
// enough.
static bool is_fact(const struct question *q)
{
    switch (q->finding) {
    case FOUND_SUCCEEDED:
    case FOUND_FAILED:
        return true;
    case FOUND_ABSENT:
        return q->row.absent_counts;
    case FOUND_FOREIGN:
    case FOUND_PENDING:
    case FOUND_NOTHING:
        return false;
    }
    return false;
}

static void note_foreign(const struct question *q)
{
    if (q->finding == FOUND_FOREIGN) {
        log_event(LOG_ERROR, "reconcile.foreign", LOG_SPAN("operation_id", q->row.operation_id),
                  LOG_UUID("run_id", q->row.run_id), LOG_TEXT("tool", q->tool->config->name),
                  LOG_SPAN("evidence", q->evidence));
    }
}

static enum outcome record_facts(struct reconciler *r, struct question *const *items, size_t n)
{
    struct ledger_fact *facts = arena_array(r->arena, n, sizeof *facts);
    for (size_t i = 0; i < n; i++) {
        const struct question *q = items[i];
        facts[i] = (struct ledger_fact){
            .operation_id = q->row.operation_id,
            .attempt = {.is_null = true},
            .owner = q->owner,
            .digest = q->row.request_digest,
            .verdict = span_of(finding_word(q->finding)),
            .remote_id = q->remote_id,
            .result = {q->finding == FOUND_ABSENT ? SPAN_NULL : q->result},
            .evidence = {q->evidence},
            .by = SPAN_LIT("query"),
        };
    }
    struct ledger_recorded *rows = NULL;
    size_t rows_n = 0;
    enum outcome outcome = ledger_converge(r->lane, facts, n, r->arena, &rows, &rows_n);
    for (size_t i = 0; outcome == OUTCOME_OK && i < rows_n; i++) {
        size_t at = (size_t)rows[i].item - 1;
        if (rows[i].item >= 1 && at < n) {
            converged_note(items[at]->tool->config->name, &facts[at], &rows[i]);
        }
    }
    converged_wake(r->outbox, rows, rows_n, r->arena);
    return outcome;
}

static enum outcome record_unanswered(struct reconciler *r, struct question *const *items, size_t n)
{
    struct ledger_unanswered *told = arena_array(r->arena, n, sizeof *told);
    for (size_t i = 0; i < n; i++) {
        struct question *q = items[i];
        note_foreign(q);
        told[i] = (struct ledger_unanswered){
            .operation_id = q->row.operation_id,
            .owner = q->owner,
            .queries = q->row.queries,
            .retry_ms = q->retry_ms,
            .evidence = {evidence_with(q->evidence, "finding", span_of(finding_word(q->finding)),
                                       q->arena)},
        };
    }
    return ledger_unanswered(r->lane, told, n, r->arena);
}

typedef enum outcome record_fn(struct reconciler *, struct question *const *, size_t);

static void forget(struct question *const *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        arena_free(items[i]->arena);
    }
}

// A question is free again when its claim runs out, so what cannot be recorded may be let go.
static void record(struct reconciler *r, record_fn *fn, struct question *const *items, size_t n)
{
    for (unsigned tries = 0;; tries++) {
        enum outcome outcome = n == 0 ? OUTCOME_OK : fn(r, items, n);
        if (outcome == OUTCOME_OK) {
            forget(items, n);
            return;
        }
        if ((outcome == OUTCOME_ITEM_ERROR || outcome_class(outcome) == CLASS_BUG) && n > 1) {
            record(r, fn, items, n / 2);
            record(r, fn, items + n / 2, n - n / 2);
            return;
        }
        bool hopeless = outcome == OUTCOME_ITEM_ERROR || outcome_class(outcome) == CLASS_BUG;
        if (hopeless || tries >= TRIES || is_stopping(r)) {
            log_event(LOG_ERROR, "reconcile.record_given_up", LOG_INT("items", n),
                      LOG_SPAN("operation_id", items[0]->row.operation_id), LOG_OUTCOME(outcome),
                      LOG_TEXT("detail", fence_error(r->lane)));
            forget(items, n);
            return;
        }
        (void)!fence_connect(r->lane, CONNECT_MS * CLOCK_MS);
    }
}

static void record_answered(struct reconciler *r)
{
    size_t n = r->answered_n;
    if (n == 0) {
        return;
    }
    struct question **facts = arena_array(r->arena, n, sizeof *facts);
    struct question **others = arena_array(r->arena, n, sizeof *others);
    size_t facts_n = 0, others_n = 0;
    for (struct question *q = r->answered; q != NULL; q = q->next) {
        if (is_fact(q)) {
            facts[facts_n++] = q;
        } else {
            others[others_n++] = q;
        }
    }
    r->answered = NULL;
    r->answered_n = 0;
    STOP_POINT("reconcile.before_record");
    record(r, record_facts, facts, facts_n);
    record(r, record_unanswered, others, others_n);
    relay_notify(r->outbox->relay);
}

// ---- the thread ----

static bool is_needed(const struct outbox *outbox)
{
    for (size_t i = 0; i < outbox->tools_n; i++) {
        if (may_be_asked(outbox->tools[i].config)) {
            return true;
        }
    }
    return false;
}

static void round_of(struct reconciler *r)
{
    arena_reset(r->arena);
    int64_t now = clock_mono_us();
    if (now >= r->look_us) {
        look(r);
        r->looks++;
        r->look_us = now + r->outbox->config->dispatch.interval_ms * CLOCK_MS;
    }
    record_answered(r); // what could not be asked at all
    int64_t wait_us = r->look_us - clock_mono_us();
    if (wait_us > IDLE_POLL_MS * CLOCK_MS) {
        wait_us = IDLE_POLL_MS * CLOCK_MS;
    }
    http_client_poll(r->http, wait_us > 0 ? wait_us : 0);
    record_answered(r);
}

void *reconcile_thread(void *argument)
{
    struct outbox *outbox = argument;
    struct reconciler r = {.outbox = outbox, .arena = arena_new()};
    outbox->reconciler = &r;
    r.http = outbox->query_http;
    CHECK(fence_open(outbox->config, "reconcile", 0, &r.lane) == OUTCOME_OK);
    while (is_needed(outbox) && !is_stopping(&r)) {
        round_of(&r);
    }
    http_client_cancel(r.http); // a question is no effect: it is asked again
    record_answered(&r);
    fence_close(r.lane);
    arena_free(r.arena);
    return NULL;
}

void reconcile_wake(struct outbox *outbox)
{
    http_client_wake(outbox->query_http);
}

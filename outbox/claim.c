// outbox/claim.c: thread `claim`. Takes operations out of the ledger: those that hints name, and
// behind them, from time to time, the oldest due ones; never more than this pod can carry.
#include "outbox/claim_int.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/stop_point.h"

enum {
    POLL_MS = 50,          // how long a round waits for hints
    POLL_FULL_MS = 2,      // the same while there is more in the ledger than room here
    GATE_CLOSED_MS = 1000, // between looks at a closed gate
    LAST_TRIES_MS = 2000,  // at the end: for the answer of a claim whose first answer was lost
    ASK_AGAIN_MS = 20,
    BUSY_TRIES = 20,
};

int64_t claim_room(const struct outbox *outbox)
{
    int64_t room =
        outbox->config->dispatch.max_in_flight - (int64_t)atomic_load(&outbox->in_flight);
    return room > 0 ? room : 0;
}

void dispatch_enqueue(struct dispatch *d)
{
    struct outbox *outbox = d->outbox;
    CHECK(queue_force_push(outbox->to_dispatch, d));
    http_client_wake(outbox->http);
}

// ---- one claim ----

static bool any_busy(const struct ledger_claimed *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].outcome == OUTCOME_BUSY) {
            return true;
        }
    }
    return false;
}

static void note_answer(struct claimer *c, const struct ledger_claimed *rows, size_t n)
{
    bool closed = n > 0 && rows[0].outcome == OUTCOME_GATE_CLOSED;
    if (closed != atomic_exchange(&c->outbox->gate_closed, closed)) {
        log_event(LOG_WARN, closed ? "dispatch.gate_closed" : "dispatch.gate_open");
    }
}

// A claim whose answer was lost may have taken operations: the same token is asked until it is
// answered, or those operations would become unknown without ever having been sent.
static enum outcome ask_until_answered(struct claimer *c, enum ledger_kind kind,
                                       const struct ledger_claim *claim,
                                       struct ledger_claimed **ret_rows, size_t *ret_n)
{
    bool in_doubt = false;
    int busy_tries = 0;
    int64_t stop_us = CLOCK_FOREVER;
    for (;;) {
        enum outcome outcome = ledger_claim(c->lane, kind, claim, c->arena, ret_rows, ret_n);
        atomic_store(&c->outbox->ledger_connected, outcome == OUTCOME_OK);
        if (outcome == OUTCOME_OK &&
            !(in_doubt && any_busy(*ret_rows, *ret_n) && ++busy_tries < BUSY_TRIES)) {
            return outcome;
        }
        in_doubt = in_doubt || outcome_class(outcome) == CLASS_UNKNOWN;
        if (!in_doubt) {
            return outcome;
        }
        if (stop_us == CLOCK_FOREVER && atomic_load(&c->outbox->stop_claiming)) {
            stop_us = clock_deadline_us(LAST_TRIES_MS * CLOCK_MS);
        }
        if (clock_mono_us() > stop_us) {
            return outcome;
        }
        (void)!fence_connect(c->lane, ASK_AGAIN_MS * CLOCK_MS);
    }
}

static void set_out(struct claimer *c, struct span owner, const struct ledger_claimed *row,
                    int64_t claimed_us)
{
    struct outbox *outbox = c->outbox;
    struct tool *tool = tools_find(outbox, row->tool_name);
    struct dispatch *d = dispatch_new(outbox, tool, owner, row, claimed_us);
    if (tool == NULL) { // named by a hint, and declared here when it was named: cannot be
        dispatch_not_sent(d, "no_such_tool", "this pod does not declare the tool");
    } else if (outbox->config->failover.mode == FAILOVER_ASYNC &&
               span_eq_text(d->claim.capability, "none")) {
        claim_ack_ask(&c->acks, d);
    } else {
        dispatch_enqueue(d);
    }
}

bool claim_ask(struct claimer *c, enum ledger_kind kind, struct ledger_claim *claim,
               struct ledger_claimed **ret_rows, size_t *ret_n)
{
    claim->token = uuid_v4();
    // An owner of its own for each claim: after a promotion revision and attempt repeat, and a
    // claim that was lost must not speak for one that the new history gave out.
    char token[UUID_TEXT_SIZE];
    claim->owner = span_of(arena_printf(c->arena, "%.*s/%s", SPAN_ARG(c->outbox->session),
                                        uuid_format(claim->token, token)));
    claim->ttl_ms = c->outbox->config->dispatch.claim_ttl_ms;
    int64_t asked_us = clock_mono_us();
    enum outcome outcome = ask_until_answered(c, kind, claim, ret_rows, ret_n);
    if (outcome != OUTCOME_OK) {
        if (outcome != c->told) { // once a reason: it is asked again many times a second
            log_event(LOG_WARN, "dispatch.claim_failed", LOG_OUTCOME(outcome),
                      LOG_TEXT("detail", fence_error(c->lane)));
        }
        c->told = outcome;
        return false;
    }
    c->told = OUTCOME_OK;
    note_answer(c, *ret_rows, *ret_n);
    bool any = false;
    for (size_t i = 0; i < *ret_n; i++) {
        any = any || (*ret_rows)[i].outcome == OUTCOME_CLAIMED;
    }
    if (any) {
        STOP_POINT("dispatch.after_claim");
    }
    for (size_t i = 0; i < *ret_n; i++) {
        if ((*ret_rows)[i].outcome == OUTCOME_CLAIMED) {
            set_out(c, claim->owner, &(*ret_rows)[i], asked_us);
        }
    }
    return true;
}

// ---- looking without a hint ----

// How many rows of this look were claims. -1: not answered.
static int64_t look(struct claimer *c, enum ledger_kind kind, const struct span *tools, size_t n,
                    int64_t limit)
{
    struct ledger_claim claim = {
        .limit = (int32_t)limit,
        .tools = {.v = tools, .n = n},
        .operation_ids = DB_TEXTS_NULL,
    };
    struct ledger_claimed *rows = NULL;
    size_t rows_n = 0;
    if (!claim_ask(c, kind, &claim, &rows, &rows_n)) {
        return -1;
    }
    int64_t claimed = 0;
    for (size_t i = 0; i < rows_n; i++) {
        claimed += rows[i].outcome == OUTCOME_CLAIMED ? 1 : 0;
    }
    return claimed;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Tools with room for a whole batch share one call; one with less room gets a call of its own, cut
// to that room.
static bool look_for(struct claimer *c, enum ledger_kind kind)
{
    struct outbox *outbox = c->outbox;
    int64_t limit = least(outbox->config->dispatch.batch, claim_room(outbox));
    struct span *wide = arena_array(c->arena, outbox->tools_n + 1, sizeof *wide);
    size_t wide_n = 0;
    bool more = false;
    for (size_t i = 0; i < outbox->tools_n; i++) {
        struct tool *tool = &outbox->tools[i];
        struct span name = span_of(tool->config->name);
        int64_t room = least(tool_room(tool), claim_room(outbox));
        if (room >= limit) {
            wide[wide_n++] = name;
        } else if (room > 0) {
            more = look(c, kind, &name, 1, room) >= room || more;
        }
    }
    limit = least(limit, claim_room(outbox));
    if (wide_n > 0 && limit > 0) {
        more = look(c, kind, wide, wide_n, limit) >= limit || more;
    }
    return more;
}

static void look_if_due(struct claimer *c)
{
    struct outbox *outbox = c->outbox;
    const struct config_dispatch *config = &outbox->config->dispatch;
    int64_t now = clock_mono_us();
    bool told = atomic_exchange(&outbox->look_for_intents, false);
    int64_t worth = least(config->batch, config->max_in_flight / 4 + 1);
    bool due = now >= c->sweep_us || told || (c->more && claim_room(outbox) >= worth);
    if (!due || claim_room(outbox) == 0) {
        return;
    }
    bool more = look_for(c, LEDGER_FIRST);
    if (now >= c->sweep_us && claim_room(outbox) > 0) {
        more = look_for(c, LEDGER_AGAIN) || more;
    }
    c->more = more;
    bool closed = atomic_load(&outbox->gate_closed);
    int64_t wait_ms =
        closed && config->interval_ms < GATE_CLOSED_MS ? GATE_CLOSED_MS : config->interval_ms;
    c->sweep_us = now + wait_ms * CLOCK_MS;
}

// ---- the thread ----

static bool open_lane(struct claimer *c)
{
    return fence_open(c->outbox->config, "dispatch claim", 0, &c->lane) == OUTCOME_OK;
}

void *claim_thread(void *argument)
{
    struct claimer c = {.outbox = argument, .arena = arena_new()};
    struct outbox *outbox = c.outbox;
    CHECK(open_lane(&c)); // connects to nothing yet
    while (!atomic_load(&outbox->stop_claiming)) {
        arena_reset(c.arena);
        int timeout_ms = c.more ? POLL_FULL_MS : POLL_MS;
        claim_hints(&c, timeout_ms);
        look_if_due(&c);
        broker_producer_poll(outbox->producer, 0);
        claim_ack_sweep(&c.acks, false);
    }
    claim_hints_end(&c);
    (void)!broker_flush(outbox->producer, LAST_TRIES_MS);
    claim_ack_sweep(&c.acks, true);
    fence_close(c.lane);
    arena_free(c.arena);
    return NULL;
}

// holdfast failover audit: compares PostgreSQL with what Kafka remembers, before the gate is opened
// after a promotion or a restore.
#include "cli/commands.h"
#include "cli/failover_memory.h"
#include "cli/reads.h"
#include "cli/session.h"

#include "base/clock.h"

enum { BATCH = 500 };

struct audit_item {
    struct uuid run_id;
    struct span operation_id, tool, digest, status;
    int64_t epoch, revision;
    int32_t attempt;
};
struct audit_row {
    int32_t item;
    struct span verdict;
};
struct adopt_in {
    struct span by, reason;
};
struct adopt_row {
    int32_t item;
    struct span outcome;
};

static const struct db_param run_params[] = {
    DB_ITEM_AS("run_ids", 0, struct audit_item, run_id),
    DB_ITEM_AS("epochs", 0, struct audit_item, epoch),
    DB_ITEM_AS("revisions", 0, struct audit_item, revision),
    DB_ITEM_AS("statuses", 0, struct audit_item, status),
};
static const struct db_param operation_params[] = {
    DB_ITEM_AS("operation_ids", 0, struct audit_item, operation_id),
    DB_ITEM_AS("attempts", 0, struct audit_item, attempt),
    DB_ITEM_AS("statuses", 0, struct audit_item, status),
};
static const struct db_column audit_columns[] = {DB_COLUMN(struct audit_row, item),
                                                 DB_COLUMN(struct audit_row, verdict)};
static const struct db_call audit_runs =
    DB_CALL("audit_runs", run_params, audit_columns, DB_READ | DB_LONG);
static const struct db_call audit_operations =
    DB_CALL("audit_operations", operation_params, audit_columns, DB_READ | DB_LONG);
static const struct db_param adopt_params[] = {
    DB_ITEM_AS("operation_ids", 0, struct audit_item, operation_id),
    DB_ITEM_AS("tools", 0, struct audit_item, tool),
    DB_ITEM_AS("digests", 0, struct audit_item, digest),
    DB_ITEM_AS("attempts", 0, struct audit_item, attempt),
    DB_SCALAR(struct adopt_in, by),
    DB_SCALAR(struct adopt_in, reason),
};
static const struct db_column adopt_columns[] = {DB_COLUMN(struct adopt_row, item),
                                                 DB_COLUMN(struct adopt_row, outcome)};
static const struct db_call audit_adopt =
    DB_CALL("audit_adopt", adopt_params, adopt_columns, DB_LONG);

struct audit {
    struct db *db;
    struct arena *arena; // of a batch
    bool json, dry_run;
    struct adopt_in who;
    struct audit_item items[BATCH];
    size_t n;
    bool of_runs;
    size_t runs, operations, forks, orphans, adopted;
};

static void print_difference(const struct audit *a, const struct audit_item *item,
                             struct span verdict)
{
    char run[UUID_TEXT_SIZE];
    struct span name = a->of_runs ? span_of(uuid_format(item->run_id, run)) : item->operation_id;
    if (a->json) {
        struct json_builder *b = json_builder_new(a->arena);
        struct json_node *o = json_new_object(b);
        json_put_text(b, o, a->of_runs ? "run_id" : "operation_id", name);
        json_put_text(b, o, "verdict", verdict);
        json_put_text(b, o, "status_in_kafka", item->status);
        if (!a->of_runs)
            json_put_integer(b, o, "attempt_in_kafka", item->attempt);
        session_print_json(b, o);
        return;
    }
    printf("%-9.*s %s %.*s", SPAN_ARG(verdict), a->of_runs ? "run" : "operation", SPAN_ARG(name));
    if (!span_is_null(item->status))
        printf("  Kafka: %.*s", SPAN_ARG(item->status));
    if (item->attempt > 0)
        printf("  claimed: attempt %d", item->attempt);
    putchar('\n');
}

// Orphans of this batch, put into the ledger. False: the database did not answer.
static bool adopt(struct audit *a, struct audit_item *orphans, size_t n)
{
    if (n == 0 || a->dry_run)
        return true;
    const struct db_group group = {orphans, n};
    struct adopt_row *rows;
    size_t n_rows;
    enum outcome outcome = db_call(a->db, &audit_adopt, &a->who, &group, a->arena, &rows, &n_rows);
    if (outcome != OUTCOME_OK) {
        session_db_error(a->db, outcome);
        return false;
    }
    for (size_t i = 0; i < n_rows; i++)
        a->adopted += span_eq_text(rows[i].outcome, "adopted");
    return true;
}

static bool compare(struct audit *a)
{
    if (a->n == 0)
        return true;
    const struct db_group group = {a->items, a->n};
    struct audit_row *rows;
    size_t n_rows, n_orphans = 0;
    enum outcome outcome = db_call(a->db, a->of_runs ? &audit_runs : &audit_operations, NULL,
                                   &group, a->arena, &rows, &n_rows);
    if (outcome != OUTCOME_OK) {
        session_db_error(a->db, outcome);
        return false;
    }
    struct audit_item *orphans = arena_array(a->arena, a->n, sizeof *orphans);
    for (size_t i = 0; i < n_rows; i++) {
        struct audit_item *item = &a->items[(size_t)rows[i].item - 1];
        if (span_eq_text(rows[i].verdict, "same") || span_eq_text(rows[i].verdict, "ahead"))
            continue;
        print_difference(a, item, rows[i].verdict);
        if (span_eq_text(rows[i].verdict, "orphan")) {
            orphans[n_orphans] = *item;
            if (orphans[n_orphans].attempt < 1) // settled there: there was one
                orphans[n_orphans].attempt = 1;
            n_orphans++;
        } else {
            a->forks++;
        }
    }
    a->orphans += n_orphans;
    bool done = adopt(a, orphans, n_orphans);
    a->n = 0;
    arena_reset(a->arena);
    return done;
}

static bool compare_all(struct audit *a, const struct memory_of_kafka *memory, bool of_runs)
{
    a->of_runs = of_runs;
    for (size_t i = 0; i < memory->n_slots; i++) {
        const struct remembered *r = memory->slots[i];
        if (r == NULL || r->is_run != of_runs)
            continue;
        *(of_runs ? &a->runs : &a->operations) += 1;
        a->items[a->n++] = (struct audit_item){.run_id = r->run_id,
                                               .operation_id = r->key,
                                               .tool = r->tool,
                                               .digest = r->digest,
                                               .status = r->status,
                                               .epoch = r->epoch,
                                               .revision = r->revision,
                                               .attempt = r->attempt};
        if (a->n == BATCH && !compare(a))
            return false;
    }
    return compare(a);
}

// In strict mode nothing can have been lost, and where nothing was found the gate need not wait for
// a person. Returns whether the gate is open now.
static bool open_if_strict(struct audit *a, const struct invocation *inv, bool *ret_open)
{
    struct gate_row *gate;
    size_t n;
    enum outcome outcome = db_call(a->db, &read_gate, NULL, NULL, a->arena, &gate, &n);
    if (outcome != OUTCOME_OK || n != 1) {
        session_db_error(a->db, outcome == OUTCOME_OK ? OUTCOME_DB_DRIFT : outcome);
        return false;
    }
    *ret_open = gate->open;
    if (!gate->sendable_until.is_null && gate->sendable_until.us > clock_wall_us() && !a->json) {
        char text[CLOCK_TEXT_SIZE];
        printf("claims already given out may send until %.23s UTC: audit again after that\n",
               clock_format(gate->sendable_until.us, text));
    }
    if (gate->open || !span_eq_text(gate->mode, "strict") || a->forks + a->orphans > 0 ||
        a->dry_run || invocation_flag(inv, "keep-closed"))
        return true;
    const struct gate_in in = {.by = a->who.by, .reason = SPAN_LIT("audit: no fork")};
    struct gate_open_row *row;
    outcome = db_call(a->db, &write_gate_open, &in, NULL, a->arena, &row, &n);
    if (outcome != OUTCOME_OK || n != 1) {
        session_db_error(a->db, outcome == OUTCOME_OK ? OUTCOME_DB_DRIFT : outcome);
        return false;
    }
    *ret_open = outcome_class(row->outcome) == CLASS_DONE;
    if (!*ret_open && !a->json)
        printf("not opened: %s %.*s\n", outcome_sentence(row->outcome), SPAN_ARG(row->reason));
    return true;
}

static void print_end(const struct audit *a, const struct memory_of_kafka *memory, bool open)
{
    if (a->json)
        printf("{\"events\":%zu,\"claims\":%zu,\"runs\":%zu,\"operations\":%zu,\"forks\":%zu,"
               "\"orphans\":%zu,\"adopted\":%zu,\"gate\":\"%s\"}\n",
               memory->events, memory->claims, a->runs, a->operations, a->forks, a->orphans,
               a->adopted, open ? "open" : "closed");
    else
        printf("%zu runs and %zu operations compared (%zu events, %zu claims in Kafka): %zu forks, "
               "%zu orphan effects, %zu put into the ledger; the gate is %s\n",
               a->runs, a->operations, memory->events, memory->claims, a->forks, a->orphans,
               a->adopted, open ? "open" : "closed");
}

static int run(struct audit *a, const struct invocation *inv, const struct config *cfg,
               struct broker *broker)
{
    struct memory_of_kafka memory;
    struct broker_error error = {.text = ""};
    bool open = false;
    int code = EXIT_CANNOT_RUN;
    if (!memory_of_kafka_read(&memory, broker, cfg, &error))
        say_error("check kafka.bootstrap.servers: holdfast doctor", "Kafka: %s", error.text);
    else if (compare_all(a, &memory, true) && compare_all(a, &memory, false) &&
             open_if_strict(a, inv, &open)) {
        print_end(a, &memory, open);
        code = a->forks + a->orphans == 0 ? EXIT_HOLDS : EXIT_HOLDS_NOT;
    }
    memory_of_kafka_free(&memory);
    return code;
}

int command_failover_audit(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) =
        session_config(inv, CONFIG_NEEDS_POSTGRES | CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    struct db *db CLEANUP(session_db_drop) = broker == NULL ? NULL : session_db(cfg, false);
    if (db == NULL)
        return EXIT_CANNOT_RUN;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    const char *reason = invocation_value(inv, "reason");
    struct audit *a = arena_alloc(arena, sizeof *a);
    *a = (struct audit){
        .db = db,
        .arena = arena_new(),
        .json = invocation_flag(inv, "json"),
        .dry_run = invocation_flag(inv, "dry-run"),
        .who = {.by = span_of(session_by(inv)),
                .reason = span_of(reason == NULL ? "failover audit" : reason)},
    };
    int code = run(a, inv, cfg, broker);
    arena_free(a->arena);
    return code;
}

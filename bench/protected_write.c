/* protected_write DSN SECONDS [RUNS]: checkpoints per second through the pod's group commit, against a migrated and
 * otherwise idle database. Every run has one write outstanding at any time, as a pod's runs have. The last line of
 * standard output is {"writes","seconds","rate"}; any outcome but ok ends it with exit 1. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "fence/fence.h"
#include "pool/commit_int.h"

#define CHECKPOINT "{\"step\":\"0123456789012345678901234567890123456789012345678901234567890123\"}"
enum { LANES = 2, BATCH = 256 };

static struct {
    struct commit_lane *lanes[LANES];
    int64_t end_us;
    atomic_long writes, running, refused;
} bench;

struct held {
    struct commit_request request;
    struct commit_lane *lane;
};

static void offer(struct held *h)
{
    arena_reset(h->request.arena);
    h->request.decision = decision_empty("continue");
    h->request.decision.checkpoint.text = SPAN_LIT(CHECKPOINT);
    commit_prepare(&h->request);
    commit_push(h->lane, &h->request);
}

static void answered(struct commit_request *request)
{
    struct held *h = request->opaque;
    if (request->outcome != OUTCOME_OK) {
        fprintf(stderr, "protected_write: %s %.*s\n", outcome_word(request->outcome), (int)request->detail.n,
                request->detail.p);
        atomic_fetch_add(&bench.refused, 1);
    } else {
        atomic_fetch_add(&bench.writes, 1);
        request->revision = request->new_revision;
        if (clock_mono_us() < bench.end_us) {
            offer(h);
            return;
        }
    }
    atomic_fetch_sub(&bench.running, 1);
}

static void stop_unless_ok(enum outcome o, const char *what, struct fence *f)
{
    if (o == OUTCOME_OK)
        return;
    fprintf(stderr, "protected_write: %s: %s %s\n", what, outcome_word(o), f ? fence_error(f) : "");
    exit(1);
}

/* Submits and acquires n runs; the leases outlast the measurement. */
static void make_runs(struct fence *f, struct held *held, size_t n, struct arena *arena)
{
    struct fence_submit_item items[BATCH];
    struct span handler = SPAN_LIT("plan");
    struct fence_session session = {.owner = SPAN_LIT("bench"), .ttl_ms = 600000, .handlers = &handler, .handler_n = 1};
    for (size_t done = 0; done < n; done += BATCH) {
        for (size_t i = 0; i < BATCH; i++) {
            struct span task = span_of(arena_printf(arena, "t%zu", done + i));
            items[i] = (struct fence_submit_item){
                .tenant = SPAN_LIT("default"), .task = task, .key = task, .digest = task, .source = task, .by = task,
                .handler = handler, .run_id = uuid_v7(), .input = {SPAN_LIT("{}")}, .not_before = DB_TIME_NULL,
                .deadline = DB_TIME_NULL, .max_attempts = 3};
        }
        struct fence_submit_result *submitted;
        stop_unless_ok(fence_submit(f, items, BATCH, arena, &submitted), "submit", f);
        struct fence_acquired *rows;
        size_t rows_n;
        session.token = uuid_v4();
        stop_unless_ok(fence_claim(f, &session, BATCH, arena, &rows, &rows_n), "claim", f);
        for (size_t i = 0; i < rows_n; i++) {
            struct held *h = &held[done + i];
            h->lane = bench.lanes[(done + i) % LANES];
            h->request = (struct commit_request){.run_id = rows[i].run_id, .owner = session.owner, .epoch = rows[i].epoch,
                                                 .revision = rows[i].revision, .arena = arena_new(), .done = answered,
                                                 .opaque = h};
        }
        if (rows_n != BATCH) {
            fprintf(stderr, "protected_write: claimed %zu of %d runs\n", rows_n, BATCH);
            exit(1);
        }
    }
}

static struct config *configuration(const char *dsn)
{
    char set[1024];
    (void)snprintf(set, sizeof(set), "postgres.dsn=%s", dsn);
    const char *sets[] = {set, "pool.max_running=20000", "pool.batch=512"};
    struct config_source source = {.sets = sets, .n_sets = COUNT_OF(sets)};
    struct config *cfg;
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    if (!config_load(&source, &cfg, &errors)) {
        fprintf(stderr, "protected_write: %s\n", errors.p);
        exit(2);
    }
    return cfg;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: protected_write DSN SECONDS [RUNS]\n");
        return 2;
    }
    struct config *cfg CLEANUP(config_drop) = configuration(argv[1]);
    size_t n = argc > 3 ? strtoul(argv[3], NULL, 10) : 4096;
    n = (n + BATCH - 1) / BATCH * BATCH;
    struct held *held = memory_new(n, sizeof(*held));
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct fence *f;
    stop_unless_ok(fence_open(cfg, "bench", 0, &f), "connection", NULL);
    stop_unless_ok(fence_connect(f, 10 * CLOCK_SECOND), "connection", f);
    for (size_t i = 0; i < LANES; i++)
        stop_unless_ok(commit_open(cfg, i == 0 ? "commit-1" : "commit-2", &bench.lanes[i]), "commit lane", NULL);
    make_runs(f, held, n, arena);

    int64_t start_us = clock_mono_us();
    bench.end_us = start_us + (int64_t)(strtod(argv[2], NULL) * (double)CLOCK_SECOND);
    atomic_store(&bench.running, (long)n);
    for (size_t i = 0; i < n; i++)
        offer(&held[i]);
    while (atomic_load(&bench.running) > 0)
        (void)usleep(1000);
    double seconds = (double)(clock_mono_us() - start_us) / (double)CLOCK_SECOND;
    for (size_t i = 0; i < LANES; i++)
        commit_close(bench.lanes[i]);
    fence_close(f);
    for (size_t i = 0; i < n; i++)
        arena_free(held[i].request.arena);
    free(held);
    long writes = atomic_load(&bench.writes);
    printf("{\"writes\":%ld,\"seconds\":%.3f,\"rate\":%.1f}\n", writes, seconds, (double)writes / seconds);
    return atomic_load(&bench.refused) == 0 ? 0 : 1;
}

// holdfast doctor: looks at everything a pod will need and says for each what is wrong and what to
// do about it.
//
// A check is one line; it never stops the others. "warn" is what works and will hurt one day;
// "fail" must be fixed.
#include "cli/commands.h"
#include "cli/reads.h"
#include "cli/session.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/metric.h"
#include "fence/prefilter.h"
#include "schemas/migrate.h"

enum {
    KAFKA_MS = 10000,
    ADMIN_MS = 30000,
    MIN_VERSION = 140000,
    DURABLE_REPLICATION = 3,
    DURABLE_INSYNC = 2
};
enum { CLOCK_WARN_MS = 500 };

enum verdict { VERDICT_OK, VERDICT_WARN, VERDICT_FAIL };
static const char *const verdict_words[] = {"ok", "warn", "fail"};

struct doctor {
    const struct config *cfg;
    bool json;
    struct arena *arena;
    struct json_builder *b;
    struct json_node *checks;
    size_t failed, warned;
    int32_t shards; // 0: the database did not say
};

// `fix` NULL: nothing to do.
__attribute__((format(printf, 5, 6))) static void found(struct doctor *d, enum verdict verdict,
                                                        const char *check, const char *fix,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *says = arena_vprintf(d->arena, format, args);
    va_end(args);
    d->failed += verdict == VERDICT_FAIL;
    d->warned += verdict == VERDICT_WARN;
    struct json_node *o = json_new_object(d->b);
    json_put_text(d->b, o, "check", span_of(check));
    json_put_text(d->b, o, "result", span_of(verdict_words[verdict]));
    json_put_text(d->b, o, "says", span_of(says));
    json_put_text(d->b, o, "fix", span_of(fix));
    json_push(d->b, d->checks, o);
    if (d->json)
        return;
    printf("%-4s  %-22s %s\n", verdict_words[verdict], check, says);
    if (verdict != VERDICT_OK && fix != NULL)
        printf("      %-22s to fix it: %s\n", "", fix);
}

// `holds` or else the finding.
static void must(struct doctor *d, bool holds, enum verdict otherwise, const char *check,
                 const char *says_ok, const char *says_wrong, const char *fix)
{
    found(d, holds ? VERDICT_OK : otherwise, check, fix, "%s", holds ? says_ok : says_wrong);
}

// What hurts only outside development.
static enum verdict in_production(const struct doctor *d)
{
    return d->cfg->pod.development ? VERDICT_WARN : VERDICT_FAIL;
}

static void check_server(struct doctor *d, const struct server_row *s)
{
    must(d, s->version_num >= MIN_VERSION, VERDICT_FAIL, "postgres.version", "14 or later",
         "older than 14", "upgrade PostgreSQL");
    must(d, !s->in_recovery && !s->read_only, VERDICT_FAIL, "postgres.primary",
         "the writable primary",
         "a standby or read-only: ownership can only be judged on the primary",
         "point postgres.dsn at the primary (target_session_attrs=read-write)");
    must(d, s->fsync, in_production(d), "postgres.fsync", "on",
         "off: a crash of the machine loses acknowledged writes", "fsync = on in postgresql.conf");
    must(d, s->full_page_writes, in_production(d), "postgres.full_page_writes", "on",
         "off: a crash can tear pages", "full_page_writes = on in postgresql.conf");
    must(d, !span_eq_text(s->synchronous_commit, "off"), in_production(d), "postgres.synchronous",
         "commits are waited for", "synchronous_commit is off: an acknowledged epoch can vanish",
         "ALTER ROLE … RESET synchronous_commit");
    bool strict = span_eq_text(s->failover_mode, "strict");
    must(d, !strict || s->synchronous_standby_names.n > 0, VERDICT_FAIL, "postgres.standby",
         strict ? "a synchronous standby is named"
                : "async mode: acknowledged writes may be lost at a failover",
         "strict mode, and no synchronous standby is named",
         "set synchronous_standby_names, or failover.mode = async");
    must(d, *d->cfg->failover.fencing != '\0', d->cfg->pod.development ? VERDICT_OK : VERDICT_WARN,
         "failover.fencing", "declared",
         "not declared: how is the old primary kept from writing before another is promoted?",
         "name the means in failover.fencing; holdfast cannot fence a server");
    if (span_eq_text(s->gate_reason, "relay_unchecked") && !s->gate_open)
        found(d, VERDICT_WARN, "gate",
              "run pods with relay.enabled, or migrate with relay.enabled=false where there are none",
              "nothing is claimed until a relay has compared every shard with Kafka since the "
              "server's start");
    else
        must(d, s->gate_open, VERDICT_FAIL, "gate", "open",
             arena_printf(d->arena, "closed: %.*s", SPAN_ARG(s->gate_reason)),
             "holdfast gate status; after the audit holdfast gate open --reason …");
}

static void check_login(struct doctor *d, const struct server_row *s)
{
    const char *login = arena_printf(d->arena, "%.*s", SPAN_ARG(s->login));
    must(d, !s->login_superuser, in_production(d), "login.superuser",
         arena_printf(d->arena, "%s is none", login),
         arena_printf(d->arena, "%s is a superuser: it can write past the functions", login),
         "a login IN ROLE holdfast_worker, as schemas/sql/roles.sql shows");
    must(d, s->login_worker, VERDICT_WARN, "login.worker", "may act as a pod",
         "may not act as a pod (right for a viewer or operator)",
         "GRANT holdfast_worker TO the login of the pods");
    must(d, !s->login_can_make_temp, in_production(d), "login.temp", "cannot make temporary tables",
         "can make temporary tables",
         "REVOKE TEMPORARY ON DATABASE … FROM PUBLIC (holdfast migrate does it)");
    bool limits = s->lock_timeout_ms > 0 && s->statement_timeout_ms > 0 &&
                  s->idle_in_transaction_timeout_ms > 0 &&
                  s->client_connection_check_interval_ms > 0;
    must(d, limits, VERDICT_WARN, "login.limits", "time-outs are set",
         "lock_timeout, statement_timeout, idle_in_transaction_session_timeout or "
         "client_connection_check_interval is not "
         "set",
         "ALTER ROLE … SET, as schemas/sql/roles.sql shows");
    must(d,
         d->cfg->lease.ttl_ms <= s->max_lease_ttl_ms &&
             d->cfg->dispatch.claim_ttl_ms <= s->max_claim_ttl_ms,
         VERDICT_FAIL, "ceilings",
         "lease.ttl_ms and dispatch.claim_ttl_ms are below the installation's ceilings",
         "lease.ttl_ms or dispatch.claim_ttl_ms is above the installation's ceiling: every call "
         "would be refused",
         "lower them, or raise the ceiling in the control table");
}

// The round trip bounds what can be said: the database read its clock somewhere inside it.
static void check_clock(struct doctor *d, const struct server_row *s, int64_t before_us,
                        int64_t after_us)
{
    int64_t off_us = 0;
    if (s->clock.us < before_us)
        off_us = s->clock.us - before_us;
    else if (s->clock.us > after_us)
        off_us = s->clock.us - after_us;
    long long off_ms = (long long)(off_us / CLOCK_MS);
    found(d, llabs(off_ms) > CLOCK_WARN_MS ? VERDICT_WARN : VERDICT_OK, "clock",
          "check NTP on both machines (leases are judged by the database's clock alone: state is "
          "safe)",
          "the database's clock differs by %lld ms", off_ms);
}

static void check_schema(struct doctor *d)
{
    struct migrate_options options = {.dsn = d->cfg->postgres.dsn,
                                      .schema = d->cfg->postgres.schema,
                                      .role_prefix = d->cfg->postgres.role_prefix,
                                      .mode = session_failover_word(d->cfg),
                                      .claims_wait_for_relay = session_claims_wait(d->cfg),
                                      .shards = d->shards > 0 ? d->shards : 8};
    struct text report CLEANUP(text_free) = TEXT_EMPTY;
    enum outcome outcome = migrate_check(&options, &report);
    size_t n = report.n > 0 && report.p[report.n - 1] == '\n' ? report.n - 1 : report.n;
    found(d, outcome == OUTCOME_OK ? VERDICT_OK : VERDICT_FAIL, "postgres.schema",
          "holdfast migrate", "%.*s", (int)n, report.p != NULL ? report.p : "");
}

static void check_postgres(struct doctor *d)
{
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    if (!config_has(d->cfg, CONFIG_NEEDS_POSTGRES, &errors)) {
        found(d, VERDICT_FAIL, "postgres", "set postgres.dsn", "not configured");
        return;
    }
    struct db *db CLEANUP(session_db_drop) = session_db_new(d->cfg, true);
    enum outcome outcome = db_connect(db);
    if (outcome != OUTCOME_OK) {
        found(d, VERDICT_FAIL, "postgres.connect", "start it, or correct postgres.dsn", "%s: %s",
              outcome_sentence(outcome), db_error(db)->message);
        return;
    }
    found(d, VERDICT_OK, "postgres.connect", NULL, "connected, version %d",
          db_identity(db)->version / 10000);
    check_schema(d);
    struct server_row *row;
    size_t n;
    int64_t before_us = clock_wall_us();
    outcome = db_call(db, &read_server, NULL, NULL, d->arena, &row, &n);
    if (outcome != OUTCOME_OK || n != 1) {
        found(d, VERDICT_FAIL, "postgres.functions",
              "holdfast migrate, and grant one of the roles to this login", "%s: %s",
              outcome_sentence(outcome), db_error(db)->message);
        return;
    }
    d->shards = row->shards;
    check_clock(d, row, before_us, clock_wall_us());
    check_server(d, row);
    check_login(d, row);
}

// One key nobody else uses: whether it was won says whether Redis answers.
static void check_redis(struct doctor *d)
{
    if (*d->cfg->redis.url == '\0') {
        found(d, VERDICT_OK, "redis", NULL, "not configured: acquisitions are not pre-filtered");
        return;
    }
    struct prefilter *p;
    if (prefilter_open(d->cfg, &p) != OUTCOME_OK) {
        found(d, VERDICT_FAIL, "redis", "correct redis.url", "redis.url cannot be used");
        return;
    }
    struct prefilter_key key = {.run_id = uuid_v4(), .epoch = 1, .token = SPAN_LIT("doctor")};
    bool go;
    prefilter_take(p, &key, 1, &go);
    bool won = metric_read(METRIC_PREFILTER, LABELS("won")) > 0;
    prefilter_drop(p, &key, 1);
    prefilter_close(p);
    must(d, won, VERDICT_WARN, "redis", "answers",
         "does not answer: pods go on without it (redis.on_failure)",
         "start it, or correct redis.url");
}

struct position_in {
    int32_t shard;
    struct db_int max_age_ms;
};
struct position_row {
    int32_t held_back;
};
static const struct db_param position_params[] = {DB_SCALAR(struct position_in, shard),
                                                  DB_SCALAR(struct position_in, max_age_ms)};
static const struct db_column position_columns[] = {DB_COLUMN(struct position_row, held_back)};
static const struct db_call read_position =
    DB_CALL("relay_position", position_params, position_columns, DB_READ);

// Events that Kafka would not remember having: the relay leaves them for a person to decide about.
static void check_held_back(struct doctor *d, const char *topic, int64_t retention_ms)
{
    if (retention_ms < 0 || d->shards <= 0)
        return;
    struct db *db CLEANUP(session_db_drop) = session_db_new(d->cfg, true);
    int64_t held_back = 0;
    if (db_connect(db) != OUTCOME_OK)
        return; // said before
    for (int32_t shard = 0; shard < d->shards; shard++) {
        const struct position_in in = {.shard = shard, .max_age_ms = DB_INT(retention_ms)};
        struct position_row *row;
        size_t n;
        if (db_call(db, &read_position, &in, NULL, d->arena, &row, &n) == OUTCOME_OK && n == 1)
            held_back += row->held_back;
    }
    if (held_back > 0)
        found(d, VERDICT_FAIL, "relay.held_back",
              arena_printf(d->arena,
                           "raise retention.ms of %s above their age to have them published",
                           topic),
              "%lld events are older than what Kafka keeps of the results, and are not published",
              (long long)held_back);
}

static void check_topics(struct doctor *d, struct broker *broker)
{
    struct broker_topic topics[BROKER_TOPIC_ROLES];
    struct broker_topic_state states[BROKER_TOPIC_ROLES];
    struct broker_error error;
    broker_topics_of(d->cfg->topics.prefix, (int32_t)d->cfg->topics.partitions,
                     d->shards > 0 ? d->shards : 8, topics);
    if (broker_topics_check(broker, topics, COUNT_OF(topics), ADMIN_MS, states, &error) !=
        BROKER_OK) {
        found(d, VERDICT_FAIL, "kafka.topics", "grant DESCRIBE and DESCRIBE_CONFIGS", "%s",
              error.text);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(topics); i++) {
        const struct broker_topic_state *s = &states[i];
        const char *check = arena_printf(d->arena, "topic %s", topics[i].name);
        if (!s->ok)
            found(d, VERDICT_FAIL, check, "holdfast topics apply", "%s", s->detail);
        else if (s->unclean_election)
            found(d, in_production(d), check, "unclean.leader.election.enable=false",
                  "may elect an unclean leader");
        else if (s->replication < DURABLE_REPLICATION || s->min_insync < DURABLE_INSYNC)
            found(d, in_production(d), check, "replication >= 3 and min.insync.replicas >= 2",
                  "replication %d, min.insync.replicas %d", s->replication, s->min_insync);
        else
            found(d, VERDICT_OK, check, NULL, "%d partitions, replication %d", s->partitions,
                  s->replication);
    }
    if (session_claims_wait(d->cfg))
        check_held_back(d, topics[BROKER_RESULTS].name, states[BROKER_RESULTS].retention_ms);
}

static void check_kafka(struct doctor *d)
{
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    if (!config_has(d->cfg, CONFIG_NEEDS_KAFKA, &errors)) {
        found(d, VERDICT_FAIL, "kafka", "set kafka.bootstrap.servers", "not configured");
        return;
    }
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(d->cfg);
    struct broker_error error = {""};
    char cluster[128];
    if (broker == NULL) {
        found(d, VERDICT_FAIL, "kafka.properties", "correct the kafka.* options", "refused");
        return;
    }
    if (broker_cluster_id(broker, KAFKA_MS, cluster, sizeof cluster, &error) != BROKER_OK) {
        found(d, VERDICT_FAIL, "kafka.connect", "start it, or correct kafka.bootstrap.servers",
              "%s", error.text);
        return;
    }
    if (broker_cluster_is_mock(cluster)) {
        found(d, in_production(d), "kafka.connect", "use a real Kafka",
              "the embedded mock broker: at least once, forgets at exit");
        return; // it has no admin API to ask
    }
    found(d, VERDICT_OK, "kafka.connect", NULL, "cluster %s", cluster);
    check_topics(d, broker);
}

int command_doctor(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, 0);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct doctor d = {.cfg = cfg,
                       .json = invocation_flag(inv, "json"),
                       .arena = arena,
                       .b = json_builder_new(arena)};
    d.checks = json_new_array(d.b);
    check_postgres(&d);
    check_redis(&d);
    check_kafka(&d);
    if (d.json) {
        struct json_node *root = json_new_object(d.b);
        json_put_integer(d.b, root, "failed", (int64_t)d.failed);
        json_put_integer(d.b, root, "warned", (int64_t)d.warned);
        json_put_node(d.b, root, "checks", d.checks);
        session_print_json(d.b, root);
    } else {
        printf("%zu to fix, %zu to look at\n", d.failed, d.warned);
    }
    return d.failed == 0 ? EXIT_HOLDS : EXIT_HOLDS_NOT;
}

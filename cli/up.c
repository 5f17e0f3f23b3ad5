// holdfast up: a whole local stack in the foreground. The pods are real processes of `holdfast
// run`, so that a person can stop, kill and replace them; the mock broker, if no Kafka is given,
// lives in this process.
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/stack.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "schemas/migrate.h"

enum {
    MAX_PODS = 64,
    MAX_SETS = 300,
    SHARDS = 8,
    ADMIN_MS = 30000,
    READY_US = 90 * 1000 * 1000,
    PROGRESS_US = 10 * 1000 * 1000,
    LOOK_US = 100 * 1000,
};

struct pod_process {
    struct process process;
    char name[16], log[PATH_MAX];
    uint16_t admin_port;
    bool told_ready, told_end;
};

struct up {
    struct invocation *inv;
    struct arena *arena;
    struct config *cfg; // what the user gave, for prefix, schema and partitions
    struct stack stack;
    struct broker_mock *mock; // NULL: a Kafka was given
    const char *bootstrap;
    struct pod_process pods[MAX_PODS];
    long pod_n;
    const char *sets[MAX_SETS]; // what the pods get by --set
    size_t set_n;
};

static void keep_set(const char *value, void *opaque)
{
    struct up *up = opaque;
    CHECK(up->set_n < MAX_SETS);
    up->sets[up->set_n++] = value;
}

static bool open_broker(struct up *up)
{
    struct broker_topic topics[BROKER_TOPIC_ROLES];
    struct broker_error error;
    up->bootstrap = invocation_value(up->inv, "broker");
    if (up->bootstrap != NULL)
        return true;
    broker_topics_of(up->cfg->topics.prefix, (int32_t)up->cfg->topics.partitions, SHARDS, topics);
    if (broker_mock_open(topics, COUNT_OF(topics), &up->mock, &error) != BROKER_OK) {
        say_error("use a real one: --broker HOST:PORT", "the embedded broker: %s", error.text);
        return false;
    }
    up->bootstrap = broker_mock_bootstrap(up->mock);
    char path[PATH_MAX];
    stack_path(&up->stack, "bootstrap", path, sizeof path);
    if (broker_mock_write(up->mock, path, &error) == BROKER_OK)
        return true;
    say_error("choose another --dir", "%s: %s", path, error.text);
    return false;
}

// The stack's own settings, as they go to the pods and into the file for the person's commands.
static void stack_sets(struct up *up, const char *login)
{
    char dsn[128];
    stack_dsn(&up->stack, login, dsn, sizeof dsn);
    keep_set(arena_printf(up->arena, "postgres.dsn=%s", dsn), up);
    keep_set(arena_printf(up->arena, "redis.url=redis://127.0.0.1:%u/0", up->stack.redis_port), up);
    keep_set(arena_printf(up->arena, "kafka.bootstrap.servers=%s", up->bootstrap), up);
    keep_set("pod.development=true", up);
    if (up->mock != NULL) {
        keep_set("relay.mode=at_least_once", up);
        // The mock's groups wait for nearly a session before partitions move to a new member.
        keep_set("kafka.consumer.session.timeout.ms=3000", up);
        keep_set("kafka.consumer.heartbeat.interval.ms=500", up);
    }
}

// DIR/holdfast.conf: with it every other command reaches this stack.
static bool write_config(struct up *up, char *path, size_t size)
{
    stack_path(&up->stack, "holdfast.conf", path, size);
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        say_error("choose another --dir", "%s: %s", path, strerror(errno));
        return false;
    }
    fputs("# Written by holdfast up: how the commands of a person reach this stack.\n", out);
    size_t before = up->set_n;
    invocation_each(up->inv, "set", keep_set, up);
    stack_sets(up, "holdfast_person");
    for (size_t i = before; i < up->set_n; i++) {
        const char *dot = strchr(up->sets[i], '.'), *equals = strchr(up->sets[i], '=');
        if (strncmp(up->sets[i], "tool.", 5) == 0 || strncmp(up->sets[i], "handler.", 8) == 0)
            continue; // they need their whole section, which is the pods' file
        if (dot != NULL && equals != NULL && dot < equals)
            fprintf(out, "[%.*s]\n%.*s = %s\n", (int)(dot - up->sets[i]), up->sets[i],
                    (int)(equals - dot - 1), dot + 1, equals + 1);
    }
    up->set_n = before;
    bool written = fclose(out) == 0;
    if (!written)
        say_error("free the disk", "%s: %s", path, strerror(errno));
    return written;
}

static bool migrate(struct up *up)
{
    char dsn[128];
    stack_dsn(&up->stack, "postgres", dsn, sizeof dsn);
    struct migrate_options options = {.dsn = dsn,
                                      .schema = up->cfg->postgres.schema,
                                      .role_prefix = up->cfg->postgres.role_prefix,
                                      .mode = session_failover_word(up->cfg),
                                      .claims_wait_for_relay =
                                          up->mock == NULL && session_claims_wait(up->cfg),
                                      .shards = SHARDS};
    struct text lines CLEANUP(text_free) = TEXT_EMPTY;
    enum outcome outcome = migrate_run(&options, &lines);
    if (outcome == OUTCOME_OK)
        return stack_make_logins(&up->stack, up->cfg->postgres.role_prefix);
    say_error("use a fresh --dir", "the migration: %s\n%.*s", outcome_sentence(outcome),
              SPAN_ARG(text_span(&lines)));
    return false;
}

// On the mock the topics were made with it.
static bool make_topics(struct up *up)
{
    if (up->mock != NULL)
        return true;
    struct broker_property bootstrap = {"bootstrap.servers", up->bootstrap, BROKER_ALL};
    struct broker *broker CLEANUP(session_broker_drop) = NULL;
    struct broker_topic topics[BROKER_TOPIC_ROLES];
    struct broker_topic_state states[BROKER_TOPIC_ROLES];
    struct broker_error error;
    broker_topics_of(up->cfg->topics.prefix, (int32_t)up->cfg->topics.partitions, SHARDS, topics);
    if (broker_open(&bootstrap, 1, NULL, &broker, &error) == BROKER_OK &&
        broker_topics_apply(broker, topics, COUNT_OF(topics), -1, ADMIN_MS, states, &error) ==
            BROKER_OK)
        return true;
    say_error("check --broker: a Kafka must answer there", "%s: %s", up->bootstrap, error.text);
    return false;
}

static bool start_pod(struct up *up, struct pod_process *pod, int number)
{
    snprintf(pod->name, sizeof pod->name, "p%d", number);
    pod->process.name = pod->name;
    stack_path(&up->stack, arena_printf(up->arena, "%s.log", pod->name), pod->log, sizeof pod->log);
    pod->admin_port = process_free_port();
    const char *argv[2 * MAX_SETS + 16];
    size_t n = 0;
    argv[n++] = "/proc/self/exe";
    argv[n++] = "run";
    if (invocation_value(up->inv, "config") != NULL) {
        argv[n++] = "--config";
        argv[n++] = invocation_value(up->inv, "config");
    }
    argv[n++] = "--name";
    argv[n++] = pod->name;
    for (size_t i = 0; i < up->set_n; i++) {
        argv[n++] = "--set";
        argv[n++] = up->sets[i];
    }
    argv[n++] = "--set";
    argv[n++] = arena_printf(up->arena, "admin.listen=127.0.0.1:%u", pod->admin_port);
    argv[n] = NULL;
    if (process_start(&pod->process, argv, NULL, pod->log))
        return true;
    say_error("check the limits of processes", "%s: %s", pod->name, strerror(errno));
    return false;
}

// DIR/stack.json, for scripts: written whole, so that who waits for the file can read it.
static bool write_facts(const struct up *up, const char *conf)
{
    char path[PATH_MAX], part[PATH_MAX], dsn[128];
    struct json_builder *b = json_builder_new(up->arena);
    struct json_node *o = json_new_object(b), *pods = json_new_array(b);
    json_put_text(b, o, "dir", span_of(up->stack.dir));
    json_put_text(b, o, "config", span_of(conf));
    stack_dsn(&up->stack, "postgres", dsn, sizeof dsn);
    json_put_text(b, o, "admin_dsn", span_of(dsn));
    json_put_text(b, o, "schema", span_of(up->cfg->postgres.schema));
    json_put_text(b, o, "bootstrap", span_of(up->bootstrap));
    json_put_text(b, o, "topic_prefix", span_of(up->cfg->topics.prefix));
    json_put_bool(b, o, "embedded_broker", up->mock != NULL);
    json_put_text(b, o, "postgres_bin", span_of(up->stack.postgres_bin));
    for (long i = 0; i < up->pod_n; i++) {
        struct json_node *pod = json_new_object(b);
        json_put_text(b, pod, "name", span_of(up->pods[i].name));
        json_put_integer(b, pod, "pid", up->pods[i].process.pid);
        json_put_text(b, pod, "log", span_of(up->pods[i].log));
        json_put_integer(b, pod, "admin_port", up->pods[i].admin_port);
        json_push(b, pods, pod);
    }
    json_put_node(b, o, "pods", pods);
    stack_path(&up->stack, "stack.json", path, sizeof path);
    stack_path(&up->stack, "stack.json.part", part, sizeof part);
    FILE *out = fopen(part, "w");
    struct span text = json_build(b, o);
    bool ok = out != NULL && fprintf(out, "%.*s\n", SPAN_ARG(text)) > 0;
    ok = (out == NULL || fclose(out) == 0) && ok && rename(part, path) == 0;
    if (!ok)
        say_error("choose another --dir", "%s: %s", path, strerror(errno));
    return ok;
}

static bool asked_to_end(const sigset_t *set, int64_t wait_us)
{
    struct timespec timeout = {wait_us / CLOCK_SECOND, wait_us % CLOCK_SECOND * 1000};
    return sigtimedwait(set, NULL, &timeout) > 0;
}

// Tells once about every end: nothing is started again, for that is what a person wants to watch.
static void tell_ends(struct up *up)
{
    char how[64];
    for (long i = 0; i < up->pod_n; i++) {
        struct pod_process *pod = &up->pods[i];
        if (pod->told_end || !process_ended(&pod->process))
            continue;
        pod->told_end = true;
        printf("%s ended: %s; its log is %s\n", pod->name,
               process_how(&pod->process, how, sizeof how), pod->log);
        fflush(stdout);
    }
    struct process *servers[] = {&up->stack.postgres, &up->stack.redis};
    for (size_t i = 0; i < COUNT_OF(servers); i++) {
        if (servers[i]->name == NULL || !process_ended(servers[i]))
            continue;
        printf("%s ended: %s\n", servers[i]->name, process_how(servers[i], how, sizeof how));
        fflush(stdout);
        servers[i]->name = NULL;
    }
}

// True when all pods are ready, false when one ended or it takes too long.
static bool wait_ready(struct up *up, const sigset_t *signals, bool *ret_asked)
{
    int64_t deadline = clock_deadline_us(READY_US), told = clock_mono_us();
    for (long ready = 0; ready < up->pod_n;) {
        ready = 0;
        for (long i = 0; i < up->pod_n; i++) {
            struct pod_process *pod = &up->pods[i];
            if (!pod->told_ready)
                pod->told_ready =
                    process_port_answers(pod->admin_port, "GET /readyz HTTP/1.0\r\n\r\n",
                                         "HTTP/1.1 200") ||
                    process_port_answers(pod->admin_port, "GET /readyz HTTP/1.0\r\n\r\n",
                                         "HTTP/1.0 200");
            ready += pod->told_ready;
            if (process_ended(&pod->process) || clock_mono_us() > deadline) {
                tell_ends(up);
                say_error("read its log", "%s did not become ready: %s", pod->name, pod->log);
                return false;
            }
        }
        if (clock_mono_us() - told > PROGRESS_US) {
            told = clock_mono_us();
            printf("waiting for the pods: %ld of %ld are ready\n", ready, up->pod_n);
            fflush(stdout);
        }
        *ret_asked = ready < up->pod_n && asked_to_end(signals, LOOK_US);
        if (*ret_asked)
            return false;
    }
    return true;
}

static void print_welcome(const struct up *up, const char *conf)
{
    const char *prefix = up->cfg->topics.prefix;
    printf("\nholdfast %s is up: %ld pod%s%s\n", HOLDFAST_VERSION, up->pod_n,
           up->pod_n == 1 ? "" : "s",
           up->mock != NULL
               ? ", embedded mock broker (development only: at least once, forgets at exit)"
               : "");
    printf("  logs and data   %s%s\n", up->stack.dir,
           up->stack.temporary ? " (removed at the end)" : "");
    for (long i = 0; i < up->pod_n; i++)
        printf("  %-4s pid %-7d http://127.0.0.1:%u/metrics\n", up->pods[i].name,
               (int)up->pods[i].process.pid, up->pods[i].admin_port);
    printf("\nIn another terminal:\n"
           "  echo 't1:{\"task_id\":\"t1\",\"handler\":\"plan\",\"input\":{\"steps\":[]}}' | kcat "
           "-P -b %s -t %stasks -K :\n"
           "  kcat -C -b %s -t %sresults -o beginning -X isolation.level=read_committed\n"
           "  export HOLDFAST_CONFIG=%s\n"
           "  holdfast show t1\n\nCtrl-C stops everything.\n",
           up->bootstrap, prefix, up->bootstrap, prefix, conf);
    fflush(stdout);
}

static void stop_all(struct up *up)
{
    int64_t patience = (up->cfg->pool.grace_ms + 5000) * CLOCK_MS;
    for (long i = 0; i < up->pod_n; i++) // all at once, then wait for each
        if (!process_ended(&up->pods[i].process)) {
            kill(up->pods[i].process.pid, SIGTERM);
            kill(up->pods[i].process.pid, SIGCONT);
        }
    int64_t deadline = clock_deadline_us(patience);
    for (long i = 0; i < up->pod_n; i++) {
        while (!process_ended(&up->pods[i].process) && clock_mono_us() < deadline)
            usleep(LOOK_US);
        process_stop(&up->pods[i].process, SIGKILL, 0);
    }
    stack_stop(&up->stack);
    broker_mock_close(up->mock);
}

static bool start_all(struct up *up, char *conf, size_t size)
{
    printf("starting PostgreSQL and Redis\n");
    fflush(stdout);
    if (!stack_start(&up->stack, invocation_value(up->inv, "dir"),
                     invocation_value(up->inv, "postgres-bin")))
        return false;
    if (!open_broker(up) || !write_config(up, conf, size) || !migrate(up) || !make_topics(up))
        return false;
    invocation_each(up->inv, "set", keep_set, up);
    stack_sets(up, "holdfast_pod");
    printf("starting %ld pod%s\n", up->pod_n, up->pod_n == 1 ? "" : "s");
    fflush(stdout);
    for (int i = 0; i < up->pod_n; i++)
        if (!start_pod(up, &up->pods[i], i + 1))
            return false;
    return true;
}

static int run_up(struct up *up, const sigset_t *signals)
{
    char conf[PATH_MAX];
    bool asked = false;
    int code = EXIT_CANNOT_RUN;
    if (start_all(up, conf, sizeof conf) && wait_ready(up, signals, &asked) &&
        write_facts(up, conf)) {
        print_welcome(up, conf);
        while (!asked_to_end(signals, LOOK_US))
            tell_ends(up);
        code = EXIT_HOLDS;
    }
    if (code == EXIT_CANNOT_RUN && !asked && up->stack.temporary) {
        up->stack.temporary = false; // the logs say why
        say_error("read them", "the logs are kept in %s", up->stack.dir);
    }
    printf("stopping\n");
    fflush(stdout);
    stop_all(up);
    return asked ? EXIT_HOLDS : code;
}

int command_up(struct invocation *inv)
{
    struct up up = {.inv = inv, .pod_n = 1};
    if (!invocation_integer(inv, "pods", 1, MAX_PODS, &up.pod_n))
        return EXIT_CANNOT_RUN;
    up.cfg = session_config(inv, 0);
    if (up.cfg == NULL)
        return EXIT_CANNOT_RUN;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL); // before the mock broker starts its threads
    signal(SIGPIPE, SIG_IGN);
    up.arena = arena_new();
    int code = run_up(&up, &signals);
    arena_free(up.arena);
    config_free(up.cfg);
    return code;
}

/* config: what is read from where, what is refused and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "config/config.h"

#define NOTHING ((const char *const[]){NULL})

static char *file_with(const char *text)
{
    char path[] = "/tmp/holdfast-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return memory_copy_text(path);
}

/* Loads a file's text, environment and one --set; the caller frees both. Errors come back with the
 * path replaced. */
static struct config *load(const char *file_text, const char *const *environment, const char *set,
                           struct text *errors)
{
    char *path CLEANUP(memory_drop) = file_text ? file_with(file_text) : NULL;
    struct config_source source = {path, &set, set ? 1 : 0, environment};
    struct config *cfg = NULL;
    struct text raw CLEANUP(text_free) = TEXT_EMPTY;
    bool loaded = config_load(&source, &cfg, &raw);
    assert_true(loaded == (cfg != NULL) && loaded == (raw.n == 0));
    const char *p = text_span(&raw).p;
    for (const char *hit; path && (hit = strstr(p, path)) != NULL; p = hit + strlen(path)) {
        text_add(errors, p, (size_t)(hit - p));
        text_add_str(errors, "FILE");
    }
    text_add_str(errors, p);
    if (path)
        unlink(path);
    return cfg;
}

static struct config *must_load(const char *file_text, const char *const *environment,
                                const char *set)
{
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    struct config *cfg = load(file_text, environment, set, &errors);
    if (cfg == NULL)
        fail_msg("not loaded: %s", errors.p);
    return cfg;
}

static void refused_env(const char *file_text, const char *const *environment, const char *set,
                        const char *want)
{
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    struct config *cfg CLEANUP(config_drop) = load(file_text, environment, set, &errors);
    assert_null(cfg);
    assert_string_equal(errors.p, want);
}

static void refused(const char *file_text, const char *want)
{
    refused_env(file_text, NOTHING, NULL, want);
}

static void defaults_hold_together(void **state)
{
    (void)state;
    struct config *cfg CLEANUP(config_drop) = must_load(NULL, NOTHING, NULL);
    assert_int_equal(cfg->lease.ttl_ms, 30000);
    assert_string_equal(cfg->postgres.schema, "holdfast");
    assert_int_equal(cfg->relay.mode, RELAY_EXACTLY_ONCE);
    assert_int_equal(cfg->log.level, CONFIG_LOG_INFO);
    assert_true(strlen(cfg->pod.name) > 0);
    assert_int_equal(cfg->n_tools, 0);
    assert_int_equal(cfg->n_handlers, 1);
    assert_int_equal(config_handler(cfg, "plan")->kind, HANDLER_PLAN);
    assert_null(config_handler(cfg, "nobody"));
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    assert_true(config_has(cfg, 0, &errors));
    assert_false(config_has(cfg, CONFIG_NEEDS_POSTGRES | CONFIG_NEEDS_KAFKA, &errors));
    assert_non_null(strstr(errors.p, "HOLDFAST_POSTGRES_DSN"));
    assert_non_null(strstr(errors.p, "HOLDFAST_KAFKA_BOOTSTRAP_SERVERS"));
}

static void the_stronger_source_wins(void **state)
{
    (void)state;
    const char *const file = "[lease]\nttl_ms = 20000\n[pool]\nworkers=2\n";
    const char *const environment[] = {"HOLDFAST_LEASE_TTL_MS=21000", "PATH=/bin", NULL};
    struct config *a CLEANUP(config_drop) = must_load(file, NOTHING, NULL);
    struct config *b CLEANUP(config_drop) = must_load(file, environment, NULL);
    struct config *c CLEANUP(config_drop) = must_load(file, environment, "lease.ttl_ms=22000");
    assert_int_equal(a->lease.ttl_ms, 20000);
    assert_int_equal(b->lease.ttl_ms, 21000);
    assert_int_equal(c->lease.ttl_ms, 22000);
    assert_int_equal(c->pool.workers, 2);
}

static void long_values_go_on_in_the_next_line(void **state)
{
    (void)state;
    struct config *cfg CLEANUP(config_drop) = must_load(
        "[postgres]\ndsn = host=a ; the first\n  port=5432\n\tdbname=x\n# comment\nschema = s\n",
        NOTHING, NULL);
    assert_string_equal(cfg->postgres.dsn, "host=a port=5432 dbname=x");
    assert_string_equal(cfg->postgres.schema, "s");
    char line[400];
    snprintf(line, sizeof(line), "[postgres]\ndsn = %0300d\nschema = s\n", 7);
    refused(line, "FILE:2: the line is longer than 198 bytes; go on in the next line, indented\n");
}

static void a_typo_names_the_nearest_option(void **state)
{
    (void)state;
    refused("[lease]\ntl_ms = 5\n",
            "FILE:2: there is no option lease.tl_ms; did you mean lease.ttl_ms?\n");
    refused("[leese]\nttl_ms = 5\n",
            "FILE:2: there is no option leese.ttl_ms; did you mean lease.ttl_ms?\n");
    refused("[tool.pay]\nulr = http://x\n",
            "FILE:2: there is no option tool.pay.ulr; did you mean tool.pay.url?\n");
    refused("[zebra]\nstripes = 5\n", "FILE:2: there is no option zebra.stripes\n");
    refused_env(NULL, (const char *const[]){"HOLDFAST_LEASE_TLL_MS=5", NULL}, NULL,
                "HOLDFAST_LEASE_TLL_MS: no such option; did you mean HOLDFAST_LEASE_TTL_MS?\n");
    refused_env(NULL, (const char *const[]){"HOLDFAST_POSTGRE_DSN=x", NULL}, NULL,
                "HOLDFAST_POSTGRE_DSN: no such option; did you mean HOLDFAST_POSTGRES_DSN?\n");
    refused_env(NULL, NOTHING, "lease.ttl=5",
                "--set lease.ttl: there is no option lease.ttl; did you mean lease.ttl_ms?\n");
    refused_env(NULL, NOTHING, "lease", "--set: \"lease\" is not section.name=value\n");
}

static void other_programs_variables_are_left_alone(void **state)
{
    (void)state;
    const char *const environment[] = {"HOLDFAST_REDIS_SERVICE_HOST=10.0.0.1",
                                       "HOLDFAST_REDIS_PORT=tcp://10.0.0.1:6379",
                                       "HOLDFAST_TEST_DSN=x", "HOLDFAST_STOP_DIR=/tmp", NULL};
    struct config *cfg CLEANUP(config_drop) = must_load(NULL, environment, NULL);
    assert_string_equal(cfg->redis.url, "");
}

static void bad_values_say_what_is_good(void **state)
{
    (void)state;
    refused("[pool]\nworkers = many\n",
            "FILE:2: pool.workers: \"many\" is no whole number from 1 to 256\n");
    refused("[lease]\nttl_ms = 5s\n",
            "FILE:2: lease.ttl_ms: \"5s\" is no whole number from 500 to 600000 ms\n");
    refused("[sweep]\nttl_ms = 2001\n",
            "FILE:2: sweep.ttl_ms: \"2001\" is no whole number from 100 to 2000 ms\n");
    refused("[relay]\nmode = maybe\n",
            "FILE:2: relay.mode: \"maybe\" is none of: exactly_once, at_least_once\n");
    refused("[pool]\nenabled = perhaps\n",
            "FILE:2: pool.enabled: \"perhaps\" is neither true nor false\n");
    refused("[pool]\nworkers = 1\nworkers = 2\n",
            "FILE:3: pool.workers is set a second time in this file\n");
    refused("workers = 1\n", "FILE:1: \"workers\" stands before any [section]\n");
    refused("pool = 1\n  going on\n", "FILE:1: \"pool\" stands before any [section]\n");
    refused("[pool]\nqueue = 500\nqueue = 600\n  7\n",
            "FILE:3: pool.queue is set a second time in this file\n");
    refused("[pool]\nnonsense\n", "FILE:2: neither [section] nor name = value\n");
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    struct config *cfg = NULL;
    assert_false(
        config_load(&(struct config_source){"/nonexistent.conf", NULL, 0, NULL}, &cfg, &errors));
    assert_string_equal(errors.p, "/nonexistent.conf: No such file or directory\n");
}

static void options_must_fit_together(void **state)
{
    (void)state;
    refused("[lease]\nttl_ms = 14000\n",
            "lease: ttl_ms (14000) must be more than 2 x (heartbeat_ms + heartbeat_timeout_ms) = "
            "14000, or one lost "
            "heartbeat loses the lease\n");
    struct config *cfg CLEANUP(config_drop) = must_load("[lease]\nttl_ms = 14001\n", NOTHING, NULL);
    assert_int_equal(cfg->lease.ttl_ms, 14001);
    refused("[sweep]\ninterval_ms = 1500\n",
            "sweep: interval_ms (1500) must be at most half of ttl_ms (2000)\n");
    refused("[admin]\nlisten = 0.0.0.0:80\n",
            "admin: listening on 0.0.0.0:80, beyond this machine, needs admin.token\n");
    refused("[admin]\nlisten = somewhere\n", "admin: listen \"somewhere\" is not host:port\n");
    refused("[topics]\nprefix = a/b\n",
            "topics: prefix \"a/b\" is no part of a Kafka topic's name\n");
    refused("[redis]\nurl = rediss://x\n",
            "redis: url: TLS to Redis is not supported in this version\n");
    refused(
        "[tool.t]\nurl = http://x\ntimeout_ms = 30000\n",
        "FILE:3: tool.t: timeout_ms (30000) must be less than dispatch.claim_ttl_ms (30000), or "
        "answers come after their "
        "claim\n");
}

static void what_is_not_honoured_is_refused(void **state)
{
    (void)state;
    refused("[tool.t]\nurl = http://x\nkind = mcp\n",
            "FILE:3: tool.t: kind = mcp is not supported in this version\n");
    refused("[handler.h]\nkind = http\n",
            "handler.h: kind = http is not supported in this version\n");
    refused("[handler.h]\nkind = plugin\n",
            "handler.h: kind = plugin is not supported in this version\n");
}

static void tools_are_read_whole(void **state)
{
    (void)state;
    const char *const environment[] = {"PAY_TOKEN=s3cret", NULL};
    struct config *cfg CLEANUP(config_drop) = must_load(
        "[tool.pay]\nurl = https://pay.example/charge\ncapability = idempotency_key\nretention_ms "
        "= 86400000\n"
        "credential_env = PAY_TOKEN\nheader.X-Api-Version = 7\nfinal_statuses = 400-401, 409\n"
        "[tool.mail]\nurl = http://mail.example\ncredential_prefix = key=\n",
        environment, "tool.pay.header.X-Api-Version=8");
    assert_int_equal(cfg->n_tools, 2);
    const struct config_tool *pay = config_tool(cfg, "pay");
    assert_int_equal(pay->capability, CAPABILITY_IDEMPOTENCY_KEY);
    assert_int_equal(pay->retention_ms, 86400000);
    assert_string_equal(pay->credential, "s3cret");
    assert_string_equal(pay->credential_prefix, "Bearer ");
    assert_int_equal(pay->n_headers, 1);
    assert_string_equal(pay->headers[0].name, "X-Api-Version");
    assert_string_equal(pay->headers[0].value, "8");
    assert_true(config_status_in(&pay->final_statuses, 401) &&
                config_status_in(&pay->final_statuses, 409));
    assert_false(config_status_in(&pay->final_statuses, 402));
    assert_false(config_status_in(&pay->final_statuses, 100000));
    assert_true(config_status_in(&pay->not_acted_statuses, 429));
    assert_string_equal(config_tool(cfg, "mail")->credential_prefix, "key=");
    assert_string_equal(config_tool(cfg, "mail")->credential, "");
    assert_null(config_tool(cfg, "nobody"));
}

static void incomplete_tools_are_refused(void **state)
{
    (void)state;
    refused("[tool.t]\ntimeout_ms = 5000\n",
            "FILE:2: tool.t: url \"\" is neither http://… nor https://…\n");
    refused("[tool.t]\nurl = http://x\ncapability = idempotency_key\n",
            "FILE:3: tool.t: capability = idempotency_key needs retention_ms: how long the remote "
            "knows a "
            "key\n");
    refused("[tool.t]\nurl = http://x\ncredential_env = NOT_SET\n",
            "tool.t: the environment variable NOT_SET (credential_env) is not set\n");
    refused("[tool.t]\nurl = http://x\ncredential_file = /nonexistent\n",
            "tool.t: cannot read /nonexistent (credential_file): No such file or directory\n");
    refused(
        "[tool.t]\nurl = http://x\nfinal_statuses = 200,400\n",
        "FILE:3: tool.t: a status of 200 to 299 is a success and neither final nor not acted\n");
    refused("[tool.t]\nurl = http://x\nfinal_statuses = 429\n",
            "FILE:3: tool.t: a status is in final_statuses and in not_acted_statuses\n");
    refused("[tool.t]\nurl = http://x\nfinal_statuses = 4xx\n",
            "FILE:3: tool.t.final_statuses: \"4xx\" is no list of statuses like 400-404,410\n");
    refused("[tool.a b]\nurl = http://x\n",
            "FILE:2: [tool.a b]: a name is 1 to 40 letters, digits, - and _\n");
    refused("[handler.h]\nprocesses = 2\n", "handler.h: kind = exec needs a command\n");
    refused("[handler.h]\nkind = plan\n",
            "handler.h: the handler plan is built in: this name and kind = plan belong together\n");
}

static void kafka_properties_pass_through(void **state)
{
    (void)state;
    const char *const environment[] = {"HOLDFAST_KAFKA_BOOTSTRAP_SERVERS=b:9092", NULL};
    struct config *cfg CLEANUP(config_drop) = must_load(
        "[kafka]\nbootstrap.servers = a:9092\nconsumer.fetch.min.bytes = 7\nfetch.min.bytes = 1\n",
        environment, "kafka.producer.linger.ms=3");
    assert_int_equal(cfg->n_kafka, 4);
    assert_string_equal(config_kafka_value(cfg, "bootstrap.servers", KAFKA_PRODUCER), "b:9092");
    assert_string_equal(config_kafka_value(cfg, "fetch.min.bytes", KAFKA_CONSUMER), "7");
    assert_string_equal(config_kafka_value(cfg, "fetch.min.bytes", KAFKA_PRODUCER), "1");
    assert_string_equal(config_kafka_value(cfg, "linger.ms", KAFKA_PRODUCER), "3");
    assert_null(config_kafka_value(cfg, "linger.ms", KAFKA_CONSUMER));
}

static void secrets_come_from_files_and_are_never_shown(void **state)
{
    (void)state;
    char *path CLEANUP(memory_drop) = file_with("host=db password=canary-1\n");
    char variable[128];
    snprintf(variable, sizeof(variable), "HOLDFAST_POSTGRES_DSN_FILE=%s", path);
    const char *const environment[] = {variable, "TOKEN=canary-2", NULL};
    struct config *cfg CLEANUP(config_drop) =
        must_load("[tool.t]\nurl = http://x\ncredential_env = TOKEN\nheader.X-Key = "
                  "canary-3\n[admin]\ntoken = canary-4\n"
                  "[kafka]\nsasl.password = canary-5\nbootstrap.servers = shown:9092\n"
                  "[redis]\nurl = redis://u:canary-6@h\n",
                  environment, "lease.ttl_ms=20000");
    unlink(path);
    assert_string_equal(cfg->postgres.dsn, "host=db password=canary-1");
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_print(cfg, &t);
    assert_null(strstr(t.p, "canary"));
    assert_non_null(strstr(t.p, "shown:9092"));
    assert_non_null(strstr(t.p, "; HOLDFAST_POSTGRES_DSN_FILE\n"));
    assert_non_null(strstr(t.p, "; --set lease.ttl_ms\n"));
    assert_non_null(strstr(t.p, "; default\n"));
    refused_env(NULL, (const char *const[]){"HOLDFAST_ADMIN_TOKEN_FILE=/nonexistent", NULL}, NULL,
                "HOLDFAST_ADMIN_TOKEN_FILE: cannot read /nonexistent: No such file or directory\n");
}

static void what_is_printed_can_be_read_again(void **state)
{
    (void)state;
    struct config *cfg CLEANUP(config_drop) =
        must_load("[tool.t]\nurl = http://x\nmethod = PUT\n[handler.e]\ncommand = python3 agent.py "
                  "--fast\n[pod]\nname = p\n"
                  "[log]\nlevel = debug\n[kafka]\nbootstrap.servers = a:1,b:2\n",
                  NOTHING, NULL);
    struct text first CLEANUP(text_free) = TEXT_EMPTY;
    config_print(cfg, &first);
    struct config *again CLEANUP(config_drop) = must_load(first.p, NOTHING, NULL);
    assert_int_equal(again->tools[0].method, METHOD_PUT);
    assert_int_equal(again->log.level, CONFIG_LOG_DEBUG);
    assert_string_equal(config_handler(again, "e")->command, "python3 agent.py --fast");
    assert_string_equal(config_kafka_value(again, "bootstrap.servers", KAFKA_BOTH), "a:1,b:2");
}

static void a_running_pod_takes_over_only_what_it_can(void **state)
{
    (void)state;
    struct text lines CLEANUP(text_free) = TEXT_EMPTY;
    struct config *old CLEANUP(config_drop) = must_load("[pod]\nname = p\n", NOTHING, NULL);
    struct config *level CLEANUP(config_drop) =
        must_load("[pod]\nname = p\n[log]\nlevel = debug\n", NOTHING, NULL);
    struct config *ttl CLEANUP(config_drop) = must_load(
        "[pod]\nname = p\n[lease]\nttl_ms = 20000\n[kafka]\nlinger.ms = 2\n", NOTHING, NULL);
    assert_true(config_may_reload(old, level, &lines));
    assert_false(config_may_reload(old, ttl, &lines));
    assert_string_equal(lines.p,
                        "lease.ttl_ms changed: takes a restart\n"
                        "a section [kafka], [tool.…] or [handler.…] changed: takes a restart\n");
}

static void assert_file_is(const char *path, const struct text *want)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s is missing", path);
    char *text CLEANUP(memory_drop) = memory_new(1 << 20, 1);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    if (n != want->n || memcmp(text, want->p, n) != 0)
        fail_msg(
            "%s is not what the option table prints: holdfast config docs, holdfast config sample",
            path);
}

static void documents_are_printed_from_the_table(void **state)
{
    (void)state;
    struct text document CLEANUP(text_free) = TEXT_EMPTY, example CLEANUP(text_free) = TEXT_EMPTY;
    config_print_document(&document);
    config_print_example(&example);
    assert_file_is(SOURCE_DIR "/docs/CONFIGURATION.md", &document);
    assert_file_is(SOURCE_DIR "/config/holdfast.conf", &example);
    struct config *cfg CLEANUP(config_drop) = must_load(example.p, NOTHING, NULL);
    assert_int_equal(cfg->lease.ttl_ms, 30000);
}

/* Every promise that a section cannot keep, with the line that says so. */
static void misdeclared_tools_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *want;
    } cases[] = {
        {"kind = exec", "2: tool.t: kind = exec needs a command"},
        {"kind = exec\nurl = http://x\ncommand = pay", "3: tool.t: kind = exec has no url"},
        {"url = http://x\ncommand = pay", "3: tool.t: kind = http runs no command"},
        {"url = http://x\nretention_ms = 90000",
         "3: tool.t: retention_ms without capability = idempotency_key says nothing"},
        {"url = http://x\nretention_ms = 9000\ncapability = idempotency_key",
         "3: tool.t: retention_ms (9000) must be more than dispatch.claim_ttl_ms (30000): a key is "
         "repeated only when the whole claim lies inside it"},
        {"url = http://x\nretention_ms = 90000\ncapability = "
         "idempotency_key\nidempotency_header =",
         "5: tool.t: capability = idempotency_key needs an idempotency_header or a key_field: the "
         "remote would never see the key"},
        {"url = http://x\nkey_field = name",
         "3: tool.t: key_field \"name\" is no JSON pointer to a member"},
        {"url = http://x\nreplays_errors = yes",
         "3: tool.t: replays_errors without capability = idempotency_key says nothing"},
        {"url = http://x\nquery_url = http://x/{operation_id}",
         "3: tool.t: query_url is never asked: set capability = query, or query = true beside "
         "idempotency_key"},
        {"url = http://x\nescalate_after_ms = 5\nabsent_is_final_after_ms = 5",
         "4: tool.t: absent_is_final_after_ms without a query says nothing"},
        {"url = http://x\ncapability = query",
         "3: tool.t: capability = query needs a query_url: where the remote is asked what became "
         "of an operation"},
        {"url = http://x\ncapability = query\nquery_url = http://x/all",
         "4: tool.t: query_url names no operation: it needs {operation_id} or {remote_id}"},
        {"url = http://x\ncapability = deterministic_id\nquery_url = http://x/{operation_id}",
         "3: tool.t: capability = deterministic_id needs tag: without it a resource of another "
         "operation would pass for ours"},
        {"url = http://x\ncapability = query\nquery_url = http://x/{operation_id}\nquery_found = a",
         "5: tool.t: query_found \"a\" is no JSON pointer: it begins with /"},
        {"url = http://x\nspec = /o", "3: tool.t: tag, owner and spec are for capability = "
                                      "deterministic_id"},
        {"url = http://x\nrate_burst = 5", "3: tool.t: rate_burst without rate_per_s says nothing"},
        {"url = http://x\nfinal_exits = 0",
         "3: tool.t.final_exits: \"0\" is no list of exit codes like 64,70-75"},
        {"url = http://x\nmcp_tool = pay",
         "3: tool.t: mcp_tool, operation_argument and honest_errors are for kind = mcp"},
        {"url = http://x\nidempotency_heder = K",
         "3: there is no option tool.t.idempotency_heder; did you mean "
         "tool.t.idempotency_header?"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct text file CLEANUP(text_free) = TEXT_EMPTY;
        struct text want CLEANUP(text_free) = TEXT_EMPTY;
        struct text got CLEANUP(text_free) = TEXT_EMPTY;
        text_addf(&file, "[tool.t]\n%s\n", cases[i].lines);
        text_addf(&want, "FILE:%s\n", cases[i].want);
        struct config *cfg CLEANUP(config_drop) = load(file.p, NULL, NULL, &got);
        if (cfg != NULL || !span_eq(span_of(got.p), span_of(want.p)))
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].lines, got.p, want.p);
    }
}

/* What is stored with an operation brings its tool back as it was, whatever the file says now. */
static void a_declaration_is_kept(void **state)
{
    (void)state;
    struct config *then CLEANUP(config_drop) = must_load(
        "[tool.t]\nurl = http://then\ncapability = idempotency_key\nretention_ms = 90000\n"
        "final_statuses = 400-404,410\nkey_field = /meta/\"key\"\nrate_per_s = 7\n",
        NULL, NULL);
    struct config *now CLEANUP(config_drop) =
        must_load("[tool.t]\nurl = http://now\nconflict_statuses = 418\n", NULL, NULL);
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_tool_declare(&then->tools[0], &t);
    assert_string_equal(t.p,
                        "{\"declared\":true,\"kind\":\"http\",\"capability\":\"idempotency_key\","
                        "\"retention_ms\":90000,\"key_scope\":\"run\",\"key_field\":"
                        "\"/meta/\\\"key\\\"\",\"timeout_ms\":10000,\"final_statuses\":"
                        "\"400-404,410\",\"rate_per_s\":7,\"on_cancel\":\"finish\"}");
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct config_tool tool = now->tools[0];
    config_tool_forget_declared(&tool, arena);
    assert_true(config_tool_set_declared(&tool, "final_statuses", "400-404,410", arena));
    assert_true(config_tool_set_declared(&tool, "retention_ms", "90000", arena));
    assert_false(config_tool_set_declared(&tool, "url", "http://elsewhere", arena));
    assert_false(config_tool_set_declared(&tool, "retention_ms", "soon", arena));
    assert_string_equal(tool.url, "http://now");
    assert_true(config_status_in(&tool.final_statuses, 410));
    assert_false(config_status_in(&tool.final_statuses, 422));
    assert_true(config_status_in(&tool.conflict_statuses, 422)); /* as it was by default */
    assert_int_equal(tool.retention_ms, 90000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold_together),
        cmocka_unit_test(the_stronger_source_wins),
        cmocka_unit_test(long_values_go_on_in_the_next_line),
        cmocka_unit_test(a_typo_names_the_nearest_option),
        cmocka_unit_test(other_programs_variables_are_left_alone),
        cmocka_unit_test(bad_values_say_what_is_good),
        cmocka_unit_test(options_must_fit_together),
        cmocka_unit_test(what_is_not_honoured_is_refused),
        cmocka_unit_test(tools_are_read_whole),
        cmocka_unit_test(incomplete_tools_are_refused),
        cmocka_unit_test(misdeclared_tools_are_refused),
        cmocka_unit_test(a_declaration_is_kept),
        cmocka_unit_test(kafka_properties_pass_through),
        cmocka_unit_test(secrets_come_from_files_and_are_never_shown),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(a_running_pod_takes_over_only_what_it_can),
        cmocka_unit_test(documents_are_printed_from_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

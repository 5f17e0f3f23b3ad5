/* Redis gives advice; when it is down, slow or lying the configured answer stands. With a real
 * redis-server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "fence/prefilter.h"

#define LIMIT_US (20 * CLOCK_SECOND)

static char dir[] = "/tmp/holdfast-prefilter-test-XXXXXX";
static char url[128];
static struct child server = {0, -1, -1};

static struct config *load_with(const char *address, const char *on_failure, const char *life)
{
    char url_set[160], failure_set[64];
    (void)snprintf(url_set, sizeof(url_set), "redis.url=%s", address);
    (void)snprintf(failure_set, sizeof(failure_set), "redis.on_failure=%s", on_failure);
    const char *sets[] = {url_set, failure_set, "redis.timeout_ms=1000", life};
    struct config_source source = {.sets = sets, .n_sets = COUNT_OF(sets)};
    struct config *cfg;
    struct text errors = TEXT_EMPTY;
    if (!config_load(&source, &cfg, &errors))
        fail_msg("%s", errors.p);
    text_free(&errors);
    return cfg;
}

static struct config *load(const char *address, const char *on_failure)
{
    return load_with(address, on_failure, "redis.key_ttl_ms=60000");
}

static struct prefilter *open_filter(struct config *cfg)
{
    struct prefilter *p;
    assert_int_equal(prefilter_open(cfg, &p), OUTCOME_OK);
    return p;
}

static int start_server(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    char socket_path[96], command[256];
    (void)snprintf(socket_path, sizeof(socket_path), "%s/redis.sock", dir);
    (void)snprintf(url, sizeof(url), "unix://%s", socket_path);
    (void)snprintf(command, sizeof(command),
                   "exec redis-server --port 0 --unixsocket %s --save '' --dir %s --logfile %s/log",
                   socket_path, dir, dir);
    assert_true(child_spawn_shell(command, &server));
    int64_t deadline_us = clock_deadline_us(LIMIT_US);
    (void)snprintf(command, sizeof(command), "redis-cli -s %s ping > /dev/null 2>&1", socket_path);
    while (system(command) != 0)
        assert_true(clock_mono_us() < deadline_us);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    child_end(&server, LIMIT_US);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static struct prefilter_key key(uint8_t run, int64_t epoch, const char *token)
{
    struct prefilter_key k = {.epoch = epoch, .token = span_of(token)};
    k.run_id.b[15] = run;
    return k;
}

static void one_of_several_goes_and_asks(void **state)
{
    (void)state;
    struct config *cfg = load(url, "bypass");
    struct prefilter *a = open_filter(cfg), *b = open_filter(cfg);
    struct prefilter_key mine[] = {key(1, 1, "a"), key(2, 1, "a")},
                         theirs[] = {key(1, 1, "b"), key(3, 1, "b")};
    bool go[2];
    prefilter_take(a, mine, 2, go);
    assert_true(go[0] && go[1]);
    prefilter_take(b, theirs, 2, go);
    assert_false(go[0]);
    assert_true(go[1]);
    /* the next term of the run is another key: a stale one delays one term only */
    struct prefilter_key next = key(1, 2, "b");
    prefilter_take(b, &next, 1, go);
    assert_true(go[0]);
    prefilter_close(a);
    prefilter_close(b);
    config_free(cfg);
}

static void a_key_is_taken_back_by_its_token_only(void **state)
{
    (void)state;
    struct config *cfg = load(url, "bypass");
    struct prefilter *a = open_filter(cfg);
    struct prefilter_key mine = key(10, 1, "a"), theirs = key(10, 1, "b");
    bool go;
    prefilter_take(a, &mine, 1, &go);
    assert_true(go);
    prefilter_drop(a, &theirs, 1);
    prefilter_take(a, &theirs, 1, &go);
    assert_false(go);
    prefilter_extend(a, &mine, 1);
    prefilter_drop(a, &mine, 1);
    prefilter_take(a, &theirs, 1, &go);
    assert_true(go);
    prefilter_close(a);
    config_free(cfg);
}

/* One key is lengthened to its lease's term, by its token only; the other two run out. */
static void a_confirmed_renewal_lengthens_a_key(void **state)
{
    (void)state;
    struct config *brief = load_with(url, "bypass", "redis.key_ttl_ms=2000"),
                  *lease = load_with(url, "bypass", "redis.key_life=lease");
    struct prefilter *a = open_filter(brief), *b = open_filter(lease);
    struct prefilter_key keys[] = {key(40, 1, "a"), key(41, 1, "a"), key(42, 1, "a")},
                         foreign = key(41, 1, "b");
    bool go[3];
    prefilter_take(a, keys, 3, go);
    assert_true(go[0] && go[1] && go[2]);
    prefilter_extend(b, &keys[0], 1);
    prefilter_extend(b, &foreign, 1);
    int64_t deadline_us = clock_deadline_us(LIMIT_US);
    do {
        prefilter_take(b, &keys[2], 1, &go[2]);
        assert_true(clock_mono_us() < deadline_us);
    } while (!go[2]);
    prefilter_take(b, &keys[1], 1, &go[1]);
    assert_true(go[1]);
    prefilter_take(b, &keys[0], 1, &go[0]);
    assert_false(go[0]);
    prefilter_close(a);
    prefilter_close(b);
    config_free(brief);
    config_free(lease);
}

static void a_flushed_script_cache_is_no_failure(void **state)
{
    (void)state;
    struct config *cfg = load(url, "hold");
    struct prefilter *a = open_filter(cfg);
    struct prefilter_key first = key(20, 1, "a"), second = key(21, 1, "a"),
                         theirs = key(21, 1, "b");
    bool go;
    prefilter_take(a, &first, 1, &go);
    prefilter_take(a, &second, 1, &go);
    prefilter_drop(a, &first, 1);
    char command[192];
    (void)snprintf(command, sizeof(command), "redis-cli -s %s script flush > /dev/null",
                   url + strlen("unix://"));
    assert_int_equal(system(command), 0);
    prefilter_drop(a, &second, 1);
    prefilter_take(a, &theirs, 1, &go);
    assert_true(go);
    prefilter_close(a);
    config_free(cfg);
}

static void more_keys_than_a_pipeline(void **state)
{
    (void)state;
    enum { KEYS = 1500 };
    struct config *cfg = load(url, "hold");
    struct prefilter *a = open_filter(cfg);
    struct prefilter_key *keys = memory_new(KEYS, sizeof(*keys));
    bool *go = memory_new(KEYS, sizeof(*go));
    for (int i = 0; i < KEYS; i++)
        keys[i] = key(30, 1000 + i, "a");
    prefilter_take(a, keys, KEYS, go);
    for (int i = 0; i < KEYS; i++)
        assert_true(go[i]);
    prefilter_take(a, keys, KEYS, go);
    for (int i = 0; i < KEYS; i++)
        assert_false(go[i]);
    prefilter_drop(a, keys, KEYS);
    prefilter_take(a, keys, KEYS, go);
    for (int i = 0; i < KEYS; i++)
        assert_true(go[i]);
    free(keys);
    free(go);
    prefilter_close(a);
    config_free(cfg);
}

static void without_redis_the_configured_answer_stands(void **state)
{
    (void)state;
    struct prefilter_key k = key(1, 1, "a");
    struct config *bypass = load("redis://127.0.0.1:1/0", "bypass"),
                  *hold = load("redis://127.0.0.1:1/0", "hold"), *none = load("", "hold");
    struct prefilter *a = open_filter(bypass), *b = open_filter(hold), *c = open_filter(none);
    bool go = false;
    prefilter_take(a, &k, 1, &go);
    assert_true(go);
    prefilter_take(b, &k, 1, &go);
    assert_false(go);
    prefilter_take(c, &k, 1, &go); /* none is configured: PostgreSQL alone decides */
    assert_true(go);
    assert_int_equal((int)metric_read(METRIC_PREFILTER_OPEN, NO_LABELS), 1);
    prefilter_drop(a, &k, 1);
    prefilter_close(a);
    prefilter_close(b);
    prefilter_close(c);
    config_free(bypass);
    config_free(hold);
    config_free(none);
}

static void an_address_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const addresses[] = {"redis://", "redis://h:port", "redis://h:1/x",
                                            "unix://relative"};
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        struct config *cfg = load(addresses[i], "bypass");
        struct prefilter *p;
        assert_int_equal(prefilter_open(cfg, &p), OUTCOME_INVALID);
        config_free(cfg);
    }
    struct config *cfg = load("redis://user:secret@[::1]:6390/3", "bypass");
    struct prefilter *p = open_filter(cfg);
    prefilter_close(p);
    config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_several_goes_and_asks),
        cmocka_unit_test(a_key_is_taken_back_by_its_token_only),
        cmocka_unit_test(a_confirmed_renewal_lengthens_a_key),
        cmocka_unit_test(a_flushed_script_cache_is_no_failure),
        cmocka_unit_test(more_keys_than_a_pipeline),
        cmocka_unit_test(without_redis_the_configured_answer_stands),
        cmocka_unit_test(an_address_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}

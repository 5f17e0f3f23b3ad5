/* A lane whose database is away: whoever asks for it in a loop waits, and can be woken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/lock.h"
#include "fence/fence.h"

static struct config *nowhere(void)
{
    const char *sets[] = {"postgres.dsn=host=127.0.0.1 port=1 dbname=none"};
    struct config_source source = {.sets = sets, .n_sets = COUNT_OF(sets)};
    struct config *cfg;
    struct text errors = TEXT_EMPTY;
    if (!config_load(&source, &cfg, &errors))
        fail_msg("%s", errors.p);
    text_free(&errors);
    return cfg;
}

/* The back-off grows beyond the time a caller gives: it must still be waited out, or every thread
 * that asks again in a loop burns a processor for as long as the database is away. */
static void a_try_that_does_not_fit_is_waited_for(void **state)
{
    (void)state;
    enum { TURNS = 12 };
    const int64_t turn_us = 100 * CLOCK_MS;
    struct config *cfg = nowhere();
    struct fence *f;
    assert_int_equal(fence_open(cfg, "test", 0, &f), OUTCOME_OK);
    for (int i = 0; i < TURNS; i++) {
        int64_t start_us = clock_mono_us();
        assert_int_equal(fence_connect(f, turn_us), OUTCOME_DB_DOWN);
        assert_true(clock_mono_us() - start_us >= turn_us);
    }
    assert_true(fence_error(f)[0] != '\0');
    fence_close(f);
    config_free(cfg);
}

static void *interrupt(void *lane)
{
    fence_interrupt(lane);
    return NULL;
}

static void an_interrupted_lane_does_not_wait(void **state)
{
    (void)state;
    struct config *cfg = nowhere();
    struct fence *f;
    assert_int_equal(fence_open(cfg, "test", 0, &f), OUTCOME_OK);
    pthread_t thread;
    assert_true(thread_start(&thread, "interrupt", interrupt, f));
    int64_t start_us = clock_mono_us();
    assert_int_not_equal(fence_connect(f, 600 * CLOCK_SECOND), OUTCOME_OK);
    assert_int_not_equal(fence_connect(f, 600 * CLOCK_SECOND), OUTCOME_OK);
    assert_true(clock_mono_us() - start_us < 300 * CLOCK_SECOND);
    thread_join(thread);
    fence_close(f);
    config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_try_that_does_not_fit_is_waited_for),
        cmocka_unit_test(an_interrupted_lane_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The line protocol with real child processes. The commit lanes have no database: what a save is
 * answered when the write cannot be confirmed is part of it; the rest of saving is tested on a real
 * stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "pool/exec_int.h"

#define LIMIT_US (20 * CLOCK_SECOND)

/* Does what the input's mode says. Reads the context, writes lines. */
static const char script[] =
    "while read -r context; do\n"
    "  case \"$context\" in\n"
    "    *'\"mode\":\"echo\"'*) echo '{\"progress\":1}'; read -r answer\n"
    "      echo \"{\\\"decision\\\":\\\"succeed\\\",\\\"output\\\":$answer}\";;\n"
    "    *'\"mode\":\"whole\"'*) echo "
    "\"{\\\"decision\\\":\\\"succeed\\\",\\\"output\\\":$context}\";;\n"
    "    *'\"mode\":\"pid\"'*) echo \"{\\\"decision\\\":\\\"succeed\\\",\\\"output\\\":$$}\";;\n"
    "    *'\"mode\":\"exit\"'*) exit 3;;\n"
    "    *'\"mode\":\"chatty\"'*) echo hello; sleep 60;;\n"
    "    *'\"mode\":\"other\"'*) echo '{\"note\":1}'; sleep 60;;\n"
    "    *'\"mode\":\"hang\"'*) echo waiting >&2; touch \"$DIR/hangs\"; read -r line\n"
    "      echo \"{\\\"decision\\\":\\\"succeed\\\",\\\"output\\\":$line}\";;\n"
    "    *'\"mode\":\"deaf\"'*) touch \"$DIR/deaf\"; sleep 60;;\n"
    "    *'\"mode\":\"save\"'*) echo '{\"save\":{\"n\":1}}'; read -r line\n"
    "      echo \"{\\\"decision\\\":\\\"succeed\\\",\\\"output\\\":$line}\";;\n"
    "  esac\n"
    "done\n";

static char dir[] = "/tmp/holdfast-exec-test-XXXXXX";
static struct config *cfg;
static struct pool pool;

static struct config *load(const char *command)
{
    const char *sets[] = {
        command,
        "handler.sh.processes=2",
        "handler.sh.timeout_ms=60000",
        "handler.gone.command=exec /nonexistent/handler",
        "handler.gone.processes=1",
        "handler.slow.command=while read -r l; do sleep 60; done",
        "handler.slow.timeout_ms=200",
        "handler.slow.processes=1",
        "postgres.dsn=host=/nonexistent",
        "redis.url=",
    };
    struct config_source source = {.sets = sets, .n_sets = COUNT_OF(sets)};
    struct config *loaded;
    struct text errors = TEXT_EMPTY;
    if (!config_load(&source, &loaded, &errors))
        fail_msg("%s", errors.p);
    text_free(&errors);
    return loaded;
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(setenv("DIR", dir, 1), 0);
    char file[128];
    (void)snprintf(file, sizeof(file), "%s/handler.sh", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fputs(script, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
    char command[160];
    (void)snprintf(command, sizeof(command), "handler.sh.command=sh %s", file);
    cfg = load(command);
    pool.cfg = cfg;
    pool.steps = queue_new(16);
    pool.sessions = sessions_new(16);
    pool.hints = hints_new(4);
    assert_int_equal(exec_open(&pool, &pool.exec), OUTCOME_OK);
    for (size_t i = 0; i < COMMIT_LANES; i++) {
        assert_int_equal(commit_open(cfg, "commit", &pool.commits[i]), OUTCOME_OK);
        commit_hurry(pool.commits[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMIT_LANES; i++)
        commit_close(pool.commits[i]);
    exec_close(pool.exec);
    sessions_free(pool.sessions);
    queue_free(pool.steps);
    hints_free(pool.hints);
    config_free(cfg);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static struct session *begin(const char *handler, const char *input)
{
    static uint8_t run;
    struct fence_acquired row = {
        .epoch = 7,
        .revision = 3,
        .tenant_id = SPAN_LIT("t"),
        .task_id = SPAN_LIT("task"),
        .handler = span_of(handler),
        .input = {span_of(input)},
        .checkpoint = {SPAN_LIT("{\"at\":1}")},
        .deadline = DB_TIME_NULL,
        .prev_run_id = UUID_OPT_NULL,
    };
    row.run_id.b[15] = ++run;
    struct session *s =
        session_new(&row, SPAN_LIT("pod/token"), clock_mono_us(), 600 * CLOCK_SECOND);
    s->pool = &pool;
    s->config = config_handler(cfg, handler);
    (void)sessions_add(pool.sessions, s, pool.steps);
    exec_start(pool.exec, s);
    return s;
}

/* Waits until the session comes back to the workers. */
static void comes_back(struct session *s, enum session_phase phase)
{
    struct session *got = queue_pop(pool.steps, LIMIT_US);
    assert_ptr_equal(got, s);
    if (got->phase != phase)
        fail_msg("phase %d, not %d: %.*s", (int)got->phase, (int)phase, SPAN_ARG(got->answer));
}

static void end(struct session *s)
{
    sessions_end(pool.sessions, s);
}

static void says(const struct session *s, const char *words)
{
    assert_false(span_is_null(s->answer));
    if (strstr(s->answer.p, words) == NULL)
        fail_msg("\"%s\" is not in %.*s", words, SPAN_ARG(s->answer));
}

static void appears(const char *name)
{
    char file[128];
    (void)snprintf(file, sizeof(file), "%s/%s", dir, name);
    int64_t deadline_us = clock_deadline_us(LIMIT_US);
    while (access(file, F_OK) != 0) {
        assert_true(clock_mono_us() < deadline_us);
        struct timespec pause = {0, 2000000};
        (void)nanosleep(&pause, NULL);
    }
    (void)unlink(file);
}

static void stop(struct session *s, enum session_stop why)
{
    struct fence_lease lease = {s->run_id, s->owner, s->epoch};
    assert_true(sessions_stop(pool.sessions, &lease, why, pool.steps));
    exec_nudge(pool.exec);
}

/* ---- the protocol ---- */

static void a_step_answers_later(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"echo\"}");
    comes_back(s, SESSION_ANSWERED);
    says(s, "\"output\":{\"revision\":3}"); /* progress was answered */
    end(s);
}

static void the_context_is_whole(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"whole\"}");
    comes_back(s, SESSION_ANSWERED);
    says(s, "\"task_id\":\"task\"");
    says(s, "\"epoch\":7,\"revision\":3");
    says(s, "\"checkpoint\":{\"at\":1}");
    says(s, "\"operations\":[]");
    end(s);
}

static void children_live_on(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"pid\"}");
    comes_back(s, SESSION_ANSWERED);
    char first[128];
    (void)snprintf(first, sizeof(first), "%.*s", SPAN_ARG(s->answer));
    end(s);
    s = begin("sh", "{\"mode\":\"pid\"}");
    comes_back(s, SESSION_ANSWERED);
    assert_string_equal(s->answer.p, first);
    end(s);
}

static void an_exit_fails_the_attempt_and_the_next_step_gets_a_fresh_child(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"exit\"}");
    comes_back(s, SESSION_FAILED);
    says(s, "ended with status 3");
    end(s);
    s = begin("sh", "{\"mode\":\"echo\"}");
    comes_back(s, SESSION_ANSWERED);
    end(s);
}

static void anything_else_on_standard_output_fails_the_attempt(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"chatty\"}");
    comes_back(s, SESSION_FAILED);
    says(s, "\"reason\":\"output_refused\"");
    end(s);
    s = begin("sh", "{\"mode\":\"other\"}");
    comes_back(s, SESSION_FAILED);
    says(s, "a line must be");
    end(s);
}

static void a_step_has_its_time(void **state)
{
    (void)state;
    struct session *s = begin("slow", "{}");
    comes_back(s, SESSION_FAILED);
    says(s, "\"reason\":\"timeout\"");
    end(s);
}

static void a_command_that_is_not_there_fails_the_attempt(void **state)
{
    (void)state;
    struct session *s = begin("gone", "{}");
    comes_back(s, SESSION_FAILED);
    says(s, "ended with status 127");
    end(s);
}

static void a_lost_lease_is_told_unasked_and_the_decision_still_comes(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"hang\"}");
    appears("hangs");
    stop(s, SESSION_LOST);
    comes_back(s, SESSION_ANSWERED);
    says(s, "\"output\":{\"stop\":\"lease_lost\"}");
    end(s);
}

static void a_cancelled_run_is_told_so(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"hang\"}");
    appears("hangs");
    stop(s, SESSION_CANCELLED);
    comes_back(s, SESSION_ANSWERED);
    says(s, "\"output\":{\"stop\":\"cancelled\"}");
    end(s);
}

static void who_does_not_hear_is_killed_and_that_is_no_failure(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"deaf\"}");
    appears("deaf");
    stop(s, SESSION_DRAIN);
    comes_back(s, SESSION_START); /* a worker looks at the reason */
    end(s);
}

static void a_save_that_cannot_be_confirmed_is_answered_by_stop(void **state)
{
    (void)state;
    struct session *s = begin("sh", "{\"mode\":\"save\"}");
    comes_back(s, SESSION_ANSWERED);
    says(s, "\"output\":{\"stop\":\"lease_lost\"}");
    assert_int_equal(session_stopped(s), SESSION_LOST);
    end(s);
}

static void more_steps_than_children_wait_in_order(void **state)
{
    (void)state;
    struct session *hanging[2] = {begin("sh", "{\"mode\":\"hang\"}"), NULL};
    appears("hangs");
    hanging[1] = begin("sh", "{\"mode\":\"hang\"}");
    appears("hangs");
    struct session *third = begin("sh", "{\"mode\":\"echo\"}");
    struct session *fourth = begin("sh", "{\"mode\":\"echo\"}");
    assert_null(queue_pop(pool.steps, 50 * CLOCK_MS)); /* both children are at work */
    stop(fourth, SESSION_LOST);                        /* leaves the line at once */
    comes_back(fourth, SESSION_START);
    end(fourth);
    stop(hanging[0], SESSION_CANCELLED);
    comes_back(hanging[0], SESSION_ANSWERED);
    end(hanging[0]);
    comes_back(third, SESSION_ANSWERED);
    end(third);
    stop(hanging[1], SESSION_CANCELLED);
    comes_back(hanging[1], SESSION_ANSWERED);
    end(hanging[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_answers_later),
        cmocka_unit_test(the_context_is_whole),
        cmocka_unit_test(children_live_on),
        cmocka_unit_test(an_exit_fails_the_attempt_and_the_next_step_gets_a_fresh_child),
        cmocka_unit_test(anything_else_on_standard_output_fails_the_attempt),
        cmocka_unit_test(a_step_has_its_time),
        cmocka_unit_test(a_command_that_is_not_there_fails_the_attempt),
        cmocka_unit_test(a_lost_lease_is_told_unasked_and_the_decision_still_comes),
        cmocka_unit_test(a_cancelled_run_is_told_so),
        cmocka_unit_test(who_does_not_hear_is_killed_and_that_is_no_failure),
        cmocka_unit_test(a_save_that_cannot_be_confirmed_is_answered_by_stop),
        cmocka_unit_test(more_steps_than_children_wait_in_order),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

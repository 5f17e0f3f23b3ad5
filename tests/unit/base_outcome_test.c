/* outcome, metric, log, sm: the words that people and machines read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/outcome.h"
#include "base/sm.h"

static void words_are_unique_and_read_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < OUTCOME_COUNT; i++) {
        enum outcome o = OUTCOME_COUNT;
        assert_true(outcome_from_word(span_of(outcome_word((enum outcome)i)), &o));
        assert_int_equal(o, i); /* a second row with the word would be found first or never */
        assert_true(strlen(outcome_sentence(o)) > 3);
        assert_true(strlen(outcome_class_word(outcome_class(o))) > 2);
    }
    enum outcome untouched = OUTCOME_LATE;
    assert_false(outcome_from_word(SPAN_LIT("nonsense"), &untouched));
    assert_false(outcome_from_word(SPAN_NULL, &untouched));
    assert_int_equal(untouched, OUTCOME_LATE);
    assert_int_equal(outcome_class(OUTCOME_DB_UNKNOWN), CLASS_UNKNOWN);
    assert_int_equal(outcome_class(OUTCOME_BUSY), CLASS_RETRY);
    assert_int_equal(outcome_class(OUTCOME_DUPLICATE), CLASS_DONE);
}

static char *exposition(void)
{
    struct text t = TEXT_EMPTY;
    metric_write(&t);
    return text_take(&t);
}

static void metrics_are_open_metrics(void **state)
{
    (void)state;
    metric_add(METRIC_LEASE_ACQUIRE, LABELS("acquired"), 2);
    metric_add(METRIC_LEASE_ACQUIRE, LABELS("acquired"), 1);
    metric_add(METRIC_LEASE_ACQUIRE, LABELS("busy"), 1);
    metric_set(METRIC_KAFKA_LAG, LABELS("a\"b\\c\nd", "0"), 1.5);
    metric_move(METRIC_DB_CONNECTED, NO_LABELS, 2);
    metric_move(METRIC_DB_CONNECTED, NO_LABELS, -1);
    metric_observe(METRIC_LEASE_ROW_LOCK_WAIT, NO_LABELS, 0.0005);
    metric_observe(METRIC_LEASE_ROW_LOCK_WAIT, NO_LABELS, 0.3);
    metric_observe(METRIC_LEASE_ROW_LOCK_WAIT, NO_LABELS, 1000);
    char *text CLEANUP(memory_drop) = exposition();
    const char *const lines[] = {
        "# TYPE lease_acquire counter\n",
        "\nlease_acquire_total{outcome=\"acquired\"} 3\n",
        "\nlease_acquire_total{outcome=\"busy\"} 1\n",
        "\nholdfast_kafka_lag{topic=\"a\\\"b\\\\c\\nd\",partition=\"0\"} 1.5\n",
        "\nholdfast_db_connected 1\n",
        "# TYPE lease_row_lock_wait_seconds histogram\n",
        "# UNIT lease_row_lock_wait_seconds seconds\n",
        "\nlease_row_lock_wait_seconds_bucket{le=\"0.0005\"} 1\n",
        "\nlease_row_lock_wait_seconds_bucket{le=\"0.5\"} 2\n",
        "\nlease_row_lock_wait_seconds_bucket{le=\"+Inf\"} 3\n",
        "\nlease_row_lock_wait_seconds_count 3\n",
        "\nlease_row_lock_wait_seconds_sum 1000.3005\n",
        "\nholdfast_log_dropped_total 0\n",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("not in the exposition: %s", lines[i]);
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    assert_true(metric_read(METRIC_LEASE_ACQUIRE, LABELS("acquired")) == 3);
}

static void a_forgotten_gauge_is_gone_until_it_is_set(void **state)
{
    (void)state;
    metric_set(METRIC_OPERATIONS_UNKNOWN, LABELS("gone"), 7);
    metric_forget(METRIC_OPERATIONS_UNKNOWN);
    char *text CLEANUP(memory_drop) = exposition();
    assert_null(strstr(text, "tool=\"gone\""));
    metric_set(METRIC_OPERATIONS_UNKNOWN, LABELS("gone"), 8);
    char *again CLEANUP(memory_drop) = exposition();
    assert_non_null(strstr(again, "holdfast_operations_unknown{tool=\"gone\"} 8\n"));
}

static void labels_cannot_grow_for_ever(void **state)
{
    (void)state;
    for (int i = 0; i < METRIC_SERIES * 3; i++) {
        char word[32];
        snprintf(word, sizeof(word), "tool-%d", i);
        metric_add(METRIC_RESULTS_LATE, LABELS(word), 1);
    }
    double kept = METRIC_SERIES - 1;
    assert_true(metric_read(METRIC_RESULTS_LATE, LABELS("other")) == METRIC_SERIES * 3 - kept);
}

static void *count_up(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20000; i++) {
        metric_add(METRIC_STEPS, LABELS("plan", i % 2 ? "ok" : "lost"), 1);
        metric_move(METRIC_WORKERS_BUSY, NO_LABELS, 1);
    }
    return NULL;
}

static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_true(thread_start(&threads[i], "counter", count_up, NULL));
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        thread_join(threads[i]);
    assert_true(metric_read(METRIC_STEPS, LABELS("plan", "ok")) == 30000);
    assert_true(metric_read(METRIC_STEPS, LABELS("plan", "lost")) == 30000);
    assert_true(metric_read(METRIC_WORKERS_BUSY, NO_LABELS) == 60000);
}

static char *log_file(void)
{
    char path[] = "/tmp/holdfast-log-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return memory_copy_text(path);
}

static char *slurp(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = memory_new(65536, 1);
    size_t n = fread(text, 1, 65535, file);
    fclose(file);
    assert_true(n > 0);
    return text;
}

static void a_record_cannot_forge_a_log_line(void **state)
{
    (void)state;
    char *path CLEANUP(memory_drop) = log_file();
    assert_true(log_open(path));
    log_set_pod("pod-1");
    log_set_level(LOG_INFO);
    log_event(LOG_DEBUG, "hidden");
    log_event(LOG_INFO, "lease.lost", LOG_TEXT("reason", "a\"}\n{\"level\":\"error"),
              LOG_INT("epoch", -3), LOG_BOOL("takeover", true), LOG_UUID("run_id", UUID_NIL),
              LOG_REAL("seconds", 0.25), LOG_SPAN("absent", SPAN_NULL),
              LOG_OUTCOME(OUTCOME_LEASE_LOST));
    log_event(LOG_ERROR, "bare");
    assert_true(log_open(NULL));
    log_set_pod(NULL);
    char *text CLEANUP(memory_drop) = slurp(path);
    unlink(path);
    int lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    assert_int_equal(lines, 2);
    assert_non_null(strstr(
        text, "\"level\":\"info\",\"event\":\"lease.lost\",\"pod\":\"pod-1\","
              "\"reason\":\"a\\\"}\\n{\\\"level\\\":\\\"error\",\"epoch\":-3,\"takeover\":true,"
              "\"run_id\":\"00000000-0000-0000-0000-000000000000\",\"seconds\":0.25,"
              "\"outcome\":\"lease_lost\"}\n"));
    assert_non_null(strstr(text, "\"event\":\"bare\",\"pod\":\"pod-1\"}\n"));
}

static void a_log_can_be_rotated(void **state)
{
    (void)state;
    char *path CLEANUP(memory_drop) = log_file();
    assert_true(log_open(path));
    log_event(LOG_WARN, "before");
    char *moved CLEANUP(memory_drop) = log_file();
    assert_int_equal(rename(path, moved), 0);
    log_event(LOG_WARN, "still.before");
    assert_true(log_reopen());
    log_event(LOG_WARN, "after");
    assert_true(log_open(NULL));
    char *old CLEANUP(memory_drop) = slurp(moved), *new CLEANUP(memory_drop) = slurp(path);
    unlink(path);
    unlink(moved);
    assert_non_null(strstr(old, "still.before"));
    assert_null(strstr(old, "\"after\""));
    assert_non_null(strstr(new, "\"after\""));
    assert_false(log_open("/nonexistent/folder/log"));
}

enum { CLOSED, OPEN, ENTER = 0, LEAVE };
static void a_machine_refuses_what_is_not_in_its_table(void **state)
{
    (void)state;
    static const struct sm_move moves[] = {{CLOSED, ENTER, OPEN}, {OPEN, LEAVE, CLOSED}};
    static const char *const states[] = {"closed", "open"}, *const events[] = {"enter", "leave"};
    const struct sm machine = {"door", states, events, moves, COUNT_OF(moves)};
    int at = CLOSED;
    assert_false(sm_step(&machine, &at, LEAVE));
    assert_int_equal(at, CLOSED);
    assert_true(sm_step(&machine, &at, ENTER));
    assert_int_equal(at, OPEN);
    assert_false(sm_allows(&machine, at, ENTER));
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    sm_print(&machine, &t);
    assert_string_equal(
        t.p, "stateDiagram-v2\n    closed --> open: enter\n    open --> closed: leave\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_unique_and_read_back),
        cmocka_unit_test(metrics_are_open_metrics),
        cmocka_unit_test(a_forgotten_gauge_is_gone_until_it_is_set),
        cmocka_unit_test(labels_cannot_grow_for_ever),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(a_record_cannot_forge_a_log_line),
        cmocka_unit_test(a_log_can_be_rotated),
        cmocka_unit_test(a_machine_refuses_what_is_not_in_its_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

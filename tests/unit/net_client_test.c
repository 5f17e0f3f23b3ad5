// The HTTP client against a real remote with scripted faults (tests/lib/remote.py), whose own
// ledger is the judge.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/text.h"
#include "net/http_client.h"

enum { WAIT_S = 20, RESPONSE_MAX = 8 << 20 };

static struct child remote = {0, -1, -1};
static int port;
static struct http_client *client;   // under test
static struct http_client *observer; // asks the remote's ledger, on connections of its own

// What a test keeps of an answer; its spans die with the callback.
struct kept {
    bool done;
    bool sent, late;
    enum http_fault fault;
    int status;
    int64_t bytes_sent, written_us;
    char header[128];
    struct text body;
};

static void keep(void *opaque, const struct http_answer *answer)
{
    struct kept *kept = opaque;
    assert_false(kept->done);
    kept->done = true;
    kept->sent = answer->may_have_been_sent;
    kept->late = answer->sent_late;
    kept->fault = answer->fault;
    kept->status = answer->status;
    kept->bytes_sent = answer->bytes_sent;
    kept->written_us = answer->written_us;
    struct span header = http_answer_header(answer, "x-REQUEST-id");
    (void)snprintf(kept->header, sizeof kept->header, "%.*s", SPAN_ARG(header));
    text_reset(&kept->body);
    text_add_span(&kept->body, answer->body);
}

static char *url_of(const char *path)
{
    static char url[512];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    return url;
}

static struct http_request request_of(const char *path, const struct http_header *headers, size_t n)
{
    return (struct http_request){
        .method = "POST",
        .url = url_of(path),
        .headers = headers,
        .headers_n = n,
        .body = SPAN_LIT("{\"amount\":1}"),
        .connect_timeout_ms = 2000,
        .timeout_ms = 10000,
        .send_before_us = CLOCK_FOREVER,
        .late_after_us = CLOCK_FOREVER,
        .max_response_bytes = RESPONSE_MAX,
        .allow_private = true,
    };
}

static void await_on(struct http_client *on, const struct kept *kept)
{
    int64_t until = clock_deadline_us(WAIT_S * CLOCK_SECOND);
    while (!kept->done && clock_mono_us() < until) {
        http_client_poll(on, 100 * CLOCK_MS);
    }
    assert_true(kept->done);
}

static void await(const struct kept *kept)
{
    await_on(client, kept);
}

static struct kept send_request(const struct http_request *request)
{
    struct kept kept = {.done = false};
    assert_int_equal(http_client_start(client, request, keep, &kept), OUTCOME_OK);
    await(&kept);
    return kept;
}

static struct kept send_key(const char *path, const char *key)
{
    const struct http_header headers[] = {{"Idempotency-Key", key}};
    struct http_request request = request_of(path, headers, 1);
    return send_request(&request);
}

static struct kept control(const char *method, const char *path)
{
    struct http_request request = request_of(path, NULL, 0);
    request.method = method;
    request.body = SPAN_NULL;
    struct kept kept = {.done = false};
    assert_int_equal(http_client_start(observer, &request, keep, &kept), OUTCOME_OK);
    await_on(observer, &kept);
    assert_int_equal(kept.status, 200);
    return kept;
}

static bool ledger_has(const char *text)
{
    struct kept kept = control("GET", "/_ledger");
    bool has = strstr(kept.body.p, text) != NULL;
    text_free(&kept.body);
    return has;
}

static void assert_ledger_comes_to(const char *text)
{
    int64_t until = clock_deadline_us(WAIT_S * CLOCK_SECOND);
    while (!ledger_has(text)) {
        if (clock_mono_us() > until) {
            struct kept ledger = control("GET", "/_ledger");
            fail_msg("the remote's ledger never had %s: %s", text, ledger.body.p);
        }
        http_client_poll(client,
                         10 * CLOCK_MS); // what is waited for may need the client to move on
    }
}

static void post_control(const char *path)
{
    struct kept kept = control("POST", path);
    text_free(&kept.body);
}

// ---- fixture ----

static int read_port(void)
{
    char line[128];
    size_t n = 0;
    int64_t until = clock_deadline_us(WAIT_S * CLOCK_SECOND);
    while (n < sizeof line - 1 && (n == 0 || line[n - 1] != '\n')) {
        struct pollfd p = {.fd = remote.out, .events = POLLIN};
        if (clock_mono_us() > until || poll(&p, 1, 1000) < 0) {
            return -1;
        }
        ssize_t got = read(remote.out, line + n, sizeof line - 1 - n);
        if (got == 0) {
            return -1;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    line[n] = '\0';
    return sscanf(line, "{\"port\": %d}", &port) == 1 ? 0 : -1;
}

static int start(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    // Proxies of the environment must not be used: this one would answer nothing.
    (void)setenv("http_proxy", "http://127.0.0.1:9", 1);
    (void)setenv("all_proxy", "http://127.0.0.1:9", 1);
    const char *const command[] = {"python3", SOURCE_DIR "/tests/lib/remote.py", NULL};
    return child_spawn(command, &remote) && read_port() == 0 ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    child_end(&remote, CLOCK_SECOND);
    return 0;
}

static int fresh(void **state)
{
    (void)state;
    if (http_client_open(64, &client) != OUTCOME_OK ||
        http_client_open(2, &observer) != OUTCOME_OK) {
        return -1;
    }
    post_control("/_reset");
    return 0;
}

static int done(void **state)
{
    (void)state;
    http_client_close(client);
    http_client_close(observer);
    return 0;
}

// ---- ordinary life ----

static void test_answer_is_whole(void **state)
{
    (void)state;
    struct kept kept = send_key("/pay", "k1");
    assert_int_equal(kept.fault, HTTP_FAULT_NONE);
    assert_int_equal(kept.status, 200);
    assert_true(kept.sent);
    assert_false(kept.late);
    assert_true(kept.bytes_sent > 12);
    assert_true(kept.written_us > 0);
    assert_string_equal(kept.header, "r-1");
    assert_non_null(strstr(kept.body.p, "\"remote-1\""));
    text_free(&kept.body);
    assert_true(ledger_has("\"by_key\": {\"k1\": 1}"));
}

static void test_connection_is_kept_unless_own(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct kept kept = send_key("/pay", "k");
        text_free(&kept.body);
    }
    assert_true(ledger_has("\"connections\": 1,"));
    for (int i = 0; i < 3; i++) {
        struct http_request request = request_of("/pay", NULL, 0);
        request.own_connection = true;
        struct kept kept = send_request(&request);
        text_free(&kept.body);
    }
    assert_true(ledger_has("\"connections\": 4,"));
}

static void test_large_body_without_expect(void **state)
{
    (void)state;
    size_t n = 1500 * 1000; // beyond 1 MiB an ordinary libcurl asks first
    char *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, 'x', n);
    struct http_request request = request_of("/pay", NULL, 0);
    request.body = (struct span){.p = bytes, .n = n};
    struct kept kept = send_request(&request);
    free(bytes);
    assert_int_equal(kept.status, 200);
    assert_true(kept.bytes_sent > (int64_t)n);
    text_free(&kept.body);
    struct kept ledger = control("GET", "/_ledger");
    assert_null(strstr(ledger.body.p, "\"expect\""));
    assert_non_null(strstr(ledger.body.p, "\"content-length\": \"1500000\""));
    text_free(&ledger.body);
}

static void test_hundreds_at_once(void **state)
{
    (void)state;
    enum { MANY = 300 };
    static struct kept kept[MANY];
    memset(kept, 0, sizeof kept);
    struct http_request request = request_of("/pay?fault=hang", NULL, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(http_client_start(client, &request, keep, &kept[i]), OUTCOME_OK);
    }
    assert_ledger_comes_to("\"requests\": 300,");
    assert_int_equal(http_client_in_flight(client), MANY);
    post_control("/_release");
    for (int i = 0; i < MANY; i++) {
        await(&kept[i]);
        assert_int_equal(kept[i].status, 200);
        text_free(&kept[i].body);
    }
    assert_int_equal(http_client_in_flight(client), 0);
}

// ---- sending at most once, and not late ----

// A kept-alive connection that executes and closes before it answers: an ordinary client sends
// again.
static void test_transport_does_not_send_again(void **state)
{
    (void)state;
    struct kept first = send_key("/pay", "first");
    assert_int_equal(first.status, 200);
    text_free(&first.body);
    struct kept second = send_key("/pay?fault=close_after", "second");
    assert_int_equal(second.fault, HTTP_FAULT_RESEND);
    assert_true(second.sent);
    text_free(&second.body);
    assert_true(ledger_has("\"by_key\": {\"first\": 1, \"second\": 1}"));
    assert_true(ledger_has("\"requests\": 2,"));
}

static void test_reset_after_execution_is_sent(void **state)
{
    (void)state;
    struct kept kept = send_key("/pay?fault=reset_after", "k");
    assert_true(kept.sent);
    assert_int_not_equal(kept.fault, HTTP_FAULT_NONE);
    text_free(&kept.body);
    assert_true(ledger_has("\"by_key\": {\"k\": 1}"));
}

static void test_deadline_is_checked_in_the_hook(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay", NULL, 0);
    request.send_before_us = clock_mono_us();
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_DEADLINE);
    assert_false(kept.sent);
    assert_int_equal(kept.bytes_sent, 0);
    text_free(&kept.body);
    assert_true(ledger_has("\"requests\": 0,"));
}

static void test_deadline_on_a_kept_connection(void **state)
{
    (void)state;
    struct kept first = send_key("/pay", "first");
    text_free(&first.body);
    struct http_request request = request_of("/pay", NULL, 0);
    request.send_before_us = clock_mono_us();
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_DEADLINE);
    assert_false(kept.sent);
    text_free(&kept.body);
    assert_true(ledger_has("\"requests\": 1,"));
}

static void test_late_write_is_told(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay", NULL, 0);
    request.late_after_us = clock_mono_us();
    struct kept kept = send_request(&request);
    assert_int_equal(kept.status, 200);
    assert_true(kept.late);
    text_free(&kept.body);
}

static void test_stop_sending(void **state)
{
    (void)state;
    struct kept waiting = {.done = false};
    struct http_request request = request_of("/pay?fault=hang", NULL, 0);
    assert_int_equal(http_client_start(client, &request, keep, &waiting), OUTCOME_OK);
    assert_ledger_comes_to("\"requests\": 1,");
    struct kept unsent = {.done = false};
    assert_int_equal(http_client_start(client, &request, keep, &unsent), OUTCOME_OK);
    http_client_stop_sending(client);
    assert_true(unsent.done);
    assert_int_equal(unsent.fault, HTTP_FAULT_STOPPED);
    assert_false(unsent.sent);
    assert_false(waiting.done);
    http_client_cancel(client);
    assert_true(waiting.done);
    assert_int_equal(waiting.fault, HTTP_FAULT_CANCELLED);
    assert_true(waiting.sent);
    text_free(&waiting.body);
    text_free(&unsent.body);
}

// ---- remotes that misbehave ----

// After the time-out the connection ends by a reset, not by a FIN behind which the kernel would go
// on delivering.
static void test_timeout_resets(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay?fault=hang", NULL, 0);
    request.timeout_ms = 300;
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_TIMEOUT);
    assert_true(kept.sent);
    text_free(&kept.body);
    post_control("/_release");
    assert_ledger_comes_to("\"resets\": 1}");
}

static void test_slow_loris_ends(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay?fault=drip&delay_ms=20", NULL, 0);
    request.timeout_ms = 500;
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_TIMEOUT);
    assert_true(kept.sent);
    text_free(&kept.body);
}

static void too_large(const char *path)
{
    struct http_request request = request_of(path, NULL, 0);
    request.max_response_bytes = 100000;
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_TOO_LARGE);
    assert_true(kept.sent);
    assert_true(kept.body.n <= 100000);
    text_free(&kept.body);
}

static void test_endless_answers_end(void **state)
{
    (void)state;
    too_large("/pay?fault=endless");
    too_large("/pay?fault=head_flood");
    too_large("/pay?fault=continue_flood");
}

static void test_broken_answers_are_not_whole(void **state)
{
    (void)state;
    struct kept half = send_key("/pay?fault=half", "half");
    assert_int_equal(half.fault, HTTP_FAULT_CLOSED);
    assert_true(half.sent);
    text_free(&half.body);
    struct kept garbage = send_key("/pay?fault=garbage", "garbage");
    assert_int_not_equal(garbage.fault, HTTP_FAULT_NONE);
    assert_true(garbage.sent);
    text_free(&garbage.body);
}

static void test_redirect_is_an_answer(void **state)
{
    (void)state;
    struct kept kept = send_key("/pay?fault=redirect", "k");
    assert_int_equal(kept.fault, HTTP_FAULT_NONE);
    assert_int_equal(kept.status, 302);
    text_free(&kept.body);
    assert_true(ledger_has("\"requests\": 1,"));
}

// ---- what cannot be sent ----

static void test_private_address_is_denied(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay", NULL, 0);
    request.allow_private = false;
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_ADDRESS_DENIED);
    assert_false(kept.sent);
    text_free(&kept.body);
    assert_true(ledger_has("\"connections\": 0,"));
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct http_request request = request_of("/pay", NULL, 0);
    request.url = "http://127.0.0.1:9/pay";
    struct kept kept = send_request(&request);
    assert_int_equal(kept.fault, HTTP_FAULT_CONNECT);
    assert_false(kept.sent);
    text_free(&kept.body);
}

static void test_requests_that_cannot_be_made(void **state)
{
    (void)state;
    struct kept kept = {.done = false};
    const struct http_header split[] = {{"X-Name", "a\r\nX-Other: b"}};
    struct http_request request = request_of("/pay", split, 1);
    assert_int_equal(http_client_start(client, &request, keep, &kept), OUTCOME_INVALID);
    request = request_of("/pay", NULL, 0);
    request.url = "file:///etc/passwd";
    struct kept scheme = send_request(&request); // libcurl looks at the scheme when it begins
    assert_int_not_equal(scheme.fault, HTTP_FAULT_NONE);
    assert_false(scheme.sent);
    assert_int_equal(scheme.body.n, 0);
    text_free(&scheme.body);
    assert_false(kept.done);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fresh, done)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_answer_is_whole),
        CASE(test_connection_is_kept_unless_own),
        CASE(test_large_body_without_expect),
        CASE(test_hundreds_at_once),
        CASE(test_transport_does_not_send_again),
        CASE(test_reset_after_execution_is_sent),
        CASE(test_deadline_is_checked_in_the_hook),
        CASE(test_deadline_on_a_kept_connection),
        CASE(test_late_write_is_told),
        CASE(test_stop_sending),
        CASE(test_timeout_resets),
        CASE(test_slow_loris_ends),
        CASE(test_endless_answers_end),
        CASE(test_broken_answers_are_not_whole),
        CASE(test_redirect_is_an_answer),
        CASE(test_private_address_is_denied),
        CASE(test_nobody_listens),
        CASE(test_requests_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, start, end);
}

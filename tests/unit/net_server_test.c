// The small HTTP server, asked by the HTTP client.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/http_server.h"

enum { WAIT_S = 20 };

struct kept {
    bool done;
    int status;
    enum http_fault fault;
    struct text body;
    char type[64], authenticate[64];
};

static void keep(void *opaque, const struct http_answer *answer)
{
    struct kept *kept = opaque;
    kept->done = true;
    kept->status = answer->status;
    kept->fault = answer->fault;
    text_add_span(&kept->body, answer->body);
    struct span type = http_answer_header(answer, "Content-Type");
    (void)snprintf(kept->type, sizeof kept->type, "%.*s", SPAN_ARG(type));
    struct span authenticate = http_answer_header(answer, "WWW-Authenticate");
    (void)snprintf(kept->authenticate, sizeof kept->authenticate, "%.*s", SPAN_ARG(authenticate));
}

static const char *or_none(const char *s)
{
    return s == NULL ? "(none)" : s;
}

// Says what it was asked.
static void echo(void *opaque, const struct http_server_request *request,
                 struct http_server_answer *answer)
{
    int *asked = opaque;
    (*asked)++;
    if (strcmp(http_server_path(request), "/secret") == 0 &&
        http_server_header(request, "Authorization") == NULL) {
        answer->status = 401;
        answer->authenticate = "Bearer";
        return;
    }
    answer->content_type = "application/json";
    struct span body = http_server_body(request);
    text_addf(answer->body, "%s %s q=%s h=%s b=%.*s", http_server_method(request),
              http_server_path(request), or_none(http_server_argument(request, "q")),
              or_none(http_server_header(request, "X-Test")), SPAN_ARG(body));
}

static struct kept ask(uint16_t port, const char *method, const char *path, struct span body)
{
    char url[256];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u%s", (unsigned)port, path);
    struct http_client *client = NULL;
    assert_int_equal(http_client_open(1, &client), OUTCOME_OK);
    const struct http_header headers[] = {{"X-Test", "yes"}};
    const struct http_request request = {
        .method = method,
        .url = url,
        .headers = headers,
        .headers_n = 1,
        .body = body,
        .connect_timeout_ms = 2000,
        .timeout_ms = 10000,
        .send_before_us = CLOCK_FOREVER,
        .late_after_us = CLOCK_FOREVER,
        .max_response_bytes = 1 << 20,
        .allow_private = true,
    };
    struct kept kept = {.done = false};
    assert_int_equal(http_client_start(client, &request, keep, &kept), OUTCOME_OK);
    int64_t until = clock_deadline_us(WAIT_S * CLOCK_SECOND);
    while (!kept.done && clock_mono_us() < until) {
        http_client_poll(client, 100 * CLOCK_MS);
    }
    http_client_close(client);
    assert_true(kept.done);
    return kept;
}

static void test_asks_and_answers(void **state)
{
    (void)state;
    int asked = 0;
    struct http_server *server = NULL;
    assert_int_equal(http_server_open("127.0.0.1:0", echo, &asked, &server, NULL), OUTCOME_OK);
    uint16_t port = http_server_port(server);
    assert_int_not_equal(port, 0);

    struct kept get = ask(port, "GET", "/x?q=1%202", SPAN_NULL);
    assert_int_equal(get.status, 200);
    assert_string_equal(get.body.p, "GET /x q=1 2 h=yes b=");
    assert_string_equal(get.type, "application/json");
    text_free(&get.body);

    struct kept post = ask(port, "POST", "/y", SPAN_LIT("hello"));
    assert_string_equal(post.body.p, "POST /y q=(none) h=yes b=hello");
    text_free(&post.body);

    struct kept bare = ask(port, "GET", "/z?q", SPAN_NULL);
    assert_string_equal(bare.body.p, "GET /z q= h=yes b=");
    text_free(&bare.body);

    struct kept secret = ask(port, "GET", "/secret", SPAN_NULL);
    assert_int_equal(secret.status, 401);
    assert_string_equal(secret.authenticate, "Bearer");
    text_free(&secret.body);
    assert_int_equal(asked, 4);
    http_server_close(server);
}

static void test_large_body_is_refused(void **state)
{
    (void)state;
    int asked = 0;
    struct http_server *server = NULL;
    assert_int_equal(http_server_open("127.0.0.1:0", echo, &asked, &server, NULL), OUTCOME_OK);
    static char bytes[(1 << 20) + 1];
    memset(bytes, 'x', sizeof bytes);
    struct kept kept =
        ask(http_server_port(server), "POST", "/", (struct span){.p = bytes, .n = sizeof bytes});
    assert_int_equal(kept.status, 413);
    assert_int_equal(asked, 0);
    text_free(&kept.body);
    http_server_close(server);
}

static void test_addresses_that_cannot_be_used(void **state)
{
    (void)state;
    int asked = 0;
    struct http_server *first = NULL;
    assert_int_equal(http_server_open("127.0.0.1:0", echo, &asked, &first, NULL), OUTCOME_OK);
    char taken[64];
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%u", (unsigned)http_server_port(first));
    const char *const bad[] = {
        "",       "127.0.0.1",    "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "localhost:0",
        "[::1:0", "192.0.2.1:80", taken};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct http_server *server = NULL;
        const char *reason = NULL;
        assert_int_equal(http_server_open(bad[i], echo, &asked, &server, &reason), OUTCOME_INVALID);
        assert_non_null(reason);
        assert_null(server);
    }
    http_server_close(first);
    http_server_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_and_answers),
        cmocka_unit_test(test_large_body_is_refused),
        cmocka_unit_test(test_addresses_that_cannot_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Routes, and who may see what. */
#include "console/console.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "console/console_int.h"
#include "net/http_server.h"

struct console {
    const struct config *cfg;
    console_ready_fn *ready;
    void *opaque;
    struct backlog *backlog;
    struct http_server *server;
    struct lock lock; /* of the two below */
    console_complete_fn *complete;
    void *complete_opaque;
};

bool console_is_loopback(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    struct span host = {listen, colon != NULL ? (size_t)(colon - listen) : strlen(listen)};
    if (span_eq_text(host, "localhost") || span_eq_text(host, "[::1]"))
        return true;
    /* 127.0.0.0/8, as an address and not as the beginning of a name */
    return span_starts_with(host, SPAN_LIT("127.")) && strspn(listen, "0123456789.") == host.n;
}

/* Equal without telling by the time it took how much of it was right. */
static bool same_secret(const char *given, const char *wanted)
{
    size_t given_n = strlen(given), wanted_n = strlen(wanted);
    unsigned differs = given_n != wanted_n;
    for (size_t i = 0; i < given_n; i++)
        differs |= (unsigned char)given[i] ^ (unsigned char)wanted[wanted_n > 0 ? i % wanted_n : 0];
    return differs == 0;
}

static bool may_see(const struct console *console, const struct http_server_request *request,
                    struct http_server_answer *answer)
{
    static const char scheme[] = "Bearer ";
    /* A browser that was led here by a page of somebody else names that page. */
    if (http_server_header(request, "Origin") != NULL) {
        answer->status = 403;
        text_add_str(answer->body, "not for pages of other origins\n");
        return false;
    }
    if (*console->cfg->admin.token == '\0')
        return true;
    const char *given = http_server_header(request, "Authorization");
    if (given != NULL && strncmp(given, scheme, sizeof scheme - 1) == 0 &&
        same_secret(given + sizeof scheme - 1, console->cfg->admin.token))
        return true;
    answer->status = 401;
    answer->authenticate = "Bearer realm=\"holdfast\"";
    text_add_str(answer->body, "a token is needed: Authorization: Bearer <admin.token>\n");
    return false;
}

static void answer_livez(struct console *console, const struct http_server_request *request,
                         struct http_server_answer *answer)
{
    (void)console;
    (void)request;
    text_add_str(answer->body, "ok\n");
}

/* The plain answer needs no token: an orchestrator has none, and one word tells nothing. */
static void answer_readyz(struct console *console, const struct http_server_request *request,
                          struct http_server_answer *answer)
{
    bool verbose = http_server_argument(request, "verbose") != NULL;
    if (verbose && !may_see(console, request, answer))
        return;
    struct text why CLEANUP(text_free) = TEXT_EMPTY;
    bool ready = console->ready(console->opaque, &why);
    if (!ready)
        answer->status = 503;
    if (verbose)
        text_add_span(answer->body, text_span(&why));
    text_add_str(answer->body, ready ? "ready\n" : "not ready\n");
}

static void answer_metrics(struct console *console, const struct http_server_request *request,
                           struct http_server_answer *answer)
{
    if (!may_see(console, request, answer))
        return;
    backlog_refresh(console->backlog);
    answer->content_type = METRIC_CONTENT_TYPE;
    metric_write(answer->body);
}

/* It settles operations: never without a token, not even on loopback. */
static void answer_completion(struct console *console, const struct http_server_request *request,
                              struct http_server_answer *answer)
{
    if (*console->cfg->admin.token == '\0') {
        answer->status = 403;
        text_add_str(answer->body, "completions need admin.token to be set\n");
        return;
    }
    if (!may_see(console, request, answer))
        return;
    lock_take(&console->lock);
    if (console->complete == NULL) {
        answer->status = 503;
        text_add_str(answer->body, "the dispatcher is not there yet: say it again\n");
    } else {
        answer->status = console->complete(console->complete_opaque, http_server_body(request),
                                           SPAN_LIT("http"), answer->body);
        text_add_char(answer->body, '\n');
    }
    lock_drop(&console->lock);
}

void console_accept(struct console *console, console_complete_fn *complete, void *opaque)
{
    if (console == NULL)
        return;
    lock_take(&console->lock);
    console->complete = complete;
    console->complete_opaque = opaque;
    lock_drop(&console->lock);
}

static const struct route {
    const char *path;
    bool post;
    void (*answer)(struct console *, const struct http_server_request *,
                   struct http_server_answer *);
} routes[] = {
    {"/livez", false, answer_livez},
    {"/readyz", false, answer_readyz},
    {"/metrics", false, answer_metrics},
    {"/v1/completions", true, answer_completion},
};

static void serve(void *opaque, const struct http_server_request *request,
                  struct http_server_answer *answer)
{
    const char *method = http_server_method(request);
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        if (strcmp(http_server_path(request), routes[i].path) != 0)
            continue;
        bool fits = routes[i].post ? strcmp(method, "POST") == 0
                                   : strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
        if (!fits) {
            answer->status = 405;
            answer->allow = routes[i].post ? "POST" : "GET, HEAD";
            return;
        }
        routes[i].answer(opaque, request, answer);
        return;
    }
    answer->status = 404;
    text_add_str(answer->body, "there is /livez, /readyz and /metrics\n");
}

enum outcome console_start(const struct config *cfg, console_ready_fn *ready, void *opaque,
                           struct console **ret, const char **ret_reason)
{
    *ret = NULL;
    if (*cfg->admin.listen == '\0')
        return OUTCOME_OK;
    if (!console_is_loopback(cfg->admin.listen) && *cfg->admin.token == '\0') {
        *ret_reason = "admin.listen is not a loopback address: set admin.token";
        return OUTCOME_INVALID;
    }
    struct console *console = memory_new(1, sizeof *console);
    *console =
        (struct console){.cfg = cfg, .ready = ready, .opaque = opaque, .backlog = backlog_new(cfg)};
    lock_init(&console->lock);
    enum outcome outcome =
        http_server_open(cfg->admin.listen, serve, console, &console->server, ret_reason);
    if (outcome != OUTCOME_OK) {
        console_stop(console);
        return outcome;
    }
    *ret = console;
    return OUTCOME_OK;
}

uint16_t console_port(const struct console *console)
{
    return console != NULL ? http_server_port(console->server) : 0;
}

void console_stop(struct console *console)
{
    if (console == NULL)
        return;
    http_server_close(console->server);
    backlog_free(console->backlog);
    lock_destroy(&console->lock);
    free(console);
}

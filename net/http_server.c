// net/http_server.c: libmicrohttpd with one internal thread; a request is answered once its body
// was read whole.
#include "net/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"

enum {
    CONNECTIONS_MAX = 64,
    IDLE_SECONDS = 15,
    BODY_BYTES_MAX = 1 << 20,
    CONNECTION_MEMORY = 32 * 1024, // bounds the request's head
};

struct http_server {
    struct MHD_Daemon *daemon;
    http_server_fn *handler;
    void *opaque;
    uint16_t port;
};

struct http_server_request {
    struct MHD_Connection *connection;
    const char *method;
    const char *path;
    struct text body;
    bool too_large;
};

const char *http_server_method(const struct http_server_request *request)
{
    return request->method;
}

const char *http_server_path(const struct http_server_request *request)
{
    return request->path;
}

const char *http_server_header(const struct http_server_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *http_server_argument(const struct http_server_request *request, const char *name)
{
    const char *value = NULL;
    size_t n;
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, &n) != MHD_YES)
        return NULL;
    return value != NULL ? value : ""; /* "?verbose" has no value, and is there */
}

struct span http_server_body(const struct http_server_request *request)
{
    return text_span(&request->body);
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    if (value != NULL) {
        (void)MHD_add_response_header(response, name, value);
    }
}

static enum MHD_Result answer_with(struct http_server *server, struct http_server_request *request)
{
    struct text body = TEXT_EMPTY;
    struct http_server_answer answer = {
        .status = 200, .content_type = "text/plain; charset=utf-8", .body = &body};
    if (request->too_large) {
        answer.status = 413;
        text_add_str(&body, "the request is too large\n");
    } else {
        server->handler(server->opaque, request, &answer);
    }
    size_t n = body.n;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, text_take(&body), MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        return MHD_NO;
    }
    add_header(response, "Content-Type", answer.content_type);
    add_header(response, "Allow", answer.allow);
    add_header(response, "WWW-Authenticate", answer.authenticate);
    add_header(response, "X-Content-Type-Options", "nosniff");
    add_header(response, "Cache-Control", "no-store");
    enum MHD_Result queued = MHD_queue_response(request->connection, answer.status, response);
    MHD_destroy_response(response);
    return queued;
}

// libmicrohttpd calls this for the head, for each part of the body, and once more at its end (size
// 0).
static enum MHD_Result on_request(void *opaque, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    (void)version;
    struct http_server_request *request = *state;
    if (request == NULL) {
        request = memory_new(1, sizeof *request);
        request->connection = connection;
        *state = request;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        if (request->body.n + *upload_size > BODY_BYTES_MAX) {
            request->too_large = true;
        } else {
            text_add(&request->body, upload, *upload_size);
        }
        *upload_size = 0;
        return MHD_YES;
    }
    request->method = method;
    request->path = url;
    return answer_with(opaque, request);
}

static void on_completed(void *opaque, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    (void)opaque, (void)connection, (void)why;
    struct http_server_request *request = *state;
    if (request != NULL) {
        text_free(&request->body);
        free(request);
        *state = NULL;
    }
}

// "127.0.0.1:8080", "[::1]:8080". Names are not resolved: what is listened on should be visible in
// the configuration.
static bool parse_listen(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_n)
{
    const char *colon = strrchr(listen, ':');
    if (colon == NULL || colon[1] == '\0') {
        return false;
    }
    char *end = NULL;
    long port = strtol(colon + 1, &end, 10);
    size_t host_n = (size_t)(colon - listen);
    char host[INET6_ADDRSTRLEN + 1];
    if (*end != '\0' || port < 0 || port > 65535) {
        return false;
    }
    bool v6 = host_n > 2 && listen[0] == '[' && listen[host_n - 1] == ']';
    if (v6) {
        listen++, host_n -= 2;
    }
    if (host_n >= sizeof host) {
        return false;
    }
    memcpy(host, listen, host_n);
    host[host_n] = '\0';
    memset(ret, 0, sizeof *ret);
    if (v6) {
        struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        bool good = inet_pton(AF_INET6, host, &in6.sin6_addr) == 1;
        memcpy(ret, &in6, sizeof in6);
        *ret_n = sizeof in6;
        return good;
    }
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool good = inet_pton(AF_INET, host, &in.sin_addr) == 1;
    memcpy(ret, &in, sizeof in);
    *ret_n = sizeof in;
    return good;
}

static int listen_on(const struct sockaddr_storage *address, socklen_t n)
{
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    int yes = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)address, n) != 0 || listen(fd, 128) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t n = sizeof bound;
    if (getsockname(fd, (struct sockaddr *)&bound, &n) != 0) {
        return 0;
    }
    in_port_t port;
    if (bound.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &bound, sizeof in6);
        port = in6.sin6_port;
    } else {
        struct sockaddr_in in;
        memcpy(&in, &bound, sizeof in);
        port = in.sin_port;
    }
    return ntohs(port);
}

static enum outcome refuse(const char **ret_reason, const char *reason)
{
    if (ret_reason != NULL) {
        *ret_reason = reason;
    }
    return OUTCOME_INVALID;
}

enum outcome http_server_open(const char *listen, http_server_fn *handler, void *opaque,
                              struct http_server **ret, const char **ret_reason)
{
    struct sockaddr_storage address;
    socklen_t n = 0;
    if (!parse_listen(listen, &address, &n)) {
        return refuse(ret_reason, "not an address and port, as in 127.0.0.1:8080 or [::1]:8080");
    }
    int fd = listen_on(&address, n);
    if (fd < 0) {
        return refuse(ret_reason,
                      "the address cannot be listened on: in use, or not this machine's");
    }
    struct http_server *server = memory_new(1, sizeof *server);
    server->handler = handler;
    server->opaque = opaque;
    server->port = port_of(fd);
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC |
            (address.ss_family == AF_INET6 ? MHD_USE_IPv6 : 0U),
        0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
    if (server->daemon == NULL) {
        (void)close(fd);
        free(server);
        return refuse(ret_reason, "the server thread could not be started");
    }
    *ret = server;
    return OUTCOME_OK;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    MHD_stop_daemon(server->daemon);
    free(server);
}

// net/http_server.h: a small HTTP server for health, metrics and the console.
//
// One listening socket and one thread of its own; handlers run on that thread, so they answer from
// memory or from a short query and never wait long. Connections, header sizes, body sizes and idle
// times are bounded.
//
// Never: TLS, files, sessions, deciding who may see what (the handler gets the Authorization and
// Origin headers).
#ifndef HOLDFAST_NET_HTTP_SERVER_H
#define HOLDFAST_NET_HTTP_SERVER_H

#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/text.h"

struct http_server;
struct http_server_request;

// Parts of a request; valid during the handler's call only. Missing header or query argument: NULL.
const char *http_server_method(const struct http_server_request *request);
const char *http_server_path(const struct http_server_request *request); // without the query
const char *http_server_header(const struct http_server_request *request, const char *name);
// of the query; "" for one without a value, NULL when it is not there
const char *http_server_argument(const struct http_server_request *request, const char *name);
struct span http_server_body(const struct http_server_request *request);

// What a handler fills in. Starts as 200, text/plain, no body.
struct http_server_answer {
    unsigned status;
    const char *content_type; // static or living until the handler returned
    const char *allow;        // for 405: the methods that are served
    const char *authenticate; // for 401: WWW-Authenticate
    struct text *body;        // owned by the server, empty; append to it
};

// Thread: the server's.
typedef void http_server_fn(void *opaque, const struct http_server_request *request,
                            struct http_server_answer *answer);

// Listens on "address:port" ("[::1]:8080", "127.0.0.1:0" picks a free port). OUTCOME_OK;
// OUTCOME_INVALID: the address cannot be parsed or bound; ret_reason (may be NULL) then points to a
// static sentence.
MUST_CHECK enum outcome http_server_open(const char *listen, http_server_fn *handler, void *opaque,
                                         struct http_server **ret, const char **ret_reason);

// The port it listens on.
uint16_t http_server_port(const struct http_server *server);

// Stops listening, ends what is open. NULL is fine.
void http_server_close(struct http_server *server);

#endif

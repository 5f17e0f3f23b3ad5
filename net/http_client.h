// net/http_client.h: outgoing HTTP, many requests at once on one thread.
//
// What it promises beyond an ordinary client is about *sending*: a request is written at most once,
// never after its deadline, and the answer says whether it may have been sent, judged only by
// whether the last hook before the write let it through. libcurl alone re-sends a request when a
// reused connection dies before the first byte of an answer (tried: one POST, two executions, one
// 200): here the second passage of the hook aborts the request instead.
//
// Off for every request: redirects, automatic authentication, early data, fast open, Expect:
// 100-continue, proxies from the environment, cookies, HTTP/2 (a failed request is ended by a reset
// of its connection, and must not take neighbours with it). Every socket is set so that closing it,
// also by the death of the process, is a TCP reset that throws away what the kernel has not
// delivered yet: nothing of ours arrives after we have given up.
//
// Never: retries, follows, looks into bodies, knows a task.
#ifndef HOLDFAST_NET_HTTP_CLIENT_H
#define HOLDFAST_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"

struct http_client;

// Why a request has no complete answer. The word is evidence and a metric's label.
#define HTTP_FAULTS(F)                                                                             \
    F(HTTP_FAULT_NONE, "none")                     /* the answer was read whole */                 \
    F(HTTP_FAULT_ADDRESS_DENIED, "address_denied") /* private, loopback or multicast address */    \
    F(HTTP_FAULT_RESOLVE, "resolve")               /* the name has no address */                   \
    F(HTTP_FAULT_CONNECT, "connect")               /* nobody answered, or refused */               \
    F(HTTP_FAULT_TLS, "tls")                       /* certificate or handshake */                  \
    F(HTTP_FAULT_DEADLINE, "deadline")             /* the hook found the send deadline passed */   \
    F(HTTP_FAULT_STOPPED, "stopped")               /* the hook found sending stopped */            \
    F(HTTP_FAULT_RESEND, "resend")                 /* the transport wanted to send again */        \
    F(HTTP_FAULT_TIMEOUT, "timeout")               /* no complete answer within timeout_ms */      \
    F(HTTP_FAULT_CLOSED, "closed")       /* the connection ended before the answer did */          \
    F(HTTP_FAULT_TOO_LARGE, "too_large") /* body or headers above their limit */                   \
    F(HTTP_FAULT_CANCELLED, "cancelled") /* http_client_cancel */                                  \
    F(HTTP_FAULT_OTHER, "other")
#define HTTP_FAULT_ENUM(id, word) id,
enum http_fault { HTTP_FAULTS(HTTP_FAULT_ENUM) };
#undef HTTP_FAULT_ENUM

const char *http_fault_word(enum http_fault fault);

struct http_header {
    const char *name;
    const char *value;
};

struct http_request {
    const char *method; // POST, PUT, GET, DELETE, PATCH
    const char *url;    // http:// or https:// only
    const struct http_header *headers;
    size_t headers_n;
    struct span body; // borrowed until `done`; everything else is copied by http_client_start
    int64_t connect_timeout_ms;
    int64_t timeout_ms;        // of the whole request, and TCP_USER_TIMEOUT of its connection
    int64_t send_before_us;    // clock_mono_us(): the hook refuses from then on
    int64_t late_after_us;     // clock_mono_us(): a write that ended later is reported as sent_late
    size_t max_response_bytes; // of the body
    bool own_connection;       // a connection that nobody used before and nobody will use after
    bool allow_private;        // loopback, private and link-local addresses may be called
};

// What became of a request. All pointers are valid during the callback only.
struct http_answer {
    bool may_have_been_sent; // the hook let it through. Nothing else decides this
    bool sent_late;          // the write ended after late_after_us
    enum http_fault fault;   // HTTP_FAULT_NONE: status, headers and body are whole
    const char *detail;      // the library's own sentence, or ""
    int status;              // 0: no status line was read
    struct span body;        // as far as it was read
    int64_t bytes_sent;      // of head and body, as far as the library counted
    int64_t hook_us;         // clock_mono_us() when the hook let it through; 0: never
    int64_t written_us;      // clock_mono_us() when the write was seen to have ended; 0: not seen
    int64_t took_us;         // from http_client_start to this answer
    const struct http_exchange *exchange; // for http_answer_header
};

// Called exactly once for a started request, on the client's thread. May call http_client_start.
typedef void http_done_fn(void *opaque, const struct http_answer *answer);

// Value of a header of the answer (name without case; the first one counts). Null span: absent.
struct span http_answer_header(const struct http_answer *answer, const char *name);

// Makes a client. max_connections: how many idle connections are kept. OUTCOME_OK or
// OUTCOME_INVALID (out of descriptors). Thread: the one that will call the other functions,
// http_client_wake excepted.
MUST_CHECK enum outcome http_client_open(size_t max_connections, struct http_client **ret);

// Starts a request. OUTCOME_OK: `done` will be called, from http_client_poll or http_client_cancel.
// OUTCOME_INVALID: the request cannot be made (bad URL, bad header); `done` is not called and
// nothing was sent.
MUST_CHECK enum outcome http_client_start(struct http_client *client,
                                          const struct http_request *request, http_done_fn *done,
                                          void *opaque);

// Moves all requests on; returns when some work was done, when woken, or after timeout_us.
void http_client_poll(struct http_client *client, int64_t timeout_us);

// Ends a waiting http_client_poll, or the next one. Thread: any.
void http_client_wake(struct http_client *client);

// From now on the hook lets nothing through: what was not written yet ends at once, as not sent.
void http_client_stop_sending(struct http_client *client);

// Ends every request now; what the hook had let through is reported as such.
void http_client_cancel(struct http_client *client);

// Requests started and not answered yet. Thread: the client's.
size_t http_client_in_flight(const struct http_client *client);

// Cancels what is left (calling `done`), closes everything. NULL is fine.
void http_client_close(struct http_client *client);

#endif

// net/http_exchange_int.h: one request on its way, and the hooks that libcurl calls while it works
// on it. Private to net. Lives on the client's thread.
#ifndef HOLDFAST_NET_HTTP_EXCHANGE_INT_H
#define HOLDFAST_NET_HTTP_EXCHANGE_INT_H

#include <curl/curl.h>

#include "net/http_client.h"

struct http_exchange {
    struct http_exchange *next, *prev; // the client's list of active ones
    struct http_client *client;
    CURL *easy;
    struct curl_slist *headers;
    http_done_fn *done;
    void *opaque;

    bool allow_private;
    int64_t timeout_ms;
    int64_t send_before_us;
    int64_t late_after_us;
    int64_t started_us;
    int64_t hook_us;
    int64_t written_us;
    curl_off_t request_body_bytes;

    unsigned passages; // how often the last hook before the write was reached and let it through
    enum http_fault fault; // set by a hook that ended the exchange; else judged from libcurl's code
    bool denied; // an address was refused; another address of the same name may still be tried

    char *head; // header lines of the last response, as they came
    size_t head_n, head_capacity;
    size_t head_total; // of all responses, interim ones included
    char *body;
    size_t body_n, body_capacity, body_max;
    char error[CURL_ERROR_SIZE];
};

// NULL: the request cannot be made (header with control characters, URL that libcurl refuses).
struct http_exchange *http_exchange_new(struct http_client *client, CURL *easy,
                                        const struct http_request *request);
void http_exchange_free(struct http_exchange *x); // not the easy handle

// What is known at the end. Borrows from x.
void http_exchange_answer(const struct http_exchange *x, CURLcode code, struct http_answer *ret);

// The exchange of this handle waits on that socket from now on: a kept connection may have been made for a request with
// another time-out.
void http_exchange_uses(CURL *easy, curl_socket_t fd);

// http_client.c
bool http_client_sending_stopped(const struct http_client *client);

#endif

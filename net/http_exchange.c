// net/http_exchange.c: sets up one request and answers libcurl's questions: may it be written, may
// it be read.
#include "net/http_exchange_int.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/http_address_int.h"

enum {
    HEAD_BYTES_MAX = 65536, // of all header lines together, interim responses included
    RECEIVE_BUFFER = 8192,  // libcurl's own buffer; its default of 16 KiB is per waiting request
};

const char *http_fault_word(enum http_fault fault)
{
#define HTTP_FAULT_WORD(id, word) [id] = word,
    static const char *const words[] = {HTTP_FAULTS(HTTP_FAULT_WORD)};
#undef HTTP_FAULT_WORD
    return words[fault];
}

// ---- hooks ----

// The last thing before the request is written. Only this function decides whether something may
// have been sent.
static int on_prerequest(void *opaque, char *remote_ip, char *local_ip, int remote_port,
                         int local_port)
{
    (void)remote_ip, (void)local_ip, (void)remote_port, (void)local_port;
    struct http_exchange *x = opaque;
    int64_t now = clock_mono_us();
    if (x->passages > 0) {
        x->fault = HTTP_FAULT_RESEND;
    } else if (http_client_sending_stopped(x->client)) {
        x->fault = HTTP_FAULT_STOPPED;
    } else if (now >= x->send_before_us) {
        x->fault = HTTP_FAULT_DEADLINE;
    } else {
        x->passages = 1;
        x->hook_us = now;
        return CURL_PREREQFUNC_OK;
    }
    return CURL_PREREQFUNC_ABORT;
}

// Called on every turn of the transfer: the first one that sees the whole body handed to the kernel
// tells the time.
static int on_progress(void *opaque, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    (void)down_total, (void)down, (void)up_total;
    struct http_exchange *x = opaque;
    if (x->passages > 0 && x->written_us == 0 && up >= x->request_body_bytes) {
        x->written_us = clock_mono_us();
    }
    return 0;
}

static curl_socket_t on_open_socket(void *opaque, curlsocktype purpose,
                                    struct curl_sockaddr *address)
{
    struct http_exchange *x = opaque;
    if (purpose != CURLSOCKTYPE_IPCXN) {
        return CURL_SOCKET_BAD;
    }
    if (!x->allow_private && !http_address_is_public(&address->addr)) {
        x->denied = true;
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static bool set_user_timeout(const struct http_exchange *x, curl_socket_t fd)
{
    unsigned ms = (unsigned)x->timeout_ms;
    return setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms) == 0;
}

void http_exchange_uses(CURL *easy, curl_socket_t fd)
{
    struct http_exchange *x = NULL;
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&x);
    if (x != NULL) {
        (void)set_user_timeout(x, fd); // fails on the resolver's own socket, which needs none
    }
}

// Closing resets: what the kernel has not delivered by then is thrown away, also when the process
// is killed. Set from the start, for a killed process sets nothing. While the process stands still
// (SIGSTOP) TCP_USER_TIMEOUT does it.
static int on_socket_option(void *opaque, curl_socket_t fd, curlsocktype purpose)
{
    (void)purpose;
    const struct http_exchange *x = opaque;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset) != 0 ||
        !set_user_timeout(x, fd)) {
        return CURL_SOCKOPT_ERROR;
    }
    return CURL_SOCKOPT_OK;
}

// Appends n bytes; the buffer at least doubles, up to what max needs.
static void append(char **buffer, size_t *n, size_t *capacity, const char *p, size_t more)
{
    if (*n + more > *capacity) {
        size_t wanted = *capacity == 0 ? 512 : *capacity * 2;
        while (wanted < *n + more) {
            wanted *= 2;
        }
        *buffer = memory_resize(*buffer, wanted, 1);
        *capacity = wanted;
    }
    memcpy(*buffer + *n, p, more);
    *n += more;
}

static size_t on_header(char *line, size_t one, size_t n, void *opaque)
{
    (void)one;
    struct http_exchange *x = opaque;
    x->head_total += n;
    if (x->head_total > HEAD_BYTES_MAX) {
        x->fault = HTTP_FAULT_TOO_LARGE;
        return 0;
    }
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        x->head_n = 0; // a new response: the one before it was an interim one
    }
    append(&x->head, &x->head_n, &x->head_capacity, line, n);
    return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *opaque)
{
    (void)one;
    struct http_exchange *x = opaque;
    size_t room = x->body_max - x->body_n;
    append(&x->body, &x->body_n, &x->body_capacity, p, n < room ? n : room);
    if (n > room) {
        x->fault = HTTP_FAULT_TOO_LARGE;
        return 0;
    }
    return n;
}

// ---- setting up ----

static bool printable(const char *s)
{
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool add_header(struct http_exchange *x, const char *name, const char *value)
{
    if (name[0] == '\0' || !printable(name) || strpbrk(name, " :;") != NULL || !printable(value)) {
        return false;
    }
    char *line = NULL;
    // libcurl's form for a header without value is "Name;", and "Name:" would remove it.
    int n =
        value[0] == '\0' ? asprintf(&line, "%s;", name) : asprintf(&line, "%s: %s", name, value);
    CHECK(n >= 0);
    struct curl_slist *list = curl_slist_append(x->headers, line);
    free(line);
    CHECK(list != NULL);
    x->headers = list;
    return true;
}

static bool add_headers(struct http_exchange *x, const struct http_request *request)
{
    for (size_t i = 0; i < request->headers_n; i++) {
        if (!add_header(x, request->headers[i].name, request->headers[i].value)) {
            return false;
        }
    }
    x->headers = curl_slist_append(x->headers, "Expect:");
    CHECK(x->headers != NULL);
    return true;
}

#define SET(option, value)                                                                         \
    do {                                                                                           \
        if (curl_easy_setopt(x->easy, option, value) != CURLE_OK) {                                \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool set_method(struct http_exchange *x, const struct http_request *request)
{
    bool post = strcmp(request->method, "POST") == 0;
    if (post || request->body.n > 0) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.n);
        SET(CURLOPT_POSTFIELDS, request->body.n > 0 ? request->body.p : "");
    } else {
        SET(CURLOPT_HTTPGET, 1L);
    }
    if (!post) {
        SET(CURLOPT_CUSTOMREQUEST, request->method);
    }
    return true;
}

static bool set_protocols(struct http_exchange *x)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    return true;
}

// Several of these are libcurl's defaults today; they are promises of ours, so they are said.
static bool set_what_is_off(struct http_exchange *x)
{
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_NONE);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_TCP_FASTOPEN, 0L);
    SET(CURLOPT_NOSIGNAL, 1L);
    return true;
}

static bool set_hooks(struct http_exchange *x)
{
    SET(CURLOPT_PRIVATE, x);
    SET(CURLOPT_ERRORBUFFER, x->error);
    SET(CURLOPT_PREREQFUNCTION, on_prerequest);
    SET(CURLOPT_PREREQDATA, x);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, x);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    SET(CURLOPT_OPENSOCKETDATA, x);
    SET(CURLOPT_SOCKOPTFUNCTION, on_socket_option);
    SET(CURLOPT_SOCKOPTDATA, x);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    return true;
}

static bool set_request(struct http_exchange *x, const struct http_request *request)
{
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_HTTPHEADER, x->headers);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_timeout_ms);
    SET(CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    SET(CURLOPT_BUFFERSIZE, (long)RECEIVE_BUFFER);
    if (request->own_connection) {
        SET(CURLOPT_FRESH_CONNECT, 1L);
        SET(CURLOPT_FORBID_REUSE, 1L);
    }
    return set_method(x, request);
}

struct http_exchange *http_exchange_new(struct http_client *client, CURL *easy,
                                        const struct http_request *request)
{
    struct http_exchange *x = memory_new(1, sizeof *x);
    x->client = client;
    x->easy = easy;
    x->allow_private = request->allow_private;
    x->timeout_ms = request->timeout_ms;
    x->send_before_us = request->send_before_us;
    x->late_after_us = request->late_after_us;
    x->request_body_bytes = (curl_off_t)request->body.n;
    x->body_max = request->max_response_bytes;
    x->started_us = clock_mono_us();
    if (!add_headers(x, request) || !set_protocols(x) || !set_what_is_off(x) || !set_hooks(x) ||
        !set_request(x, request)) {
        http_exchange_free(x);
        return NULL;
    }
    return x;
}

void http_exchange_free(struct http_exchange *x)
{
    curl_slist_free_all(x->headers);
    free(x->head);
    free(x->body);
    free(x);
}

// ---- the answer ----

static enum http_fault fault_of(const struct http_exchange *x, CURLcode code)
{
    if (code == CURLE_OK) {
        return HTTP_FAULT_NONE; // a hook that ended it would have made another code
    }
    if (x->fault != HTTP_FAULT_NONE) {
        return x->fault;
    }
    switch ((int)code) { // libcurl's list is open: what it adds later is HTTP_FAULT_OTHER
    case CURLE_COULDNT_RESOLVE_HOST:
        return HTTP_FAULT_RESOLVE;
    case CURLE_COULDNT_CONNECT:
        return x->denied ? HTTP_FAULT_ADDRESS_DENIED : HTTP_FAULT_CONNECT;
    case CURLE_OPERATION_TIMEDOUT:
        return x->passages > 0 ? HTTP_FAULT_TIMEOUT : HTTP_FAULT_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
        return HTTP_FAULT_TLS;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
        return HTTP_FAULT_CLOSED;
    default:
        return HTTP_FAULT_OTHER;
    }
}

void http_exchange_answer(const struct http_exchange *x, CURLcode code, struct http_answer *ret)
{
    long status = 0;
    long head_bytes = 0;
    curl_off_t body_bytes = 0;
    (void)curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(x->easy, CURLINFO_REQUEST_SIZE, &head_bytes);
    (void)curl_easy_getinfo(x->easy, CURLINFO_SIZE_UPLOAD_T, &body_bytes);
    *ret = (struct http_answer){
        .may_have_been_sent = x->passages > 0,
        .sent_late = x->written_us > x->late_after_us,
        .fault = fault_of(x, code),
        .status = (int)status,
        .body = {.p = x->body, .n = x->body_n},
        .bytes_sent = x->passages > 0 ? (int64_t)head_bytes + (int64_t)body_bytes : 0,
        .hook_us = x->hook_us,
        .written_us = x->written_us,
        .took_us = clock_mono_us() - x->started_us,
        .exchange = x,
    };
    ret->detail = ret->fault == HTTP_FAULT_NONE ? "" : x->error;
}

struct span http_answer_header(const struct http_answer *answer, const char *name)
{
    const struct http_exchange *x = answer->exchange;
    size_t name_n = strlen(name);
    for (size_t at = 0; at < x->head_n;) {
        const char *line = x->head + at;
        const char *end = memchr(line, '\n', x->head_n - at);
        size_t n = end == NULL ? x->head_n - at : (size_t)(end - line);
        at += n + 1;
        if (n <= name_n || line[name_n] != ':' || strncasecmp(line, name, name_n) != 0) {
            continue;
        }
        struct span value = {.p = line + name_n + 1, .n = n - name_n - 1};
        while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t')) {
            value.p++, value.n--;
        }
        while (value.n > 0 && strchr("\r \t", value.p[value.n - 1]) != NULL) {
            value.n--;
        }
        return value;
    }
    return (struct span){0};
}

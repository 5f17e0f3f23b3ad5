// net/http_client.c: the loop (epoll around libcurl's multi socket interface, so that thousands of
// waiting requests cost nothing per turn) and the life of an exchange. What libcurl asks back while
// it works is in http_exchange.c.
#include "net/http_client.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/http_exchange_int.h"

enum {
    EVENTS_PER_TURN = 256,
    IDLE_HANDLES_KEPT = 256, // easy handles that wait for the next request; making one costs 20 µs
};

struct http_client {
    CURLM *multi;
    int epoll_fd;
    int wake_fd;
    int64_t timer_us; // libcurl wants to be called then; -1: not
    struct http_exchange *active;
    size_t active_n;
    bool sending_stopped;
    CURL *idle[IDLE_HANDLES_KEPT];
    size_t idle_n;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

// ---- libcurl's wishes: which sockets to watch, when to call ----

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *opaque, void *known)
{
    struct http_client *client = opaque;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    http_exchange_uses(easy, fd);
    struct epoll_event event = {.data.fd = fd};
    event.events = ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0U) |
                   ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0U);
    if (known == NULL) {
        CHECK(epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
        (void)curl_multi_assign(client->multi, fd, client);
    } else {
        CHECK(epoll_ctl(client->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0);
    }
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *opaque)
{
    (void)multi;
    struct http_client *client = opaque;
    client->timer_us = timeout_ms < 0 ? -1 : clock_mono_us() + (int64_t)timeout_ms * 1000;
    return 0;
}

// ---- life of a client ----

enum outcome http_client_open(size_t max_connections, struct http_client **ret)
{
    CHECK(pthread_once(&curl_once, curl_start) == 0);
    struct http_client *client = memory_new(1, sizeof *client);
    client->timer_us = -1;
    client->multi = curl_multi_init();
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = client->wake_fd};
    if (client->multi == NULL || client->epoll_fd < 0 || client->wake_fd < 0 ||
        epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, client->wake_fd, &event) != 0) {
        http_client_close(client);
        return OUTCOME_INVALID;
    }
    CURLM *multi = client->multi;
    (void)curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    (void)curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    (void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)max_connections);
    (void)curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    *ret = client;
    return OUTCOME_OK;
}

void http_client_close(struct http_client *client)
{
    if (client == NULL) {
        return;
    }
    client->sending_stopped = true;
    while (client->active != NULL) {
        http_client_cancel(client);
    }
    for (size_t i = 0; i < client->idle_n; i++) {
        curl_easy_cleanup(client->idle[i]);
    }
    if (client->multi != NULL) {
        (void)curl_multi_cleanup(client->multi);
    }
    if (client->epoll_fd >= 0) {
        (void)close(client->epoll_fd);
    }
    if (client->wake_fd >= 0) {
        (void)close(client->wake_fd);
    }
    free(client);
}

bool http_client_sending_stopped(const struct http_client *client)
{
    return client->sending_stopped;
}

size_t http_client_in_flight(const struct http_client *client)
{
    return client->active_n;
}

// ---- life of an exchange ----

static CURL *take_easy(struct http_client *client)
{
    CURL *easy = client->idle_n > 0 ? client->idle[--client->idle_n] : curl_easy_init();
    CHECK(easy != NULL);
    return easy;
}

static void give_easy(struct http_client *client, CURL *easy)
{
    if (client->idle_n < IDLE_HANDLES_KEPT) {
        curl_easy_reset(easy);
        client->idle[client->idle_n++] = easy;
    } else {
        curl_easy_cleanup(easy);
    }
}

static void link_exchange(struct http_client *client, struct http_exchange *x)
{
    x->next = client->active;
    if (x->next != NULL) {
        x->next->prev = x;
    }
    client->active = x;
    client->active_n++;
}

static void unlink_exchange(struct http_client *client, struct http_exchange *x)
{
    if (x->prev != NULL) {
        x->prev->next = x->next;
    } else {
        client->active = x->next;
    }
    if (x->next != NULL) {
        x->next->prev = x->prev;
    }
    client->active_n--;
}

enum outcome http_client_start(struct http_client *client, const struct http_request *request,
                               http_done_fn *done, void *opaque)
{
    CURL *easy = take_easy(client);
    struct http_exchange *x = http_exchange_new(client, easy, request);
    if (x == NULL) {
        give_easy(client, easy);
        return OUTCOME_INVALID;
    }
    x->done = done;
    x->opaque = opaque;
    if (curl_multi_add_handle(client->multi, easy) != CURLM_OK) {
        http_exchange_free(x);
        give_easy(client, easy);
        return OUTCOME_INVALID;
    }
    link_exchange(client, x);
    return OUTCOME_OK;
}

// Removing the handle before its end closes its connection, and so resets it.
static void finish(struct http_client *client, struct http_exchange *x, CURLcode code)
{
    struct http_answer answer;
    http_exchange_answer(x, code, &answer);
    (void)curl_multi_remove_handle(client->multi, x->easy);
    unlink_exchange(client, x);
    x->done(x->opaque, &answer);
    CURL *easy = x->easy;
    http_exchange_free(x);
    give_easy(client, easy);
}

static void reap(struct http_client *client)
{
    int left = 0;
    for (CURLMsg *m; (m = curl_multi_info_read(client->multi, &left)) != NULL;) {
        if (m->msg != CURLMSG_DONE) {
            continue;
        }
        struct http_exchange *x = NULL;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        finish(client, x, m->data.result); // m is gone after this
    }
}

static void end_those(struct http_client *client, bool only_unsent, enum http_fault fault)
{
    for (struct http_exchange *x = client->active, *next; x != NULL; x = next) {
        next = x->next;
        if (!only_unsent || x->passages == 0) {
            x->fault = fault;
            finish(client, x, CURLE_ABORTED_BY_CALLBACK);
        }
    }
}

void http_client_stop_sending(struct http_client *client)
{
    client->sending_stopped = true;
    end_those(client, true, HTTP_FAULT_STOPPED);
}

void http_client_cancel(struct http_client *client)
{
    reap(client); // what has its answer keeps it
    end_those(client, false, HTTP_FAULT_CANCELLED);
}

// ---- the loop ----

static int wait_ms(const struct http_client *client, int64_t timeout_us)
{
    if (client->timer_us >= 0) {
        int64_t left = client->timer_us - clock_mono_us();
        if (left < 0) {
            left = 0;
        }
        if (timeout_us < 0 || left < timeout_us) {
            timeout_us = left;
        }
    }
    if (timeout_us < 0) {
        return -1;
    }
    int64_t ms = (timeout_us + 999) / 1000;
    return ms > 60000 ? 60000 : (int)ms;
}

static void act(struct http_client *client, curl_socket_t fd, uint32_t events)
{
    int mask = ((events & (uint32_t)EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
               ((events & (uint32_t)EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
               ((events & (uint32_t)(EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
    int running = 0;
    (void)curl_multi_socket_action(client->multi, fd, mask, &running);
}

void http_client_poll(struct http_client *client, int64_t timeout_us)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int n = epoll_wait(client->epoll_fd, events, EVENTS_PER_TURN, wait_ms(client, timeout_us));
    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == client->wake_fd) {
            uint64_t count = 0;
            (void)!read(client->wake_fd, &count, sizeof count);
        } else {
            act(client, events[i].data.fd, events[i].events);
        }
    }
    if (client->timer_us >= 0 && client->timer_us <= clock_mono_us()) {
        client->timer_us = -1;
        act(client, CURL_SOCKET_TIMEOUT, 0);
    }
    reap(client);
}

void http_client_wake(struct http_client *client)
{
    uint64_t one = 1;
    (void)!write(client->wake_fd, &one, sizeof one);
}

// outbox/dispatcher.c: thread `dispatch`. One loop carries all requests: takes claimed operations
// from the queue, starts them, moves all of them on. It has no database connection and waits for
// nothing but the network.
#include "outbox/adapter.h"

#include "base/clock.h"
#include "outbox/exec_int.h"

enum { TAKEN_AT_ONCE = 256 };

static void start_claimed(struct outbox *outbox)
{
    void *taken[TAKEN_AT_ONCE];
    size_t n;
    while ((n = queue_pop_many(outbox->to_dispatch, taken, TAKEN_AT_ONCE, 0)) > 0) {
        for (size_t i = 0; i < n; i++) {
            struct dispatch *d = taken[i];
            adapter_of(d->tool->config)->send(d);
        }
        http_client_poll(outbox->http, 0);
    }
}

static void refuse_claimed(struct outbox *outbox)
{
    for (struct dispatch *d; (d = queue_pop(outbox->to_dispatch, 0)) != NULL;) {
        dispatch_not_sent(d, "stopped", "the pod stopped before it was sent");
    }
}

// What may have been sent is waited for within the grace period; what was not written goes back at
// once.
static void drain(struct outbox *outbox)
{
    http_client_stop_sending(outbox->http);
    refuse_claimed(outbox);
    int64_t until = atomic_load(&outbox->grace_until_us);
    while (http_client_in_flight(outbox->http) > 0) {
        int64_t left = until - clock_mono_us();
        if (left <= 0) {
            break;
        }
        http_client_poll(outbox->http, left);
    }
    http_client_cancel(outbox->http);
    programs_stop(outbox->programs, until);
    outbox->programs = NULL;
}

void *dispatch_thread(void *argument)
{
    struct outbox *outbox = argument;
    while (!atomic_load(&outbox->stop_dispatching)) {
        start_claimed(outbox);
        http_client_poll(outbox->http, CLOCK_SECOND); // http_client_wake ends it: work, or stop
    }
    drain(outbox);
    queue_close(outbox->to_settle);
    return NULL;
}

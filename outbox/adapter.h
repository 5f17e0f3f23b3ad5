// outbox/adapter.h: the one interface behind which tools of all kinds are called.
//
// An adapter sends a claimed operation at most once, before its claim's deadline and under its own
// identity, and says what came of it; what it cannot tell for certain is unknown. It never repeats,
// never chooses an address out of a message, and never decides what a doubt means: that is the
// stored declaration's business (declared.c) and the reconciler's.
//
// Ownership: send() takes the dispatch; it ends in the queue to_settle, exactly once, from whatever
// thread the adapter answers on. Private to outbox.
#ifndef HOLDFAST_OUTBOX_ADAPTER_H
#define HOLDFAST_OUTBOX_ADAPTER_H

#include "outbox/dispatch_int.h"

struct adapter {
    const char *kind;
    void (*send)(struct dispatch *d); // Thread: dispatch
};

extern const struct adapter http_adapter; // http_tool.c: one request
extern const struct adapter exec_adapter; // exec_tool.c: one program, run once
extern const struct adapter mcp_adapter;  // mcp_tool.c: tools/call of an MCP server

const struct adapter *adapter_of(const struct config_tool *tool);

// For adapters: makes d->body. False: it ended here, refused or not sent.
MUST_CHECK bool adapter_make_body(struct dispatch *d, const struct config_tool *tool);

// http_headers.c. A null key is not sent.
struct http_identities {
    struct span key, operation_id;
    struct uuid run_id;
    int64_t epoch;
    struct span traceparent, tracestate;
};
struct http_header_list {
    struct http_header *headers; // with room for HTTP_HEADERS_MORE
    size_t n;
};
enum { HTTP_HEADERS_MORE = 4 };
struct http_header_list http_tool_headers(const struct config_tool *tool,
                                          const struct http_identities *who, struct arena *arena);

#endif

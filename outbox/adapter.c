// outbox/adapter.c: which adapter a tool has, and what they share before anything is sent.
#include "outbox/adapter.h"

#include "base/log.h"

const struct adapter *adapter_of(const struct config_tool *tool)
{
    switch (tool->kind) {
    case TOOL_HTTP:
        return &http_adapter;
    case TOOL_EXEC:
        return &exec_adapter;
    case TOOL_MCP:
        return &http_adapter; // refused by the configuration
    }
    CHECK(false);
    return &http_adapter;
}

bool adapter_make_body(struct dispatch *d, const struct config_tool *tool)
{
    const char *refused = NULL;
    if (declared_body(d, tool, &refused)) {
        return true;
    }
    if (refused != NULL) {
        dispatch_refuse(d, "request_refused", refused);
        return false;
    }
    log_event(LOG_ERROR, "dispatch.digest_mismatch",
              LOG_SPAN("operation_id", d->claim.operation_id), LOG_TEXT("tool", tool->name));
    dispatch_not_sent(d, "digest_mismatch",
                      "the stored request does not have the registered digest");
    return false;
}

// outbox/converged.c: what is said about a fact that the ledger has judged.
#include "outbox/dispatch_int.h"

#include "base/log.h"
#include "base/metric.h"

void converged_note(const char *tool, const struct ledger_fact *fact,
                    const struct ledger_recorded *row)
{
    metric_add(METRIC_CONVERGED, LABELS(tool, outcome_word(row->outcome)), 1);
    bool odd = row->outcome != OUTCOME_SETTLED && row->outcome != OUTCOME_EVIDENCE_ONLY;
    if (row->outcome == OUTCOME_CONTRADICTION) {
        metric_add(METRIC_CONTRADICTIONS, LABELS(tool), 1);
    }
    log_event(odd ? LOG_ERROR : LOG_INFO, "reconcile.converged",
              LOG_SPAN("operation_id", fact->operation_id), LOG_UUID("run_id", row->run_id),
              LOG_SPAN("verdict", fact->verdict), LOG_SPAN("by", fact->by),
              LOG_OUTCOME(row->outcome), LOG_SPAN("status", row->status));
}

void converged_wake(struct outbox *outbox, const struct ledger_recorded *rows, size_t n,
                    struct arena *arena)
{
    for (size_t i = 0; i < n; i++) {
        bool told = false;
        for (size_t k = 0; k < i && !told; k++) {
            told = rows[k].woke && uuid_eq(rows[k].run_id, rows[i].run_id);
        }
        if (rows[i].woke && !told) {
            outbox_send_wakeup(outbox, rows[i].run_id, rows[i].epoch + 1, arena);
        }
    }
}

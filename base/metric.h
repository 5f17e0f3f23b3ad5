/* Counters, gauges and histograms, declared in metric.tbl.h and written as OpenMetrics text.
 *
 *   metric_add(METRIC_LEASE_ACQUIRE, LABELS("acquired"), 1);
 *
 * Label values come from small closed sets (outcome words, tool and handler names, topics); never a
 * task, run or operation. A metric keeps at most METRIC_SERIES series; what comes later is counted
 * under "other".
 * Thread: any; lock-free except for the first use of a label value. */
#ifndef HOLDFAST_BASE_METRIC_H
#define HOLDFAST_BASE_METRIC_H

#include <stdint.h>

#include "base/text.h"

enum metric_id {
#define METRIC(kind, id, name, labels, help) METRIC_##id,
#include "base/metric.tbl.h"
#undef METRIC
    METRIC_COUNT
};

#define METRIC_SERIES 128

struct metric_labels {
    const char *v[2];
};

#define NO_LABELS ((struct metric_labels){{NULL, NULL}})
#define LABELS(...) ((struct metric_labels){{__VA_ARGS__}}) /* as many as the table names */

void metric_add(enum metric_id id, struct metric_labels labels, uint64_t n); /* counter */
void metric_set(enum metric_id id, struct metric_labels labels, double v);   /* gauge */
void metric_move(enum metric_id id, struct metric_labels labels, double by); /* gauge, up or down */
void metric_observe(enum metric_id id, struct metric_labels labels, double seconds); /* histogram */

/* Current value of a counter or gauge, count of a histogram; 0 for a series never touched. For
 * tests and summaries. */
double metric_read(enum metric_id id, struct metric_labels labels);

/* Drops the series of a gauge, so that what no longer exists (a tool, a partition) is not shown for
 * ever. */
void metric_forget(enum metric_id id);

/* Appends the whole exposition, "# EOF" included. Content type: METRIC_CONTENT_TYPE. */
#define METRIC_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"
void metric_write(struct text *t);

#endif

/* Memory that is there or the process ends. Everything that matters is in PostgreSQL and Kafka, so
 * a pod without memory is better dead than half alive: its leases run out and another pod takes
 * over.
 *
 * Thread: any. Sizes are checked for overflow. */
#ifndef HOLDFAST_BASE_MEMORY_H
#define HOLDFAST_BASE_MEMORY_H

#include <stddef.h>

#include "base/check.h"

MUST_CHECK void *memory_new(size_t count, size_t size); /* zeroed; free() it */
MUST_CHECK void *memory_resize(void *p, size_t count, size_t size);
MUST_CHECK char *memory_copy_text(const char *s);            /* NULL stays NULL */
MUST_CHECK char *memory_copy_bytes(const void *p, size_t n); /* with a terminating zero */

/* For CLEANUP on a pointer variable: frees what it points to. */
void memory_drop(void *pointer_variable);

#endif

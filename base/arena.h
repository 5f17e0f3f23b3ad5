/* Memory with one end of life: one message, one batch, one arena.
 *
 * Ownership: everything handed out belongs to the arena and is valid until arena_reset or
 * arena_free. Alignment fits every type. Memory is zeroed. Out of memory ends the process
 * (memory.h).
 * Thread: one at a time; an arena moves with its message. */
#ifndef HOLDFAST_BASE_ARENA_H
#define HOLDFAST_BASE_ARENA_H

#include <stdarg.h>

#include "base/check.h"
#include "base/span.h"

struct arena;

MUST_CHECK struct arena *arena_new(void);
MUST_CHECK void *arena_alloc(struct arena *arena, size_t n);
MUST_CHECK void *arena_array(struct arena *arena, size_t count, size_t size);

/* A copy with a terminating zero behind it; absent stays absent. */
MUST_CHECK struct span arena_dup(struct arena *arena, struct span s);
MUST_CHECK char *arena_dup_text(struct arena *arena, struct span s);
MUST_CHECK char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
MUST_CHECK char *arena_vprintf(struct arena *arena, const char *format, va_list args)
    PRINTF_LIKE(2, 0);

/* Calls fn(p) at the next reset or free: ties something foreign (a database result, a parsed
 * document) to this life. Run in reverse order of registration. */
void arena_defer(struct arena *arena, void (*fn)(void *), void *p);

/* Forgets everything but keeps the first block for the next use. */
void arena_reset(struct arena *arena);
void arena_free(struct arena *arena);  /* NULL is fine */
void arena_drop(struct arena **arena); /* for CLEANUP */

#endif

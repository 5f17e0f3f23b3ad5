/* A growable buffer of bytes, always followed by a zero once something was added.
 *
 * Ownership: the buffer owns p until text_free or text_take. Start with TEXT_EMPTY. Out of memory
 * ends the process.
 * Thread: one at a time. */
#ifndef HOLDFAST_BASE_TEXT_H
#define HOLDFAST_BASE_TEXT_H

#include <stdarg.h>

#include "base/check.h"
#include "base/span.h"

struct text {
    char *p;
    size_t n;
    size_t cap;
};

#define TEXT_EMPTY ((struct text){NULL, 0, 0})

void text_add(struct text *t, const void *p, size_t n);
void text_add_str(struct text *t, const char *s);
void text_add_span(struct text *t, struct span s);
void text_add_char(struct text *t, char c);
void text_addf(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);
void text_vaddf(struct text *t, const char *format, va_list args) PRINTF_LIKE(2, 0);

/* Appends s as the inside of a JSON string (without the quotes): quotes, backslashes and control
 * characters escaped, bytes that are not UTF-8 replaced by U+FFFD. */
void text_add_json(struct text *t, struct span s);

/* Room for n more bytes; returns where they go. The caller writes them and adds to t->n. */
MUST_CHECK char *text_reserve(struct text *t, size_t n);

void text_reset(struct text *t);            /* empty, memory kept */
void text_free(struct text *t);             /* for CLEANUP too; empty again and usable */
MUST_CHECK char *text_take(struct text *t); /* the caller frees it; never NULL */

/* Never absent: an empty buffer is the empty span. Borrowed until the next change. */
static inline struct span text_span(const struct text *t)
{
    return (struct span){t->p ? t->p : "", t->n};
}

#endif

/* Borrowed bytes. Somebody else owns p; it need not end with a zero. p == NULL means "absent" (SQL
 * NULL, no header), which is not the same as n == 0. */
#ifndef HOLDFAST_BASE_SPAN_H
#define HOLDFAST_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct span {
    const char *p;
    size_t n;
};

#define SPAN_LIT(literal) ((struct span){("" literal), sizeof(literal) - 1})
#define SPAN_NULL ((struct span){NULL, 0})
/* For printf: "%.*s", SPAN_ARG(s) */
#define SPAN_ARG(s) (int)(s).n, ((s).p ? (s).p : "")

static inline struct span span_of(const char *text)
{
    return (struct span){text, text ? strlen(text) : 0};
}

static inline bool span_is_null(struct span s)
{
    return s.p == NULL;
}

/* Two absent spans are equal; an absent one never equals an empty one. */
static inline bool span_eq(struct span a, struct span b)
{
    if (a.p == NULL || b.p == NULL)
        return a.p == b.p;
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool span_eq_text(struct span a, const char *b)
{
    return span_eq(a, span_of(b));
}

static inline bool span_starts_with(struct span s, struct span prefix)
{
    return s.p != NULL && s.n >= prefix.n &&
           (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

/* Order of bytes, shorter first where one begins the other; an absent span comes first. */
int span_order(struct span a, struct span b);

#endif

#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

char *text_reserve(struct text *t, size_t n)
{
    CHECK(n < SIZE_MAX / 4 && t->n < SIZE_MAX / 4);
    size_t want = t->n + n + 1;
    if (want > t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 64;
        while (cap < want)
            cap *= 2;
        t->p = memory_resize(t->p, cap, 1);
        t->cap = cap;
    }
    return t->p + t->n;
}

void text_add(struct text *t, const void *p, size_t n)
{
    char *to = text_reserve(t, n);
    if (n > 0)
        memcpy(to, p, n);
    t->n += n;
    t->p[t->n] = '\0';
}

void text_add_str(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_add_span(struct text *t, struct span s)
{
    text_add(t, s.p, s.n);
}

void text_add_char(struct text *t, char c)
{
    text_add(t, &c, 1);
}

void text_vaddf(struct text *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    CHECK(n >= 0);
    char *to = text_reserve(t, (size_t)n);
    n = vsnprintf(to, (size_t)n + 1, format, again);
    va_end(again);
    CHECK(n >= 0);
    t->n += (size_t)n;
}

void text_addf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vaddf(t, format, args);
    va_end(args);
}

/* Length of the UTF-8 sequence at s, 0 if it is none: overlong forms, surrogates and numbers beyond
 * U+10FFFF are none. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    unsigned char c = s[0];
    size_t n = c < 0x80                 ? 1
               : c >= 0xC2 && c <= 0xDF ? 2
               : c >= 0xE0 && c <= 0xEF ? 3
               : c >= 0xF0 && c <= 0xF4 ? 4
                                        : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F) || (c == 0xF0 && s[1] < 0x90) ||
        (c == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static void add_escaped(struct text *t, unsigned char c)
{
    switch (c) {
    case '"':
        text_add_str(t, "\\\"");
        break;
    case '\\':
        text_add_str(t, "\\\\");
        break;
    case '\n':
        text_add_str(t, "\\n");
        break;
    case '\r':
        text_add_str(t, "\\r");
        break;
    case '\t':
        text_add_str(t, "\\t");
        break;
    default:
        text_addf(t, "\\u%04x", c);
    }
}

void text_add_json(struct text *t, struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t plain = 0; /* start of what can be copied as it is */
    size_t i = 0;
    while (i < s.n) {
        size_t n = utf8_length(p + i, s.n - i);
        if (n == 0 || p[i] < 0x20 || p[i] == 0x7F || p[i] == '"' || p[i] == '\\') {
            text_add(t, s.p + plain, i - plain);
            if (n == 0)
                text_add_str(t, "\xEF\xBF\xBD");
            else
                add_escaped(t, p[i]);
            plain = ++i;
        } else {
            i += n;
        }
    }
    if (s.n > plain)
        text_add(t, s.p + plain, s.n - plain);
}

void text_reset(struct text *t)
{
    t->n = 0;
    if (t->p)
        t->p[0] = '\0';
}

void text_free(struct text *t)
{
    free(t->p);
    *t = TEXT_EMPTY;
}

char *text_take(struct text *t)
{
    char *p = t->p ? t->p : memory_copy_text("");
    *t = TEXT_EMPTY;
    return p;
}

#include "base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *there_or_end(void *p, size_t count, size_t size)
{
    if (p == NULL) {
        fprintf(stderr, "holdfast: out of memory (%zu x %zu bytes)\n", count, size);
        abort();
    }
    return p;
}

void *memory_new(size_t count, size_t size)
{
    return there_or_end(calloc(count ? count : 1, size ? size : 1), count, size);
}

void *memory_resize(void *p, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return there_or_end(NULL, count, size);
    size_t bytes = count * size;
    return there_or_end(realloc(p, bytes ? bytes : 1), count, size);
}

char *memory_copy_bytes(const void *p, size_t n)
{
    char *copy = memory_new(n + 1, 1);
    if (n > 0)
        memcpy(copy, p, n);
    return copy;
}

char *memory_copy_text(const char *s)
{
    return s ? memory_copy_bytes(s, strlen(s)) : NULL;
}

void memory_drop(void *pointer_variable)
{
    void *p;
    memcpy(&p, pointer_variable, sizeof(p));
    free(p);
}

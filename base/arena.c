#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

struct block {
    struct block *next;
    size_t size;
    size_t used;
    alignas(max_align_t) char bytes[];
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *);
    void *p;
};

struct arena {
    struct block *current; /* newest first; the last of the list is the first block */
    struct deferred *deferred;
};

static struct block *block_new(size_t size, struct block *next)
{
    struct block *b = memory_new(1, offsetof(struct block, bytes) + size);
    b->size = size;
    b->next = next;
    return b;
}

struct arena *arena_new(void)
{
    struct arena *arena = memory_new(1, sizeof(*arena));
    arena->current = block_new(FIRST_BLOCK, NULL);
    return arena;
}

void *arena_alloc(struct arena *arena, size_t n)
{
    CHECK(n <= SIZE_MAX / 2);
    const size_t align = alignof(max_align_t);
    size_t want = (n + align - 1) / align * align;
    struct block *b = arena->current;
    if (b->size - b->used < want) {
        size_t size = b->size < LARGEST_STEP ? b->size * 2 : LARGEST_STEP;
        b = arena->current = block_new(size > want ? size : want, b);
    }
    void *p = b->bytes + b->used;
    b->used += want;
    return p;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    CHECK(size == 0 || count <= SIZE_MAX / 2 / size);
    return arena_alloc(arena, count * size);
}

char *arena_dup_text(struct arena *arena, struct span s)
{
    if (s.p == NULL)
        return NULL;
    char *copy = arena_alloc(arena, s.n + 1);
    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    return copy;
}

struct span arena_dup(struct arena *arena, struct span s)
{
    return (struct span){arena_dup_text(arena, s), s.n};
}

char *arena_vprintf(struct arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    CHECK(n >= 0);
    char *p = arena_alloc(arena, (size_t)n + 1);
    n = vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    CHECK(n >= 0);
    return p;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *p = arena_vprintf(arena, format, args);
    va_end(args);
    return p;
}

void arena_defer(struct arena *arena, void (*fn)(void *), void *p)
{
    struct deferred *d = arena_alloc(arena, sizeof(*d));
    *d = (struct deferred){arena->deferred, fn, p};
    arena->deferred = d;
}

static void run_deferred(struct arena *arena)
{
    while (arena->deferred) {
        struct deferred *d = arena->deferred;
        arena->deferred = d->next;
        d->fn(d->p);
    }
}

void arena_reset(struct arena *arena)
{
    run_deferred(arena);
    struct block *b = arena->current;
    while (b->next) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
    memset(b->bytes, 0, b->used); /* what is handed out is zeroed */
    b->used = 0;
    arena->current = b;
}

void arena_free(struct arena *arena)
{
    if (arena == NULL)
        return;
    arena_reset(arena);
    free(arena->current);
    free(arena);
}

void arena_drop(struct arena **arena)
{
    arena_free(*arena);
    *arena = NULL;
}

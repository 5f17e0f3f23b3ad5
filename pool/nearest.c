/* nearest: edit distance with transpositions, on two rows of the table. */
#include "pool/nearest.h"

#include <stdint.h>

enum { NAME_MAX_BYTES = 64 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(struct span a, struct span b)
{
    size_t rows[3][NAME_MAX_BYTES + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b.n; j++)
        last[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t cost = a.p[i - 1] == b.p[j - 1] ? 0 : 1;
            now[j] = smaller(smaller(last[j], now[j - 1]) + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                now[j] = smaller(now[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[b.n];
}

struct span nearest_name(struct span wrong, const struct span *names, size_t n)
{
    struct span best = SPAN_NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (wrong.n > NAME_MAX_BYTES || names[i].n > NAME_MAX_BYTES)
            continue;
        size_t d = distance(wrong, names[i]);
        size_t longer = wrong.n > names[i].n ? wrong.n : names[i].n;
        if (d < best_distance && d * 3 <= longer + 1) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

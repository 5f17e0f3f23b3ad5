#include "base/span.h"

int span_order(struct span a, struct span b)
{
    if (a.p == NULL || b.p == NULL)
        return (a.p != NULL) - (b.p != NULL);
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    if (order != 0)
        return order;
    return (a.n > b.n) - (a.n < b.n);
}

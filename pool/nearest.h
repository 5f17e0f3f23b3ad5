/* The known name that a typo most likely meant. Thread: any. */
#ifndef HOLDFAST_POOL_NEAREST_H
#define HOLDFAST_POOL_NEAREST_H

#include <stddef.h>

#include "base/span.h"

/* The null span when nothing is near: more than a third of the letters would have to change. */
struct span nearest_name(struct span wrong, const struct span *names, size_t n);

#endif

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "holdfast: broken rule: %s (%s:%d)\n", expr, file, line);
    abort();
}

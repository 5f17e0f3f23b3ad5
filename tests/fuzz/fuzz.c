/* libFuzzer's entry. FUZZ_TARGET is the function out of targets.h; tests/fuzz/run builds one
 * program for each. */
#include "tests/fuzz/targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *arena;
    if (arena == NULL)
        arena = arena_new();
    FUZZ_TARGET((struct span){(const char *)data, size}, arena);
    arena_reset(arena);
    return 0;
}

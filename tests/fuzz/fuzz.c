/* libFuzzer's entry. HOLDFAST_FUZZ_TARGET names the target out of targets.h; see tests/fuzz/run. */
#include <stdio.h>

#include "tests/fuzz/targets.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fuzz_target *target;
static struct arena *arena;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *name = getenv("HOLDFAST_FUZZ_TARGET");
    for (size_t i = 0; name != NULL && i < COUNT_OF(fuzz_targets); i++)
        if (strcmp(fuzz_targets[i].name, name) == 0)
            target = fuzz_targets[i].run;
    if (target == NULL) {
        fputs("HOLDFAST_FUZZ_TARGET names no target\n", stderr);
        exit(2);
    }
    arena = arena_new();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    target((struct span){(const char *)data, size}, arena);
    arena_reset(arena);
    return 0;
}

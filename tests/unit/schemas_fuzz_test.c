/* The targets of tests/fuzz over their corpus and over a fixed number of its mutations, without a
 * fuzzer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#include "tests/fuzz/targets.h"

enum { LONGEST = 4096, MUTATIONS = 4000 };

struct sample {
    char bytes[LONGEST];
    size_t n;
};

/* xorshift: the same mutations on every machine; HOLDFAST_SEED chooses others. */
static uint64_t random_state;
static size_t below(size_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (size_t)(random_state % n);
}

static void mutate(struct sample *s)
{
    static const char *const pieces[] = {"\"", "\\u0000", "\\ud800", "{",    "[",    "}",   "]",
                                         ":",  ",",       "1e999",   "\xdf", "\xc4", "\xff"};
    for (size_t steps = 1 + below(4); steps > 0; steps--) {
        size_t at = below(s->n + 1), n = below(8) + 1;
        switch (below(4)) {
        case 0: /* change */
            if (at < s->n)
                s->bytes[at] = (char)below(256);
            break;
        case 1: /* cut */
            if (at + n <= s->n) {
                memmove(s->bytes + at, s->bytes + at + n, s->n - at - n);
                s->n -= n;
            }
            break;
        case 2: /* repeat */
            if (at + n <= s->n && s->n + n <= LONGEST) {
                memmove(s->bytes + at + n, s->bytes + at, s->n - at);
                s->n += n;
            }
            break;
        default: { /* insert */
            const char *piece = pieces[below(COUNT_OF(pieces))];
            n = strlen(piece);
            if (s->n + n <= LONGEST) {
                memmove(s->bytes + at + n, s->bytes + at, s->n - at);
                memcpy(s->bytes + at, piece, n);
                s->n += n;
            }
        }
        }
    }
}

static void run(fuzz_target *target, const struct sample *s, struct arena *arena)
{
    /* A copy of exactly this size, so that the address sanitizer sees a read behind the end. */
    char *bytes = malloc(s->n > 0 ? s->n : 1);
    assert_non_null(bytes);
    memcpy(bytes, s->bytes, s->n);
    target((struct span){bytes, s->n}, arena);
    free(bytes);
    arena_reset(arena);
}

static void run_file(fuzz_target *target, const char *path, struct arena *arena)
{
    static struct sample sample, mutated;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    sample.n = fread(sample.bytes, 1, LONGEST, file);
    fclose(file);
    run(target, &sample, arena);
    for (int i = 0; i < MUTATIONS; i++) {
        mutated = sample;
        mutate(&mutated);
        run(target, &mutated, arena);
    }
}

static void corpus(void **state)
{
    size_t index = *(size_t *)*state;
    const char *seed = getenv("HOLDFAST_SEED");
    random_state = 88172645463325252ULL ^ (seed != NULL ? strtoull(seed, NULL, 10) : 0);
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    char folder[512], path[1024];
    snprintf(folder, sizeof(folder), SOURCE_DIR "/tests/fuzz/corpus/%s", fuzz_targets[index].name);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        run_file(fuzz_targets[index].run, path, arena);
        files++;
    }
    closedir(dir);
    assert_true(files >= 3);
}

int main(void)
{
    static size_t indexes[COUNT_OF(fuzz_targets)];
    struct CMUnitTest tests[COUNT_OF(fuzz_targets)];
    for (size_t i = 0; i < COUNT_OF(fuzz_targets); i++) {
        indexes[i] = i;
        tests[i] = (struct CMUnitTest){fuzz_targets[i].name, corpus, NULL, NULL, &indexes[i]};
    }
    return cmocka_run_group_tests_name("fuzz corpus", tests, NULL, NULL);
}

/* Damaged configuration files: loaded or refused with a reason, never worse. The damage is the same in
 * every run; HOLDFAST_SEED changes it. The address preset watches the memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "config/config.h"

enum { ROUNDS = 400, LARGEST = 65536 };

static uint32_t dice_state;
static size_t dice(size_t sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

static const char good[] = "[lease]\nttl_ms = 20000 ; comment\n[tool.pay]\nurl = https://x/y\n"
                           "capability = idempotency_key\nretention_ms = 50000\nheader.X-A = 1\n"
                           "final_statuses = 400-410,422\n[handler.h]\ncommand = python3 a.py\n  --fast\n"
                           "[kafka]\nbootstrap.servers = a:1\nconsumer.fetch.min.bytes = 1\n"
                           "[admin]\nlisten = 127.0.0.1:0\ntoken = t\n[redis]\nurl = redis://h\n";

static size_t damage(char *text, size_t n)
{
    static const char loved[] = "[]=;.\n\t #-\0,:0";
    for (size_t times = 1 + dice(4); times > 0; times--) {
        size_t at = dice(n), length = dice(n - at < 40 ? n - at : 40);
        switch (dice(3)) {
        case 0:
            text[at] = loved[dice(sizeof(loved) - 1)];
            break;
        case 1: /* cut something out */
            memmove(text + at, text + at + length, n - at - length);
            n -= length;
            break;
        default: /* and say something twice */
            memmove(text + at + length, text + at, n - at);
            n += length;
        }
    }
    return n;
}

static void damaged_files_are_refused_in_words(void **state)
{
    (void)state;
    const char *seed = getenv("HOLDFAST_SEED");
    dice_state = seed ? (uint32_t)strtoul(seed, NULL, 10) : 1;
    int fd = memfd_create("config", 0);
    assert_true(fd >= 0);
    char path[64], *text CLEANUP(memory_drop) = memory_new(LARGEST, 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int loaded = 0;
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, good, sizeof(good) - 1);
        size_t n = round ? damage(text, sizeof(good) - 1) : sizeof(good) - 1;
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, text, n, 0), (ssize_t)n);
        struct config_source source = {path, NULL, 0, NULL};
        struct text words CLEANUP(text_free) = TEXT_EMPTY;
        struct config *cfg CLEANUP(config_drop) = NULL;
        if (config_load(&source, &cfg, &words)) {
            loaded++;
            config_print(cfg, &words);
        }
        assert_true(words.n > 0 && words.p[words.n - 1] == '\n');
    }
    close(fd);
    assert_true(loaded > 0 && loaded < ROUNDS); /* the damage is neither nothing nor everything */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_files_are_refused_in_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

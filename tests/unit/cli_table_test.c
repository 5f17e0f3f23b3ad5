// The command table: what is printed from it is complete and equals docs/CLI.md.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

static char *printed(void (*print)(FILE *))
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    print(out);
    fclose(out);
    return text;
}

static void docs_equal_the_table(void **state)
{
    (void)state;
    FILE *in = fopen(SOURCE_DIR "/docs/CLI.md", "r");
    assert_non_null(in);
    static char file[1 << 17];
    size_t n = fread(file, 1, sizeof file - 1, in);
    fclose(in);
    file[n] = '\0';
    char *text = printed(help_markdown);
    assert_string_equal(file, text); // else: holdfast docs > docs/CLI.md
    free(text);
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (const struct command *c = command_table; c->name != NULL; c++) {
        assert_non_null(c->run);
        assert_true(c->min_arguments <= c->max_arguments);
        assert_int_not_equal(c->sentence[strlen(c->sentence) - 1], '.');
        assert_non_null(c->examples);
        assert_non_null(c->examples->line);
        for (const struct example_row *e = c->examples; e->line != NULL; e++)
            assert_non_null(strstr(e->line, "holdfast "));
        for (const struct command *other = c + 1; other->name != NULL; other++)
            assert_string_not_equal(c->name, other->name);
    }
}

static void no_letter_means_two_things(void **state)
{
    (void)state;
    for (const struct command *c = command_table; c->name != NULL; c++) {
        const struct option_row *lists[] = {c->options, command_common_options};
        char seen[128] = {0};
        for (size_t l = 0; l < 2; l++)
            for (const struct option_row *row = lists[l]; row != NULL && row->name != NULL; row++) {
                if (row->letter == 0)
                    continue;
                assert_int_equal(seen[(int)row->letter], 0);
                seen[(int)row->letter] = 1;
            }
    }
}

static int run_words(const char *a, const char *b, const char *c)
{
    char words[4][64] = {"holdfast", "", "", ""};
    char *argv[5] = {words[0], words[1], words[2], words[3], NULL};
    const char *given[] = {a, b, c};
    int argc = 1;
    for (; argc < 4 && given[argc - 1] != NULL; argc++)
        snprintf(words[argc], sizeof words[argc], "%s", given[argc - 1]);
    argv[argc] = NULL;
    return command_main(argc, argv);
}

static void wrong_use_is_two_and_help_is_zero(void **state)
{
    (void)state;
    assert_int_equal(run_words("--version", NULL, NULL), EXIT_HOLDS);
    assert_int_equal(run_words("--help", NULL, NULL), EXIT_HOLDS);
    assert_int_equal(run_words("help", "topics", NULL), EXIT_HOLDS);
    assert_int_equal(run_words("topics", "--help", NULL), EXIT_HOLDS);
    assert_int_equal(run_words("topics", NULL, NULL), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("topics", "apply", "--help"), EXIT_HOLDS);
    assert_int_equal(run_words("shwo", NULL, NULL), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("show", NULL, NULL), EXIT_CANNOT_RUN); // argument missing
    assert_int_equal(run_words("docs", "surplus", NULL), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("docs", "--no-such", NULL), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("migrate", "--shards", NULL), EXIT_CANNOT_RUN); // value missing
    assert_int_equal(run_words("up", "--pods", "many"), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("docs", "--json", NULL), EXIT_CANNOT_RUN); // has none
    assert_int_equal(run_words("completion", "fish", NULL), EXIT_CANNOT_RUN);
    assert_int_equal(run_words("completion", "bash", NULL), EXIT_HOLDS);
    for (const struct command *c = command_table; c->name != NULL; c++) {
        char first[32], *second;
        snprintf(first, sizeof first, "%s", c->name);
        second = strchr(first, ' ');
        if (second != NULL)
            *second++ = '\0';
        assert_int_equal(second != NULL ? run_words(first, second, "--help")
                                        : run_words(first, "--help", NULL),
                         EXIT_HOLDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(docs_equal_the_table),
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(no_letter_means_two_things),
        cmocka_unit_test(wrong_use_is_two_and_help_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

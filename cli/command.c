// Finds the row for what was typed, reads its options, and calls its function.
#include "cli/command.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GIVEN = 256, MAX_OPTIONS = 64, LETTER_FREE = 1000 };

struct given {
    const struct option_row *row;
    const char *value; // NULL for a flag
};

struct invocation {
    const struct command *command;
    const char *program;
    struct given given[MAX_GIVEN];
    size_t given_n;
    char **arguments;
    size_t arguments_n;
};

const struct option_row command_common_options[] = {
    {"config", 'c', "FILE", "read configuration from FILE (default: $HOLDFAST_CONFIG, else none)"},
    {"set", 's', "SECTION.NAME=VALUE",
     "set one option; may be repeated; wins over file and environment"},
    {"json", 'j', NULL, "print JSON for scripts (where the command has it)"},
    {"help", 'h', NULL, "show this help"},
    {0},
};

void say_error(const char *fix, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("holdfast: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    if (fix != NULL)
        fprintf(stderr, "  to fix it: %s\n", fix);
}

int say_usage(const struct invocation *inv, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("holdfast: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n  see: holdfast %s --help\n", inv->command->name);
    return EXIT_CANNOT_RUN;
}

const struct command *invocation_command(const struct invocation *inv)
{
    return inv->command;
}

const char *invocation_program(const struct invocation *inv)
{
    return inv->program;
}

const char *invocation_value(const struct invocation *inv, const char *option)
{
    for (size_t i = inv->given_n; i-- > 0;)
        if (strcmp(inv->given[i].row->name, option) == 0)
            return inv->given[i].value;
    return NULL;
}

bool invocation_flag(const struct invocation *inv, const char *option)
{
    for (size_t i = 0; i < inv->given_n; i++)
        if (strcmp(inv->given[i].row->name, option) == 0)
            return true;
    return false;
}

void invocation_each(const struct invocation *inv, const char *option,
                     void (*fn)(const char *value, void *opaque), void *opaque)
{
    for (size_t i = 0; i < inv->given_n; i++)
        if (strcmp(inv->given[i].row->name, option) == 0)
            fn(inv->given[i].value, opaque);
}

size_t invocation_count(const struct invocation *inv)
{
    return inv->arguments_n;
}

const char *invocation_argument(const struct invocation *inv, size_t i)
{
    return i < inv->arguments_n ? inv->arguments[i] : NULL;
}

bool invocation_integer(const struct invocation *inv, const char *option, long min, long max,
                        long *ret_value)
{
    const char *text = invocation_value(inv, option);
    if (text == NULL)
        return true;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max) {
        say_usage(inv, "--%s must be a whole number from %ld to %ld, not \"%s\"", option, min, max,
                  text);
        return false;
    }
    *ret_value = value;
    return true;
}

// The option rows of a command and the common ones, as getopt wants them; index i belongs to
// ret_rows[i].
static int getopt_tables(const struct command *command, struct option *ret_long, char *ret_short,
                         const struct option_row **ret_rows)
{
    const struct option_row *lists[] = {command->options, command_common_options};
    int n = 0;
    char *letters = ret_short;
    *letters++ = ':'; // a missing value is told apart from an unknown option
    for (size_t l = 0; l < 2; l++) {
        for (const struct option_row *row = lists[l]; row != NULL && row->name != NULL; row++) {
            if (n == MAX_OPTIONS)
                abort();
            ret_rows[n] = row;
            ret_long[n] =
                (struct option){row->name, row->value != NULL ? required_argument : no_argument,
                                NULL, LETTER_FREE + n};
            n++;
            if (row->letter != 0) {
                *letters++ = row->letter;
                if (row->value != NULL)
                    *letters++ = ':';
            }
        }
    }
    *letters = '\0';
    ret_long[n] = (struct option){0};
    return n;
}

static const struct option_row *row_of(int code, const struct option_row **rows, int n)
{
    if (code >= LETTER_FREE && code < LETTER_FREE + n)
        return rows[code - LETTER_FREE];
    for (int i = 0; i < n; i++)
        if (rows[i]->letter == code)
            return rows[i];
    return NULL;
}

static bool read_options(struct invocation *inv, int argc, char **argv)
{
    struct option long_options[MAX_OPTIONS + 1];
    char short_options[2 * MAX_OPTIONS + 2];
    const struct option_row *rows[MAX_OPTIONS];
    int n = getopt_tables(inv->command, long_options, short_options, rows);
    opterr = 0;
    optind = 1;
    for (;;) {
        int at = optind;
        int code = getopt_long(argc, argv, short_options, long_options, NULL);
        if (code == -1)
            break;
        if (code == '?' || code == ':') {
            const char *typed = at < argc ? argv[at] : "?";
            say_usage(inv, code == ':' ? "option %s needs a value" : "unknown option %s", typed);
            return false;
        }
        if (inv->given_n == MAX_GIVEN) {
            say_usage(inv, "more than %d options", MAX_GIVEN);
            return false;
        }
        inv->given[inv->given_n++] = (struct given){row_of(code, rows, n), optarg};
    }
    inv->arguments = argv + optind;
    inv->arguments_n = (size_t)(argc - optind);
    return true;
}

// Words a command name and argv have in common: "topics apply" against argv[1..]. 0: not this
// command.
static int words_matched(const char *name, int argc, char **argv)
{
    int words = 0;
    const char *at = name;
    while (*at != '\0') {
        size_t length = strcspn(at, " ");
        if (1 + words >= argc || strlen(argv[1 + words]) != length ||
            strncmp(argv[1 + words], at, length) != 0)
            return 0;
        words++;
        at += length;
        at += *at == ' ';
    }
    return words;
}

static const struct command *find(int argc, char **argv, int *ret_words)
{
    for (const struct command *c = command_table; c->name != NULL; c++) {
        int words = words_matched(c->name, argc, argv);
        if (words > 0) {
            *ret_words = words;
            return c;
        }
    }
    return NULL;
}

static bool is_group(const char *word)
{
    size_t n = strlen(word);
    for (const struct command *c = command_table; c->name != NULL; c++)
        if (strncmp(c->name, word, n) == 0 && c->name[n] == ' ')
            return true;
    return false;
}

// Edit distance, for "did you mean"; both words are short.
static size_t distance(const char *a, const char *b)
{
    enum { WIDEST = 32 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= WIDEST || m >= WIDEST)
        return WIDEST;
    size_t row[WIDEST + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

static int unknown_command(const char *typed)
{
    const char *nearest = NULL;
    size_t best = 4; // further away than this is no suggestion
    for (const struct command *c = command_table; c->name != NULL; c++) {
        size_t d = distance(typed, c->name);
        if (d < best) {
            best = d;
            nearest = c->name;
        }
    }
    fprintf(stderr, "holdfast: there is no command \"%s\"\n", typed);
    if (nearest != NULL)
        fprintf(stderr, "  did you mean: holdfast %s\n", nearest);
    fprintf(stderr, "  see: holdfast --help\n");
    return EXIT_CANNOT_RUN;
}

// What is answered without a command: nothing at all, --help, --version, a group's name.
static int without_command(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (word == NULL) {
        help_overview(stderr);
        return EXIT_CANNOT_RUN;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("holdfast %s\n", HOLDFAST_VERSION);
        return EXIT_HOLDS;
    }
    bool help = strcmp(word, "help") == 0;
    if (help || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        int words;
        const struct command *c = find(argc - 1, argv + 1, &words);
        if (c != NULL)
            help_command(stdout, c);
        else if (argc > 2 && is_group(argv[2]))
            help_group(stdout, argv[2]);
        else if (argc > 2)
            return unknown_command(argv[2]);
        else
            help_overview(stdout);
        return EXIT_HOLDS;
    }
    if (is_group(word)) {
        bool asked = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);
        if (argc > 2 && !asked)
            fprintf(stderr, "holdfast: \"%s\" has no command \"%s\"\n", word, argv[2]);
        help_group(asked ? stdout : stderr, word);
        return asked ? EXIT_HOLDS : EXIT_CANNOT_RUN;
    }
    return unknown_command(word);
}

int command_main(int argc, char **argv)
{
    int words = 0;
    const struct command *command = find(argc, argv, &words);
    if (command == NULL)
        return without_command(argc, argv);
    struct invocation inv = {.command = command, .program = argv[0]};
    // getopt starts after its first word, so the last word of the name stands for the program.
    if (!read_options(&inv, argc - words, argv + words))
        return EXIT_CANNOT_RUN;
    if (invocation_flag(&inv, "help")) {
        help_command(stdout, command);
        return EXIT_HOLDS;
    }
    if (invocation_flag(&inv, "json") && !command->json)
        return say_usage(&inv, "this command has no --json");
    if (inv.arguments_n < (size_t)command->min_arguments)
        return say_usage(&inv, "%s is missing", command->arguments);
    if (inv.arguments_n > (size_t)command->max_arguments)
        return say_usage(&inv, "unexpected argument \"%s\"", inv.arguments[command->max_arguments]);
    int code = command->run(&inv);
    if (fflush(stdout) != 0 && code == EXIT_HOLDS) {
        say_error("free the disk, or check what reads the output", "standard output: %s",
                  strerror(errno));
        code = EXIT_CANNOT_RUN;
    }
    return code;
}

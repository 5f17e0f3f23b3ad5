// The command table: each command is one row (name, arguments, function, sentence, options,
// examples).
//
// Purpose: parsing, --help at every level, docs/CLI.md, shell completion and dispatch are all made
// from the
//          rows in table.c, so that none of them can disagree with another.
// Ownership: rows are static. An invocation borrows argv; what it owns is freed by command_main().
// Threads: main only.
// Exit codes: 0 done, or the answer is yes; 1 ran, and the answer is no (refused, check failed);
//             2 could not run (usage, configuration, a service that cannot be reached).
#ifndef HOLDFAST_CLI_COMMAND_H
#define HOLDFAST_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum exit_code { EXIT_HOLDS = 0, EXIT_HOLDS_NOT = 1, EXIT_CANNOT_RUN = 2 };

struct option_row {
    const char *name;     // long name without dashes
    char letter;          // short form, or 0
    const char *value;    // what the value is called in the help; NULL: a flag
    const char *sentence; // lower case, no full stop
};

struct example_row {
    const char *line; // what to type after the shell's prompt
    const char *says; // what it does
};

struct invocation;

struct command {
    const char *name;      // one or two words: "run", "topics apply"
    const char *arguments; // as printed: "TASK|RUN", "" when there are none
    int min_arguments;
    int max_arguments;
    int (*run)(struct invocation *);
    const char *sentence;
    const char *detail; // a paragraph for --help, or NULL
    const struct option_row *options;
    const struct example_row *examples;
    bool json; // has a form for scripts; where not, --json is refused
};

// The rows, in the order in which the help shows them. Ends with a row whose name is NULL.
extern const struct command command_table[];
// Options that every command understands. Ends with a row whose name is NULL.
extern const struct option_row command_common_options[];

int command_main(int argc, char **argv);

// What the user typed. Values are NULL when the option was not given; the last of a repeated one
// wins.
const struct command *invocation_command(const struct invocation *inv);
const char *invocation_value(const struct invocation *inv, const char *option);
bool invocation_flag(const struct invocation *inv, const char *option);
size_t invocation_count(const struct invocation *inv);
const char *invocation_argument(const struct invocation *inv, size_t i);
// Calls fn for every value of a repeated option, in the order typed.
void invocation_each(const struct invocation *inv, const char *option,
                     void (*fn)(const char *value, void *opaque), void *opaque);
const char *invocation_program(const struct invocation *inv); // argv[0]

// A whole number with a range; prints a usage error that names option and range.
bool invocation_integer(const struct invocation *inv, const char *option, long min, long max,
                        long *ret_value);

// Help and its printed forms (help.c).
void help_overview(FILE *out);
void help_group(FILE *out, const char *group);
void help_command(FILE *out, const struct command *command);
void help_markdown(FILE *out);
void help_completion_bash(FILE *out);

// An error on standard error: what happened, then what to do about it. Both end without a full stop
// or newline.
void say_error(const char *fix, const char *format, ...) __attribute__((format(printf, 2, 3)));
// The same for wrong use of a command; points to --help. Returns EXIT_CANNOT_RUN.
int say_usage(const struct invocation *inv, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

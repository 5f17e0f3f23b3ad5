// Help at every level, docs/CLI.md and the shell's completion, all printed from the command table.
#include "cli/command.h"

#include <string.h>

enum { COLUMN = 28 };

static const char exit_codes[] =
    "Exit codes: 0 done, or the answer is yes; 1 it ran and the answer is no;\n"
    "            2 it could not run (usage, configuration, a service out of reach).\n";

static void print_row(FILE *out, const struct option_row *row)
{
    char left[128];
    int n = row->letter != 0 ? snprintf(left, sizeof left, "  -%c, --%s", row->letter, row->name)
                             : snprintf(left, sizeof left, "      --%s", row->name);
    if (row->value != NULL && n > 0 && (size_t)n < sizeof left)
        snprintf(left + n, sizeof left - (size_t)n, " %s", row->value);
    if (strlen(left) > COLUMN)
        fprintf(out, "%s\n%*s  %s\n", left, COLUMN, "", row->sentence);
    else
        fprintf(out, "%-*s  %s\n", COLUMN, left, row->sentence);
}

static void print_options(FILE *out, const struct option_row *rows)
{
    for (; rows != NULL && rows->name != NULL; rows++)
        print_row(out, rows);
}

static void print_sentence(FILE *out, const struct command *c)
{
    char left[96];
    snprintf(left, sizeof left, "  %s%s%s", c->name, *c->arguments ? " " : "", c->arguments);
    fprintf(out, "%-*s  %s\n", COLUMN, left, c->sentence);
}

// The sentence as a sentence.
static void print_capital(FILE *out, const struct command *c)
{
    int first = c->sentence[0];
    fprintf(out, "%c%s.\n", first >= 'a' && first <= 'z' ? first - 'a' + 'A' : first,
            c->sentence + 1);
}

void help_overview(FILE *out)
{
    fprintf(out,
            "holdfast %s: runs tasks from Kafka; a stale worker cannot write, and what is not "
            "known is\n"
            "never guessed.\n\nusage: holdfast COMMAND [OPTIONS] [ARGUMENTS]\n\ncommands:\n",
            HOLDFAST_VERSION);
    for (const struct command *c = command_table; c->name != NULL; c++)
        print_sentence(out, c);
    fprintf(out, "\noptions of every command:\n");
    print_options(out, command_common_options);
    fprintf(out, "  -V, --version%*s  print the version\n\n", COLUMN - 15, "");
    fprintf(out,
            "examples:\n"
            "  holdfast up                            a whole local stack, until Ctrl-C\n"
            "  holdfast submit --task t1 --input '{\"steps\":[]}' && holdfast show t1\n"
            "  holdfast COMMAND --help                more about a command, with examples\n\n%s",
            exit_codes);
}

void help_group(FILE *out, const char *group)
{
    size_t n = strlen(group);
    fprintf(out, "usage: holdfast %s COMMAND\n\ncommands:\n", group);
    for (const struct command *c = command_table; c->name != NULL; c++)
        if (strncmp(c->name, group, n) == 0 && c->name[n] == ' ')
            print_sentence(out, c);
    fprintf(out, "\nholdfast %s COMMAND --help shows examples.\n", group);
}

void help_command(FILE *out, const struct command *c)
{
    fprintf(out, "usage: holdfast %s [OPTIONS]%s%s\n\n", c->name, *c->arguments ? " " : "",
            c->arguments);
    print_capital(out, c);
    if (c->detail != NULL)
        fprintf(out, "\n%s\n", c->detail);
    fprintf(out, "\noptions:\n");
    print_options(out, c->options);
    for (const struct option_row *row = command_common_options; row->name != NULL; row++)
        if (c->json || strcmp(row->name, "json") != 0)
            print_row(out, row);
    if (c->examples != NULL && c->examples->line != NULL) {
        fprintf(out, "\nexamples:\n");
        for (const struct example_row *e = c->examples; e->line != NULL; e++)
            fprintf(out, "  %s\n      %s\n", e->line, e->says);
    }
    fprintf(out, "\n%s", exit_codes);
}

// A table cell: a bar would end it.
static void cell(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void markdown_options(FILE *out, const struct option_row *rows)
{
    for (; rows != NULL && rows->name != NULL; rows++) {
        fputs("| `", out);
        if (rows->letter != 0)
            fprintf(out, "-%c`, `", rows->letter);
        fprintf(out, "--%s", rows->name);
        if (rows->value != NULL) {
            fputc(' ', out);
            cell(out, rows->value);
        }
        fputs("` | ", out);
        cell(out, rows->sentence);
        fputs(" |\n", out);
    }
}

void help_markdown(FILE *out)
{
    fputs("# Commands\n\n"
          "Printed from the command table by `holdfast docs`; a test compares it. Change "
          "`cli/table.c`,\n"
          "not this file.\n\n",
          out);
    fprintf(out, "%s\n", exit_codes);
    fputs("\nOptions of every command:\n\n| option | |\n|---|---|\n", out);
    markdown_options(out, command_common_options);
    for (const struct command *c = command_table; c->name != NULL; c++) {
        fprintf(out, "\n## holdfast %s%s%s\n\n", c->name, *c->arguments ? " " : "", c->arguments);
        print_capital(out, c);
        if (c->detail != NULL)
            fprintf(out, "\n%s\n", c->detail);
        if (c->options != NULL && c->options->name != NULL) {
            fputs("\n| option | |\n|---|---|\n", out);
            markdown_options(out, c->options);
        }
        if (c->examples == NULL || c->examples->line == NULL)
            continue;
        fputs("\n```sh\n", out);
        for (const struct example_row *e = c->examples; e->line != NULL; e++)
            fprintf(out, "# %s\n%s\n", e->says, e->line);
        fputs("```\n", out);
    }
}

void help_completion_bash(FILE *out)
{
    fputs(
        "# holdfast completion bash > /etc/bash_completion.d/holdfast\n"
        "_holdfast() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} line=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\" words=\n"
        "    case \"$line\" in\n",
        out);
    for (const struct command *c = command_table; c->name != NULL; c++) {
        fprintf(out, "    \"%s\"*) words=\"", c->name);
        const struct option_row *lists[] = {c->options, command_common_options};
        for (size_t l = 0; l < 2; l++)
            for (const struct option_row *row = lists[l]; row != NULL && row->name != NULL; row++)
                fprintf(out, "--%s ", row->name);
        fputs("\" ;;\n", out);
    }
    fputs("    *) words=\"", out);
    for (const struct command *c = command_table; c->name != NULL; c++)
        fprintf(out, "%s ", c->name);
    fputs("--help --version\" ;;\n"
          "    esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -F _holdfast -o default holdfast\n",
          out);
}

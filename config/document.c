#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "config/config_int.h"

static void add_range(struct text *t, const struct option *o)
{
    switch (o->kind) {
    case KIND_INT:
        text_addf(t, "%" PRId64 " to %" PRId64 "%s%s", o->min, o->max, o->unit[0] ? " " : "",
                  o->unit);
        break;
    case KIND_BOOL:
        text_add_str(t, "true, false");
        break;
    case KIND_CHOICE:
        for (const char *p = o->unit; *p; p++)
            text_add(t, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
        break;
    case KIND_STATUSES:
        text_add_str(t, o->min < 100 ? "exit codes, e.g. 64,70-75"
                                     : "HTTP statuses, e.g. 400-404,410");
        break;
    case KIND_TEXT:
        text_add_str(t, "text");
        break;
    }
}

static void add_row(struct text *t, const struct option *o)
{
    text_addf(t, "| `%s` | %s%s%s | ", o->name, o->preset[0] ? "`" : "", o->preset,
              o->preset[0] ? "`" : "");
    add_range(t, o);
    text_addf(t, " | %s.%s%s%s%s |\n", o->sentence, o->flags & REQUIRED ? " Required." : "",
              o->flags & SECRET ? " Secret." : "", o->flags & RELOAD ? " Reloaded on SIGHUP." : "",
              o->flags & DECLARED ? " Declared: stored with each operation." : "");
}

static const char table_head[] = "\n| option | default | values | |\n|---|---|---|---|\n";

static void add_sections(struct text *t, const struct option *options, size_t n, const char *suffix)
{
    const char *section = "";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(section, options[i].section) != 0)
            text_addf(t, "\n## [%s%s]\n%s", options[i].section, suffix, table_head);
        section = options[i].section;
        add_row(t, &options[i]);
    }
}

static const char document_head[] =
    "# Configuration\n"
    "\n"
    "Printed from the option table by `holdfast config docs`; a test compares.\n"
    "\n"
    "An option is set, strongest first, by `--set section.name=value`, by the environment\n"
    "(`HOLDFAST_SECTION_NAME`, or `HOLDFAST_SECTION_NAME_FILE` with the path of a file that holds "
    "the value),\n"
    "by the file, or has its default. `holdfast config print` shows each value and where it came "
    "from.\n"
    "What is not known is an error that names the nearest option, and so is what this version does "
    "not honour.\n"
    "\n"
    "In the file, `;` and `#` begin a comment line, ` ;` begins a comment behind a value, and an "
    "indented line goes\n"
    "on with the value of the line before (a line has at most 198 bytes).\n"
    "\n"
    "These must fit together: `lease.ttl_ms` > 2 × (`lease.heartbeat_ms` + "
    "`lease.heartbeat_timeout_ms`);\n"
    "`dispatch.claim_ttl_ms` > each tool's `timeout_ms`; `sweep.interval_ms` and "
    "`relay.interval_ms` at most half of\n"
    "their leases; `admin.listen` beyond this machine needs `admin.token`.\n";

static const char kafka_section[] =
    "\n## [kafka]\n"
    "\n"
    "Every property of librdkafka, passed on untouched: `bootstrap.servers = …` for all clients,\n"
    "`consumer.fetch.min.bytes = …` and `producer.linger.ms = …` for one kind. In the "
    "environment:\n"
    "`HOLDFAST_KAFKA_BOOTSTRAP_SERVERS`. An unknown or invalid property stops the start with the "
    "client's own words;\n"
    "those that the promises rest on (offset commits, acks, idempotence, transactional id, "
    "isolation level) are refused.\n"
    "`bootstrap.servers` is required.\n";

static const char tool_section[] =
    "\nA tool is a section `[tool.NAME]`; a plan's step names it. Besides these, `header.X = "
    "value` sends the header X\n"
    "with every request. A handler is a section `[handler.NAME]`; a submission names it. The "
    "handler `plan` is built\n"
    "in. Neither can be set from the environment; `--set tool.pay.url=…` works. What a tool's "
    "capability promises is in\n"
    "[CAPABILITIES.md](CAPABILITIES.md).\n";

void config_print_document(struct text *t)
{
    text_add_str(t, document_head);
    add_sections(t, config_options, n_config_options, "");
    text_add_str(t, kafka_section);
    text_add_str(t, tool_section);
    add_sections(t, config_named, n_config_named, ".NAME");
}

/* A sentence as comment lines of at most 100 columns. */
static void add_comment(struct text *t, const char *sentence)
{
    enum { WIDTH = 98 };
    while (*sentence) {
        size_t n = strlen(sentence);
        if (n > WIDTH) {
            n = WIDTH;
            while (n > 0 && sentence[n] != ' ')
                n--;
        }
        text_addf(t, "; %.*s\n", (int)n, sentence);
        sentence += n + (sentence[n] == ' ');
    }
}

static void add_example(struct text *t, const struct option *o)
{
    text_add_char(t, '\n');
    add_comment(t, o->sentence);
    text_add_str(t, "; Values: ");
    add_range(t, o);
    text_addf(t, "\n%s%s =%s%s\n", o->flags & REQUIRED ? "" : ";", o->name, o->preset[0] ? " " : "",
              o->preset);
}

static const char example_head[] =
    "; holdfast.conf, printed from the option table by `holdfast config sample`; a test compares.\n"
    "; Defaults are shown behind a semicolon. What must be set is not behind one.\n"
    "; See docs/CONFIGURATION.md.\n";

static const char example_kafka[] =
    "\n[kafka]\n"
    "\n; Every property of librdkafka; consumer.NAME and producer.NAME for one kind of client.\n"
    "bootstrap.servers =\n";

static const char example_named[] = "\n; [tool.payments]\n"
                                    "; url = https://payments.example/v1/charges\n"
                                    "; capability = idempotency_key\n"
                                    "; retention_ms = 86400000\n"
                                    "; credential_env = PAYMENTS_TOKEN\n"
                                    "\n; [handler.agent]\n"
                                    "; kind = exec\n"
                                    "; command = python3 agent.py\n"
                                    "; processes = 4\n";

void config_print_example(struct text *t)
{
    const char *section = "";
    text_add_str(t, example_head);
    for (size_t i = 0; i < n_config_options; i++) {
        const struct option *o = &config_options[i];
        if (strcmp(section, o->section) != 0)
            text_addf(t, "\n[%s]\n", o->section);
        section = o->section;
        add_example(t, o);
    }
    text_add_str(t, example_kafka);
    text_add_str(t, example_named);
}

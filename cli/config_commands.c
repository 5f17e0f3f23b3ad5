// holdfast config …: all of it is printed from the option table.
#include "cli/commands.h"
#include "cli/session.h"

static int print_text(const struct text *t)
{
    fwrite(t->p, 1, t->n, stdout);
    return EXIT_HOLDS;
}

int command_config_print(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) = session_config(inv, 0);
    if (cfg == NULL)
        return EXIT_CANNOT_RUN;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_print(cfg, &t);
    return print_text(&t);
}

// The question is whether the configuration holds, so "no" is 1 here and not 2.
int command_config_check(struct invocation *inv)
{
    struct config *cfg CLEANUP(config_drop) =
        session_config(inv, CONFIG_NEEDS_POSTGRES | CONFIG_NEEDS_KAFKA);
    if (cfg == NULL)
        return EXIT_HOLDS_NOT;
    struct broker *broker CLEANUP(session_broker_drop) = session_broker(cfg);
    if (broker == NULL)
        return EXIT_HOLDS_NOT;
    puts("the configuration holds");
    return EXIT_HOLDS;
}

int command_config_docs(struct invocation *inv)
{
    (void)inv;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_print_document(&t);
    return print_text(&t);
}

int command_config_sample(struct invocation *inv)
{
    (void)inv;
    struct text t CLEANUP(text_free) = TEXT_EMPTY;
    config_print_example(&t);
    return print_text(&t);
}

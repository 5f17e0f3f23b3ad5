// The private PostgreSQL and Redis of `holdfast up`.
//
// Ownership: stack_stop ends what stack_start began, also half of it. Threads: main.
#ifndef HOLDFAST_CLI_STACK_H
#define HOLDFAST_CLI_STACK_H

#include <limits.h>

#include "base/check.h"
#include "cli/process.h"

struct stack {
    char dir[PATH_MAX / 2];
    bool temporary; // the folder goes away at the end
    char postgres_bin[PATH_MAX / 2];
    const char *postgres_user; // NULL: as we are
    struct process postgres, redis;
    uint16_t postgres_port, redis_port;
};

// dir NULL: a temporary one. Errors are printed.
MUST_CHECK bool stack_start(struct stack *stack, const char *dir, const char *postgres_bin);
// A login role for pods and one for the person, made after the migration made the groups.
MUST_CHECK bool stack_make_logins(struct stack *stack, const char *role_prefix);
// "postgresql://USER@127.0.0.1:PORT/holdfast"
void stack_dsn(const struct stack *stack, const char *user, char *buf, size_t size);
// DIR/NAME
void stack_path(const struct stack *stack, const char *name, char *buf, size_t size);
void stack_stop(struct stack *stack);

#endif

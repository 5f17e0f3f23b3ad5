// What most commands begin with: configuration, a connection to PostgreSQL, one to Kafka, with
// errors that name the fix.
//
// Ownership: what a function returns is freed by its own free function (config_free, db_free,
// broker_close). Threads: main. Errors: printed here; the caller returns EXIT_CANNOT_RUN.
#ifndef HOLDFAST_CLI_SESSION_H
#define HOLDFAST_CLI_SESSION_H

#include <stdbool.h>

#include "base/check.h"
#include "base/outcome.h"
#include "broker/broker.h"
#include "cli/command.h"
#include "config/config.h"
#include "schemas/db.h"
#include "schemas/json.h"

// NULL: errors are printed. `needs` as in config_has().
MUST_CHECK struct config *session_config(const struct invocation *inv, unsigned needs);

// Not connected yet.
MUST_CHECK struct db *session_db_new(const struct config *cfg, bool any_server);
// Connected, or NULL. Any role will do for reading; any_server also accepts a standby.
MUST_CHECK struct db *session_db(const struct config *cfg, bool any_server);
// Prints what went wrong with a call and how to fix it.
void session_db_error(const struct db *db, enum outcome outcome);
void session_db_drop(struct db **db); // for CLEANUP

// With the properties of the configuration; connects to nothing. NULL: errors are printed.
MUST_CHECK struct broker *session_broker(const struct config *cfg);
void session_broker_drop(struct broker **broker); // for CLEANUP

// One line of JSON on standard output.
void session_print_json(struct json_builder *b, const struct json_node *root);
// Who asks, for the record: --by, else the login name.
const char *session_by(const struct invocation *inv);
// Failover mode and other choices as the words of the configuration.
const char *session_failover_word(const struct config *cfg);
// Whether an installation with this configuration lets claims wait for the relay's comparison.
bool session_claims_wait(const struct config *cfg);

#endif

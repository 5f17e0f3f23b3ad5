// The command table. The order is the order of the help: first what a newcomer types, then what an
// operator does.
#include "cli/command.h"
#include "cli/commands.h"

#include <string.h>

// clang-format off
#define OPTIONS(...) (const struct option_row[]) {__VA_ARGS__, {0}}
// The last members of a row: its examples, and whether it has a form for scripts.
#define EXAMPLES(...) (const struct example_row[]) {__VA_ARGS__, {0}}, false
#define EXAMPLES_AND_JSON(...) (const struct example_row[]) {__VA_ARGS__, {0}}, true

#define OPTION_TENANT {"tenant", 't', "NAME", "the task's tenant (default: default)"}
#define OPTION_BY {"by", 0, "WHO", "who asks, for the record (default: the login name)"}
#define OPTION_RECORD_REASON {"reason", 'r', "TEXT", "why; kept with the request"}
// clang-format on

const struct command command_table[] = {
    {"up", "", 0, 0, command_up, "start a whole local stack in the foreground, for development",
     "Starts a private PostgreSQL, a private Redis, an embedded mock broker (or uses --broker), "
     "migrates,\n"
     "makes the topics and starts pods with all roles. Ctrl-C stops everything it started. The "
     "mock broker\n"
     "forgets everything at exit and delivers at least once; with --broker and a real Kafka it is "
     "exactly once.",
     OPTIONS(
         {"pods", 'p', "N", "how many pods to start (default: 1)"},
         {"broker", 'b', "HOST:PORT", "use this Kafka instead of the embedded mock broker"},
         {"dir", 'd', "DIR", "keep data, logs and stack.json there (default: a temporary folder)"},
         {"postgres-bin", 0, "DIR", "where initdb and postgres are (default: found by itself)"}),
     EXAMPLES(
         {"holdfast up", "one pod, everything private, gone at Ctrl-C"},
         {"holdfast up --pods 3 --dir ./stack --set lease.ttl_ms=3000 --set lease.heartbeat_ms=500 "
          "--set lease.heartbeat_timeout_ms=500",
          "three pods whose leases run out after three seconds"},
         {"holdfast up --broker localhost:9092", "the same on a real Kafka"})},
    {"run", "", 0, 0, command_run, "run a production pod in the foreground",
     "Waits, saying so, for services that are down at the start. SIGTERM or SIGINT: takes nothing "
     "new, finishes\n"
     "or hands back what it holds within pool.grace_ms, releases its leases, commits offsets and "
     "ends with 0.\n"
     "A second signal ends at once; then leases run out by themselves.",
     OPTIONS({"name", 'n', "POD", "the same as --set pod.name=POD"}),
     EXAMPLES({"holdfast run --config /etc/holdfast/holdfast.conf", "a pod with its configuration"},
              {"HOLDFAST_POSTGRES_DSN_FILE=/run/secrets/dsn holdfast run -c holdfast.conf",
               "the same with a secret from a file"})},
    {"migrate", "", 0, 0, command_migrate, "install or upgrade the schema in PostgreSQL",
     "Runs under an advisory lock, with a lock time-out; safe to repeat and to run from several "
     "hosts at once.\n"
     "Needs a login that may create roles and schemas.",
     OPTIONS(
         {"print", 0, NULL, "print the whole script instead (it can be fed to psql)"},
         {"check", 0, NULL, "only say whether the schema is up to date (exit 1 when it is not)"},
         {"shards", 0, "N", "relay shards of a new installation, fixed for ever (default: 8)"}),
     EXAMPLES_AND_JSON(
         {"holdfast migrate --set postgres.dsn=postgresql://admin@db/app", "install or upgrade"},
         {"holdfast migrate --print | less", "read it before it is run"},
         {"holdfast migrate --check", "for a deployment script"})},
    {"topics apply", "", 0, 0, command_topics_apply, "make the topics that are missing",
     "Never changes the number of partitions of a topic that exists: the order promise rests on "
     "it.",
     OPTIONS({"shards", 0, "N", "relay shards, when PostgreSQL cannot be asked (default: ask it)"}),
     EXAMPLES_AND_JSON(
         {"holdfast topics apply -c holdfast.conf", "make what is missing, then check"})},
    {"topics check", "", 0, 0, command_topics_check,
     "check partitions, compaction and durability of the topics", NULL,
     OPTIONS({"shards", 0, "N", "relay shards, when PostgreSQL cannot be asked (default: ask it)"}),
     EXAMPLES_AND_JSON({"holdfast topics check --json", "for a deployment script"})},
    {"submit", "[FILE]", 0, 1, command_submit, "put a task onto the tasks topic",
     "From flags, from FILE (JSON: one record, or one a line), or from standard input with FILE "
     "\"-\".\n"
     "Answers when Kafka has the record; what became of it: holdfast show TASK.",
     OPTIONS({"task", 0, "TASK", "the task's id"},
             {"handler", 0, "NAME", "who executes it (default: plan)"},
             {"input", 'i', "JSON", "the handler's input (\"-\": read it from standard input)"},
             OPTION_TENANT,
             {"request-id", 0, "ID", "idempotency key: the same key never submits twice"},
             {"priority", 0, "N", "higher goes first (default: 0)"},
             {"not-before", 0, "TIME", "not earlier than this (RFC 3339)"},
             {"deadline", 0, "TIME", "fail what is not finished by then (RFC 3339)"},
             {"max-attempts", 0, "N", "attempts before the run fails (default: 3)"},
             {"cancel-previous", 0, NULL, "cancel the task's active run instead of being refused"},
             {"allow-unsettled", 0, NULL, "even when an earlier effect is still in doubt"}),
     EXAMPLES_AND_JSON({"holdfast submit --task invoice-2041 --input "
                        "'{\"steps\":[{\"id\":\"pay\",\"tool\":\"payments\","
                        "\"request\":{\"amount\":12}}]}'",
                        "one task of one tool call"},
                       {"holdfast submit tasks.jsonl", "one record a line"},
                       {"jq -c '.[]' tasks.json | holdfast submit -", "from a pipe"})},
    {"tail", "", 0, 0, command_tail, "follow result events (read_committed)", NULL,
     OPTIONS({"from-beginning", 0, NULL, "begin with the oldest event"},
             {"task", 0, "TASK", "only this task"},
             {"until-terminal", 0, "N", "end after the Nth run that ended"},
             {"timeout", 0, "SECONDS", "end with 1 when that much time has passed"}),
     EXAMPLES_AND_JSON({"holdfast tail", "what happens from now on"},
                       {"holdfast tail --from-beginning --task t1 --until-terminal 1 --timeout 30",
                        "wait for a task's end"},
                       {"holdfast tail --json | jq -r .type", "for scripts"})},
    {"show", "TASK|RUN", 1, 1, command_show, "tell a task's or a run's story",
     "Runs, epochs, revisions, owners, operations with their evidence, refusals and history. The "
     "role\n"
     "of a viewer is enough. An argument that is a UUID is a run, anything else a task.",
     OPTIONS(OPTION_TENANT),
     EXAMPLES_AND_JSON(
         {"holdfast show invoice-2041", "every run of the task"},
         {"holdfast show 01890a5d-ac96-774b-bcce-b302099a8057 --json | jq '.runs[0].operations'",
          "a run's operations for a script"})},
    {"cancel", "TASK|RUN", 1, 1, command_cancel, "cancel a task's active run, or a run",
     "Side effects that may have been sent keep their state: cancelling is not revoking.",
     OPTIONS(OPTION_TENANT, OPTION_RECORD_REASON, OPTION_BY,
             {"request-id", 0, "ID", "idempotency key (default: a new one)"}),
     EXAMPLES_AND_JSON(
         {"holdfast cancel invoice-2041 --reason 'customer withdrew'", "cancel and say why"})},
    {"retry", "TASK|RUN", 1, 1, command_retry, "run a task again as a new run",
     "Effects that succeeded earlier are adopted, not repeated. While an effect of the earlier run "
     "is in\n"
     "doubt the answer is no, and names it.",
     OPTIONS(OPTION_TENANT, OPTION_RECORD_REASON, OPTION_BY,
             {"fresh", 0, NULL, "adopt nothing: do every effect again"},
             {"allow-unsettled", 0, NULL, "although an effect is in doubt (needs --reason)"},
             {"request-id", 0, "ID", "idempotency key (default: a new one)"}),
     EXAMPLES_AND_JSON(
         {"holdfast retry invoice-2041", "the last run again"},
         {"holdfast retry invoice-2041 --allow-unsettled --reason 'looked it up: not paid'",
          "after a look at the remote"})},
    {"signal", "TASK|RUN NAME", 2, 2, command_signal, "tell a run what it may wait for",
     "Delivered once, whatever is asked again with the same --signal-id. One for a task that is "
     "not "
     "there yet\nwaits a minute for it.",
     OPTIONS(OPTION_TENANT, OPTION_BY, {"payload", 'p', "JSON", "what the run is told"},
             {"signal-id", 0, "ID", "its identity within the task (default: a new one)"}),
     EXAMPLES_AND_JSON({"holdfast signal invoice-2041 approved --payload '{\"by\": \"ann\"}'",
                        "a run that decided wait_signal goes on"})},
    {"op list", "", 0, 0, command_op_list, "list operations whose outcome is not known",
     "The oldest first. Operations that were not sent are in no doubt and not shown.",
     OPTIONS({"tool", 't', "NAME", "only of this tool"},
             {"limit", 'n', "N", "at most N (default: 50)"}),
     EXAMPLES_AND_JSON({"holdfast op list", "what a person may have to decide"})},
    {"op show", "OPERATION", 1, 1, command_op_show, "tell an operation's story with all evidence",
     NULL, NULL,
     EXAMPLES_AND_JSON({"holdfast op show default/01890a5d-ac96-774b-bcce-b302099a8057/pay/1",
                        "what was sent, what came back, and what may still happen"})},
    {"op resolve", "OPERATION", 1, 1, command_op_resolve,
     "decide about an operation in doubt (operator)",
     "Look at the remote first. A fact that arrives later and denies it is a contradiction, and "
     "changes nothing.",
     OPTIONS({"succeeded", 0, NULL, "the effect happened"},
             {"failed", 0, NULL, "it did not, and never will"},
             {"evidence", 0, "TEXT", "what you saw, and where"},
             {"revision", 0, "N", "the one that op show printed"},
             {"remote-id", 0, "ID", "the remote's own identity of the effect"},
             {"result", 0, "JSON", "what the run is told"}, OPTION_RECORD_REASON, OPTION_BY),
     EXAMPLES_AND_JSON({"holdfast op resolve $OP --succeeded --revision 3 --evidence 'ledger line "
                        "7' --reason 'bank statement'",
                        "the run goes on with it"})},
    {"op cancel", "OPERATION", 1, 1, command_op_cancel,
     "take back an operation that was not sent (operator)",
     "One that may have been sent is not cancelled: the answer says what its tool's policy is.",
     OPTIONS({"revision", 0, "N", "the one that op show printed"}, OPTION_RECORD_REASON, OPTION_BY),
     EXAMPLES_AND_JSON({"holdfast op cancel $OP --revision 1 --reason 'ordered by mistake'",
                        "before it is sent"})},
    {"op raise", "OPERATION", 1, 1, command_op_raise,
     "give an operation its tool's present declaration (operator)",
     "What was declared when it was registered decides about an operation. This changes that, and "
     "leaves a trace.",
     OPTIONS({"revision", 0, "N", "the one that op show printed"}, OPTION_RECORD_REASON, OPTION_BY),
     EXAMPLES_AND_JSON({"holdfast op raise $OP --revision 3 --reason 'the remote has a query now'",
                        "a doubt that can be asked about now"})},
    {"op compensate", "OPERATION", 1, 1, command_op_compensate,
     "register what undoes an operation of an ended run",
     "It is an operation of its own, with its own identity; asked again it is the same.",
     OPTIONS({"tool", 't', "NAME", "which tool undoes it (default: as declared)"},
             {"remote-cancel", 0, NULL, "ask the remote to stop, instead"},
             {"request", 0, "JSON", "what that tool is told (default: the operation's identities)"},
             OPTION_BY),
     EXAMPLES_AND_JSON({"holdfast op compensate $OP --tool refund", "give the money back"})},
    {"tool check", "NAME", 1, 1, command_tool_check,
     "say what a tool's capability lets the product promise, and probe it",
     "Dry: nothing is asked of the tool that could have an effect. Exit 1 when it does not answer "
     "as declared.",
     NULL, EXAMPLES_AND_JSON({"holdfast tool check payments", "before the first operation"})},
    {"doctor", "", 0, 0, command_doctor, "check connections, roles, topics, durability and clocks",
     "Says for everything that is wrong what to do. Exit 1 when something must be fixed.", NULL,
     EXAMPLES_AND_JSON({"holdfast doctor -c holdfast.conf", "before the first pod"},
                       {"holdfast doctor --json | jq '.checks[] | select(.result != \"ok\")'",
                        "for monitoring"})},
    {"config print", "", 0, 0, command_config_print,
     "print the effective configuration and where it came from", "Secrets are masked.", NULL,
     EXAMPLES({"holdfast config print -c holdfast.conf", "what a pod would use"})},
    {"config check", "", 0, 0, command_config_check,
     "check a configuration file without starting anything", NULL, NULL,
     EXAMPLES({"holdfast config check -c holdfast.conf", "for a deployment script"})},
    {"config docs", "", 0, 0, command_config_docs,
     "print docs/CONFIGURATION.md from the option table", NULL, NULL,
     EXAMPLES({"holdfast config docs | less", "every option with its default"})},
    {"config sample", "", 0, 0, command_config_sample, "print a commented configuration file", NULL,
     NULL, EXAMPLES({"holdfast config sample > holdfast.conf", "start from it"})},
    {"failover audit", "", 0, 0, command_failover_audit,
     "compare PostgreSQL with what Kafka remembers, after a promotion or a restore",
     "Lists what was lost and what is told otherwise, and puts effects that Kafka knows and the ledger "
     "does not into\n"
     "it as unknown: their runs wait until they are settled. In strict mode, when nothing was found, "
     "it opens the gate.\n"
     "Exit 1 when something was found.",
     OPTIONS(OPTION_RECORD_REASON, OPTION_BY,
             {"dry-run", 0, NULL, "change nothing"},
             {"keep-closed", 0, NULL, "never open the gate"}),
     EXAMPLES_AND_JSON({"holdfast failover audit --dry-run", "what was lost"},
                       {"holdfast failover audit", "before holdfast gate open"})},
    {"gate status", "", 0, 0, command_gate_status, "say whether work may be claimed, and why not",
     "Exit 1 when the gate is closed.", NULL,
     EXAMPLES_AND_JSON({"holdfast gate status", "open or closed"})},
    {"gate close", "", 0, 0, command_gate_close,
     "stop all claiming, for instance around a failover",
     "What is held goes on; nothing new is taken and nothing more is sent.",
     OPTIONS(OPTION_RECORD_REASON, OPTION_BY,
             {"set-back", 0, NULL,
              "this database was restored: what it calls not sent may have been sent"}),
     EXAMPLES_AND_JSON(
         {"holdfast gate close --reason 'promoting db2'", "before a planned promotion"})},
    {"gate open", "", 0, 0, command_gate_open, "let work be claimed again (operator)",
     "This server and its timeline are the known ones from here on; the old primary must have been "
     "fenced before.\n"
     "When acknowledged writes may be lost (another timeline in async mode, or --restored), every "
     "open run's epoch\n"
     "is raised and what may have been sent unseen becomes unknown, unless --nothing-lost states "
     "otherwise.",
     OPTIONS(OPTION_RECORD_REASON, OPTION_BY,
             {"restored", 0, NULL, "this database was restored from a backup"},
             {"nothing-lost", 0, NULL,
              "no acknowledged write was lost: you know, and it is kept with your name"}),
     EXAMPLES_AND_JSON(
         {"holdfast gate open --reason 'audit clean'", "after the audit"},
         {"holdfast gate open --restored --reason 'backup of 02:00'", "after a restore"})},
    {"dlq list", "", 0, 0, command_dlq_list, "list dead letters with their reasons", NULL,
     OPTIONS({"limit", 'n', "N", "at most the last N (default: 50)"}),
     EXAMPLES_AND_JSON(
         {"holdfast dlq list", "what was refused, and why"},
         {"holdfast dlq list --json | jq -r .reason | sort | uniq -c", "reasons by count"})},
    {"docs", "", 0, 0, command_docs, "print docs/CLI.md from the command table", NULL, NULL,
     EXAMPLES({"holdfast docs > docs/CLI.md", "after a change of a row"})},
    {"completion", "bash", 1, 1, command_completion, "print a completion script for the shell",
     NULL, NULL, EXAMPLES({"source <(holdfast completion bash)", "in this shell"})},
    {0},
};

int command_docs(struct invocation *inv)
{
    (void)inv;
    help_markdown(stdout);
    return EXIT_HOLDS;
}

int command_completion(struct invocation *inv)
{
    if (strcmp(invocation_argument(inv, 0), "bash") != 0)
        return say_usage(inv, "only \"bash\" is supported in this version");
    help_completion_bash(stdout);
    return EXIT_HOLDS;
}

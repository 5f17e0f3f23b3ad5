// The outbox alone, as a pod without pool would run it: outbox_probe CONFIG. Prints a line when it
// has started; on standard input `notify` looks for events and intents at once, `health` prints
// counts, the end of input stops it gracefully (the argument of `stop MS` is the grace period).
// Driven by test_dispatcher.py and test_relay.py, which may stop, continue and kill it like any
// pod.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stop_point.h"
#include "config/config.h"
#include "outbox/outbox.h"

extern char **environ;

static struct config *load(const char *file)
{
    struct text errors CLEANUP(text_free) = TEXT_EMPTY;
    const struct config_source source = {.file = file, .environment = (const char *const *)environ};
    struct config *config = NULL;
    if (!config_load(&source, &config, &errors)) {
        (void)fprintf(stderr, "%s", errors.p);
        exit(2);
    }
    return config;
}

static void show_health(struct outbox *outbox)
{
    struct outbox_health health;
    outbox_health(outbox, &health);
    printf("{\"in_flight\":%lld,\"shards_held\":%lld,\"shards_recovering\":%lld,\"gate_closed\":%s,"
           "\"ledger_connected\":%s,\"relay_connected\":%s}\n",
           (long long)health.in_flight, (long long)health.shards_held,
           (long long)health.shards_recovering, health.gate_closed ? "true" : "false",
           health.ledger_connected ? "true" : "false", health.relay_connected ? "true" : "false");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    struct config *config = load(argv[1]);
    log_set_pod(config->pod.name);
    log_set_level((enum log_level)config->log.level);
    stop_point_pod(config->pod.name);
    struct outbox *outbox = NULL;
    const char *reason = NULL;
    if (outbox_start(config, false, &outbox, &reason) != OUTCOME_OK) {
        printf("{\"refused\":\"%s\"}\n", reason == NULL ? "" : reason);
        config_free(config);
        return 1;
    }
    puts("{\"started\":true}");
    char line[64];
    long grace_ms = 2000;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "notify\n") == 0) {
            outbox_notify_events(outbox);
            outbox_notify_intents(outbox);
        } else if (strcmp(line, "health\n") == 0) {
            show_health(outbox);
        } else if (sscanf(line, "stop %ld", &grace_ms) == 1) {
            break;
        }
    }
    outbox_stop(outbox, grace_ms);
    config_free(config);
    return 0;
}

/* A database lane of the call runtime, driven line by line from test_database_server.py; answers
 * are JSON lines.
 *
 *   schemas_probe DSN SCHEMA CALL_TIMEOUT_MS OPTIONS     w: wait for standbys, p: a pooler stands between
 *   dsn X       the next connects go there       connect    outcome, message, system, timeline, pid
 *   write       one call of SCHEMA.note()        forget     forgets the known system
 *   waits       does anybody wait for a standby? (answered at once, also during a write)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/queue.h"
#include "base/text.h"
#include "schemas/db.h"

struct note_row {
    int64_t n;
};
static const struct db_column note_columns[] = {DB_COLUMN(struct note_row, n)};
static const struct db_call note = DB_CALL_BARE("note", note_columns, 0);

static struct db_options options;
static struct lock printing = LOCK_INIT;

static void answer(enum outcome o, const struct db *db)
{
    struct text line CLEANUP(text_free) = TEXT_EMPTY;
    text_addf(&line, "{\"outcome\":\"%s\",\"connected\":%s,\"message\":\"", outcome_word(o),
              db_is_connected(db) ? "true" : "false");
    text_add_json(&line, span_of(o == OUTCOME_OK ? "" : db_error(db)->message));
    const struct db_identity *id = db_identity(db);
    text_addf(&line, "\",\"system\":\"%llu\",\"timeline\":%u,\"pid\":%d}\n",
              (unsigned long long)id->system_identifier, id->timeline, id->pid);
    LOCK_SCOPE(&printing);
    fputs(line.p, stdout);
    fflush(stdout);
}

/* The lane's own thread: a write may take as long as a standby is away. */
static void *work(void *arg)
{
    struct queue *verbs = arg;
    struct db *db = db_new(&options);
    struct arena *arena = arena_new();
    char *verb;
    while ((verb = queue_pop(verbs, CLOCK_FOREVER)) != NULL) {
        struct note_row *rows;
        size_t n;
        if (strncmp(verb, "dsn ", 4) == 0) {
            db_free(db);
            options.dsn = verb + 4;
            db = db_new(&options);
            answer(OUTCOME_OK, db);
        } else if (strcmp(verb, "connect") == 0) {
            answer(db_connect(db), db);
        } else if (strcmp(verb, "forget") == 0) {
            db_history_forget(options.history);
            answer(OUTCOME_OK, db);
        } else {
            answer(db_call(db, &note, NULL, NULL, arena, &rows, &n), db);
        }
        arena_reset(arena);
        free(verb);
    }
    db_free(db);
    arena_free(arena);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    options = (struct db_options){.dsn = argv[1],
                                  .schema = argv[2],
                                  .iface = argv[2],
                                  .name = "schemas probe",
                                  .connect_timeout_ms = 5000,
                                  .call_timeout_ms = strtoll(argv[3], NULL, 10),
                                  .wait_for_standby = strchr(argv[4], 'w') != NULL,
                                  .pooler = strchr(argv[4], 'p') != NULL,
                                  .history = db_history_new()};
    struct queue *verbs = queue_new(16);
    pthread_t lane;
    CHECK(thread_start(&lane, "lane", work, verbs));
    char line[2048];
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "waits") == 0) {
            LOCK_SCOPE(&printing);
            printf("{\"waits\":%s}\n", db_waits_for_standby() ? "true" : "false");
            fflush(stdout);
            continue;
        }
        char *verb = memory_copy_text(line);
        CHECK(queue_push(verbs, verb, CLOCK_FOREVER));
    }
    queue_close(verbs);
    thread_join(lane);
    queue_free(verbs);
    db_history_free(options.history);
    return 0;
}

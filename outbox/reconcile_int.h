// outbox/reconcile_int.h: questions to remotes about operations in doubt. Private to outbox.
#ifndef HOLDFAST_OUTBOX_RECONCILE_INT_H
#define HOLDFAST_OUTBOX_RECONCILE_INT_H

#include "outbox/dispatch_int.h"

// What an answer is worth.
enum finding {
    FOUND_SUCCEEDED, // a fact
    FOUND_FAILED,    // a fact
    FOUND_ABSENT,    // a fact only when the tool declared when, and this question was late enough
    FOUND_FOREIGN,   // something of that name, but not ours: a person's business
    FOUND_PENDING,   // the remote works on it
    FOUND_NOTHING,   // no answer, or none that the tool promised
};
const char *finding_word(enum finding finding);

// One question. Thread: reconcile.
struct question {
    struct question *next;
    struct arena *arena;
    struct outbox *outbox;
    struct tool *tool;
    const struct config_tool *declared;
    struct span owner;
    struct ledger_question row;
    int64_t until_us; // of its claim

    enum finding finding;
    struct span remote_id;
    struct span result;   // JSON text
    struct span evidence; // JSON text
    struct db_int retry_ms;
    unsigned tries;
};

// query_judge.c: finding, remote_id, result, evidence and retry_ms out of an answer. Pure but for
// the arena.
void query_judge(struct question *q, const struct http_answer *answer);
// The same from a value that was found, or not (NULL), by other means. evidence is set already.
void query_judge_found(struct question *q, const struct json_value *found);
// The address with the operation's identities in it. NULL: it asks for a remote_id, and none is
// known.
const char *query_url(const struct config_tool *tool, const struct ledger_question *row,
                      struct arena *arena);

// Its thread's body; the argument is the outbox.
void *reconcile_thread(void *outbox);
void reconcile_wake(struct outbox *outbox);

#endif

/* The log: one JSON object a line, to stderr or a file.
 *
 *   log_event(LOG_INFO, "lease.lost", LOG_UUID("run_id", run), LOG_INT("epoch", epoch));
 *
 * {"at":"…","level":"info","event":"lease.lost","pod":"…","run_id":"…","epoch":3}. Control
 * characters and bytes that are not UTF-8 are escaped, so that a record cannot forge a line.
 * Identities use the names run_id, owner, epoch, revision, operation_id, trace_id. No secrets, no
 * inputs, no bodies.
 * Rooms return, the edge logs: only threads' main loops and programs call this.
 * Thread: any. A line that cannot be written is dropped and counted (holdfast_log_dropped_total). */
#ifndef HOLDFAST_BASE_LOG_H
#define HOLDFAST_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/outcome.h"
#include "base/span.h"
#include "base/uuid.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_kind {
    LOG_FIELD_END,
    LOG_FIELD_TEXT,
    LOG_FIELD_INT,
    LOG_FIELD_REAL,
    LOG_FIELD_BOOL,
    LOG_FIELD_UUID
};

struct log_field {
    const char *name;
    enum log_kind kind;
    union {
        struct span text;
        int64_t integer;
        double real;
        bool boolean;
        struct uuid uuid;
    } value;
};

/* An absent text is left out of the line. */
#define LOG_TEXT(name, s) ((struct log_field){(name), LOG_FIELD_TEXT, {.text = span_of(s)}})
#define LOG_SPAN(name, s) ((struct log_field){(name), LOG_FIELD_TEXT, {.text = (s)}})
#define LOG_INT(name, v) ((struct log_field){(name), LOG_FIELD_INT, {.integer = (int64_t)(v)}})
#define LOG_REAL(name, v) ((struct log_field){(name), LOG_FIELD_REAL, {.real = (v)}})
#define LOG_BOOL(name, v) ((struct log_field){(name), LOG_FIELD_BOOL, {.boolean = (v)}})
#define LOG_UUID(name, v) ((struct log_field){(name), LOG_FIELD_UUID, {.uuid = (v)}})
#define LOG_OUTCOME(v) LOG_TEXT("outcome", outcome_word(v))
#define LOG_END ((struct log_field){NULL, LOG_FIELD_END, {.integer = 0}})

#define log_event(...) log_write(__VA_ARGS__, LOG_END)
/* Use log_event, which adds the end mark. */
void log_write(enum log_level level, const char *event, ...);

void log_set_level(enum log_level level); /* default LOG_INFO */
bool log_enabled(enum log_level level);
MUST_CHECK bool log_level_parse(const char *word, enum log_level *ret);

/* Appends to that file from now on (NULL: stderr), opened anew by log_reopen after a rotation.
 * False: cannot be opened (errno); the log stays where it was. */
MUST_CHECK bool log_open(const char *path);
MUST_CHECK bool log_reopen(void);

/* Shown as "pod" on every line from now on. */
void log_set_pod(const char *name);

#endif

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/metric.h"
#include "base/text.h"

/* The one mutable global of the house besides the metrics: where lines go. */
static struct {
    struct lock lock; /* path, pod, fd; a line is one write under it */
    char *path;
    char *pod;
    int fd;
} sink = {.lock = LOCK_INIT, .fd = STDERR_FILENO};
static atomic_int least = LOG_INFO;

static const char *const level_words[] = {"debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&least, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&least, memory_order_relaxed);
}

bool log_level_parse(const char *word, enum log_level *ret)
{
    for (size_t i = 0; i < COUNT_OF(level_words); i++)
        if (strcmp(word, level_words[i]) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    return false;
}

static void add_member(struct text *line, const char *name)
{
    text_add_str(line, line->n > 1 ? ",\"" : "\"");
    text_add_json(line, span_of(name));
    text_add_str(line, "\":");
}

static void add_text(struct text *line, const char *name, struct span value)
{
    if (span_is_null(value))
        return;
    add_member(line, name);
    text_add_char(line, '"');
    text_add_json(line, value);
    text_add_char(line, '"');
}

static void add_field(struct text *line, const struct log_field *f)
{
    char uuid[UUID_TEXT_SIZE];
    switch (f->kind) {
    case LOG_FIELD_TEXT:
        add_text(line, f->name, f->value.text);
        break;
    case LOG_FIELD_UUID:
        add_text(line, f->name, span_of(uuid_format(f->value.uuid, uuid)));
        break;
    case LOG_FIELD_INT:
        add_member(line, f->name);
        text_addf(line, "%lld", (long long)f->value.integer);
        break;
    case LOG_FIELD_REAL:
        add_member(line, f->name);
        if (isfinite(f->value.real))
            text_addf(line, "%.6g", f->value.real);
        else
            text_add_str(line, "null");
        break;
    case LOG_FIELD_BOOL:
        add_member(line, f->name);
        text_add_str(line, f->value.boolean ? "true" : "false");
        break;
    case LOG_FIELD_END:
        break;
    }
}

/* Needs: sink.lock. A short write would leave half a line, so what is left is written, too. */
static bool write_line(const struct text *line)
{
    size_t done = 0;
    while (done < line->n) {
        ssize_t n = write(sink.fd, line->p + done, line->n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

void log_write(enum log_level level, const char *event, ...)
{
    if (!log_enabled(level))
        return;
    int saved = errno; /* the caller may still want it */
    struct text line CLEANUP(text_free) = TEXT_EMPTY;
    char at[CLOCK_TEXT_SIZE];
    text_add_char(&line, '{');
    add_text(&line, "at", span_of(clock_format(clock_wall_us(), at)));
    add_text(&line, "level", span_of(level_words[level]));
    add_text(&line, "event", span_of(event));
    va_list args;
    va_start(args, event);
    struct text fields CLEANUP(text_free) = TEXT_EMPTY;
    text_add_char(&fields, ' '); /* stands for what precedes, so that a comma comes first */
    text_add_char(&fields, ' ');
    for (;;) {
        struct log_field f = va_arg(args, struct log_field);
        if (f.kind == LOG_FIELD_END)
            break;
        add_field(&fields, &f);
    }
    va_end(args);
    LOCK_SCOPE(&sink.lock);
    add_text(&line, "pod", span_of(sink.pod));
    text_add(&line, fields.p + 2, fields.n - 2);
    text_add_str(&line, "}\n");
    if (!write_line(&line))
        metric_add(METRIC_LOG_DROPPED, NO_LABELS, 1);
    errno = saved;
}

/* Needs: sink.lock. */
static bool open_path(const char *path)
{
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640) : STDERR_FILENO;
    if (fd < 0)
        return false;
    if (sink.fd != STDERR_FILENO)
        close(sink.fd);
    sink.fd = fd;
    return true;
}

bool log_open(const char *path)
{
    LOCK_SCOPE(&sink.lock);
    if (!open_path(path))
        return false;
    free(sink.path);
    sink.path = memory_copy_text(path);
    return true;
}

bool log_reopen(void)
{
    LOCK_SCOPE(&sink.lock);
    return sink.path == NULL || open_path(sink.path);
}

void log_set_pod(const char *name)
{
    LOCK_SCOPE(&sink.lock);
    free(sink.pod);
    sink.pod = memory_copy_text(name);
}

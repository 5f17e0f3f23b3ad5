/* dead: letters to the dead-letter topic, each offered until Kafka has acknowledged it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metric.h"
#include "pool/record_int.h"
#include "schemas/dead_letter.h"

/* What stands for a value that Kafka refuses even alone. */
enum { REFERENCE_ONLY_BYTES = 1 };

struct dead_letters {
    char *topic;
    struct broker_producer *producer;
    struct lock lock;
    struct task_record *again, *last; /* not taken, in order */
    size_t waiting;
};

struct dead_letters *dead_new(const char *topic, struct broker_producer *producer)
{
    struct dead_letters *d = memory_new(1, sizeof(*d));
    d->topic = memory_copy_text(topic);
    d->producer = producer;
    lock_init(&d->lock);
    return d;
}

void dead_free(struct dead_letters *d)
{
    if (d == NULL)
        return;
    while (d->again != NULL) {
        struct task_record *next = d->again->next;
        record_free(d->again);
        d->again = next;
    }
    lock_destroy(&d->lock);
    free(d->topic);
    free(d);
}

static void put_back(struct dead_letters *d, struct task_record *r)
{
    LOCK_SCOPE(&d->lock);
    r->next = NULL;
    if (d->again == NULL)
        d->again = r;
    else
        d->last->next = r;
    d->last = r;
}

static void settle(struct dead_letters *d, struct task_record *r)
{
    metric_add(METRIC_DEAD_LETTERS, LABELS(r->dead_reason.p), 1);
    record_done(r);
    LOCK_SCOPE(&d->lock);
    d->waiting--;
}

struct delivery {
    struct dead_letters *letters;
    struct task_record *record;
};

static void delivered(void *opaque, enum broker_result result, int32_t partition, int64_t offset,
                      const char *text)
{
    (void)partition;
    (void)offset;
    struct delivery *delivery = opaque;
    struct dead_letters *d = delivery->letters;
    struct task_record *r = delivery->record;
    free(delivery);
    if (result == BROKER_OK) {
        settle(d, r);
        return;
    }
    r->refused = result == BROKER_REFUSED;
    log_event(LOG_WARN, "dead_letter.not_taken", LOG_TEXT("result", broker_result_word(result)),
              LOG_TEXT("detail", text), LOG_INT("tried", r->tried));
    put_back(d, r);
}

static void offer(struct dead_letters *d, struct task_record *r)
{
    struct arena *arena CLEANUP(arena_drop) = arena_new();
    struct dead_letter letter;
    /* A refusal may be for its size: the next letter carries a reference to the record instead of
     * its value. */
    size_t max_bytes = r->refused ? REFERENCE_ONLY_BYTES : 0;
    r->tried++;
    dead_letter_encode(&r->origin, r->dead_reason, r->dead_detail, r->tried, max_bytes, arena,
                       &letter);
    struct broker_header *headers = arena_array(arena, letter.n_headers + 1, sizeof(*headers));
    for (size_t i = 0; i < letter.n_headers; i++)
        headers[i] = (struct broker_header){letter.headers[i].name, letter.headers[i].value};
    struct broker_message message = {
        .topic = d->topic,
        .partition = BROKER_BY_KEY,
        .key = letter.key,
        .value = letter.value,
        .headers = headers,
        .header_count = letter.n_headers,
    };
    struct delivery *delivery = memory_new(1, sizeof(*delivery));
    *delivery = (struct delivery){d, r};
    struct broker_error error;
    enum broker_result result = broker_produce(d->producer, &message, delivered, delivery, &error);
    if (result == BROKER_OK)
        return;
    free(delivery);
    r->refused = result == BROKER_REFUSED;
    if (result == BROKER_RETRY)
        r->tried--;
    put_back(d, r);
}

static void send(struct dead_letters *d, struct task_record *r)
{
    log_event(LOG_INFO, "record.dead_lettered", LOG_SPAN("topic", r->origin.topic),
              LOG_INT("partition", r->origin.partition), LOG_INT("offset", r->origin.offset),
              LOG_SPAN("reason", r->dead_reason), LOG_SPAN("detail", r->dead_detail));
    {
        LOCK_SCOPE(&d->lock);
        d->waiting++;
    }
    offer(d, r);
}

void dead_send(struct dead_letters *d, struct task_record *r, struct span reason,
               struct span detail)
{
    r->origin = record_raw(r->raw, SPAN_NULL, r->arena);
    r->dead_reason = span_of(arena_dup_text(r->arena, reason));
    r->dead_detail = arena_dup(r->arena, detail);
    send(d, r);
}

/* "<topic>/<partition>/<offset>/<timestamp ms>"; anything else (a person's request) names no place.
 */
static void read_source(struct task_record *r, struct span source)
{
    char *text = arena_dup_text(r->arena, source);
    char *slash = text ? strchr(text, '/') : NULL;
    int partition;
    long long offset, timestamp_ms;
    r->origin.partition = -1;
    r->origin.offset = -1;
    r->origin.timestamp_ms = -1;
    if (slash == NULL || sscanf(slash, "/%d/%lld/%lld", &partition, &offset, &timestamp_ms) != 3)
        return;
    *slash = '\0';
    r->origin.topic = span_of(text);
    r->origin.partition = partition;
    r->origin.offset = offset;
    r->origin.timestamp_ms = timestamp_ms;
}

void dead_send_control(struct dead_letters *d, const struct json_value *control)
{
    struct task_record *r = record_new(NULL);
    r->origin.topic = SPAN_LIT("");
    read_source(r, json_text(json_get(control, "source")));
    r->origin.key = arena_dup(r->arena, json_text(json_get(control, "task_id")));
    r->origin.value = json_write(json_get(control, "record"), r->arena);
    r->dead_reason = span_of(outcome_word(OUTCOME_MISSING));
    r->dead_detail = SPAN_LIT("no submission made its task in time");
    send(d, r);
}

void dead_retry(struct dead_letters *d)
{
    struct task_record *list;
    {
        LOCK_SCOPE(&d->lock);
        list = d->again;
        d->again = d->last = NULL;
    }
    while (list != NULL) {
        struct task_record *next = list->next;
        offer(d, list);
        list = next;
    }
}

size_t dead_waiting(struct dead_letters *d)
{
    LOCK_SCOPE(&d->lock);
    return d->waiting;
}

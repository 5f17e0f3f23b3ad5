#include "schemas/dead_letter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "schemas/canon.h"

enum { OWN_HEADERS = 9 };

static void add(struct raw_header *headers, size_t *n, const char *name, struct span value)
{
    headers[(*n)++] = (struct raw_header){span_of(name), value};
}

static void add_number(struct raw_header *headers, size_t *n, const char *name, int64_t v,
                       struct arena *arena)
{
    add(headers, n, name, span_of(arena_printf(arena, "%lld", (long long)v)));
}

void dead_letter_encode(const struct raw_record *record, struct span reason, struct span detail,
                        int tried, size_t max_bytes, struct arena *arena, struct dead_letter *ret)
{
    struct raw_header *headers =
        arena_array(arena, record->n_headers + OWN_HEADERS, sizeof(*headers));
    size_t n = record->n_headers;
    if (n > 0)
        memcpy(headers, record->headers, n * sizeof(*headers));
    add(headers, &n, DEAD_LETTER_TOPIC, record->topic);
    add_number(headers, &n, DEAD_LETTER_PARTITION, record->partition, arena);
    add_number(headers, &n, DEAD_LETTER_OFFSET, record->offset, arena);
    add_number(headers, &n, DEAD_LETTER_TIMESTAMP, record->timestamp_ms, arena);
    add(headers, &n, DEAD_LETTER_REASON, reason);
    add(headers, &n, DEAD_LETTER_DETAIL, detail);
    add_number(headers, &n, DEAD_LETTER_TRIED, tried, arena);
    *ret = (struct dead_letter){record->key, record->value, headers, n};
    if (max_bytes == 0 || record->value.n <= max_bytes)
        return;
    struct digest digest = digest_bytes(record->value);
    char *omitted = arena_printf(arena, "%zu %s", record->value.n, digest.text);
    add(headers, &n, DEAD_LETTER_OMITTED, span_of(omitted));
    ret->n_headers = n;
    ret->value = SPAN_NULL;
}

static bool number(struct span s, int64_t min, int64_t max, int64_t *ret)
{
    char text[24];
    if (s.p == NULL || s.n == 0 || s.n >= sizeof(text))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || v < min || v > max)
        return false;
    *ret = v;
    return true;
}

static struct span last(const struct raw_header *headers, size_t n_headers, const char *name)
{
    for (size_t i = n_headers; i > 0; i--)
        if (span_eq_text(headers[i - 1].name, name))
            return headers[i - 1].value;
    return SPAN_NULL;
}

bool dead_letter_decode(const struct raw_header *headers, size_t n_headers,
                        struct dead_letter_facts *ret)
{
    struct dead_letter_facts found = {.topic = last(headers, n_headers, DEAD_LETTER_TOPIC),
                                      .reason = last(headers, n_headers, DEAD_LETTER_REASON),
                                      .detail = last(headers, n_headers, DEAD_LETTER_DETAIL)};
    int64_t partition, tried;
    if (found.topic.p == NULL || found.reason.p == NULL ||
        !number(last(headers, n_headers, DEAD_LETTER_PARTITION), 0, INT32_MAX, &partition) ||
        !number(last(headers, n_headers, DEAD_LETTER_OFFSET), 0, INT64_MAX, &found.offset) ||
        !number(last(headers, n_headers, DEAD_LETTER_TIMESTAMP), INT64_MIN, INT64_MAX,
                &found.timestamp_ms) ||
        !number(last(headers, n_headers, DEAD_LETTER_TRIED), 0, INT32_MAX, &tried))
        return false;
    found.partition = (int32_t)partition;
    found.tried = (int32_t)tried;
    found.omitted = last(headers, n_headers, DEAD_LETTER_OMITTED).p != NULL;
    *ret = found;
    return true;
}

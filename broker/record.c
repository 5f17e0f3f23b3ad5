/* A record as one allocation of its own: a message of librdkafka would keep its whole fetch buffer
 * alive. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "broker/broker_int.h"
#include "broker/offsets_int.h"

struct layout {
    char *at;
};

static struct span copy_in(struct layout *layout, const void *p, size_t n)
{
    if (!p)
        return SPAN_NULL;
    char *start = layout->at;
    if (n)
        memcpy(start, p, n);
    start[n] = '\0';
    layout->at += n + 1;
    return (struct span){start, n};
}

/* Bytes of all headers with their zeros; counts them. */
static size_t headers_size(const rd_kafka_headers_t *headers, size_t *ret_count)
{
    const char *name;
    const void *value;
    size_t size, bytes = 0;

    *ret_count = 0;
    while (headers && rd_kafka_header_get_all(headers, *ret_count, &name, &value, &size) ==
                          RD_KAFKA_RESP_ERR_NO_ERROR) {
        bytes += strlen(name) + 1 + size + 1;
        ++*ret_count;
    }
    return bytes;
}

struct broker_owned_record *broker_record_of(const rd_kafka_message_t *message)
{
    const char *topic = rd_kafka_topic_name(message->rkt);
    rd_kafka_headers_t *headers = NULL;
    size_t count;

    (void)rd_kafka_message_headers(message, &headers);
    size_t bytes = headers_size(headers, &count);
    size_t fixed = sizeof(struct broker_owned_record) + count * sizeof(struct broker_header);
    struct broker_owned_record *owned =
        memory_new(1, fixed + bytes + strlen(topic) + message->key_len + message->len + 3);
    struct broker_header *list = (struct broker_header *)(owned + 1);
    struct layout layout = {(char *)(list + count)};

    for (size_t i = 0; i < count; i++) {
        const char *name;
        const void *value;
        size_t size;
        (void)rd_kafka_header_get_all(headers, i, &name, &value, &size);
        list[i].name = copy_in(&layout, name, strlen(name));
        list[i].value = copy_in(&layout, value, size);
    }
    rd_kafka_timestamp_type_t kind;
    int64_t timestamp_ms = rd_kafka_message_timestamp(message, &kind);
    owned->record = (struct broker_record){
        .topic = copy_in(&layout, topic, strlen(topic)).p,
        .partition = message->partition,
        .offset = message->offset,
        .timestamp_ms = kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? -1 : timestamp_ms,
        .key = copy_in(&layout, message->key, message->key_len),
        .value = copy_in(&layout, message->payload, message->len),
        .headers = list,
        .header_count = count,
    };
    return owned;
}

void broker_record_free(struct broker_record *record)
{
    if (!record)
        return;
    struct broker_owned_record *owned = (struct broker_owned_record *)record;
    if (owned->offsets)
        broker_offsets_unref(owned->offsets);
    free(owned);
}

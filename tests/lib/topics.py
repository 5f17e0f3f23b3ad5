"""Reads topics to their end, as a read_committed consumer of its own."""
import time


class TopicError(RuntimeError):
    """A topic could not be read to its end."""


def read_all(bootstrap, topics, limit=60):
    """Every committed record of the topics up to the end as it is now: {topic: [(key, value, headers)]}."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                         "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
                         "fetch.wait.max.ms": 20})
    try:
        found, places = {topic: [] for topic in topics}, []
        for topic in topics:
            places += [TopicPartition(topic, number, 0)
                       for number in consumer.list_topics(topic, timeout=20).topics[topic].partitions]
        consumer.assign(places)
        open_ends = {(place.topic, place.partition) for place in places}
        end = time.monotonic() + limit
        while open_ends:
            if time.monotonic() > end:
                raise TopicError(f"{sorted(open_ends)} could not be read to the end within {limit} s")
            record = consumer.poll(1.0)
            if record is None:
                continue
            place = (record.topic(), record.partition())
            if not record.error():
                key = record.key()
                found[place[0]].append((key.decode() if key else None, record.value() or b"",
                                        dict(record.headers() or [])))
            elif record.error().code() == KafkaError._PARTITION_EOF:
                # Behind an open transaction there is more: the end for this reader is before the last record.
                _, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=10)
                if record.offset() >= high:
                    open_ends.discard(place)
                else:
                    consumer.seek(TopicPartition(*place, record.offset()))
        return found
    finally:
        consumer.close()

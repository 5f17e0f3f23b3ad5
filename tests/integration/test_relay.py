"""The relay on a real PostgreSQL and Kafka: what a read_committed consumer sees, whatever happens to the relay."""
import collections
import json
import signal
import uuid

import pytest

from tests.integration.outbox_stack import SHARDS, Installation, item
from tests.lib.stack import wait_until

ONLY_RELAY = "[dispatch]\nenabled = false"
QUICK = "[relay]\nlanes = 2\nshard_ttl_ms = 500"


@pytest.fixture
def house(build, postgres, kafka, tmp_path):
    made = Installation(build, postgres, kafka, tmp_path)
    yield made
    made.close()


def runs(house, count, steps=3):
    """Finished runs, each with some events of its own; returns the event ids that must be published."""
    for n in range(count):
        got = house.run_of(f"task-{uuid.uuid4().hex[:8]}-{n}")
        for step in range(steps):
            [done] = house.db.commit(item(got, "test/1", checkpoint={"step": step}, events=[("step.done", {"step": step})]))
            assert done.outcome == "ok", done
            got.revision = done.revision
        [done] = house.db.commit(item(got, "test/1", finish="succeeded", output={"n": n}))
        assert done.outcome == "ok", done


def outbox(house):
    return {str(row.event_id) for row in house.db.sql("SELECT event_id FROM @schema@.outbox_events")}


def drained(house):
    wait_until(lambda: not outbox(house), 60, "every row is deleted")


def published(house, expected):
    """Reads the whole result topic and checks it: each event once, per run in the order of its revisions."""
    records = house.read("results", len(expected), settle=True)
    ids = [dict(r.headers())["ce_id"].decode() for r in records]
    twice = [i for i, n in collections.Counter(ids).items() if n > 1]
    assert not twice, f"published twice: {twice}"
    assert set(ids) == set(expected)
    by_run = collections.defaultdict(list)
    for record in records:
        value = json.loads(record.value())
        by_run[value.get("run_id")].append(value)
        assert record.key().decode() == value["task_id"]
    for events in by_run.values():
        revisions = [e["revision"] for e in events if e["type"] != "run.started"]
        assert revisions == sorted(revisions), events
        ends = [e for e in events if e["type"] == "run.succeeded"]
        assert ends in ([], [events[-1]]), events
    return records


def test_events_are_published_once_in_order_and_deleted(house):
    runs(house, 10)
    expected = outbox(house)
    assert len(expected) >= 40
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    records = published(house, expected)
    headers = dict(records[0].headers())
    assert headers["ce_specversion"] == b"1.0" and "ce_type" in headers and "run_id" in headers
    assert pod.health()["shards_held"] == SHARDS
    # While it runs: what is committed now goes out, too.
    runs(house, 3)
    wait_until(lambda: not outbox(house), 30, "the new ones are published")
    pod.stop()
    free = house.db.sql("SELECT owner FROM @schema@.service_leases WHERE name LIKE 'shard:%%' AND owner IS NOT NULL")
    assert free == [], "a graceful stop gives the shards back"


def test_identities_name_what_was_published(house):
    runs(house, 4)
    expected = outbox(house)
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    pod.stop()
    named = set()
    for record in house.read("relay", 1, settle=True):
        value = json.loads(record.value())
        assert record.partition() == value["shard"]
        named |= {event_id for _, event_id in value["events"]}
    assert named and named <= expected


@pytest.mark.parametrize("point", ["relay.after_read", "relay.before_kafka_commit", "relay.after_kafka_commit",
                                   "relay.after_delete"])
def test_killed_at_each_step(house, point):
    runs(house, 6)
    expected = outbox(house)
    house.arm(point, "die")
    pod = house.pod(ONLY_RELAY, QUICK)
    assert pod.wait() == -signal.SIGKILL
    other = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    published(house, expected)
    if point == "relay.after_kafka_commit":
        assert other.events("relay.deletes_last_batch"), "the identity in Kafka named the batch"
    other.stop()


def test_a_transaction_that_commits_late_is_published(house):
    pod = house.pod(ONLY_RELAY, QUICK)
    early, late = house.run_of("early"), house.run_of("late")
    drained(house)
    slow = house.db.another()
    slow.begin()
    [done] = slow.commit(item(late, "test/1", events=[("step.late", {})]))  # has drawn its sequence
    assert done.outcome == "ok"
    [done] = house.db.commit(item(early, "test/1", events=[("step.early", {})]))
    assert done.outcome == "ok"
    wait_until(lambda: not outbox(house), 30, "the one with the higher sequence is published and deleted")
    slow.end()
    wait_until(lambda: not outbox(house), 30, "the late one is published, too")
    slow.close()
    types = [json.loads(r.value())["type"] for r in house.read("results", 4, settle=True)]
    assert types.count("step.late") == 1 and types.count("step.early") == 1
    pod.stop()


def test_two_relays_at_once(house):
    pods = [house.pod(ONLY_RELAY, QUICK) for _ in range(2)]
    runs(house, 15)
    house_expected = {dict(r.headers())["ce_id"].decode() for r in house.read("results", 75)}
    assert len(house_expected) == 75
    drained(house)
    wait_until(lambda: [pod.health()["shards_held"] for pod in pods] == [1, 1], 30, "each has its share")
    published(house, house_expected)
    for pod in pods:
        pod.stop()


def test_paused_in_mid_transaction_and_resumed(house):
    """Another relay takes the shards over; the paused one wakes inside its transaction and must not add to it."""
    runs(house, 6)
    expected = outbox(house)
    house.arm("relay.before_kafka_commit", "stop")  # SIGSTOP to itself, the transaction is open
    pod = house.pod(ONLY_RELAY, QUICK)
    house.await_reached("relay.before_kafka_commit")
    other = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    pod.signal(signal.SIGCONT)
    wait_until(lambda: pod.events("relay.restarts_shard") or pod.events("relay.shard_lost"), 30,
               "the paused relay finds out")
    published(house, expected)
    pod.stop()
    other.stop()
    published(house, expected)


def test_paused_between_commit_and_delete_and_resumed(house):
    runs(house, 6)
    expected = outbox(house)
    house.arm("relay.after_kafka_commit", "stop")
    pod = house.pod(ONLY_RELAY, QUICK)
    house.await_reached("relay.after_kafka_commit")
    other = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    pod.signal(signal.SIGCONT)
    wait_until(lambda: pod.events("relay.shard_lost"), 30, "its delete is refused")
    published(house, expected)
    pod.stop()
    other.stop()


def publish_all(house):
    runs(house, 6)
    expected = outbox(house)
    kept = house.db.sql("CREATE TABLE kept AS SELECT * FROM @schema@.outbox_events")
    assert kept == []
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    pod.stop()
    return expected


def bring_back(house):
    """The deletes of the last batches are lost, as after an asynchronous promotion."""
    house.db.sql("INSERT INTO @schema@.outbox_events SELECT * FROM kept")


def test_recovery_when_the_identity_is_older_than_the_last_delete(house):
    expected = publish_all(house)
    bring_back(house)
    house.db.sql("UPDATE @schema@.relay_positions SET last_batch = last_batch + 5")
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    assert pod.events("relay.recovered")
    published(house, expected)
    pod.stop()


def test_recovery_when_the_identity_is_missing(house):
    expected = publish_all(house)
    bring_back(house)
    house.admin.delete_topics([house.topic("relay")])[house.topic("relay")].result(30)
    wait_until(lambda: house.topic("relay") not in house.admin.list_topics(timeout=10).topics, 30, "the topic is gone")
    from confluent_kafka.admin import NewTopic
    house.admin.create_topics([NewTopic(house.topic("relay"), SHARDS, 1, config={"cleanup.policy": "compact"})])[
        house.topic("relay")].result(30)
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    published(house, expected)
    runs(house, 1)  # and it goes on, with a new identity
    drained(house)
    assert len(house.read("relay", 1)) >= 1
    pod.stop()


def identity(house, shard, **members):
    [facts] = house.db.call("relay_position", p_shard=(shard, "integer"))
    value = {"shard": shard, "batch": facts.last_batch, "system_identifier": facts.system_identifier,
             "timeline": facts.timeline, "lsn": facts.lsn, "events": []} | members
    sample = json.loads(house.read("relay", 1)[0].value())
    assert set(sample) == set(value), (sorted(sample), sorted(value))
    house.produce("relay", str(shard), value, partition=shard)


def test_a_position_ahead_of_the_database_closes_the_gate(house):
    """The database was set back to a snapshot: the WAL position that Kafka remembers lies in its future."""
    expected = publish_all(house)
    bring_back(house)
    for shard in range(SHARDS):
        identity(house, shard, lsn="FFFF/0")
    pod = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: house.db.one("SELECT gate_closed FROM @schema@.control"), 30, "the gate is closed")
    assert "WAL" in house.db.one("SELECT gate_reason FROM @schema@.control")
    assert outbox(house), "nothing is touched while it is closed"
    # Every shard has said so before a person opens: else one would close it again.
    wait_until(lambda: len(pod.events("relay.closes_gate")) == SHARDS, 30, "each shard has looked")
    house.db.sql("UPDATE @schema@.control SET gate_closed = false")
    wait_until(lambda: not outbox(house), 60, "recovery deletes what Kafka has")
    published(house, expected)
    pod.stop()


def test_a_later_timeline_in_kafka_publishes_nothing(house):
    publish_all(house)
    for shard in range(SHARDS):
        identity(house, shard, timeline=99)
    runs(house, 2)
    waiting = outbox(house)
    pod = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: house.db.one("SELECT gate_closed FROM @schema@.control"), 30, "the gate is closed")
    assert "timeline" in house.db.one("SELECT gate_reason FROM @schema@.control")
    house.db.sql("UPDATE @schema@.control SET gate_closed = false")
    wait_until(lambda: len(pod.events("relay.closes_gate")) == SHARDS, 30, "each shard has looked")
    assert outbox(house) == waiting
    pod.stop()


def test_an_event_that_the_broker_refuses_goes_without_its_body(house):
    house.set_topic("results", "max.message.bytes", "3000")
    got = house.run_of("big")
    [done] = house.db.commit(item(got, "test/1", events=[("step.big", {"text": "x" * 20000}), ("step.small", {"n": 1})]))
    assert done.outcome == "ok", done
    expected = outbox(house)
    pod = house.pod(ONLY_RELAY, QUICK)
    drained(house)
    values = {json.loads(r.value())["type"]: json.loads(r.value()) for r in published(house, expected)}
    assert "x" * 100 not in json.dumps(values["step.big"])
    assert values["step.small"]["event_id"]
    pod.stop()


def test_kafka_restarts(house, kafka):
    pod = house.pod(ONLY_RELAY, QUICK)
    runs(house, 3)
    drained(house)
    first = {dict(r.headers())["ce_id"].decode() for r in house.read("results", 15, settle=True)}
    kafka.kill()
    runs(house, 3)
    waiting = outbox(house)
    assert waiting
    kafka.start()
    wait_until(lambda: not outbox(house), 90, "it goes on by itself")
    published(house, first | waiting)
    pod.stop()


def test_at_least_once(house):
    runs(house, 6)
    expected = outbox(house)
    house.arm("relay.after_kafka_commit", "die")
    pod = house.pod(ONLY_RELAY, QUICK + "\nmode = at_least_once")
    assert pod.wait() == -signal.SIGKILL
    other = house.pod(ONLY_RELAY, QUICK + "\nmode = at_least_once")
    drained(house)
    ids = [dict(r.headers())["ce_id"].decode() for r in house.read("results", len(expected), settle=True)]
    assert set(ids) == expected and len(ids) > len(expected), "the batch came again, under the same event ids"
    other.stop()


def test_a_relay_topic_that_is_not_compact_is_refused(house):
    house.set_topic("relay", "cleanup.policy", "delete")
    runs(house, 1)
    pod = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: pod.events("relay.topic_refused"), 30, "it says what is wrong")
    assert outbox(house)
    house.set_topic("relay", "cleanup.policy", "compact")
    drained(house)
    pod.stop()


def test_shards_are_shared_out_anew_when_pods_come_and_go(house):
    first = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: first.health()["shards_held"] == SHARDS, 30, "the first has all")
    second = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: [pod.health()["shards_held"] for pod in (first, second)] == [1, 1], 30, "each has its share")
    assert len(first.events("relay.shard_let_go")) == 1
    runs(house, 4)
    expected = outbox(house)
    drained(house)
    second.stop()
    wait_until(lambda: first.health()["shards_held"] == SHARDS, 30, "the first has all again")
    assert house.db.sql("SELECT owner FROM @schema@.relay_pods WHERE expires_at < clock_timestamp()") == []
    assert len(house.db.sql("SELECT owner FROM @schema@.relay_pods")) == 1
    published(house, expected)
    first.stop()


def test_after_a_start_of_the_server_claims_wait_for_the_relay(house, postgres):
    house.db.sql("UPDATE @schema@.control SET claims_wait_for_relay = true")
    [made] = house.db.submit(task="t1")
    [got] = house.db.acquire("test/1", made.run_id)
    assert got.outcome == "gate_closed"
    pod = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: house.db.acquire("test/1", made.run_id)[0].outcome == "acquired", 30, "every shard was compared")
    drained(house)
    pod.signal(signal.SIGSTOP)
    postgres.restart()
    house.reconnect()
    [other] = house.db.submit(task="t2")
    assert house.db.acquire("test/1", other.run_id)[0].outcome == "gate_closed"
    assert house.db.one("SELECT reason FROM @iface@.gate_status()") == "relay_unchecked"
    pod.signal(signal.SIGCONT)
    wait_until(lambda: house.db.acquire("test/1", other.run_id)[0].outcome == "acquired", 60, "compared again")
    drained(house)
    pod.stop()


def test_rows_older_than_the_topics_memory_are_held_back(house):
    house.set_topic("results", "retention.ms", "3600000")
    runs(house, 2)
    old = outbox(house)
    house.db.sql("UPDATE @schema@.outbox_events SET at = at - interval '2 hours'")
    runs(house, 2)
    expected = outbox(house)
    pod = house.pod(ONLY_RELAY, QUICK)
    wait_until(lambda: outbox(house) == old, 30, "the young ones are published, the old ones stay")
    wait_until(lambda: sum(e["events"] for e in pod.events("relay.held_back")) == len(old), 30, "it says how many")
    published(house, expected - old)
    house.set_topic("results", "retention.ms", "86400000")  # what the operator does who wants them out
    drained(house)
    published(house, expected)
    pod.stop()

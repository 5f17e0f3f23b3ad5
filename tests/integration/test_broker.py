"""The broker room on a real Kafka: offsets, rebalances, transactions, fencing, read-backs, topics, faults."""
import subprocess
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic,
                                   ResourceType)

from tests.integration.probe import Probe
from tests.lib.stack import wait_until

QUICK = ("consumer.session.timeout.ms=3000", "consumer.heartbeat.interval.ms=500")


@pytest.fixture
def probe(build, kafka):
    """Makes probes; at the end each must end cleanly (no leak, no race, no hang)."""
    made = []

    def make(*properties):
        made.append(Probe(build, kafka.bootstrap, *properties))
        return made[-1]
    yield make
    for one in made:
        if not one.killed:
            one.close()


@pytest.fixture
def topic(kafka, prefix):
    """Makes a topic: topic(partitions, **config) -> name."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    count = [0]

    def make(partitions=1, **config):
        count[0] += 1
        name = f"{prefix}{count[0]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)
        return name
    return make


def poll(probe, count, timeout=30, verb="poll", most=1000):
    """Polls until `count` records have come; fails when more do."""
    records = []
    end = time.monotonic() + timeout
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} records within {timeout} s"
        records += probe.ask(verb, 200, min(most, count - len(records)))["records"]
    return records


def lag(probe, group, topic):
    return probe.ok("lag", group, topic, 10000)["lag"]


def settle(probes, fact, timeout=40, verb="take"):
    """Polls all members in turn until fact() holds, as pods would; returns what they read."""
    records = []

    def turn():
        for one in probes:
            records.extend(one.ask(verb, 50, 500)["records"])
        return fact(records)
    wait_until(turn, timeout, "the group settles", every=0)
    return records


# ---- Records ----

def test_a_record_comes_out_as_it_went_in(probe, topic, kafka):
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, key="k", value="v", headers=[("a", b"1"), ("b", None)])
    producer.produce(name, key=None, value=None)
    producer.produce(name, key="", value="")
    producer.flush(30)
    p = probe()
    p.ok("consumer", "g-" + name, name, 0)
    first, second, third = poll(p, 3)
    assert (first["key"], first["value"], first["headers"]) == ("k", "v", 2)
    assert (second["key"], second["value"]) == (None, None)
    assert (third["key"], third["value"]) == ("", "")
    assert first["timestamp"] > 1_600_000_000_000


def test_keys_go_where_java_clients_send_them(probe, topic, kafka):
    name = topic(7)
    probe().ok("produce", name, -1, "key-%d", "v", 50)
    other = topic(7)
    java_like = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for i in range(50):
        java_like.produce(other, key=f"key-{i}", value="v")
    java_like.flush(30)
    p = probe()
    places = {source: {r["key"]: r["partition"] for r in p.ok("since", source, 0, 30000, 0)["records"]}
              for source in (name, other)}
    assert len(places[name]) == 50 and places[name] == places[other]


def test_the_cluster_says_who_it_is(probe, kafka):
    answer = probe().ok("cluster")
    assert answer["id"] == kafka.cluster and answer["mock"] == 0


# ---- Offsets ----

def test_only_the_contiguous_done_prefix_is_committed(probe, topic):
    name, group = topic(), "g-prefix"
    p = probe()
    p.ok("produce", name, 0, "k", "%d", 10)
    p.ok("consumer", group, name, 100)
    records = poll(p, 10)
    for record in records:
        if record["offset"] != 5:
            p.ask("done", 0, record["offset"])
    p.ask("close")
    assert lag(p, group, name) == 5
    p.ok("consumer", group, name, 100)
    assert [r["offset"] for r in poll(p, 5)] == [5, 6, 7, 8, 9]


def test_offsets_are_committed_while_it_polls_and_nothing_arrives(probe, topic):
    name, group = topic(), "g-idle"
    p = probe()
    p.ok("produce", name, 0, "k", "v", 3)
    p.ok("consumer", group, name, 0)
    poll(p, 3)
    for offset in range(3):
        p.ask("done", 0, offset)
    settle([p], lambda _: lag(p, group, name) == 0, verb="poll")


def test_the_lag_returns_to_zero_behind_transaction_markers(probe, topic):
    name, group = topic(), "g-markers"
    p = probe()
    p.ok("txn", "id-" + name, 10000, 30000)
    for outcome in ("commit", "abort"):
        p.ok("begin")
        p.ok("send", name, 0, "k", outcome, 1)
        p.ok(outcome, 30000)
    p.ok("consumer", group, name, 0)
    records = settle([p], lambda _: lag(p, group, name) == 0)
    assert [r["value"] for r in records] == ["commit"]


def test_a_killed_consumer_loses_nothing(probe, topic):
    name, group = topic(), "g-killed"
    p = probe(*QUICK)
    p.ok("produce", name, 0, "k", "%d", 20)
    p.ok("consumer", group, name, 0)
    records = poll(p, 20)
    for record in records[:8]:
        p.ask("done", 0, record["offset"])
    settle([p], lambda _: lag(p, group, name) == 12, verb="poll")
    p.kill()
    q = probe(*QUICK)
    q.ok("consumer", group, name, 0)
    assert [r["offset"] for r in poll(q, 12, verb="take")] == list(range(8, 20))
    settle([q], lambda _: lag(q, group, name) == 0)


# ---- Rebalance ----

class Group:
    """Members that poll in turn; what they read, and whether a partition was ever taken from one before it gave it."""

    def __init__(self, probe, group, topic, *properties):
        self.make = lambda: probe(*properties)
        self.group, self.topic = group, topic
        self.members, self.read, self.lost = [], [], False

    def turn(self):
        for one in self.members:
            answer = one.ask("take", 20, 500)
            one.assigned = answer["assigned"]
            self.read += [(r["partition"], r["offset"]) for r in answer["records"]]
            self.lost |= any(entry["lost"] for entry in answer["revoked"])

    def until(self, fact, timeout=60):
        def step():
            self.turn()
            return fact()
        wait_until(step, timeout, "the group gets there", every=0)

    def join(self):
        self.members.append(self.make())
        self.members[-1].assigned = []
        self.members[-1].ok("consumer", self.group, self.topic, 0)

    def leave(self):
        answer = self.members.pop(0).ask("close")
        self.lost |= any(entry["lost"] for entry in answer["revoked"])

    def balanced(self, partitions):
        have = sorted(p for one in self.members for p in one.assigned)
        return have == list(range(partitions)) and all(one.assigned for one in self.members)


def test_partitions_move_without_losing_or_doubling_a_record(probe, topic):
    name, total = topic(6), 6000
    feeder, group = probe(), Group(probe, "g-move", name)
    group.join()
    for sent in range(500, total + 1, 500):
        if sent in (1500, 2500, 3500):
            group.join()
        elif sent in (4500, 5500):
            group.leave()
        feeder.ok("produce", name, -1, f"{sent}-%d", "v", 500)  # records flow while partitions move
        group.until(lambda sent=sent: len(set(group.read)) >= sent and group.balanced(6))
    group.until(lambda: lag(feeder, "g-move", name) == 0)
    assert len(set(group.read)) == total, "records were lost"
    assert not group.lost, "members that poll and beat are asked before a partition goes"
    assert len(group.read) == total, "records came twice although all were done before each revocation"


def test_a_rebalance_storm_loses_nothing_and_drains(probe, topic):
    name, total = topic(8), 4000
    feeder, group = probe(), Group(probe, "g-storm", name, *QUICK)
    group.join()
    for step in range(16):  # eight pods joining and leaving, one of them by SIGKILL, nobody waiting for anybody
        feeder.ok("produce", name, -1, f"{step}-%d", "v", total // 16)
        group.leave() if step % 4 == 3 else group.join()
        if step == 9:
            group.members.pop(0).kill()
        group.turn()
    group.until(lambda: len(set(group.read)) >= total, timeout=120)
    group.until(lambda: lag(feeder, "g-storm", name) == 0, timeout=120)
    assert len(set(group.read)) == total


def test_what_is_being_made_durable_is_waited_for_and_committed_before_the_partition_goes(probe, topic):
    name, group = topic(2), "g-wait"
    p, q = probe(*QUICK), probe(*QUICK)
    p.ok("consumer", group, name, 1)  # 1 ms: what is not done by then is given up
    p.ok("produce", name, 0, "k", "a%d", 5)
    p.ok("produce", name, 1, "k", "b%d", 5)
    held = poll(p, 10)
    for record in held:
        if record["offset"] < 3:
            p.ask("done", record["partition"], record["offset"])
    q.ok("consumer", group, name, 0)
    moved = []

    def taken(_):
        moved.extend(r["partition"] for r in p.ask("poll", 50, 100)["revoked"])
        return moved
    got = settle([q], lambda records: taken(records) and len(records) >= 2)
    assert len(set(moved)) == 1, "cooperative: one of two partitions moves, the other stays"
    assert {r["partition"] for r in got} == set(moved)
    assert sorted(r["offset"] for r in got) == [3, 4], "from the done prefix on, committed at the revocation"


def test_done_of_a_partition_that_moved_away_changes_nothing(probe, topic):
    name, group = topic(), "g-stale"
    p, q = probe(*QUICK), probe(*QUICK)
    p.ok("produce", name, 0, "k", "%d", 5)
    p.ok("consumer", group, name, 1)
    assert len(poll(p, 5)) == 5
    p.stop()  # as a paused pod; its session runs out
    q.ok("consumer", group, name, 1)
    assert [r["offset"] for r in poll(q, 5)] == list(range(5))
    q.ask("done", 0, 0)
    settle([q], lambda _: lag(q, group, name) == 4, verb="poll")
    p.go_on()
    for offset in range(5):
        p.ask("done", 0, offset)
    lost = []

    def noticed(_):
        lost.extend(p.ask("poll", 50, 10)["revoked"])
        return lost
    settle([q], noticed, verb="poll")
    assert [entry["lost"] for entry in lost] == [True]
    for offset in range(5):
        p.ask("done", 0, offset)
    settle([p, q], lambda _: p.ask("stats")["done_stale"] == 5, verb="poll")
    assert lag(q, group, name) == 4, "the stale consumer must not move the group"


def test_a_stall_past_the_poll_interval_recovers_by_itself(probe, topic):
    name, group = topic(), "g-stall"
    stalled = probe(*QUICK, "consumer.max.poll.interval.ms=3000")
    other = probe(*QUICK)
    stalled.ok("produce", name, 0, "k", "%d", 3)
    stalled.ok("consumer", group, name, 1)
    assert len(poll(stalled, 3)) == 3
    other.ok("consumer", group, name, 0)
    # Not polled until the other has the partition: the stall itself is the fact waited for.
    assert [r["offset"] for r in settle([other], lambda new: len(new) >= 3)] == [0, 1, 2]
    other.ask("close")
    other.ok("produce", name, 0, "k", "late%d", 2)
    read = settle([stalled], lambda new: len(new) >= 2)
    assert [r["value"] for r in read] == ["late0", "late1"]
    settle([stalled], lambda _: lag(other, group, name) == 0)


def test_a_pause_holds_and_partitions_assigned_later_are_paused_too(probe, topic):
    name, group = topic(2), "g-pause"
    p, q = probe(*QUICK), probe(*QUICK)
    p.ok("consumer", group, name, 0)
    q.ok("consumer", group, name, 0)
    p.ok("produce", name, -1, "warm%d", "v", 40)
    seen = settle([p, q], lambda new: {r["partition"] for r in new} == {0, 1} and len(new) == 40)
    assert len(seen) == 40
    p.ask("pause", "all")
    q.ask("close")  # its partition comes to p, which is paused
    feeder = probe()
    feeder.ok("produce", name, 0, "k", "a", 5)
    feeder.ok("produce", name, 1, "k", "b", 5)

    delivered = []

    def both_are_here():
        answer = p.ask("poll", 50, 100)
        delivered.extend(answer["records"])
        return answer["assigned"] == [0, 1]
    wait_until(both_are_here, 40, "both partitions are p's")
    # The new partition's first fetch would have come by the time of one more round to Kafka.
    delivered += p.ask("poll", 1500, 100)["records"]
    assert not delivered, "a paused consumer delivered"
    assert lag(feeder, group, name) == 10
    p.ask("resume", "all")
    assert len(settle([p], lambda new: len(new) >= 10)) == 10
    p.ask("pause", name, 0)
    feeder.ok("produce", name, 0, "k", "a", 5)
    feeder.ok("produce", name, 1, "k", "b", 5)
    assert {r["value"] for r in settle([p], lambda new: len(new) >= 5)} == {"b"}
    p.ask("resume", name, 0)
    assert {r["value"] for r in settle([p], lambda new: len(new) >= 5)} == {"a"}


# ---- Transactions ----

def test_committed_is_visible_and_aborted_is_not(probe, topic):
    name = topic()
    p = probe()
    p.ok("txn", "id-" + name, 10000, 30000)
    for outcome, value in (("commit", "one"), ("abort", "two"), ("commit", "three")):
        p.ok("begin")
        p.ok("send", name, 0, "k", value, 1)
        p.ok(outcome, 30000)
    assert [r["value"] for r in p.ok("since", name, 0, 30000, 0)["records"]] == ["one", "three"]


def test_a_stale_transactional_producer_is_fenced(probe, topic):
    name = topic()
    stale, fresh = probe(), probe()
    stale.ok("txn", "id-" + name, 30000, 30000)
    stale.ok("begin")
    stale.ok("send", name, 0, "k", "stale", 1)
    stale.stop()
    fresh.ok("txn", "id-" + name, 30000, 30000)
    fresh.ok("begin")
    fresh.ok("send", name, 0, "k", "fresh", 1)
    fresh.ok("commit", 30000)
    stale.go_on()
    assert stale.ask("commit", 30000)["result"] == "fenced"
    assert stale.ask("stats")["txn_fenced"] == 1
    stale.ask("closetxn")
    assert [r["value"] for r in fresh.ok("since", name, 0, 30000, 0)["records"]] == ["fresh"]


def test_a_killed_producer_is_settled_by_the_next_open(probe, topic):
    name = topic()
    p, q = probe(), probe()
    p.ok("txn", "id-" + name, 60000, 30000)
    p.ok("begin")
    p.ok("send", name, 0, "k", "dead", 1)
    # Only what has left the process can stand in the way: wait for it at the partition's end.
    wait_until(lambda: lag(q, "nobody", name) == 1, 30, "the record is in Kafka")
    p.kill()
    hidden = q.ask("last", name, 0, 1000)
    assert hidden["result"] == "retry" and "transaction under way" in hidden["text"]
    q.ok("txn", "id-" + name, 60000, 30000)
    assert q.ok("last", name, 0, 30000)["record"] is None
    assert q.ok("since", name, 0, 30000, 0)["records"] == []


def test_a_commit_without_an_answer_is_unknown_and_the_read_back_decides(probe, topic, kafka):
    name = topic()
    p = probe()
    p.ok("txn", "id-" + name, 60000, 30000)
    p.ok("begin")
    p.ok("send", name, 0, "k", "maybe", 1)
    # Delivered first: a commit that could not even deliver would be aborted clearly.
    wait_until(lambda: lag(p, "nobody", name) == 1, 30, "the record is in Kafka")
    kafka.pause()
    try:
        answer = p.ask("commit", 2000)
    finally:
        kafka.resume()
    assert answer["result"] == "unknown", answer
    p.ask("closetxn")
    p.ok("txn", "id-" + name, 60000, 60000)
    record = p.ok("last", name, 0, 30000)["record"]
    seen = [r["value"] for r in p.ok("since", name, 0, 30000, 0)["records"]]
    assert seen == ([record["value"]] if record else [])
    p.ok("begin")
    p.ok("send", name, 0, "k", "after", 1)
    p.ok("commit", 30000)
    assert p.ok("last", name, 0, 30000)["record"]["value"] == "after"


def test_what_cannot_be_delivered_in_time_is_a_clear_abort_or_unknown_but_never_ok(probe, topic, kafka):
    name = topic()
    p = probe()
    p.ok("txn", "id-" + name, 60000, 30000)
    kafka.pause()
    try:
        p.ok("begin")
        p.ok("send", name, 0, "k", "x", 1)
        answer = p.ask("commit", 1000)
    finally:
        kafka.resume()
    assert answer["result"] in ("retry", "unknown"), answer
    p.ask("closetxn")
    p.ok("txn", "id-" + name, 60000, 60000)
    assert p.ok("last", name, 0, 30000)["record"] is None


def test_a_message_that_kafka_refuses_is_named_and_the_rest_can_go(probe, topic):
    name = topic(max_message_bytes=2000)
    p = probe()
    p.ok("txn", "id-" + name, 30000, 30000)
    p.ok("begin")
    p.ok("send", name, 0, "k", "small", 7)
    p.ok("send", name, 0, "k", "#5000", 8)
    answer = p.ask("commit", 30000)
    assert answer["result"] == "retry" and "large" in answer["text"].lower()
    # Kafka refuses a whole batch; either message may be named. Alone, the culprit is plain.
    assert answer["refused"] in (7, 8)
    p.ok("begin")
    p.ok("send", name, 0, "k", "#5000", 8)
    assert p.ask("commit", 30000)["refused"] == 8

    def alone():
        # After a refusal librdkafka finds its sequence broken and aborts once more before it goes on.
        p.ok("begin")
        p.ok("send", name, 0, "k", "small", 7)
        answer = p.ask("commit", 30000)
        assert answer["result"] in ("ok", "retry") and "refused" not in answer
        return answer["result"] == "ok"
    wait_until(alone, 30, "the small one goes alone")
    assert [r["value"] for r in p.ok("since", name, 0, 30000, 0)["records"]] == ["small"]


def test_a_message_larger_than_the_clients_limit_leaves_the_transaction_usable(probe, topic):
    name = topic()
    p = probe()
    p.ok("txn", "id-" + name, 30000, 30000)
    p.ok("begin")
    assert p.ask("send", name, 0, "k", "#2000000", 1)["result"] == "refused"
    p.ok("send", name, 0, "k", "small", 2)
    p.ok("commit", 30000)
    assert [r["value"] for r in p.ok("since", name, 0, 30000, 0)["records"]] == ["small"]


# ---- Read-backs ----

def test_the_last_record_is_found_behind_aborted_batches(probe, topic):
    name = topic(2)
    p = probe()
    assert p.ok("last", name, 1, 30000)["record"] is None
    p.ok("txn", "id-" + name, 30000, 30000)
    p.ok("begin")
    p.ok("send", name, 1, "k", "kept", 1)
    p.ok("commit", 30000)
    for _ in range(5):
        p.ok("begin")
        for i in range(40):
            p.ok("send", name, 1, "k", "aborted", i)
        p.ok("abort", 30000)
    record = p.ok("last", name, 1, 30000)["record"]
    assert (record["value"], record["offset"], record["partition"]) == ("kept", 0, 1)
    assert p.ok("last", name, 0, 30000)["record"] is None


def test_a_read_since_a_time_sees_all_of_it_in_order_and_stops_when_told(probe, topic, kafka):
    name = topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for i in range(300):
        producer.produce(name, key=str(i), value=str(i), partition=i % 3, timestamp=1_700_000_000_000 + i * 1000)
    producer.flush(30)
    p = probe()
    records = p.ok("since", name, 1_700_000_000_000 + 100 * 1000, 30000, 0)
    assert records["answer"]["result"] == "ok"
    assert sorted(int(r["value"]) for r in records["records"]) == list(range(100, 300))
    for partition in range(3):
        offsets = [r["offset"] for r in records["records"] if r["partition"] == partition]
        assert offsets == sorted(offsets) and len(offsets) in (66, 67)
    assert len(p.ok("since", name, 0, 30000, 10)["records"]) == 10
    assert p.ok("since", name, 1_900_000_000_000, 30000, 0)["records"] == []


def test_a_topic_that_is_not_there_is_refused(probe, prefix):
    p = probe()
    assert p.ask("last", prefix + "none", 0, 5000)["result"] == "refused"
    assert p.ask("since", prefix + "none", 0, 5000, 0)["answer"]["result"] == "refused"


# ---- Faults of the broker ----

def test_a_kafka_restart_in_mid_flight_is_survived(probe, topic, kafka):
    name, group = topic(2), "g-bounce"
    p, feeder = probe(), probe()
    p.ok("consumer", group, name, 0)
    feeder.ok("produce", name, -1, "before%d", "v", 200)
    read = settle([p], lambda new: len(new) >= 100)
    kafka.restart(kill=True)
    feeder.ok("produce", name, -1, "after%d", "v", 200, timeout=90)
    read += settle([p], lambda new: len({r["key"] for r in read + new}) == 400, timeout=90)
    settle([p], lambda _: lag(feeder, group, name) == 0, timeout=60)


# ---- Topics ----

def test_topics_are_made_checked_and_judged(probe, prefix, kafka):
    p = probe()
    missing = p.ok("topics", "check", prefix, 4, 8)["topics"]
    assert all(not t["exists"] and "topics apply" in t["detail"] for t in missing.values())
    made = p.ok("topics", "apply", prefix, 4, 8)["topics"]
    assert all(t["created"] and t["ok"] for t in made.values()), made
    assert made["relay"]["partitions"] == 8 and made["results"]["partitions"] == 4
    again = p.ok("topics", "apply", prefix, 4, 8)["topics"]
    assert all(t["ok"] and not t["created"] for t in again.values())
    more = p.ok("topics", "apply", prefix, 6, 8)["topics"]
    assert more["intents"]["partitions"] == 6 and more["intents"]["ok"], "hints may grow"
    assert more["results"]["partitions"] == 4 and "order" in more["results"]["detail"], "an order is not broken"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    policy = ConfigResource(ResourceType.TOPIC, prefix + "relay", incremental_configs=[
        ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)])
    admin.incremental_alter_configs([policy])[policy].result(30)
    bad = p.ok("topics", "check", prefix, 4, 8)["topics"]["relay"]
    assert not bad["ok"] and "compact only" in bad["detail"]
    assert "shards" in p.ok("topics", "check", prefix, 4, 4)["topics"]["relay"]["detail"]


def test_kcat_reads_and_writes_with_no_tool_of_ours(probe, topic, kafka):
    name = topic()
    subprocess.run(["kcat", "-b", kafka.bootstrap, "-P", "-K", ":", "-t", name], input=b't1:{"task_id":"t1"}\n',
                   check=True, timeout=30)
    p = probe()
    p.ok("consumer", "g-kcat", name, 0)
    assert poll(p, 1)[0]["key"] == "t1"
    p.ok("produce", name, 0, "t2", "answer", 1)
    out = subprocess.run(["kcat", "-b", kafka.bootstrap, "-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%k\n"],
                         capture_output=True, check=True, timeout=30).stdout
    assert out.split() == [b"t1", b"t2"]

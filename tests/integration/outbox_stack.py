"""What the tests of dispatcher and relay share: an installation on a real PostgreSQL and Kafka, a remote with faults,
and processes of tests/integration/outbox_probe.c."""
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
import uuid

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewTopic,
                                   ResourceType)

from tests.lib.stack import ROOT, wait_until

sys.path.insert(0, os.path.join(ROOT, "tests", "sql"))
from database import Database, intent, item  # noqa: E402

SHARDS = 2
CONFIG = """\
[postgres]
dsn = {dsn}
[kafka]
bootstrap.servers = {bootstrap}
[topics]
prefix = {prefix}
[pod]
name = {name}
development = true
[log]
level = debug
"""


class Remote:
    """tests/lib/remote.py: its ledger is the judge of what was executed."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests", "lib", "remote.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=20) as answer:
            return json.loads(answer.read())

    def ledger(self):
        return self.ask("/_ledger")

    def executions(self, key):
        return self.ledger()["by_key"].get(key, 0)

    def script(self, path, *faults):
        self.ask("/_script", {"path": path, "faults": list(faults)})

    def release(self):
        self.ask("/_release", {})

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


class Pod:
    """A process of the outbox. Its log is JSON lines on standard error, kept in a file."""

    def __init__(self, build, folder, text, stops, name):
        path = os.path.join(folder, f"{name}.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        self.log = os.path.join(folder, f"{name}.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([os.path.join(build, "tests", "outbox_probe"), path],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            env=dict(os.environ, HOLDFAST_STOP_DIR=stops), bufsize=0)
        self.buffer = b""
        first = self.hear()
        assert first == {"started": True}, first

    def hear(self, timeout=30):
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            assert ready, f"no line of the probe within {timeout} s\n{self.tail()}"
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            assert chunk, f"the probe ended with {self.process.wait(10)}\n{self.tail()}"
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")

    def health(self):
        self.say("health")
        return self.hear()

    def events(self, name=None):
        """Lines of its log."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = [json.loads(line) for line in log if line.startswith("{")]
        return [line for line in lines if name in (None, line["event"])]

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-20:])

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=60):
        return self.process.wait(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait(10)

    def stop(self, grace_ms=2000):
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.say(f"stop {grace_ms}")
            code = self.process.wait(60)
            assert code == 0, f"the probe ended with {code}\n{self.tail()}"
        self.process.stdin.close()
        self.process.stdout.close()


def template(postgres):
    """A database with the schema, made once for each server and copied for each test."""
    name = f"template_{SHARDS}"
    if not getattr(postgres, "has_template", False):
        script = subprocess.run([sys.executable, os.path.join(ROOT, "schemas", "sql", "install.py"), "--shards", str(SHARDS)],
                                capture_output=True, text=True, check=True, timeout=60).stdout
        postgres.create_database(name)
        postgres.psql(script, name, extra=("--single-transaction",))
        postgres.psql("CREATE ROLE pod LOGIN IN ROLE holdfast_worker", name)
        postgres.has_template = True
    return name


class Installation:
    """Schema, topics and pods of one test."""

    def __init__(self, build, postgres, kafka, folder):
        self.build, self.kafka, self.folder = build, kafka, str(folder)
        self.prefix = f"t{uuid.uuid4().hex[:12]}."
        self.stops = os.path.join(self.folder, "stops")
        os.makedirs(self.stops)
        self.pods, self.remotes = [], []
        name = f"d{uuid.uuid4().hex[:12]}"
        postgres.psql(f'CREATE DATABASE "{name}" TEMPLATE {template(postgres)}')
        self.pod_dsn = postgres.url(name, "pod")
        self.db = Database(postgres.url(name))
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.make_topics()

    def reconnect(self):
        self.db.close()
        self.db = self.db.another()

    def topic(self, name):
        return self.prefix + name

    def make_topics(self):
        topics = [NewTopic(self.topic(name), 2, 1) for name in ("intents", "wakeups", "results", "dead-letters")]
        topics.append(NewTopic(self.topic("relay"), SHARDS, 1, config={"cleanup.policy": "compact"}))
        for made in self.admin.create_topics(topics).values():
            made.result(30)

    def set_topic(self, name, key, value):
        entry = ConfigEntry(key, value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
                            incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic(name), incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(30)

    def remote(self):
        self.remotes.append(Remote())
        return self.remotes[-1]

    def pod(self, *sections, name=None):
        """Starts one; sections are texts like "[relay]\\nlanes = 1"."""
        name = name or f"pod-{len(self.pods) + 1}"
        text = CONFIG.format(dsn=self.pod_dsn, bootstrap=self.kafka.bootstrap, prefix=self.prefix, name=name)
        pod = Pod(self.build, self.folder, text + "\n".join(sections) + "\n", self.stops, name)
        self.pods.append(pod)
        return pod

    # Stop points (base/stop_point.h)

    def arm(self, point, how):
        with open(os.path.join(self.stops, f"{point}.{how}"), "w", encoding="utf-8"):
            pass

    def disarm(self, point, how):
        os.unlink(os.path.join(self.stops, f"{point}.{how}"))

    def await_reached(self, point, timeout=30):
        def reached():
            return [f for f in os.listdir(self.stops) if f.startswith(point + ".") and f.endswith(".reached")]
        wait_until(reached, timeout, f"the stop point {point} is reached")

    # Kafka

    def read(self, name, count, timeout=40, settle=False):
        """The first `count` records of a topic as a read_committed consumer sees them, all partitions; settle: then
        also that no more come before every partition's end as it is now."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": uuid.uuid4().hex,
                             "isolation.level": "read_committed", "enable.auto.commit": "false"})
        topic = self.topic(name)
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
            records = []

            def enough():
                record = consumer.poll(0.2)
                if record is not None and record.error() is None:
                    records.append(record)
                return len(records) >= count
            wait_until(enough, timeout, f"{count} records on {topic}", every=0)
            while settle and self.unread(consumer, topic, partitions):
                record = consumer.poll(0.2)
                if record is not None and record.error() is None:
                    records.append(record)
            return records
        finally:
            consumer.close()

    @staticmethod
    def unread(consumer, topic, partitions):
        for place in consumer.position([TopicPartition(topic, p) for p in partitions]):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), timeout=10)
            if max(place.offset, 0) < high:
                return True
        return False

    def produce(self, name, key, value, partition=None):
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        arguments = {} if partition is None else {"partition": partition}
        producer.produce(self.topic(name), key=key, value=json.dumps(value) if isinstance(value, dict) else value, **arguments)
        assert producer.flush(30) == 0

    # The ledger

    def run_of(self, task, owner="test/1"):
        """A run held by the test."""
        run_id = self.db.submit(task=task)[0].run_id
        [got] = self.db.acquire(owner, run_id)
        assert got.outcome == "acquired", got
        return got

    def register(self, got, steps, owner="test/1", park=True, **members):
        """Registers one intent per step and parks the run on them; returns the operation ids."""
        intents = []
        for step in steps:
            one = intent(got, step, **({"tool": "pay", "body": {"step": step}} | members))
            one["digest"] = digest_of(one["body"])
            intents.append(one)
        ids = [one["operation_id"] for one in intents]
        wait = {"wait_mode": "all", "waits": ids, "release": True} if park else {}
        [done] = self.db.commit(item(got, owner, intents=intents, **wait))
        assert done.outcome == "ok", done
        return ids

    def hint(self, operation_id):
        row = self.db.operation(operation_id)
        self.produce("intents", str(row.run_id), {
            "operation_id": operation_id, "run_id": str(row.run_id), "tool_name": row.tool_name,
            "request_digest": row.request_digest})

    def await_status(self, operation_id, status, timeout=30):
        def fact():
            return self.db.operation(operation_id).status == status
        try:
            wait_until(fact, timeout, f"{operation_id} is {status}")
        except Exception as error:
            raise AssertionError(f"{error}: {self.db.operation(operation_id)} {self.evidence(operation_id)}\n"
                                 + "\n".join(pod.tail() for pod in self.pods)) from None
        return self.db.operation(operation_id)

    def evidence(self, operation_id):
        return self.db.sql("SELECT kind, attempt, detail FROM @schema@.operation_evidence WHERE operation_id = %s "
                           "ORDER BY evidence_id", operation_id)

    def close(self):
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.kill()
        for remote in self.remotes:
            remote.close()
        self.db.close()


def digest_of(body):
    """Canonical JSON of what these tests use: plain keys, texts and small numbers."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

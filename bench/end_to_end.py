"""One pod, no-op plans: records onto the task topic, events off the result topic. Used by harness.py."""
import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid

from confluent_kafka import Consumer, KafkaException, Producer

WARM_UP = 1000
LIMIT_S = 300


def drain(holdfast, stack, dsn, runs, account):
    """Starts a pod, warms it up, then measures `runs` submissions from the first produce to the last event read by a
    read_committed consumer. Returns the rate and what the pod used."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}."
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        settings = {
            "postgres.dsn": dsn, "redis.url": stack.redis.url, "kafka.bootstrap.servers": stack.kafka.bootstrap,
            "topics.prefix": prefix, "topics.partitions": "4", "topics.replication_factor": "1",
            "log.level": "warn", "pool.batch": "512", "ingest.batch": "512",
            "pool.max_running": "4096", "relay.batch": "4000"}
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        subprocess.run([holdfast, "topics", "apply", *flags], check=True, timeout=60, stdout=subprocess.DEVNULL)
        consumer = Consumer({"bootstrap.servers": stack.kafka.bootstrap, "group.id": prefix, "auto.offset.reset": "earliest",
                             "isolation.level": "read_committed", "enable.auto.commit": False,
                             "fetch.wait.max.ms": 20})
        consumer.subscribe([prefix + "results"])
        producer = Producer({"bootstrap.servers": stack.kafka.bootstrap, "linger.ms": 5,
                             "queue.buffering.max.messages": 1000000, "partitioner": "murmur2_random"})
        with open(os.path.join(folder, "pod.log"), "wb") as log:
            pod = subprocess.Popen([holdfast, "run", *flags], stdout=log, stderr=log)
        try:
            produce(producer, prefix, "warm", WARM_UP)
            ended(consumer, WARM_UP, account, pod, log.name)
            started, cpu = time.monotonic(), cpu_of(pod.pid)
            produce(producer, prefix, "run", runs)
            ended(consumer, runs, account, pod, log.name)
            seconds = time.monotonic() - started
            return {"rate": runs / seconds, "work": runs, "client_cpu_s": round(cpu_of(pod.pid) - cpu, 2),
                    "client_peak_mib": peak_of(pod.pid)}
        finally:
            consumer.close()
            pod.send_signal(signal.SIGTERM)
            try:
                pod.wait(30)
            except subprocess.TimeoutExpired:
                pod.kill()
                pod.wait()


def produce(producer, prefix, name, count):
    for number in range(count):
        task = f"{name}-{number}"
        producer.produce(prefix + "tasks", key=task,
                         value=f'{{"task_id":"{task}","handler":"plan","input":{{"steps":[]}}}}')
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(30):
        raise RuntimeError("the broker did not take all submissions within 30 s")


def ended(consumer, count, account, pod, log):
    """Reads events until `count` different runs have succeeded; an event seen twice, or another end, is an error."""
    seen, events, end = set(), set(), time.monotonic() + LIMIT_S
    while len(seen) < count:
        if pod.poll() is not None or time.monotonic() > end:
            with open(log, encoding="utf-8", errors="replace") as lines:
                raise RuntimeError(f"{len(seen)} of {count} runs ended, pod exit {pod.poll()}: {lines.read()[-2000:]}")
        for message in consumer.consume(2000, 0.1):
            if message.error():
                raise KafkaException(message.error())
            headers = dict(message.headers())
            if headers["ce_id"] in events:
                raise RuntimeError(f"event {headers['ce_id']} was read twice")
            events.add(headers["ce_id"])
            kind = headers["ce_type"].decode()
            if kind.endswith("run.succeeded"):
                seen.add(headers["run_id"])
            elif not kind.endswith("run.started"):
                raise RuntimeError(f"unexpected event {kind}: {message.value()[:500]}")
        account.sample()


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))
    return 0

"""What is submitted while faults happen, and what the submitter knows about it: the expectations of the judge."""
import json
import threading
import time

MIX = (("noop", 70), ("safe", 9), ("chain", 3), ("bare", 3), ("exec", 5), ("exec_call", 2), ("fail", 1),
       ("duplicate", 3), ("conflict", 1), ("cancel", 4), ("retry", 1), ("poison", 0.5))


class Load:
    """An open loop at a fixed rate. A record is accepted when Kafka said so, and in doubt when nobody knows."""

    def __init__(self, bootstrap, topic, rng, rate):
        from confluent_kafka import Producer
        self.producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True,
                                  "linger.ms": 5, "message.timeout.ms": 300000, "log_level": 0,
                                  "socket.timeout.ms": 10000, "reconnect.backoff.max.ms": 1000})
        self.topic, self.rng, self.rate = topic, rng, rate
        self.lock = threading.Lock()
        self.accepted, self.doubtful = [], []   # (verb, request_id, task_id)
        self.poisoned = 0
        self.sent = 0
        self.recent = []                        # tasks that may be cancelled, retried, repeated: (request, task, record)
        self.stopping = threading.Event()
        self.thread = None

    def start(self):
        self.stopping.clear()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self):
        self.stopping.set()
        self.thread.join()

    def flush(self, seconds):
        return self.producer.flush(seconds)

    def _run(self):
        begin, done = time.monotonic(), 0
        while not self.stopping.is_set():
            due = int((time.monotonic() - begin) * self.rate)
            for _ in range(due - done):
                self._one()
            done = due
            self.producer.poll(0)
            self.stopping.wait(0.02)

    def _one(self):
        self.sent += 1
        kind = self.rng.choices([k for k, _ in MIX], [w for _, w in MIX])[0]
        getattr(self, kind, self.submit)(kind)

    def produce(self, verb, request, task, value):
        def delivered(error, _message):
            with self.lock:
                if verb == "poison":
                    self.poisoned += error is None
                else:
                    (self.doubtful if error else self.accepted).append((verb, request, task))
        while True:
            try:
                self.producer.produce(self.topic, value, task, on_delivery=delivered)
                return
            except BufferError:
                self.producer.poll(0.1)

    def submit(self, kind):
        n = self.sent
        task, request = f"{kind}-{n}", f"s-{n}"
        record = {"task_id": task, "request_id": request, "handler": "plan", "max_attempts": 1000}
        step = {"id": "one", "tool": "bare" if kind == "bare" else "safe", "request": {"n": n}}
        if kind == "noop":
            record["input"] = {"steps": []}
        elif kind in ("safe", "bare"):
            record["input"] = {"steps": [step]}
        elif kind == "chain":
            record["input"] = {"steps": [step, {"id": "two", "tool": "safe",
                                                "request": {"of": {"$ref": "/steps/one/result/id"}}}]}
        else:
            record["handler"] = "steps"
            record["input"] = {"saves": self.rng.randint(1, 3), "work_ms": self.rng.choice((50, 200, 800))}
            if kind == "exec_call":
                record["input"]["call"] = {"tool": "safe", "request": {"n": n}}
            if kind == "fail":
                record["input"]["fail"] = "as asked"
        self.produce("submit", request, task, json.dumps(record))
        self.recent.append((request, task, record))
        del self.recent[:-400]

    def pick(self, *kinds):
        found = [r for r in self.recent if not kinds or r[1].split("-")[0] in kinds]
        return self.rng.choice(found) if found else None

    def duplicate(self, _):
        """The same request again: no second run."""
        if chosen := self.pick():
            self.produce("duplicate", chosen[0], chosen[1], json.dumps(chosen[2]))

    def conflict(self, _):
        """The same request id with another content: refused."""
        if chosen := self.pick():
            self.produce("conflict", chosen[0], chosen[1], json.dumps({**chosen[2], "priority": 7}))

    def cancel(self, _):
        if chosen := self.pick("exec", "safe", "bare", "chain", "noop"):
            request = f"c-{self.sent}"
            self.produce("cancel", request, chosen[1], json.dumps(
                {"type": "cancel", "task_id": chosen[1], "request_id": request, "reason": "chaos"}))

    def retry(self, _):
        if chosen := self.pick("fail", "exec", "safe"):
            request = f"y-{self.sent}"
            self.produce("retry", request, chosen[1], json.dumps(
                {"type": "retry", "task_id": chosen[1], "request_id": request, "reason": "chaos"}))

    def poison(self, _):
        self.produce("poison", None, f"poison-{self.sent}", b"\x93\x01" + bytes([self.sent % 251]) * 5)

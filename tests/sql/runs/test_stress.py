"""Many sessions, short leases, every verb at once; then what must always hold is asked of the tables."""
import random
import threading
import time
import uuid

import psycopg

from database import Database, intent, item, lease

TASKS = [f"s{n}" for n in range(12)]
SESSIONS = 5
SECONDS = 8
PASSING = ("40001", "55P03")


class Worker(threading.Thread):
    """One pod of the worst kind: it forgets, repeats, comes late, and never asks whether it still may."""

    def __init__(self, dsn, number, end):
        super().__init__()
        self.db, self.name, self.end = Database(dsn), f"w{number}", end
        self.random = random.Random(number)
        self.held, self.writes, self.failure, self.calls = [], [], None, 0

    def run(self):
        try:
            while time.monotonic() < self.end:
                try:
                    getattr(self, self.random.choice(self.VERBS))()
                    self.calls += 1
                except psycopg.Error as error:
                    if error.sqlstate not in PASSING:
                        raise
        except Exception as error:  # shown by the test
            self.failure = error
        finally:
            self.db.close()

    VERBS = ["submit"] * 3 + ["claim"] * 6 + ["commit"] * 10 + ["again"] * 2 + ["renew", "release", "cancel", "retry", "sweep",
                                                                                 "acquire", "signal"]

    def ttl(self):
        return self.random.choice([1, 5, 50, 5000])

    def some(self):
        return self.random.sample(TASKS, self.random.randint(1, 4))

    def submit(self):
        self.db.submit(*({"task": t, "max_attempts": 4, "cancel_previous": self.random.random() < 0.2} for t in self.some()))

    def claim(self):
        self.held += [g for g in self.db.claim(self.name, 4, ttl_ms=self.ttl()) if g.outcome == "acquired"]

    def acquire(self):
        runs = [r.active_run_id for r in self.db.sql("SELECT active_run_id FROM @schema@.agent_tasks ORDER BY random() LIMIT 3")]
        self.held += [g for g in self.db.acquire(self.name, *runs, ttl_ms=self.ttl()) if g.outcome == "acquired"]

    def commit(self):
        batch = {g.run_id: g for g in self.random.sample(self.held, min(4, len(self.held)))}
        items = []
        for got in batch.values():
            write = item(got, self.name, commit_id=uuid.uuid4(), checkpoint={"by": self.name})
            kind = self.random.randint(0, 7)
            if kind == 0:
                write |= {"finish": self.random.choice(["succeeded", "failed"]), "output": {}}
            elif kind == 1:
                write |= {"release": True}
            elif kind == 2:
                write |= {"wait_signal": "go"}
            elif kind == 3:
                write |= {"retry_ms": self.random.choice([0, 1])}
            elif kind == 4:
                op = intent(got, f"s{self.random.randint(0, 3)}", self.random.randint(1, 2))
                write |= {"intents": [op], "wait_mode": "any", "waits": [op["operation_id"]], "wait_until": None}
            elif kind == 5:
                write |= {"events": [("my.event", {"n": got.revision})]}
            items.append(write)
        if not items:
            return
        for write, done in zip(items, self.db.commit(*items)):
            self.writes.append(write)
            if done.outcome == "ok":
                batch[write["run_id"]].revision = done.revision
            elif self.random.random() < 0.7:
                self.held.remove(batch[write["run_id"]])
        self.held, self.writes = self.held[-20:], self.writes[-20:]

    def again(self):
        """A write whose answer was lost."""
        if self.writes:
            self.db.commit(self.random.choice(self.writes))

    def renew(self):
        leases = {g.run_id: lease(g, self.name) for g in self.held}
        self.db.renew(*leases.values(), ttl_ms=self.ttl())

    def release(self):
        if self.held:
            self.db.release(lease(self.held.pop(), self.name), graceful=self.random.random() < 0.5)

    def cancel(self):
        self.db.cancel(*({"task": t} for t in self.some()[:1]))

    def retry(self):
        self.db.retry(*({"task": t} for t in self.some()))

    def signal(self):
        """What the signal verb will do, in the order of locks: run, then signal, then the wake rule."""
        task = self.random.choice(TASKS)
        self.db.begin()
        try:
            for row in self.db.sql("SELECT run_id FROM @schema@.agent_runs WHERE run_id = (SELECT active_run_id FROM "
                                   "@schema@.agent_tasks WHERE task_id = %s) FOR NO KEY UPDATE", task):
                self.db.sql("INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, name) VALUES ('default', %s, %s, 'go')",
                            task, uuid.uuid4().hex)
                self.db.sql("SELECT @schema@.wake_runs(%s, clock_timestamp())", [row.run_id])
        finally:
            self.db.end()

    def sweep(self):
        [row] = self.db.call("sweep", p_owner=("s", "text"), p_epoch=(1, "bigint"), p_limit=(100, "integer"))
        assert row.outcome == "ok"


def test_everything_at_once(db, dsn):
    db.sql("INSERT INTO @schema@.service_leases (name, owner, epoch, expires_at) VALUES ('sweep', 's', 1, 'infinity')")
    end = time.monotonic() + SECONDS
    workers = [Worker(dsn, number, end) for number in range(SESSIONS)]
    for worker in workers:
        worker.start()
    watcher, stranded = Database(dsn), []
    while time.monotonic() < end:  # at every moment, not only at the end
        stranded += watcher.sql("SELECT * FROM @schema@.stranded")
    watcher.close()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
        assert worker.failure is None, worker.failure
    assert not stranded, stranded[:3]
    assert sum(worker.calls for worker in workers) > 50
    assert db.one("SELECT count(*) FROM @schema@.agent_runs") > len(TASKS)

    # At most one run of a task is not terminal, and it is the active one.
    assert not db.sql("SELECT task_id FROM @schema@.agent_runs WHERE status IN ('pending', 'running') GROUP BY task_id HAVING count(*) > 1")
    assert not db.sql("SELECT FROM @schema@.agent_runs r JOIN @schema@.agent_tasks k USING (tenant_id, task_id) "
                      "WHERE r.status IN ('pending', 'running') AND k.active_run_id <> r.run_id")
    # A terminal run has exactly one last event and one row of history for it; any other has none.
    assert not db.sql("""
        SELECT r.run_id, r.status, e.n, h.n FROM @schema@.agent_runs r
        CROSS JOIN LATERAL (SELECT count(*) AS n FROM @schema@.outbox_events e WHERE e.run_id = r.run_id
                            AND e.type IN ('run.succeeded', 'run.failed', 'run.cancelled')) e
        CROSS JOIN LATERAL (SELECT count(*) AS n FROM @schema@.run_history h WHERE h.run_id = r.run_id
                            AND h.to_status IN ('succeeded', 'failed', 'cancelled')) h
        WHERE e.n <> (r.status NOT IN ('pending', 'running'))::integer OR h.n <> e.n""")
    # Within a run revisions and epochs never go back along the sequence; nothing comes after the last event.
    last = {}
    for event in db.sql("SELECT * FROM @schema@.outbox_events WHERE run_id IS NOT NULL ORDER BY seq"):
        before = last.get(event.run_id)
        if before:
            assert before.type not in ("run.succeeded", "run.failed", "run.cancelled"), (before, event)
            assert (event.epoch, event.revision) >= (before.epoch, before.revision), (before, event)
        last[event.run_id] = event
    # A new run's events come after the last event of the run before.
    first, final = {}, {}
    for event in db.sql("SELECT e.*, r.created_at FROM @schema@.outbox_events e JOIN @schema@.agent_runs r USING (run_id) ORDER BY seq"):
        first.setdefault(event.run_id, event)
        final[event.run_id] = event
    for task in TASKS:
        runs = [r.run_id for r in db.sql("SELECT run_id FROM @schema@.agent_runs WHERE task_id = %s ORDER BY created_at", task)]
        runs = [r for r in runs if r in first]
        for earlier, later in zip(runs, runs[1:]):
            assert final[earlier].seq < first[later].seq, (task, earlier, later)
    # Takeovers and starts are the only acquisitions with a row; their epochs are all different.
    assert not db.sql("SELECT run_id, epoch FROM @schema@.run_history WHERE kind IN ('started', 'taken_over') AND owner IS NOT NULL "
                      "GROUP BY run_id, epoch HAVING count(*) > 1")


def test_claims_at_once_never_share_a_run(db, dsn):
    for part in range(4):
        db.submit(*({"task": f"c{part}-{n}"} for n in range(250)))
    taken, lock = [], threading.Lock()

    def pod(name):
        mine = Database(dsn)
        while got := mine.claim(name, 37):
            with lock:
                taken.extend(g.run_id for g in got)
        mine.close()

    pods = [threading.Thread(target=pod, args=(f"p{n}",)) for n in range(4)]
    for thread in pods:
        thread.start()
    for thread in pods:
        thread.join(60)
    left = len(db.claim("last", 1000))
    assert len(taken) == len(set(taken))
    assert len(taken) + left == 1000

"""Every pair of functions over overlapping arrays in opposite order: no deadlock (protocol section 4, lock order).

deadlock_timeout is short, so that a deadlock is reported (40P01) and not waited out as a lock time-out. The first test
shows that this driver finds a deadlock where there is one."""
import itertools
import random
import threading
import uuid

import psycopg
import pytest

from database import Database, intent, item, lease
import verbs

RUNS = 24
UNDONE = {"on_cancel": "compensate", "compensate_tool": "refund", "escalate_after_ms": 0}
ROUNDS = 4


class Side:
    """One session that calls one function again and again over the same runs, in its own order."""

    def __init__(self, dsn, world, reverse):
        self.db = Database(dsn)
        self.db.sql("SET deadlock_timeout = '5ms'")
        self.world, self.reverse = world, reverse

    def order(self, things):
        things = list(things)
        return things[::-1] if self.reverse else things


class World:
    """Runs in every condition, each with a prepared and a dispatching operation, over tasks that records name."""

    def __init__(self, dsn):
        db = Database(dsn)
        self.tag = uuid.uuid4().hex[:8]
        self.tasks = [f"{self.tag}-{n:02}" for n in range(RUNS)]
        made = db.submit(*({"task": task, "max_attempts": 1000000} for task in self.tasks))
        assert {m.outcome for m in made} == {"created"}, made
        got = db.acquire("a", *(m.run_id for m in made))
        assert {g.outcome for g in got} == {"acquired"}, got
        db.commit(*(item(g, "a", intents=[intent(g, "one", declaration=UNDONE), intent(g, "two", capability="query")]) for g in got))
        self.runs = got
        self.operations = sorted(f"default/{g.run_id}/{step}/1" for g in got for step in ("one", "two"))
        db.release(*(lease(g, "a") for g in got[::3]))
        self.call(db, "claim_operations", ids=self.operations[::2])
        db.close()

    def call(self, db, name, ids):
        return db.call(name, p_owner=("d", "text"), p_token=(uuid.uuid4(), "uuid"), p_limit=(1000, "integer"),
                       p_ttl_ms=(random.choice([1, 60000]), "bigint"), p_tools=(None, "text[]"), p_operation_ids=(ids, "text[]"))

    # One call each. Arguments need not be accepted: the locks are taken all the same.
    def submit(self, side):
        side.db.submit(*({"task": t, "cancel_previous": True, "allow_unsettled": True} for t in side.order(self.tasks)))

    def cancel(self, side):
        side.db.cancel(*({"task": t} for t in side.order(self.tasks)))

    def retry(self, side):
        side.db.retry(*({"task": t, "allow_unsettled": True} for t in side.order(self.tasks)))

    def signal(self, side):
        verbs.signal(side.db, *({"task": t, "name": "x"} for t in side.order(self.tasks)))

    def acquire(self, side):
        side.db.acquire("a", *(g.run_id for g in side.order(self.runs)), ttl_ms=random.choice([1, 60000]))

    def claim(self, side):
        side.db.claim("a", 50, ttl_ms=random.choice([1, 60000]))

    def renew(self, side):
        side.db.renew(*(lease(g, "a") for g in side.order(self.runs)))

    def release(self, side):
        side.db.release(*(lease(g, "a") for g in side.order(self.runs)))

    def commit(self, side):
        side.db.commit(*(item(g, "a", revision=random.choice([2, 3, 4]), checkpoint={"n": 1},
                              intents=[intent(g, "one", 2, digest="sha256:2", after_settled=True)],
                              wait_signal=random.choice([None, "x"])) for g in side.order(self.runs)))

    def finish(self, side):
        side.db.commit(*(item(g, "a", revision=random.choice([2, 3, 4]), finish="failed") for g in side.order(self.runs)))

    def sweep(self, side):
        # Two at a time, as after a lost lease: the function must hold without its service lease, so it is given one.
        side.db.call("sweep", p_owner=("s", "text"), p_epoch=(1, "bigint"), p_limit=(1000, "integer"))

    def claim_operations(self, side):
        self.call(side.db, "claim_operations", side.order(self.operations))

    def choose_operations(self, side):
        self.call(side.db, "claim_operations", None)

    def record(self, side, name, **more):
        ids = side.order(self.operations)
        n = len(ids)
        side.db.call(name, p_operation_ids=(ids, "text[]"), p_owners=(["d"] * n, "text[]"),
                     p_revisions=([random.choice([1, 3]) for _ in ids], "bigint[]"), p_attempts=([1] * n, "integer[]"),
                     **{key: (values * n, kind) for key, (values, kind) in more.items()})

    def record_result(self, side):
        self.record(side, "record_result", p_digests=(["sha256:1"], "text[]"), p_verdicts=(["succeeded"], "text[]"),
                    p_remote_ids=(["r"], "text[]"), p_results=([None], "jsonb[]"), p_evidence=([None], "jsonb[]"))

    def record_not_sent(self, side):
        self.record(side, "record_not_sent", p_retry_ms=([0], "bigint[]"), p_evidence=([None], "jsonb[]"))

    def record_unknown(self, side):
        self.record(side, "record_unknown", p_retry_ms=([0], "bigint[]"), p_evidence=([None], "jsonb[]"))

    def facts(self, side, **more):
        return [{"operation_id": o} | more for o in side.order(self.operations)]

    def converge(self, side):
        verbs.converge(side.db, *self.facts(side, verdict=random.choice(["succeeded", "failed_final", "absent"]), owner="q"))

    def claim_queries(self, side):
        verbs.claim_queries(side.db, "q", 1000, ttl_ms=random.choice([1, 60000]))

    def record_query(self, side):
        verbs.record_query(side.db, *self.facts(side, owner="q", query=1, retry_ms=0))

    def resolve(self, side):
        verbs.resolve(side.db, *self.facts(side, revision=random.choice([0, 1, 2])))

    def cancel_operation(self, side):
        verbs.cancel_operation(side.db, *self.facts(side, revision=random.choice([0, 1, 2])))

    def raise_capability(self, side):
        verbs.raise_capability(side.db, *self.facts(side, revision=random.choice([0, 1, 2]), capability="query", declaration={}))

    def compensate(self, side):
        verbs.compensate(side.db, *self.facts(side, tool="refund"))

    def expire_claims(self, side):
        side.db.call("expire_claims", p_limit=(1000, "integer"))


VERBS = ["submit", "cancel", "retry", "signal", "acquire", "claim", "renew", "release", "commit", "finish", "sweep", "claim_operations",
         "choose_operations", "record_result", "record_not_sent", "record_unknown", "expire_claims",
         "converge", "claim_queries", "record_query", "resolve", "cancel_operation", "raise_capability", "compensate"]
PASSING = ("40001", "55P03")  # a key used at the same moment; a row that stayed locked


def drive(dsn, acts, world, rounds=ROUNDS):
    """Both acts at once, round after round; the SQLSTATEs of what failed."""
    barrier, errors = threading.Barrier(2, timeout=60), []

    def work(act, reverse):
        side = Side(dsn, world, reverse)
        for _ in range(rounds):
            barrier.wait()
            try:
                act(side)
            except psycopg.Error as error:
                errors.append((error.sqlstate, str(error).splitlines()[0]))
        side.db.close()

    threads = [threading.Thread(target=work, args=(act, reverse)) for act, reverse in zip(acts, (False, True))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "stuck"
    return [error for error in errors if error[0] not in PASSING]


def test_the_driver_finds_a_deadlock(dsn):
    world = World(dsn)

    def careless(side):
        side.db.begin()
        try:
            for got in side.order(world.runs):
                side.db.sql("SELECT FROM @schema@.agent_runs WHERE run_id = %s FOR NO KEY UPDATE", got.run_id)
        finally:
            side.db.end("ROLLBACK")

    found = set()
    for _ in range(20):
        found |= {state for state, _ in drive(dsn, (careless, careless), world)}
        if found:
            break
    assert found == {"40P01"}


@pytest.mark.parametrize("first", VERBS)
def test_pairs(dsn, first):
    db = Database(dsn)
    db.sql("INSERT INTO @schema@.service_leases (name, owner, epoch, expires_at) VALUES ('sweep', 's', 1, 'infinity')")
    db.close()
    for second in VERBS[VERBS.index(first):]:
        world = World(dsn)
        errors = drive(dsn, (getattr(world, first), getattr(world, second)), world)
        assert not errors, (first, second, errors)

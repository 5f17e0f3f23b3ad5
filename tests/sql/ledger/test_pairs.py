"""Every pair of functions over overlapping arrays in opposite order: no 40P01, ever.

Two sessions call one function each, again and again, over the same runs and operations, one with its arrays forwards and
one backwards, in small random subsets of them. Other refusals are answers; a lock time-out (55P03) would be a function
that waits for a row and should not, and is counted, not failed: it says that it waited too long, not that it was wrong.
"""
import random
import threading
import time
import uuid

import psycopg
import pytest
from psycopg.types.json import Jsonb

import verbs
from database import intent, item
from test_races import claim, recorded, result

SECONDS = 0.2
RUNS = 16


class Field:
    """Runs with three operations each, in every state: what the two sessions fight over."""

    def __init__(self, db):
        self.db = db
        made = db.submit(*[{"task": f"t{uuid.uuid4().hex[:8]}"} for _ in range(RUNS)])
        got = db.acquire("pod", *[m.run_id for m in made])
        self.declaration = {"retention_ms": 600000, "query": True, "on_cancel": "compensate", "compensate_tool": "pay",
                            "escalate_after_ms": 0}
        plan = [[intent(g, s, capability="idempotency_key", declaration=self.declaration) for s in "abc"] for g in got]
        answers = db.commit(*[item(g, "pod", intents=i) for g, i in zip(got, plan)])
        self.got = [vars(g) | {"revision": a.revision} for g, a in zip(got, answers)]
        self.operations = [o["operation_id"] for i in plan for o in i]
        self.claimed = claim(db, *self.operations[::2], ttl_ms=50)
        # Parked and given back every second run, so that results wake and others acquire.
        self.got = [type("G", (), g) for g in self.got]
        db.commit(*[item(g, "pod", waits=[i[0]["operation_id"]], wait_mode="all", release=True)
                    for g, i in list(zip(self.got, plan))[::2]])

    def some(self, things, backwards):
        """A random half in the order of this session."""
        chosen = [thing for thing in things if random.random() < 0.5] or things[:1]
        return chosen[::-1] if backwards else chosen


def commit(db, f, back):
    items = []
    for g in f.some(f.got, back):
        kind = random.randrange(5)
        extra = ({"checkpoint": {"n": 1}}, {"finish": "failed", "output": {}}, {"finish": "succeeded", "output": {}},
                 {"retry_ms": 0, "output": {}}, {"intents": [intent(g, "a", version=2)]})[kind]
        items.append(item(g, "pod", **extra))
    return db.commit(*items)


def lease(g):
    return {"run_id": g.run_id, "owner": "pod", "epoch": g.epoch}


def seen(f, back):
    """A person's acts on states that they may have been in."""
    return [{"operation_id": o, "revision": random.randrange(4)} for o in f.some(f.operations, back)]


FUNCTIONS = {
    "submit": lambda db, f, back: db.submit(*[{"task": g.task_id, "cancel_previous": random.random() < 0.3,
                                               "allow_unsettled": True} for g in f.some(f.got, back)]),
    "cancel": lambda db, f, back: db.cancel(*[{"task": g.task_id} for g in f.some(f.got, back)]),
    "retry": lambda db, f, back: db.retry(*[{"task": g.task_id, "allow_unsettled": True} for g in f.some(f.got, back)]),
    "signal": lambda db, f, back: verbs.signal(db, *[{"task": g.task_id} for g in f.some(f.got, back)]),
    "acquire": lambda db, f, back: db.acquire("pod", *[g.run_id for g in f.some(f.got, back)], ttl_ms=20),
    "claim": lambda db, f, back: db.claim("pod", ttl_ms=20, limit=8),
    "renew": lambda db, f, back: db.renew(*[lease(g) for g in f.some(f.got, back)], ttl_ms=20),
    "release": lambda db, f, back: db.release(*[lease(g) for g in f.some(f.got, back)]),
    "commit": commit,
    "sweep": lambda db, f, back: db.sweep(50),
    "claim_operations": lambda db, f, back: claim(db, *f.some(f.operations, back), ttl_ms=20) + claim(db, limit=9, ttl_ms=20),
    "claim_unknown": lambda db, f, back: claim(db, *f.some(f.operations, back), ttl_ms=20, name="claim_unknown"),
    "record_result": lambda db, f, back: result(db, f.some(f.claimed, back)),
    "record_not_sent": lambda db, f, back: recorded(db, "record_not_sent", f.some(f.claimed, back)),
    "record_unknown": lambda db, f, back: recorded(db, "record_unknown", f.some(f.claimed, back)),
    "expire_claims": lambda db, f, back: db.one("SELECT expired FROM holdfast_v1.expire_claims(20)"),
    "converge": lambda db, f, back: verbs.converge(db, *[
        {"operation_id": o, "verdict": random.choice(["succeeded", "failed_final", "absent"]), "owner": "q"}
        for o in f.some(f.operations, back)]),
    "claim_queries": lambda db, f, back: verbs.claim_queries(db, "q", limit=9, ttl_ms=20),
    "record_query": lambda db, f, back: verbs.record_query(db, *[
        {"operation_id": o, "owner": "q", "query": 1, "retry_ms": 0} for o in f.some(f.operations, back)]),
    "resolve": lambda db, f, back: verbs.resolve(db, *seen(f, back)),
    "cancel_operation": lambda db, f, back: verbs.cancel_operation(db, *seen(f, back)),
    "raise_capability": lambda db, f, back: verbs.raise_capability(db, *[
        a | {"capability": "idempotency_key", "declaration": f.declaration} for a in seen(f, back)]),
    "compensate": lambda db, f, back: verbs.compensate(db, *[
        {"operation_id": o, "tool": "pay"} for o in f.some(f.operations, back)]),
    "register": lambda db, f, back: db.call("register", p_kind=(["tool"], "text[]"), p_names=(["pay"], "text[]"),
        p_digests=([uuid.uuid4().hex], "text[]"), p_pod=("pod", "text"),
        p_declarations=([Jsonb({"max_in_flight_total": 40})], "jsonb[]")),
    "gate_open": lambda db, f, back: db.sql("SELECT * FROM holdfast_v1.gate_open('test', 'test', true)"),
    "gate_close": lambda db, f, back: db.sql("SELECT * FROM holdfast_v1.gate_close('test', 'test')"),
}


def fight(sessions, names, field):
    """Both call until the time is over; returns how often each did, and the errors by SQLSTATE."""
    calls, errors = [0, 0], []
    end = time.monotonic() + SECONDS
    start = threading.Barrier(2)

    def one(side):
        start.wait(20)
        while time.monotonic() < end:
            try:
                FUNCTIONS[names[side]](sessions[side], field, side == 1)
                calls[side] += 1
            except psycopg.Error as error:
                errors.append((names[side], error.sqlstate, str(error).splitlines()[0]))
            except AssertionError:  # the sweep's lease is the other session's at the moment
                assert names[side] == "sweep"

    threads = [threading.Thread(target=one, args=(side,), daemon=True) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), names
    return calls, errors


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", FUNCTIONS)
def test_pairs(db, first):
    sessions = [db.another(), db.another()]
    names = list(FUNCTIONS)
    for second in names[names.index(first):]:
        db.sql("SELECT holdfast_v1.gate_open('test', 'test', false, true)")
        field = Field(db)
        calls, errors = fight(sessions, (first, second), field)
        bad = [e for e in errors if e[1] not in ("55P03",)]
        assert not bad, (first, second, bad[:3])
        assert min(calls) > 0, (first, second, calls, errors[:3])
    for session in sessions:
        session.close()

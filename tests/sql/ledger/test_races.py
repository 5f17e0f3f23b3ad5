"""Two sessions at once. A test arranges the order by locks it holds itself; every wait is for a fact, with a limit."""
import contextlib
import threading
import time
import uuid

import psycopg
import pytest

from database import intent, item

LIMIT = 20


@pytest.fixture
def other(db):
    database = db.another()
    yield database
    database.close()


class Call(threading.Thread):
    """A call on a connection of its own; result() waits for its answer."""

    def __init__(self, database, function, *arguments, **named):
        super().__init__(daemon=True)
        self.database, self.function, self.arguments, self.named = database, function, arguments, named
        self.value = self.error = None
        self.pid = database.connection.info.backend_pid
        self.start()

    def run(self):
        try:
            self.value = self.function(*self.arguments, **self.named)
        except psycopg.Error as error:
            self.error = error

    def result(self):
        self.join(LIMIT)
        assert not self.is_alive(), "no answer"
        if self.error:
            raise self.error
        return self.value


def until(fact, what):
    end = time.monotonic() + LIMIT
    while not fact():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def wait_blocked(db, call):
    """Until that backend waits for a lock."""
    until(lambda: db.one("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", call.pid) > 0, "it does not wait")


def planned(db, tasks=1, steps=("a",), **members):
    """Runs that registered operations and are parked until all are settled; returns their operation ids."""
    made = db.submit(*[{"task": f"t{uuid.uuid4().hex[:8]}"} for _ in range(tasks)])
    got = db.acquire("pod", *[m.run_id for m in made])
    ids = [[intent(g, step, **members) for step in steps] for g in got]
    answers = db.commit(*[item(g, "pod", intents=i, waits=[o["operation_id"] for o in i], wait_mode="all", release=True)
                          for g, i in zip(got, ids)])
    assert all(a.outcome == "ok" for a in answers), answers
    return [o["operation_id"] for i in ids for o in i]


def claim(db, *ids, owner="d1", token=None, limit=100, ttl_ms=30000, name="claim_operations"):
    return db.call(name, p_owner=(owner, "text"), p_token=(token or uuid.uuid4(), "uuid"), p_limit=(limit, "integer"),
                   p_ttl_ms=(ttl_ms, "bigint"), p_tools=(None, "text[]"), p_operation_ids=(list(ids) or None, "text[]"))


def result(db, claimed, owner="d1", verdict="succeeded"):
    n = len(claimed)
    return db.call("record_result", p_operation_ids=([c.operation_id for c in claimed], "text[]"), p_owners=([owner] * n, "text[]"),
                   p_revisions=([c.revision for c in claimed], "bigint[]"), p_attempts=([c.attempt for c in claimed], "int[]"),
                   p_digests=([c.request_digest for c in claimed], "text[]"), p_verdicts=([verdict] * n, "text[]"),
                   p_remote_ids=(["r"] * n, "text[]"), p_results=([None] * n, "jsonb[]"), p_evidence=([None] * n, "jsonb[]"))


def recorded(db, name, claimed, owner="d1"):
    n = len(claimed)
    return db.call(name, p_operation_ids=([c.operation_id for c in claimed], "text[]"), p_owners=([owner] * n, "text[]"),
                   p_revisions=([c.revision for c in claimed], "bigint[]"), p_attempts=([c.attempt for c in claimed], "int[]"),
                   p_retry_ms=([0] * n, "bigint[]"), p_evidence=([None] * n, "jsonb[]"))


@contextlib.contextmanager
def transaction(database):
    database.begin()
    try:
        yield
        database.end()
    except BaseException:
        database.end("ROLLBACK")
        raise


def test_a_run_cancelled_before_the_operations_lock_is_seen(db, other):
    """The run's status is read after the operation's lock, in a statement of its own (seed hole: one statement)."""
    [operation] = planned(db)
    run = db.operation(operation).run_id
    with transaction(db):
        db.sql("LOCK TABLE holdfast.agent_runs IN ACCESS EXCLUSIVE MODE")
        db.sql("UPDATE holdfast.agent_runs SET status = 'cancelled' WHERE run_id = %s", run)
        call = Call(other, claim, other, operation)
        until(lambda: db.one("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", call.pid), "it does not wait")
        assert db.operation(operation).status == "prepared"
    assert [c.outcome for c in call.result()] == ["terminal"]
    assert db.operation(operation).status == "prepared"
    db.sql("UPDATE holdfast.agent_runs SET wait_mode = NULL WHERE run_id = %s", run)
    db.sql("SELECT holdfast.cancel_open(clock_timestamp(), ARRAY[%s::uuid])", run) # what a real cancel does next


def test_cancel_against_claim(db, other):
    """Whichever is first: a cancelled operation is never claimed, a claimed one is never reported as not executed."""
    [operation] = planned(db)
    task = db.one("SELECT task_id FROM holdfast.agent_runs WHERE run_id = %s", db.operation(operation).run_id)
    with transaction(db):
        assert db.cancel(task=task)[0].outcome == "cancelled"
        assert claim(other) == []                                  # not waited for
        assert claim(other, operation)[0].outcome == "busy"
    assert claim(other, operation)[0].outcome == "terminal"
    assert db.operation(operation).status == "cancelled"

    [operation] = planned(db)
    task = db.one("SELECT task_id FROM holdfast.agent_runs WHERE run_id = %s", db.operation(operation).run_id)
    with transaction(db):
        [claimed] = claim(db, operation)
        call = Call(other, other.cancel, task=task)
        wait_blocked(db, call)
    assert call.result()[0].outcome == "cancelled"
    assert db.operation(operation).status == "dispatching"
    assert result(db, [claimed])[0].outcome == "recorded"
    assert db.events(run_id=claimed.run_id) == ["run.started", "run.cancelled", "operation.succeeded"]


def test_unsent_of_a_cancelled_run_is_cancelled(db):
    """The other way round: cancelled while dispatching, and then it was not sent."""
    [operation] = planned(db)
    [claimed] = claim(db, operation)
    task = claimed.task_id
    db.cancel(task=task)
    assert [(r.outcome, r.status) for r in recorded(db, "record_not_sent", [claimed])] == [("recorded", "cancelled")]
    assert db.events(run_id=claimed.run_id)[-1] == "operation.cancelled"
    assert db.sql("SELECT * FROM holdfast.orphans") == [] and db.sql("SELECT * FROM holdfast.stranded") == []


def test_claims_share_a_backlog(db):
    """Four sessions drain one backlog: every operation is claimed once, nobody waits for anybody."""
    ids = planned(db, tasks=100, steps=("a", "b", "c"))
    sessions = [db.another() for _ in range(4)]
    start = threading.Barrier(4)

    def drain(database, owner):
        start.wait(LIMIT)
        mine = []
        while got := claim(database, owner=owner, limit=7):
            mine += [c.operation_id for c in got]
        return mine

    calls = [Call(s, drain, s, f"d{n}") for n, s in enumerate(sessions)]
    taken = [operation for call in calls for operation in call.result()]
    # What one held locked when another looked is left for a later look.
    taken += [c.operation_id for c in claim(db, limit=1000)]
    assert sorted(taken) == sorted(ids)
    for s in sessions:
        s.close()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_one_token_asked_twice_at_once(db, other, end):
    """The repetition waits for the first call: its answer, or, if that never happened, a new one."""
    planned(db, tasks=4)
    token = uuid.uuid4()
    db.begin()
    first = claim(db, token=token, limit=2)
    call = Call(other, claim, other, token=token, limit=2)
    wait_blocked(db, call)
    db.end(end)
    second = call.result()
    assert len(second) == 2 and all(c.outcome == "claimed" for c in second)
    if end == "COMMIT":
        assert [(c.operation_id, c.revision) for c in second] == [(c.operation_id, c.revision) for c in first]
    assert db.one("SELECT count(*) FROM holdfast.tool_operations WHERE status = 'dispatching'") == 2


def test_an_empty_answer_binds_its_token_too(db, other):
    """A call that claimed nothing is repeated while there is work: it still claims nothing (nobody would know of it)."""
    token = uuid.uuid4()
    assert claim(db, token=token) == []
    planned(db)
    assert claim(other, token=token) == []
    assert len(claim(other)) == 1


def test_closing_the_gate_waits_for_claims(db, other):
    """When gate_close has answered, every claim given out is committed and its deadline told; none follows."""
    planned(db, tasks=2)
    third = db.another()
    with transaction(db):
        [claimed] = claim(db, limit=1)
        call = Call(other, other.sql, "SELECT * FROM holdfast_v1.gate_close('a test', 'a test')")
        wait_blocked(third, call)
    assert call.result()[0].sendable_until == claimed.dispatch_until
    assert [c.outcome for c in claim(third)] == ["gate_closed"]
    assert result(third, [claimed])[0].outcome == "recorded"
    third.close()


def test_expiry_waits_for_nobody(db, other):
    """A locked run or operation is left for later; the result that holds the locks wins."""
    first, second = planned(db, tasks=2)
    claimed = claim(db, first, second, ttl_ms=1)
    until(lambda: db.one("SELECT bool_and(dispatch_until < clock_timestamp()) FROM holdfast.tool_operations"), "not yet over")
    with transaction(db):
        assert result(db, [c for c in claimed if c.operation_id == first])[0].outcome == "recorded"
        assert other.one("SELECT expired FROM holdfast_v1.expire_claims(10)") == 1
    assert other.one("SELECT expired FROM holdfast_v1.expire_claims(10)") == 0
    assert (db.operation(first).status, db.operation(second).status) == ("succeeded", "unknown")


def test_a_result_waits_for_the_holder(db, other):
    """record_result is offered once: it waits for a run that somebody writes, and answers."""
    [operation] = planned(db)
    [claimed] = claim(db, operation)
    with transaction(db):
        db.sql("SELECT FROM holdfast.agent_runs WHERE run_id = %s FOR NO KEY UPDATE", claimed.run_id)
        call = Call(other, result, other, [claimed])
        wait_blocked(db, call)
    assert [(r.outcome, r.woke) for r in call.result()] == [("recorded", True)]


def test_a_result_lost_against_expiry_is_late(db, other):
    """Expired in an open transaction: the result waits for it and is evidence."""
    [operation] = planned(db)
    [claimed] = claim(db, operation, ttl_ms=1)
    until(lambda: db.one("SELECT bool_and(dispatch_until < clock_timestamp()) FROM holdfast.tool_operations"), "not yet over")
    with transaction(db):
        assert db.one("SELECT expired FROM holdfast_v1.expire_claims(10)") == 1
        call = Call(other, result, other, [claimed])
        wait_blocked(db, call)
    assert call.result()[0].outcome == "late"
    assert db.operation(operation).status == "unknown"


def test_a_shards_takeover_waits_for_the_delete(db, other):
    """The holder that validated deletes before its successor begins."""
    db.sql("SELECT * FROM holdfast_v1.service_acquire('shard:0', 'a', 300)")
    with transaction(db):
        assert db.one("SELECT outcome FROM holdfast_v1.events_delete(0, 'a', 1, 1, '{}', '{}')") == "deleted"
        until(lambda: other.one("SELECT expires_at < clock_timestamp() FROM holdfast.service_leases"), "not yet over")
        call = Call(other, other.sql, "SELECT * FROM holdfast_v1.service_acquire('shard:0', 'b', 2000)")
        wait_blocked(db, call)
    assert [(r.outcome, r.epoch) for r in call.result()] == [("acquired", 2)]
    assert db.one("SELECT outcome FROM holdfast_v1.events_delete(0, 'a', 1, 2, '{}', '{}')") == "not_holder"


def test_parking_against_results(db, other):
    """The commit that parks and the result that it waits for, at once: the run is woken exactly once, whichever is first."""
    for _ in range(15):
        made = db.submit(*[{"task": f"t{uuid.uuid4().hex[:8]}"} for _ in range(8)])
        got = db.acquire("pod", *[m.run_id for m in made])
        first = [intent(g, "a") for g in got]
        answers = db.commit(*[item(g, "pod", intents=[i]) for g, i in zip(got, first)])
        claimed = claim(db, *[i["operation_id"] for i in first])
        start = threading.Barrier(2)

        def park():
            start.wait(LIMIT)
            return db.commit(*[item(g, "pod", waits=[i["operation_id"]], wait_mode="all", release=True) | {"revision": a.revision}
                               for g, i, a in zip(got, first, answers)])

        def settle():
            start.wait(LIMIT)
            return result(other, list(reversed(claimed)))

        parked, settled = Call(db, park), Call(other, settle)
        due = {g.run_id for g, a in zip(got, parked.result()) if a.due}
        woke = {r.run_id for r in settled.result() if r.woke}
        assert due | woke == {g.run_id for g in got} and not due & woke
        assert db.one("SELECT count(*) FROM holdfast.ready WHERE run_id = ANY (%s)", [g.run_id for g in got]) == 8
    assert db.sql("SELECT * FROM holdfast.stranded") == []

"""signal: delivered once, to the right run, waking it under its lock; kept while its task is not there."""
import uuid

import psycopg
import pytest

from database import item, lease
from verbs import signal


def parked(db, task="t1", name="go"):
    [made] = db.submit(task=task)
    [got] = db.acquire("a", made.run_id)
    [done] = db.commit(item(got, "a", wait_signal=name))
    assert (done.outcome, done.due) == ("ok", False)
    return got


def test_it_wakes_the_run_that_waits_for_it_and_no_other(db):
    got = parked(db)
    [other] = signal(db, task="t1", name="stop")
    assert (other.outcome, other.woke, other.run_id) == ("delivered", False, got.run_id)
    assert not db.run(got.run_id).ready
    [done] = signal(db, task="t1", signal_id="s1", payload={"n": 1})
    assert (done.outcome, done.woke, done.epoch) == ("delivered", True, 1)
    [again] = db.claim("b")
    assert again.woke_reason == "signal"
    assert {s["name"]: s["payload"] for s in again.signals} == {"stop": None, "go": {"n": 1}}


def test_consumed_by_the_commit_that_answers_it_and_by_no_other(db):
    got = parked(db)
    signal(db, task="t1", signal_id="s1")
    signal(db, task="t1", signal_id="s2")
    [b] = db.claim("b")
    # An epoch that lost its lease consumes nothing.
    assert db.commit(item(got, "a", signals=["s1"]))[0].outcome == "lease_lost"
    [done] = db.commit(item(b, "b", signals=["s1"], wait_signal="go"))
    assert (done.outcome, done.due, done.woke_reason) == ("ok", True, "signal") # s2 is still there
    [c] = db.claim("c")
    assert [s["signal_id"] for s in c.signals] == ["s2"]
    [done] = db.commit(item(c, "c", signals=["s2"], wait_signal="go"))
    assert (done.outcome, done.due) == ("ok", False)
    assert [s.consumed_by for s in db.sql("SELECT consumed_by FROM @schema@.signals")] == [got.run_id] * 2


def test_the_reason_stays_until_the_next_commit(db):
    got = parked(db)
    assert signal(db, task="t1")[0].woke is True
    assert signal(db, task="t1")[0].woke is False # it is awake already
    [b] = db.acquire("b", got.run_id)
    assert b.woke_reason == "signal"
    db.release(lease(b, "b"))
    [c] = db.acquire("c", got.run_id)
    assert c.woke_reason == "signal" and len(c.signals) == 2


def test_a_held_run_finds_it_when_it_parks(db):
    [made] = db.submit(task="t1")
    [got] = db.acquire("a", made.run_id)
    [done] = signal(db, task="t1")
    assert (done.outcome, done.woke) == ("delivered", False)
    [done] = db.commit(item(got, "a", wait_signal="go"))
    assert (done.outcome, done.due, done.woke_reason) == ("ok", True, "signal")


def test_a_repeated_delivery_has_no_second_effect(db):
    got = parked(db)
    record = {"task": "t1", "signal_id": "s1", "payload": {"n": 1}, "source": "t/0/7/1"}
    assert signal(db, record)[0].outcome == "delivered"
    [again] = signal(db, record)
    assert (again.outcome, again.first_outcome, again.run_id, again.woke) == ("duplicate", "delivered", got.run_id, True)
    assert db.one("SELECT count(*) FROM @schema@.signals") == 1
    [b] = db.claim("b")
    db.commit(item(b, "b", signals=["s1"], wait_signal="go"))
    [again] = signal(db, record)
    assert (again.outcome, again.woke) == ("duplicate", False)
    assert signal(db, record | {"digest": "other"})[0].outcome == "request_conflict"
    # The same signal under another request key is the same signal.
    [again] = signal(db, record | {"key": "kafka:x", "own_key": False})
    assert (again.outcome, again.first_outcome) == ("duplicate", "delivered")
    assert db.one("SELECT count(*) FROM @schema@.signals") == 1


def test_a_refusal_is_answered_the_same_way_for_ever(db):
    got = parked(db)
    wrong = {"task": "t1", "signal_id": "s1", "run_id": uuid.uuid4()}
    assert signal(db, wrong)[0].outcome == "run_mismatch"
    [again] = signal(db, wrong)
    assert (again.outcome, again.first_outcome) == ("duplicate", "run_mismatch")
    assert db.one("SELECT count(*) FROM @schema@.signals") == 0
    assert not db.run(got.run_id).ready


def test_which_run(db):
    got = parked(db)
    other = parked(db, "t2")
    assert signal(db, run_id=got.run_id)[0].outcome == "delivered" # the run says which task
    assert signal(db, task="t1", run_id=other.run_id)[0].outcome == "run_mismatch"
    assert signal(db, task="t1", run_id=uuid.uuid4())[0].outcome == "run_mismatch"
    assert signal(db, task="none", run_id=uuid.uuid4())[0].outcome == "missing"
    assert signal(db, run_id=uuid.uuid4())[0].outcome == "missing"
    assert not db.run(other.run_id).ready


def test_an_ended_run_is_told_nothing(db):
    got = parked(db)
    db.cancel(task="t1")
    [done] = signal(db, task="t1")
    assert (done.outcome, done.run_id, done.woke) == ("terminal", got.run_id, False)
    assert db.one("SELECT count(*) FROM @schema@.signals") == 0
    # A callback names its run: the run that retries it is not told what was meant for the old one.
    [new] = db.retry(task="t1")
    assert signal(db, task="t1", run_id=got.run_id)[0].outcome == "terminal"
    [mine] = signal(db, task="t1", run_id=new.run_id)
    assert (mine.outcome, mine.run_id) == ("delivered", new.run_id)


def test_a_signal_for_one_run_is_not_shown_to_the_next(db):
    got = parked(db)
    signal(db, task="t1", run_id=got.run_id, signal_id="mine")
    signal(db, task="t1", signal_id="anyone")
    db.cancel(task="t1")
    db.retry(task="t1")
    [b] = db.claim("b")
    assert [s["signal_id"] for s in b.signals] == ["anyone"]


def test_it_waits_for_its_task_and_is_applied_by_the_submission(db):
    record = {"task": "t1", "signal_id": "s1", "payload": {"n": 1}, "record": {"whole": 1}}
    [done] = signal(db, record)
    assert (done.outcome, done.run_id, done.woke) == ("waiting", None, False)
    assert db.one("SELECT count(*) FROM @schema@.agent_tasks") == 0
    assert db.sql("SELECT record, payload FROM @schema@.requests")[0].record == {"whole": 1}
    [made] = db.submit(task="t1")
    [again] = signal(db, record)
    assert (again.outcome, again.first_outcome, again.run_id) == ("duplicate", "delivered", made.run_id)
    [got] = db.claim("a")
    assert [(s["signal_id"], s["payload"]) for s in got.signals] == [("s1", {"n": 1})]
    [row] = db.sql("SELECT record, payload, waiting_until FROM @schema@.requests WHERE verb = 'signal'")
    assert (row.record, row.payload, row.waiting_until) == (None, None, None)


def test_waiting_controls_are_applied_in_the_order_in_which_they_came(db):
    signal(db, task="t1", signal_id="before")
    db.cancel(task="t1")
    signal(db, task="t1", signal_id="after")
    [made] = db.submit(task="t1")
    assert db.run(made.run_id).status == "cancelled"
    got = {q.request_key: q.outcome for q in db.sql("SELECT request_key, outcome FROM @schema@.requests WHERE verb = 'signal'")}
    assert got == {"r:before": "delivered", "r:after": "terminal"}
    assert [s.signal_id for s in db.sql("SELECT signal_id FROM @schema@.signals")] == ["before"]


def test_one_that_waits_in_vain_is_missing_and_comes_out_of_the_sweep(db):
    signal(db, task="t1", signal_id="s1", record={"whole": 1})
    db.sql("UPDATE @schema@.requests SET waiting_until = clock_timestamp()")
    # Its grace is over: a submission at this moment leaves it alone.
    [made] = db.submit(task="t1")
    assert db.one("SELECT count(*) FROM @schema@.signals") == 0
    swept = db.sweep()
    assert swept.requests_missing == 1
    assert [(m["verb"], m["task_id"], m["record"]) for m in swept.missing] == [("signal", "t1", {"whole": 1})]
    [again] = signal(db, task="t1", signal_id="s1", record={"whole": 1})
    assert (again.outcome, again.first_outcome) == ("duplicate", "missing")
    db.cancel(run_id=made.run_id)


def test_payloads_are_in_no_story(db):
    signal(db, task="t1", payload={"secret": "x-y-z"})
    db.submit(task="t1")
    signal(db, task="t1", payload={"secret": "x-y-z"})
    story = db.one("SELECT story FROM holdfast_v1.story('default', 't1', NULL)")
    assert len(story["requests"]) == 3 and "x-y-z" not in str(story)


@pytest.mark.parametrize("bad", [{"name": None}, {"name": ""}, {"name": "x" * 65}, {"signal_id": ""}, {"signal_id": "x" * 201},
                                 {"signal_id": None}, {"tenant": None}, {"tenant": ""}, {"digest": None}, {"task": ""}])
def test_a_bad_item_is_invalid_and_its_neighbours_are_not(db, bad):
    parked(db)
    one, two = signal(db, {"task": "t2", "key": "k1"} | bad, {"task": "t1"})
    assert (one.outcome, two.outcome) == ("invalid", "delivered")
    assert db.one("SELECT count(*) FROM @schema@.requests WHERE verb = 'signal'") == 1


def test_what_is_a_bug_of_the_caller(db):
    parked(db)
    for items in ([{"task": "t1"}, {"task": "t1"}], [{"task": "t1", "signal_id": "s"}, {"task": "t2", "signal_id": "s"}]):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            signal(db, *items)
    big = {"x": "y" * 2000000}
    assert signal(db, {"task": "t1", "payload": {"x": uuid.uuid4().hex}}, {"task": "t2"})[0].outcome == "delivered"
    db.sql("UPDATE @schema@.control SET max_body_bytes = 100")
    assert signal(db, task="t1", payload=big)[0].outcome == "invalid"
    db.begin()
    db.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.Error, match="isolation"):
        signal(db, task="t1")
    db.end("ROLLBACK")


def test_a_batch_over_many_tasks(db):
    got = [parked(db, f"t{n}") for n in range(20)]
    answers = signal(db, *({"task": f"t{n}"} for n in range(20)))
    assert [(a.item, a.outcome, a.woke, a.run_id) for a in answers] == [
        (n + 1, "delivered", True, g.run_id) for n, g in enumerate(got)]

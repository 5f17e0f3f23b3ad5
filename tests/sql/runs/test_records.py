"""Requests: submit, cancel and retry records, answered once and for ever; controls that come before their task."""
import uuid

import psycopg
import pytest

from database import intent, item, lease
from test_commit import settle
from test_life import commit, held, later


def test_the_first_answer_stands(db):
    record = {"task": "t1", "own_key": True, "key": "r:k1", "digest": "d1", "source": "t/0/1/1", "run_id": uuid.uuid4()}
    [first] = db.submit(record)
    assert first.outcome == "created"
    [again] = db.submit(record | {"run_id": uuid.uuid4()})
    assert (again.outcome, again.first_outcome, again.run_id, again.due) == ("duplicate", "created", first.run_id, True)
    assert db.events() == [], "a redelivery emits nothing"
    # Another record with the producer's key: one event, also when that record is delivered again.
    for _ in range(3):
        [other] = db.submit(record | {"source": "t/0/2/1"})
        assert (other.outcome, other.first_outcome, other.run_id) == ("duplicate", "created", first.run_id)
    assert db.events() == ["submission.duplicate"]
    body = db.one("SELECT body FROM @schema@.outbox_events")["submission"]
    assert (body["request_id"], body["first_outcome"]) == ("k1", "created")
    for _ in range(2):
        [conflict] = db.submit(record | {"source": "t/0/3/1", "digest": "d2"})
        assert conflict.outcome == "request_conflict"
    assert db.events() == ["submission.duplicate", "submission.rejected"]
    assert db.one("SELECT count(*) FROM @schema@.agent_runs") == 1


def test_a_key_of_a_producer_never_meets_a_position(db):
    position = {"task": "t1", "key": "kafka:c/t/0/1/1", "own_key": False}
    assert db.submit(position)[0].outcome == "created"
    assert db.submit({"task": "t2", "key": "kafka:c/t/0/1/1", "own_key": True})[0].outcome == "created"
    assert {r.request_key for r in db.sql("SELECT * FROM @schema@.requests")} == {"kafka:c/t/0/1/1", "r:kafka:c/t/0/1/1"}


def test_tenants_are_apart(db):
    for tenant in ("x", "y"):
        assert db.submit(tenant=tenant, task="t", key="r:k", own_key=True)[0].outcome == "created"
    assert {g.tenant_id for g in db.claim("a")} == {"x", "y"}


def test_a_refused_record_is_refused_for_ever(db):
    held(db)
    record = {"task": "t1", "key": "kafka:1", "source": "t/0/5/1"}
    assert db.submit(record)[0].outcome == "task_active"
    commit_all(db)
    [again] = db.submit(record)
    assert (again.outcome, again.first_outcome) == ("duplicate", "task_active")
    assert db.events(task="t1").count("submission.rejected") == 1
    assert db.submit(task="t1")[0].outcome == "created"


def commit_all(db):
    for run in db.sql("SELECT r.run_id, r.revision, l.epoch, l.owner FROM @schema@.agent_runs r JOIN @schema@.worker_leases l "
                      "USING (run_id) WHERE l.owner IS NOT NULL"):
        db.commit({"run_id": run.run_id, "owner": run.owner, "epoch": run.epoch, "revision": run.revision, "finish": "succeeded"})


def test_a_rejected_record(db):
    record = {"task": "t1", "reject": {"reason": "unknown_field", "detail": "tsk_id"}, "handler": None, "run_id": None}
    full = db.record({}, record)
    [made] = db.submit(full)
    assert (made.outcome, made.run_id, made.due, made.detail["reason"]) == ("invalid", None, False, "unknown_field")
    [again] = db.submit(full)
    assert (again.outcome, again.first_outcome) == ("duplicate", "invalid")
    assert db.events() == ["submission.rejected"]
    assert db.one("SELECT body FROM @schema@.outbox_events")["failure"]["reason"] == "unknown_field"
    assert db.one("SELECT count(*) FROM @schema@.agent_tasks") == 0


@pytest.mark.parametrize("change", [{"tenant": None}, {"task": None}, {"task": ""}, {"task": "x" * 201}, {"key": None}, {"digest": None}])
def test_a_record_without_identity_is_invalid_and_not_kept(db, change):
    neighbour = {"task": "ok"}
    made = db.submit({"task": "t1"} | change, neighbour)
    assert [m.outcome for m in made] == ["invalid", "created"]
    assert db.one("SELECT count(*) FROM @schema@.requests") == 1


@pytest.mark.parametrize("change", [{"handler": None}, {"run_id": None}, {"max_attempts": 0}])
def test_a_record_without_what_a_run_needs_is_invalid_and_kept(db, change):
    assert [m.outcome for m in db.submit({"task": "t1"} | change, {"task": "ok"})] == ["invalid", "created"]
    assert db.one("SELECT count(*) FROM @schema@.requests") == 2
    assert db.one("SELECT count(*) FROM @schema@.agent_tasks") == 1


def test_cancel_previous(db):
    old = held(db)
    op = intent(old, "s")
    commit(db, old, intents=[op])
    [made] = db.submit(task="t1", cancel_previous=True, by="me")
    assert made.outcome == "created" and made.detail["cancelled_run_id"] == str(old.run_id)
    assert db.run(old.run_id).status == "cancelled" and db.operation(op["operation_id"]).status == "cancelled"
    assert db.events(task="t1") == ["run.started", "operation.cancelled", "run.cancelled"]
    assert [g.run_id for g in db.claim("b")] == [made.run_id]
    assert db.submit(task="new", cancel_previous=True)[0].outcome == "created"


@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_cancel_previous_with_operations_in_doubt(db, status):
    old = held(db)
    op = intent(old, "s")
    commit(db, old, intents=[op])
    settle(db, op["operation_id"], status)
    [made] = db.submit(task="t1", cancel_previous=True)
    assert (made.outcome, made.detail["operations"]) == ("unsettled_operations", [op["operation_id"]])
    assert db.run(old.run_id).status == "running"
    [made] = db.submit(task="t1", cancel_previous=True, allow_unsettled=True, by="me")
    assert made.outcome == "created" and made.detail["allow_unsettled"] == [op["operation_id"]] and made.detail["by"] == "me"
    assert db.operation(op["operation_id"]).status == status


# --- cancel

def test_cancel_outcomes(db):
    got = held(db)
    ops = {s: intent(got, s) for s in ("prepared", "unsent", "dispatching", "unknown")}
    commit(db, got, intents=list(ops.values()))
    for status, op in ops.items():
        if status != "prepared":
            settle(db, op["operation_id"], status)
    record = db.record({}, {"task": "t1", "reason": "wrong amount", "by": "kim"})
    full = {k: record.get(k) for k in ("tenant", "task", "key", "own_key", "digest", "source", "by", "reason")}
    in_doubt = sorted(ops[s]["operation_id"] for s in ("dispatching", "unknown"))
    [done] = db.cancel(full)
    assert (done.outcome, done.run_id, done.status, done.detached) == ("cancelled", got.run_id, "cancelled", in_doubt)
    assert {s: db.operation(op["operation_id"]).status for s, op in ops.items()} == {
        "prepared": "cancelled", "unsent": "cancelled", "dispatching": "dispatching", "unknown": "unknown"}
    [again] = db.cancel(full)
    assert (again.outcome, again.first_outcome, again.run_id) == ("duplicate", "cancelled", got.run_id)
    assert db.events(got.run_id) == ["run.started", "operation.cancelled", "operation.cancelled", "run.cancelled"]
    failure = db.one("SELECT body FROM @schema@.outbox_events WHERE type = 'run.cancelled'")["failure"]
    assert failure == {"reason": "cancelled", "detail": "wrong amount", "by": "kim"}
    [late] = db.cancel(task="t1")
    assert (late.outcome, late.status, late.detached) == ("already_terminal", "cancelled", in_doubt)
    assert db.cancel(full | {"digest": "other"})[0].outcome == "request_conflict"
    # The holder hears it from renew.
    assert [r.outcome for r in db.renew(lease(got, "a"))] == ["terminal"]


def test_cancel_by_run(db):
    one, two = held(db, "t1"), held(db, "t2")
    assert [d.outcome for d in db.cancel({"task": "t1", "run_id": two.run_id}, {"task": "t3", "run_id": uuid.uuid4()})] == [
        "run_mismatch", "missing"]
    assert db.cancel(task="t1", run_id=uuid.uuid4())[0].outcome == "run_mismatch"
    assert db.run(one.run_id).status == "running"
    [done] = db.cancel(run_id=one.run_id)
    assert (done.outcome, done.run_id) == ("cancelled", one.run_id)
    db.submit(task="t1")
    [done] = db.cancel(task="t1", run_id=one.run_id)
    assert (done.outcome, done.status) == ("already_terminal", "cancelled"), "an older run: that run, never the new one"
    assert [g.task_id for g in db.claim("b")] == ["t1"]


def test_a_run_of_another_tenant_is_out_of_reach(db):
    got = held(db)
    [done] = db.cancel(tenant="other", run_id=got.run_id)
    assert done.outcome in ("missing", "run_mismatch", "invalid")
    assert db.run(got.run_id).status == "running"


def test_a_parked_and_a_waiting_run_can_be_cancelled(db):
    got = held(db)
    commit(db, got, wait_signal="go", wait_until=later(3600))
    db.submit(task="t2", not_before=later(3600))
    assert [d.outcome for d in db.cancel({"task": "t1"}, {"task": "t2"})] == ["cancelled", "cancelled"]
    assert db.one("SELECT count(*) FROM @schema@.timers") == 0


def test_a_cancel_before_its_task(db):
    record = {"task": "t1", "key": "kafka:9", "source": "t/0/9/1", "digest": "d", "reason": "stop", "by": "kim",
              "record": {"type": "cancel", "task_id": "t1"}}
    assert db.cancel(record)[0].outcome == "waiting"
    assert db.one("SELECT count(*) FROM @schema@.agent_tasks") == 0
    [again] = db.cancel(record)
    assert (again.outcome, again.first_outcome) == ("duplicate", "waiting")
    assert db.sweep().requests_missing == 0
    [made] = db.submit(task="t1")
    assert (made.outcome, made.due) == ("created", False)
    assert db.run(made.run_id).status == "cancelled"
    assert db.events() == ["run.cancelled"]
    [again] = db.cancel(record)
    assert (again.first_outcome, again.run_id) == ("cancelled", made.run_id)
    row = db.one("SELECT * FROM @schema@.requests WHERE verb = 'cancel'")
    assert (row.record, row.waiting_until) == (None, None)
    assert db.claim("a") == []
    assert db.submit(task="t1")[0].outcome == "created", "it was for one run only"
    assert len(db.claim("a")) == 1


def test_a_cancel_whose_task_never_comes(db):
    db.cancel(task="t1", record={"type": "cancel", "task_id": "t1"})
    db.sql("UPDATE @schema@.requests SET waiting_until = clock_timestamp()")
    row = db.sweep()
    assert row.requests_missing == 1
    [letter] = row.missing
    assert (letter["task_id"], letter["verb"], letter["record"]) == ("t1", "cancel", {"type": "cancel", "task_id": "t1"})
    assert letter["source"].startswith("t/0/")
    assert db.one("SELECT outcome FROM @schema@.requests") == "missing"
    assert db.sweep().requests_missing == 0
    assert db.submit(task="t1")[0].due is True


def test_a_cancel_past_its_grace_is_not_applied(db):
    db.cancel(task="t1")
    db.sql("UPDATE @schema@.requests SET waiting_until = clock_timestamp()")
    [made] = db.submit(task="t1")
    assert (made.due, db.run(made.run_id).status) == (True, "pending")


def test_a_cancel_and_the_submission_of_its_task_at_one_moment(db):
    """Whoever is first, the run ends cancelled: the cancel waits for the submission, or the submission finds it."""
    import threading
    for first, second in (("submit", "cancel"), ("cancel", "submit")):
        task = f"task-{first}"
        one, two = db.another(), db.another()
        one.begin()
        getattr(one, first)(task=task)
        thread = threading.Thread(target=lambda: getattr(two, second)(task=task))
        thread.start()
        wait_for(db, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
        one.end()
        thread.join(20)
        assert not thread.is_alive()
        assert db.one("SELECT status FROM @schema@.agent_runs WHERE task_id = %s", task) == "cancelled"
        one.close(), two.close()


def wait_for(db, fact, seconds=20):
    import time
    end = time.monotonic() + seconds
    while not db.one(fact):
        assert time.monotonic() < end, fact
        time.sleep(0.02)


def test_one_key_used_for_two_tasks_at_one_moment(db):
    import threading
    one, two, answers = db.another(), db.another(), []
    one.begin()
    assert one.submit(task="t1", own_key=True, key="k")[0].outcome == "created"

    def other():
        try:
            answers.append(two.submit(task="t2", own_key=True, key="k"))
        except psycopg.errors.SerializationFailure as error:
            answers.append(error)
    thread = threading.Thread(target=other)
    thread.start()
    wait_for(db, "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
    one.end()
    thread.join(20)
    assert isinstance(answers[0], psycopg.errors.SerializationFailure), answers
    assert [m.outcome for m in two.submit(task="t2", own_key=True, key="k")] == ["duplicate"]
    assert db.one("SELECT count(*) FROM @schema@.agent_runs") == 1
    one.close(), two.close()


# --- retry

def test_retry_outcomes(db):
    assert db.retry(task="t1")[0].outcome == "missing"
    got = held(db, input={"n": 1}, priority=4, max_attempts=7, labels={"l": 1}, traceparent="00-1")
    assert db.retry(task="t1")[0].outcome == "task_active"
    commit(db, got, finish="failed", output={})
    assert [d.outcome for d in db.retry(task="t1", run_id=uuid.uuid4())] == ["run_mismatch"]
    assert [d.outcome for d in db.retry(task="t9", run_id=uuid.uuid4())] == ["missing"]
    record = {"task": "t1", "key": "kafka:7", "digest": "d", "source": "t/0/7/1", "new_run_id": uuid.uuid4()}
    [made] = db.retry(record)
    assert (made.outcome, made.due, made.epoch, made.unsettled) == ("created", True, 0, None)
    [again] = db.retry(record | {"new_run_id": uuid.uuid4()})
    assert (again.outcome, again.first_outcome, again.run_id) == ("duplicate", "created", made.run_id)
    [new] = db.claim("b")
    assert (new.input, new.prev_run_id, new.first_run_id, new.traceparent, new.epoch) == ({"n": 1}, got.run_id, got.run_id, "00-1", 1)
    run = db.run(new.run_id)
    assert (run.priority, run.max_attempts) == (4, 7)
    assert [d.outcome for d in db.retry(task="t1", run_id=got.run_id)] == ["run_mismatch"]
    # A late write of the old run touches nothing of the new one.
    assert [d.outcome for d in db.commit(item(got, "a", checkpoint={"late": 1}))] == ["lease_lost"]


def test_retry_by_run_alone(db):
    got = held(db)
    commit(db, got, finish="failed", output={})
    assert db.retry(run_id=got.run_id)[0].outcome == "created"


@pytest.mark.parametrize("status", ["dispatching", "unknown"])
def test_retry_with_operations_in_doubt(db, status):
    got = held(db)
    op = intent(got, "s")
    commit(db, got, intents=[op])
    settle(db, op["operation_id"], status)
    commit(db, got, finish="failed", output={})
    [made] = db.retry(task="t1")
    assert (made.outcome, made.unsettled) == ("unsettled_operations", [op["operation_id"]])
    [made] = db.retry(task="t1", allow_unsettled=True, by="kim", reason="checked by phone")
    assert made.outcome == "created"
    detail = db.one("SELECT detail FROM @schema@.run_history WHERE run_id = %s", made.run_id)
    assert (detail["allow_unsettled"], detail["by"], detail["reason"]) == ([op["operation_id"]], "kim", "checked by phone")


def test_a_deadline_that_has_passed_is_not_inherited(db):
    [made] = db.submit(task="t1", deadline=later(-1))
    db.claim("a")
    db.retry(task="t1")
    [got] = db.claim("a")
    assert (got.outcome, got.deadline) == ("acquired", None)


# --- what a caller may not do

def test_bugs_of_the_caller_fail_the_whole_call(db):
    got = held(db)
    two = lease(got, "a")
    bad = [lambda: db.acquire("a", got.run_id, got.run_id), lambda: db.renew(two, two), lambda: db.release(two, two),
           lambda: db.commit(item(got, "a"), item(got, "a")), lambda: db.submit({"task": "x"}, {"task": "x"}),
           lambda: db.submit({"task": "x", "key": "k"}, {"task": "y", "key": "k"}), lambda: db.cancel({"task": "x"}, {"task": "x"}),
           lambda: db.cancel({"task": "t1"}, {"run_id": got.run_id}), lambda: db.retry({"task": "x"}, {"task": "x"}),
           lambda: db.acquire("a", got.run_id, ttl_ms=0), lambda: db.acquire("a", got.run_id, ttl_ms=600001),
           lambda: db.renew(two, ttl_ms=-5), lambda: db.claim("a", 0), lambda: db.claim("a", 1001), lambda: db.claim("", 5),
           lambda: db.submit(*({"task": f"n{n}"} for n in range(1001)))]
    for call in bad:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            call()
    assert db.one("SELECT count(*) FROM @schema@.agent_runs") == 1


def test_arrays_of_different_length(db):
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        db.call("renew", p_run_ids=([uuid.uuid4()], "uuid[]"), p_owners=([], "text[]"), p_epochs=([1], "bigint[]"),
                p_ttl_ms=(5, "bigint"))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_only_read_committed(db, level):
    run = db.submit(task="t")[0].run_id
    for call in (lambda: db.submit(task="x"), lambda: db.acquire("a", run), lambda: db.claim("a"), lambda: db.cancel(task="t"),
                 lambda: db.renew({"run_id": run, "owner": "a", "epoch": 1}), lambda: db.retry(task="t"),
                 lambda: db.release({"run_id": run, "owner": "a", "epoch": 1}),
                 lambda: db.commit({"run_id": run, "owner": "a", "epoch": 1, "revision": 1})):
        db.sql(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.DatabaseError) as caught:
            call()
        assert caught.value.sqlstate in ("25001", "22023"), caught.value
        db.end("ROLLBACK")
    assert db.run(run).owner is None


def test_empty_batches_are_harmless(db):
    assert db.call("renew", p_run_ids=([], "uuid[]"), p_owners=([], "text[]"), p_epochs=([], "bigint[]"), p_ttl_ms=(5, "bigint")) == []
    assert db.commit() == [] and db.acquire("a") == []

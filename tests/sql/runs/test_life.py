"""A run's life: submit, claim, commit, release, takeover, attempts, deadlines, parking and waking."""
import datetime
import uuid

import psycopg
import pytest

from database import intent, item, lease

UTC = datetime.timezone.utc


def later(seconds):
    return datetime.datetime.now(UTC) + datetime.timedelta(seconds=seconds)


def held(db, task="t1", owner="a", **submission):
    [made] = db.submit(task=task, **submission)
    assert made.outcome == "created", made
    [got] = db.acquire(owner, made.run_id)
    assert got.outcome == "acquired", got
    return got


def commit(db, got, owner="a", **members):
    [done] = db.commit(item(got, owner, **members))
    if done.outcome == "ok":
        got.revision = done.revision
    return done


def test_whole_way(db):
    [made] = db.submit(task="t1", input={"n": 1}, traceparent="00-1", priority=3)
    assert (made.outcome, made.due, made.epoch) == ("created", True, 0)
    [got] = db.claim("a", handlers=["plan"])
    assert (got.outcome, got.run_id, got.epoch, got.revision, got.attempt) == ("acquired", made.run_id, 1, 1, 1)
    assert (got.input, got.checkpoint, got.started, got.takeover, got.traceparent) == ({"n": 1}, {}, True, False, "00-1")
    assert got.first_run_id == got.run_id and got.prev_run_id is None and got.operations is None
    done = commit(db, got, checkpoint={"at": 1})
    assert (done.outcome, done.revision, done.due, done.current_owner) == ("ok", 2, False, "a")
    done = commit(db, got, checkpoint={"at": 2})
    assert (done.outcome, done.revision) == ("ok", 3)
    done = commit(db, got, finish="succeeded", output={"sum": 3})
    assert (done.outcome, done.revision, done.due) == ("ok", 4, False)
    run = db.run(got.run_id)
    assert (run.status, run.owner, run.ready, run.checkpoint) == ("succeeded", None, False, {"at": 2})
    assert db.events(got.run_id) == ["run.started", "run.succeeded"]
    event = db.one("SELECT * FROM @schema@.outbox_events WHERE type = 'run.succeeded'")
    assert (event.body, event.epoch, event.revision, event.traceparent) == ({"output": {"sum": 3}}, 1, 4, "00-1")
    assert [(h.kind, h.from_status, h.to_status, h.epoch) for h in
            db.sql("SELECT * FROM @schema@.run_history ORDER BY history_id")] == [
        ("created", None, "pending", 0), ("started", "pending", "running", 1), ("succeeded", "running", "succeeded", 1)]
    assert db.one("SELECT output FROM @schema@.run_data") == {"sum": 3}


def test_claim_takes_priority_first_then_oldest_and_only_served_handlers(db):
    for task, priority, handler in (("old", 0, "plan"), ("new", 0, "plan"), ("urgent", 5, "plan"), ("other", 9, "exec")):
        db.submit(task=task, priority=priority, handler=handler)
    assert [got.task_id for got in db.claim("a", 2, handlers=["plan"])] == ["urgent", "old"]
    assert [got.task_id for got in db.claim("a", 5, handlers=["plan"])] == ["new"]
    assert db.claim("a", 5, handlers=["plan"]) == []
    assert [got.task_id for got in db.claim("a", 5)] == ["other"]


def test_claim_of_several_handlers_keeps_the_limit_and_the_order(db):
    for n in range(6):
        db.submit(task=f"t{n}", handler=["x", "y", "z"][n % 3], priority=n)
    assert [got.task_id for got in db.claim("a", 4, handlers=["x", "y", "z"])] == ["t5", "t4", "t3", "t2"]
    assert [got.task_id for got in db.claim("a", 4, handlers=["z", "y", "x"])] == ["t1", "t0"]


def test_acquire_outcomes(db):
    a, b, c, d = [made.run_id for made in db.submit(*({"task": t} for t in "abcd"))]
    [made] = db.submit(task="later", not_before=later(3600))
    db.cancel(task="d")
    got = db.acquire("x", a, b)
    assert [g.outcome for g in got] == ["acquired", "acquired"]
    commit(db, got[1], "x", wait_signal="go", wait_mode="none")
    unknown = uuid.uuid4()
    assert [(g.item, g.outcome) for g in db.acquire("y", a, unknown, b, c, d, None, made.run_id)] == [
        (1, "busy"), (2, "missing"), (3, "not_ready"), (4, "acquired"), (5, "terminal"), (6, "missing"), (7, "not_ready")]
    assert db.run(a).owner == "x" and db.run(c).owner == "y"
    assert [g.outcome for g in db.acquire("y", db.submit(task="e", handler="exec")[0].run_id, handlers=["plan"])] == ["not_ready"]


def test_a_token_answers_again_what_is_still_held(db):
    runs = [made.run_id for made in db.submit({"task": "1"}, {"task": "2"}, {"task": "3"})]
    token = uuid.uuid4()
    first = db.acquire("a", runs[0], runs[1], token=token)
    before = db.run(runs[0]).expires_at
    again = db.acquire("a", runs[0], runs[1], runs[2], token=token, ttl_ms=500000)
    assert [(g.outcome, g.epoch, g.attempt) for g in again[:2]] == [("acquired", 1, 1)] * 2
    assert again[2].outcome == "token_used"
    assert db.run(runs[0]).expires_at == before, "asking again must extend nothing"
    assert [g.outcome for g in db.acquire("b", runs[0], token=token)] == ["token_used"]
    db.release(lease(first[0], "a"))
    db.expire(runs[1])
    assert [g.outcome for g in db.acquire("a", runs[0], runs[1], token=token)] == ["token_used", "token_used"]
    assert db.run(runs[0]).owner is None

    token = uuid.uuid4()
    got = db.claim("c", 5, token=token)
    assert {g.run_id for g in got} == {runs[0], runs[2]}
    db.submit(task="4")
    assert {(g.run_id, g.outcome, g.epoch) for g in db.claim("c", 5, token=token)} == {(g.run_id, "acquired", g.epoch) for g in got}


def test_a_token_that_took_nothing_takes_nothing_later(db):
    token = uuid.uuid4()
    assert db.claim("a", 5, token=token) == []
    run = db.submit(task="t")[0].run_id
    assert db.claim("a", 5, token=token) == []
    assert [g.outcome for g in db.acquire("a", run, token=token)] == ["token_used"]
    assert len(db.claim("a", 5)) == 1


def test_gate_closed(db):
    run = db.submit(task="t")[0].run_id
    db.sql("UPDATE @schema@.control SET gate_closed = true, gate_reason = 'test'")
    assert [g.outcome for g in db.claim("a")] == ["gate_closed"]
    assert [(g.item, g.run_id, g.outcome) for g in db.acquire("a", run)] == [(1, run, "gate_closed")]
    assert db.run(run).owner is None
    assert db.submit(task="t2")[0].outcome == "created"
    assert db.cancel(task="t2")[0].outcome == "cancelled"


def test_renew(db):
    got = held(db, deadline=later(3600))
    other = held(db, "t2")
    ended = held(db, "t3")
    db.cancel(task="t3")
    before = db.run(got.run_id).expires_at
    assert [(r.outcome, r.current_epoch, r.status) for r in db.renew(lease(got, "a"), lease(other, "b"),
            {"run_id": uuid.uuid4(), "owner": "a", "epoch": 1}, lease(ended, "a"), ttl_ms=500000)] == [
        ("renewed", 1, "running"), ("lost", 1, "running"), ("lost", None, None), ("terminal", 1, "cancelled")]
    assert db.run(got.run_id).expires_at > before
    db.expire(got.run_id)
    assert [r.outcome for r in db.renew(lease(got, "a"))] == ["lost"]
    assert db.run(got.run_id).expires_at < datetime.datetime.now(UTC)
    db.sql("UPDATE @schema@.agent_runs SET deadline = clock_timestamp() - interval '1 second' WHERE run_id = %s", other.run_id)
    before = db.run(other.run_id).expires_at
    assert [r.outcome for r in db.renew(lease(other, "a"), ttl_ms=500000)] == ["deadline"]
    assert db.run(other.run_id).expires_at == before


def test_a_beat_that_crosses_its_own_release_is_no_refusal(db):
    got, parked, swept = held(db), held(db, "t2"), held(db, "t3")
    db.release(lease(got, "a"))
    commit(db, parked, wait_mode="none", wait_until=later(60), release=True)
    assert [(r.outcome, r.current_epoch) for r in db.renew(lease(got, "a"), lease(parked, "a"))] == [
        ("released", 1), ("released", 1)]
    assert db.one("SELECT count(*) FROM @schema@.refusals") == 0
    db.expire(swept.run_id)   # what ran out was lost, whoever cleared it
    db.sweep()
    [again] = db.acquire("b", got.run_id)
    assert [r.outcome for r in db.renew(lease(got, "a"), lease(swept, "a"))] == ["lost", "lost"]
    assert db.one("SELECT count(*) FROM @schema@.refusals") == 2
    assert [r.outcome for r in db.renew(lease(again, "b"))] == ["renewed"]


def test_the_backlog_is_counted_no_further_than_asked(db):
    for task in ("t1", "t2", "t3"):
        db.submit(task=task)
    assert [db.one("SELECT ready FROM @iface@.backlog(%s)", n) for n in (0, 2, 3, 1000)] == [0, 2, 3, 3]
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        db.one("SELECT ready FROM @iface@.backlog(-1)")


def test_renew_never_waits(db):
    a, b = held(db, "t1"), held(db, "t2")
    with db.another().connection as blocker:
        blocker.execute("BEGIN")
        blocker.execute("SELECT FROM holdfast.worker_leases WHERE run_id = %s FOR NO KEY UPDATE", (a.run_id,))
        assert [r.outcome for r in db.renew(lease(a, "a"), lease(b, "a"))] == ["busy", "renewed"]
        blocker.execute("ROLLBACK")
    assert [r.outcome for r in db.renew(lease(a, "a"))] == ["renewed"]


def test_release_keeps_the_epoch_and_never_disturbs_a_successor(db):
    got = held(db)
    assert [(r.outcome, r.current_epoch) for r in db.release(lease(got, "b"), )] == [("not_holder", 1)]
    assert [(r.outcome, r.current_epoch) for r in db.release(lease(got, "a"), )] == [("released", 1)]
    run = db.run(got.run_id)
    assert (run.owner, run.epoch, run.ready, run.attempts) == (None, 1, True, 1)
    [again] = db.claim("b")
    assert (again.epoch, again.attempt, again.takeover, again.started) == (2, 2, False, False)
    assert [r.outcome for r in db.release(lease(got, "a"))] == ["not_holder"]
    assert db.run(got.run_id).owner == "b"
    assert [r.outcome for r in db.release(lease(again, "b"), graceful=True)] == ["released"]
    assert db.run(got.run_id).attempts == 0
    [again] = db.claim("c")
    db.cancel(task="t1")
    assert [r.outcome for r in db.release(lease(again, "c"))] == ["released"]
    assert not db.run(got.run_id).ready
    assert [(r.reason, r.verb, r.epoch, r.refused) for r in db.sql(
        "SELECT * FROM @schema@.refusals ORDER BY first_at, epoch")] == [("not_holder", "release", 1, 2)]


@pytest.mark.parametrize("by_sweep", [True, False])
def test_takeover(db, by_sweep):
    got = held(db)
    db.expire(got.run_id)
    if by_sweep:
        row = db.sweep()
        assert (row.outcome, row.leases_expired, row.due) == ("ok", 1, [got.run_id])
        run = db.run(got.run_id)
        assert (run.ready, run.owner, run.ran_out, run.epoch) == (True, None, True, 1)
    [taken] = db.acquire("b", got.run_id)
    assert (taken.outcome, taken.epoch, taken.takeover, taken.attempt, taken.revision) == ("acquired", 2, True, 2, 1)
    assert taken.takeover_ms >= 1000
    assert db.events(got.run_id) == ["run.started", "run.taken_over"]
    assert db.run(got.run_id).ran_out is False
    # The old one: nothing it does changes anything.
    assert [r.outcome for r in db.renew(lease(got, "a"))] == ["lost"]
    assert [r.outcome for r in db.release(lease(got, "a"))] == ["not_holder"]
    for members in ({"checkpoint": {"stale": 1}}, {"finish": "failed", "output": {}}, {"wait_signal": "x"},
                    {"intents": [intent(got, "s")]}, {"release": True}):
        done = commit(db, got, **members)
        assert (done.outcome, done.current_epoch, done.current_owner) == ("lease_lost", 2, "b")
    run = db.run(got.run_id)
    assert (run.owner, run.epoch, run.status, run.checkpoint, run.revision) == ("b", 2, "running", {}, 1)
    assert db.one("SELECT count(*) FROM @schema@.tool_operations") == 0
    assert {(r.verb, r.reason, r.epoch, r.current_epoch, r.refused) for r in db.sql("SELECT * FROM @schema@.refusals")} == {
        ("renew", "lost", 1, 2, 1), ("release", "not_holder", 1, 2, 1), ("commit", "lease_lost", 1, 2, 5)}


def test_the_epoch_decides_even_between_sessions_of_one_name(db):
    old = held(db)
    db.expire(old.run_id)
    [new] = db.acquire("a", old.run_id)
    assert (old.epoch, new.epoch) == (1, 2)
    assert [r.outcome for r in db.renew(lease(old, "a"))] == ["lost"]
    assert [r.outcome for r in db.release(lease(old, "a"))] == ["not_holder"]
    assert commit(db, old, checkpoint={"old": 1}).outcome == "lease_lost"
    assert db.run(old.run_id).owner == "a"
    # And the owner decides where the epoch is right.
    assert [r.outcome for r in db.renew(lease(new, "b"))] == ["lost"]
    assert [r.outcome for r in db.release(lease(new, "b"))] == ["not_holder"]
    assert commit(db, new, "b", checkpoint={"b": 1}).outcome == "lease_lost"
    assert commit(db, new, checkpoint={"new": 1}).outcome == "ok"


def test_a_release_after_the_lease_ran_out_is_nobodys(db):
    got = held(db)
    db.expire(got.run_id)
    assert [r.outcome for r in db.release(lease(got, "a"), graceful=True)] == ["not_holder"]
    run = db.run(got.run_id)
    assert (run.owner, run.attempts, run.ready) == ("a", 1, False)
    assert db.sweep().due == [got.run_id]
    assert db.acquire("b", got.run_id)[0].takeover is True


def test_resuming_a_ready_run_is_no_takeover(db):
    got = held(db)
    commit(db, got, release=True)
    [again] = db.claim("b")
    assert (again.takeover, again.epoch) == (False, 2)


def test_attempts_are_counted_before_user_code_and_end_the_run(db):
    got = held(db, max_attempts=2)
    run_id = got.run_id
    op = intent(got, "s")
    db.expire(run_id)
    [got] = db.acquire("b", run_id)
    assert got.attempt == 2
    commit(db, got, "b", intents=[op])
    assert db.run(run_id).attempts == 0, "an applied commit sets the count back"
    for owner in "cd":
        db.expire(run_id)
        [got] = db.acquire(owner, run_id)
        assert got.outcome == "acquired"
    db.expire(run_id)
    [got] = db.acquire("e", run_id)
    assert (got.outcome, got.checkpoint) == ("attempts_exhausted", None)
    run = db.run(run_id)
    assert (run.status, run.owner, run.ready) == ("failed", None, False)
    assert db.operation(op["operation_id"]).status == "cancelled"
    assert db.events(run_id)[-2:] == ["operation.cancelled", "run.failed"]
    assert db.one("SELECT body FROM @schema@.outbox_events WHERE type = 'run.failed'")["failure"]["reason"] == "attempts_exhausted"
    assert db.one("SELECT failure FROM @schema@.run_data")["reason"] == "attempts_exhausted"


def test_the_sweep_ends_a_run_at_its_attempt_limit(db):
    got = held(db, max_attempts=1)
    db.expire(got.run_id)
    row = db.sweep()
    assert (row.leases_expired, row.exhausted, row.due) == (1, 1, [])
    assert db.run(got.run_id).status == "failed"


def test_deadline(db):
    got = held(db, deadline=later(3600))
    commit(db, got, wait_signal="never")
    assert db.run(got.run_id).timer_at is not None
    db.sql("UPDATE @schema@.agent_runs SET deadline = clock_timestamp() - interval '1 second'")
    db.sql("UPDATE @schema@.timers SET at = clock_timestamp() - interval '1 second'")
    row = db.sweep()
    assert (row.timers_due, row.deadlines, row.due) == (1, 1, [got.run_id])
    assert db.run(got.run_id).woke_reason == "deadline"
    [gone] = db.claim("b")
    assert (gone.outcome, gone.input) == ("deadline_exceeded", None)
    assert db.run(got.run_id).status == "failed"
    assert db.claim("b") == []


def test_deadline_before_the_first_start(db):
    [made] = db.submit(task="t", deadline=later(-1))
    assert [g.outcome for g in db.claim("a")] == ["deadline_exceeded"]
    assert db.events(made.run_id) == ["run.failed"]
    assert [(h.from_status, h.to_status) for h in db.sql("SELECT * FROM @schema@.run_history ORDER BY history_id")] == [
        (None, "pending"), ("pending", "running"), ("running", "failed")]


def test_not_before(db):
    [made] = db.submit(task="t", not_before=later(3600))
    assert made.due is False and db.claim("a") == []
    db.sql("UPDATE @schema@.agent_runs SET wait_until = clock_timestamp() - interval '1 second'")
    db.sql("UPDATE @schema@.timers SET at = clock_timestamp() - interval '1 second'")
    assert db.sweep().due == [made.run_id]
    [got] = db.claim("a")
    assert (got.outcome, got.woke_reason, got.started) == ("acquired", "timeout", True)
    assert db.submit(task="t2", not_before=later(-5))[0].due is True


def test_failures_back_off_and_end_the_run(db):
    got = held(db, max_attempts=2)
    done = commit(db, got, retry_ms=3600000, output={"reason": "boom"})
    assert (done.outcome, done.due) == ("ok", False)
    run = db.run(got.run_id)
    assert (run.failures, run.attempts, run.owner, run.wait_mode, run.status) == (1, 0, None, "none", "running")
    assert run.timer_at == run.wait_until and run.wait_until > later(3500)
    db.sql("UPDATE @schema@.agent_runs SET wait_until = clock_timestamp()")
    db.sql("UPDATE @schema@.timers SET at = clock_timestamp()")
    db.sweep()
    [got] = db.claim("b")
    assert (got.failures, got.attempt) == (1, 1)
    done = commit(db, got, "b", retry_ms=0, output={"reason": "boom"})
    assert (done.outcome, done.due) == ("ok", False)
    assert db.run(got.run_id).status == "failed"
    assert db.one("SELECT body FROM @schema@.outbox_events WHERE type = 'run.failed'") == {"failure": {"reason": "boom"}}


def test_a_retry_without_delay_is_due_at_once_and_a_finished_step_forgets_failures(db):
    got = held(db, max_attempts=2)
    assert commit(db, got, retry_ms=0).due is True
    [got] = db.claim("a")
    assert got.failures == 1
    commit(db, got, checkpoint={"saved": 1})
    assert db.run(got.run_id).failures == 1, "an intermediate save is no finished step"
    commit(db, got, release=True)
    assert db.run(got.run_id).failures == 0


def test_parking_on_a_signal_and_consuming_it(db):
    got = held(db)
    done = commit(db, got, wait_signal="go")
    assert (done.due, db.run(got.run_id).ready) == (False, False)
    db.sql("INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, name, payload) VALUES ('default', 't1', 's1', 'go', '7')")
    assert db.one("SELECT @schema@.wake_runs(%s, clock_timestamp())", [got.run_id]) == [got.run_id]
    assert db.one("SELECT @schema@.wake_runs(%s, clock_timestamp())", [got.run_id]) == [], "a second wake changes nothing"
    [got] = db.claim("b")
    assert got.woke_reason == "signal" and [s["signal_id"] for s in got.signals] == ["s1"] and got.signals[0]["payload"] == 7
    db.expire(got.run_id)
    [got] = db.acquire("c", got.run_id)
    assert got.woke_reason == "signal", "whoever acquires sees the same reason"
    done = commit(db, got, "c", wait_signal="go", signals=["s1"])
    assert (done.outcome, done.due) == ("ok", False)
    assert db.one("SELECT consumed_by FROM @schema@.signals") == got.run_id


def test_a_signal_for_another_run_wakes_nobody(db):
    got = held(db)
    db.sql("INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, run_id, name) VALUES ('default', 't1', 's1', %s, 'go')",
           uuid.uuid4())
    assert commit(db, got, wait_signal="go").due is False
    assert db.one("SELECT @schema@.wake_runs(%s, clock_timestamp())", [got.run_id]) == []


@pytest.mark.parametrize("mode, settled, woken", [("all", 0, False), ("all", 1, False), ("all", 2, True),
                                                  ("any", 0, False), ("any", 1, True)])
def test_parking_on_operations(db, mode, settled, woken):
    got = held(db)
    ops = [intent(got, "x"), intent(got, "y")]
    commit(db, got, intents=ops)
    for op in ops[:settled]:
        db.sql("UPDATE @schema@.tool_operations SET status = 'dispatching', attempts = 1 WHERE operation_id = %s", op["operation_id"])
        db.sql("UPDATE @schema@.tool_operations SET status = 'succeeded' WHERE operation_id = %s", op["operation_id"])
    done = commit(db, got, wait_mode=mode, waits=[op["operation_id"] for op in ops])
    assert (done.due, done.woke_reason) == (woken, "operations" if woken else None)
    assert db.run(got.run_id).ready is woken


def test_a_wait_for_a_time_wakes_with_the_reason(db):
    got = held(db)
    op = intent(got, "x")
    commit(db, got, intents=[op], wait_mode="all", waits=[op["operation_id"]], wait_until=later(3600))
    db.sql("UPDATE @schema@.agent_runs SET wait_until = clock_timestamp()")
    db.sql("UPDATE @schema@.timers SET at = clock_timestamp()")
    assert db.sweep().due == [got.run_id]
    [got] = db.claim("b")
    assert got.woke_reason == "timeout" and [o["status"] for o in got.operations] == ["prepared"]
    commit(db, got, "b", finish="failed", output={})


def test_the_sweep_is_the_holders(db):
    got = held(db)
    db.expire(got.run_id)
    [row] = db.call("sweep", p_owner=("x", "text"), p_epoch=(1, "bigint"), p_limit=(10, "integer"))
    assert (row.outcome, db.run(got.run_id).owner) == ("not_holder", "a")


def test_the_sweep_clears_leases_of_ended_runs(db):
    got = held(db)
    db.cancel(task="t1")
    db.expire(got.run_id)
    row = db.sweep()
    run = db.run(got.run_id)
    assert (row.leases_expired, row.due, run.owner, run.ran_out, run.ready) == (0, [], None, False, False)


def test_the_sweep_prunes_tokens(db):
    held(db)
    assert db.sweep().tokens_pruned == 0
    db.sql("UPDATE @schema@.claims SET made_at = made_at - interval '1 day'")
    assert db.sweep().tokens_pruned == 1


def test_the_sweep_never_waits(db):
    got, other = held(db, "t1"), held(db, "t2")
    db.expire(got.run_id, other.run_id)
    with db.another().connection as blocker:
        blocker.execute("BEGIN")
        blocker.execute("SELECT FROM holdfast.agent_runs WHERE run_id = %s FOR NO KEY UPDATE", (got.run_id,))
        assert db.sweep().due == [other.run_id]
        blocker.execute("ROLLBACK")
    assert db.sweep().due == [got.run_id]


def test_terminal_is_final_whatever_a_statement_says(db):
    got = held(db)
    commit(db, got, finish="failed", output={})
    with pytest.raises(psycopg.errors.CheckViolation):
        db.sql("UPDATE @schema@.agent_runs SET status = 'running'")

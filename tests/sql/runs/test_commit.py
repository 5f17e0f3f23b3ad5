"""The protected write: identity, order, intents, effect versions, adoption, ends, events; all of it or none."""
import uuid

import pytest

from database import intent, item, lease
from test_life import commit, held, later


def settle(db, operation_id, status, sent=True):
    """As a dispatch would leave it."""
    db.sql("UPDATE @schema@.tool_operations SET status = 'dispatching', attempts = attempts + 1 WHERE operation_id = %s", operation_id)
    if status == "unsent":
        db.sql("UPDATE @schema@.tool_operations SET status = 'unknown', attempts_not_sent = attempts WHERE operation_id = %s",
               operation_id)
    elif status != "dispatching":
        db.sql("UPDATE @schema@.tool_operations SET status = %s, remote_id = 'r1', result = '{\"ok\": true}' WHERE operation_id = %s",
               status, operation_id)


def test_two_writes_in_sequence(db):
    got = held(db)
    assert [commit(db, got, checkpoint={"n": n}).revision for n in (1, 2)] == [2, 3]


def test_revision_conflict_answers_what_is_stored(db):
    got = held(db)
    commit(db, got, checkpoint={"mine": 1})
    got.revision = 1
    done = commit(db, got, checkpoint={"late": 1}, finish="succeeded")
    assert (done.outcome, done.revision, done.checkpoint) == ("revision_conflict", 2, {"mine": 1})
    assert db.run(got.run_id).status == "running"


def test_the_same_commit_again_is_answered_and_not_applied_again(db):
    got = held(db)
    identity = uuid.uuid4()
    write = item(got, "a", commit_id=identity, checkpoint={"n": 1}, events=[("step.done", {"x": 1})])
    assert [(d.outcome, d.revision) for d in db.commit(write)] == [("ok", 2)]
    assert [(d.outcome, d.revision) for d in db.commit(write)] == [("ok", 2)]
    assert db.events(got.run_id) == ["run.started", "step.done"]
    [other] = db.commit(write | {"digest": "other"})
    assert other.outcome == "invalid" and "another content" in other.detail


def test_a_lost_answer_is_found_after_release_end_and_takeover(db):
    got = held(db)
    one, two = uuid.uuid4(), uuid.uuid4()
    first = item(got, "a", commit_id=one, checkpoint={"n": 1}, release=True)
    assert db.commit(first)[0].due is True
    [again] = db.commit(first)
    assert (again.outcome, again.revision, again.due) == ("ok", 2, True)
    [next_] = db.claim("b")
    [again] = db.commit(first)
    assert (again.outcome, again.revision, again.due) == ("ok", 2, False)
    last = item(next_, "b", commit_id=two, finish="succeeded", output={})
    assert db.commit(last)[0].revision == 3
    assert [(d.outcome, d.revision) for d in db.commit(last)] == [("ok", 3)]
    assert [(d.outcome, d.revision) for d in db.commit(first)] == [("ok", 2)]


def test_the_previous_epoch_is_remembered_and_older_ones_are_superseded(db):
    got = held(db)
    writes = []
    for owner in "abc":
        write = item(got, owner, commit_id=uuid.uuid4(), checkpoint={"by": owner})
        assert db.commit(write)[0].outcome == "ok"
        writes.append(write)
        db.expire(got.run_id)
        got = db.acquire(chr(ord(owner) + 1), got.run_id)[0]
    assert got.epoch == 4
    assert [d.outcome for d in db.commit(writes[2])] == ["ok"]
    assert [d.outcome for d in db.commit(writes[1])] == ["superseded"]
    assert [d.outcome for d in db.commit(writes[2] | {"commit_id": uuid.uuid4()})] == ["lease_lost"]
    # An epoch without a write of its own is the previous one all the same.
    db.expire(got.run_id)
    [got] = db.acquire("e", got.run_id)
    assert [d.outcome for d in db.commit(writes[2])] == ["superseded"]


def test_an_epoch_raised_after_a_fork_does_not_hide_the_previous_write(db):
    got = held(db)
    write = item(got, "a", commit_id=uuid.uuid4(), checkpoint={"n": 1})
    db.commit(write)
    db.sql("UPDATE @schema@.worker_leases SET epoch = epoch + 1000000")
    assert [d.outcome for d in db.commit(write)] == ["ok"]
    db.expire(got.run_id)
    [got] = db.acquire("b", got.run_id)
    assert got.epoch == 1000002
    assert [d.outcome for d in db.commit(write)] == ["ok"]
    assert [d.outcome for d in db.commit(write | {"commit_id": uuid.uuid4()})] == ["lease_lost"]


def test_expired_is_lost_even_without_a_successor(db):
    got = held(db)
    db.expire(got.run_id)
    done = commit(db, got, checkpoint={"n": 1})
    assert (done.outcome, db.run(got.run_id).checkpoint) == ("lease_lost", {})


def test_the_owner_is_asked_as_well_as_the_epoch(db):
    """A session that knows run and epoch of another one, and claims to be nobody or somebody else."""
    got = held(db)
    for stranger in ("b", "A", ""):
        [done] = db.commit(item(got, stranger, checkpoint={"not": "mine"}))
        assert (done.outcome, done.current_owner) == ("lease_lost", "a"), stranger
    run = db.run(got.run_id)
    assert (run.revision, run.checkpoint, run.owner) == (got.revision, {}, "a")
    assert commit(db, got, checkpoint={"mine": 1}).outcome == "ok"


def test_not_running_after_cancel(db):
    got = held(db)
    db.cancel(task="t1")
    assert commit(db, got, finish="succeeded").outcome == "not_running"
    assert db.run(got.run_id).status == "cancelled"


def test_a_batch_gives_each_item_its_own_outcome(db):
    one, two, three = held(db, "t1"), held(db, "t2"), held(db, "t3")
    db.expire(two.run_id)
    done = db.commit(item(one, "a", finish="succeeded", output={}, events=[("x.y", {"n": 1})]),
                     item(two, "a", checkpoint={"n": 2}, events=[("x.y", {"n": 2})]),
                     item(three, "a", revision=9), {"run_id": uuid.uuid4(), "owner": "a", "epoch": 1, "revision": 1},
                     {"owner": "a", "epoch": 1, "revision": 1}, item(held(db, "t4"), "a", finish="done"))
    assert [(d.item, d.outcome) for d in done] == [(1, "ok"), (2, "lease_lost"), (3, "revision_conflict"), (4, "lease_lost"),
                                                  (5, "invalid"), (6, "invalid")]
    assert db.events(one.run_id) == ["run.started", "x.y", "run.succeeded"]
    assert db.events(two.run_id) == ["run.started"]


@pytest.mark.parametrize("members, word", [
    ({"finish": "cancelled"}, "finish"), ({"finish": "succeeded", "wait_signal": "x"}, "more than one"),
    ({"finish": "failed", "retry_ms": 5}, "more than one"), ({"retry_ms": -1}, "past"), ({"wait_mode": "some"}, "wait_mode"),
    ({"wait_mode": "all"}, "no operation"), ({"wait_mode": "none"}, "for nothing"), ({"waits": ["x"]}, "without a wait_mode"),
    ({"wait_mode": "any", "waits": ["x"]}, "no operation of this run"), ({"detached": ["x"]}, "no operation of this run"),
    ({"events": [("run.succeeded", {})]}, "run.succeeded"), ({"events": [("", {})]}, "event of type"),
    ({"events": [("x", None)]}, "event of type"), ({"checkpoint": {"x": "y" * 1000000}}, "checkpoint is larger")])
def test_invalid_says_what(db, members, word):
    got = held(db)
    done = commit(db, got, **members)
    assert done.outcome == "invalid" and word in done.detail, done
    assert db.run(got.run_id).revision == 1


def test_an_event_too_large_refuses_the_whole_commit(db):
    got = held(db)
    db.sql("UPDATE @schema@.control SET max_event_bytes = 100")
    done = commit(db, got, checkpoint={"n": 1}, events=[("a", {}), ("b", {"x": "y" * 200})])
    assert (done.outcome, db.run(got.run_id).revision) == ("event_too_large", 1)
    done = commit(db, got, finish="succeeded", output={"x": "y" * 200})
    assert done.outcome == "ok", "an output too large for an event is the relay's to shorten"


# --- intents

def test_an_intent_is_registered_with_the_checkpoint(db):
    got = held(db)
    op = intent(got, "pay", capability="idempotency_key", declaration={"retention_ms": 5000})
    done = commit(db, got, checkpoint={"planned": 1}, intents=[op])
    assert (done.outcome, done.adopted) == ("ok", None)
    row = db.operation(op["operation_id"])
    assert (row.status, row.step_id, row.effect_version, row.retention_ms, row.capability, row.attempts, row.revision) == (
        "prepared", "pay", 1, 5000, "idempotency_key", 0, 0)
    # The same again, exactly so, is the same intent.
    assert commit(db, got, intents=[op]).outcome == "ok"
    assert db.one("SELECT count(*) FROM @schema@.tool_operations") == 1


@pytest.mark.parametrize("change", [{"tool": "refund"}, {"digest": "sha256:2"}])
def test_an_intent_with_another_content_conflicts(db, change):
    got = held(db)
    op = intent(got, "pay")
    commit(db, got, intents=[op])
    done = commit(db, got, checkpoint={"n": 1}, intents=[op | change])
    assert (done.outcome, db.run(got.run_id).checkpoint) == ("intent_conflict", {})


def test_an_intent_of_another_run_conflicts(db):
    one, two = held(db, "t1"), held(db, "t2")
    op = intent(one, "pay")
    commit(db, one, intents=[op])
    assert commit(db, two, intents=[op]).outcome == "intent_conflict"


@pytest.mark.parametrize("change, word", [
    ({"operation_id": "default/x/pay/1"}, "tenant/run/step"), ({"version": 0}, "positive"), ({"tool": None}, "missing"),
    ({"body": None}, "missing"), ({"capability": "magic"}, "capability"), ({"body": {"x": "y" * 1000000}}, "larger"),
    ({"compensates": "nothing"}, "compensates")])
def test_an_invalid_intent(db, change, word):
    got = held(db)
    done = commit(db, got, intents=[intent(got, "pay") | change])
    assert done.outcome == "invalid" and word in done.detail, done
    assert db.one("SELECT count(*) FROM @schema@.tool_operations") == 0


def test_a_step_planned_twice_in_one_commit(db):
    got = held(db)
    done = commit(db, got, intents=[intent(got, "pay"), intent(got, "pay", 2)])
    assert done.outcome == "invalid" and "twice" in done.detail


@pytest.mark.parametrize("before", ["prepared", "unsent"])
def test_a_higher_version_cancels_what_was_not_sent(db, before):
    got = held(db)
    old, new = intent(got, "pay", 1), intent(got, "pay", 2, digest="sha256:2")
    commit(db, got, intents=[old])
    if before == "unsent":
        settle(db, old["operation_id"], "unsent")
    assert commit(db, got, intents=[new]).outcome == "ok"
    assert [db.operation(o["operation_id"]).status for o in (old, new)] == ["cancelled", "prepared"]
    assert db.operation(new["operation_id"]).after_operation is None
    assert db.events(got.run_id) == ["run.started", "operation.cancelled"]
    done = commit(db, got, intents=[intent(got, "pay", 1, digest="sha256:1")])
    assert done.outcome == "ok", "the same registration of a cancelled version changes nothing"
    assert db.operation(old["operation_id"]).status == "cancelled"
    done = commit(db, got, finish="failed", output={})


@pytest.mark.parametrize("before", ["dispatching", "unknown"])
def test_a_higher_version_of_an_effect_in_doubt(db, before):
    got = held(db)
    old, new = intent(got, "pay", 1), intent(got, "pay", 2, digest="sha256:2")
    commit(db, got, intents=[old])
    settle(db, old["operation_id"], before)
    done = commit(db, got, checkpoint={"n": 1}, intents=[new])
    assert (done.outcome, db.run(got.run_id).checkpoint) == ("effect_in_doubt", {})
    assert old["operation_id"] in done.detail
    assert commit(db, got, intents=[new | {"after_settled": True}]).outcome == "ok"
    assert db.operation(new["operation_id"]).after_operation == old["operation_id"]
    assert db.operation(old["operation_id"]).status == before
    # A third one looks at every lower version, not only the one before.
    third = intent(got, "pay", 3, digest="sha256:3")
    assert commit(db, got, intents=[third]).outcome == "effect_in_doubt"
    assert commit(db, got, intents=[third | {"compensates": old["operation_id"]}]).outcome == "ok"
    assert [db.operation(o["operation_id"]).status for o in (old, new, third)] == [before, "cancelled", "prepared"]
    commit(db, got, finish="failed", output={})


def test_a_higher_version_after_a_settled_one(db):
    got = held(db)
    old, new = intent(got, "pay", 1), intent(got, "pay", 2)
    commit(db, got, intents=[old])
    settle(db, old["operation_id"], "succeeded")
    assert commit(db, got, intents=[new]).outcome == "ok"
    assert [db.operation(o["operation_id"]).status for o in (old, new)] == ["succeeded", "prepared"]
    assert commit(db, got, intents=[intent(got, "pay", 1, digest="sha256:9")]).outcome == "intent_conflict"
    commit(db, got, finish="failed", output={})


def test_a_version_below_the_registered_one(db):
    got = held(db)
    commit(db, got, intents=[intent(got, "pay", 3)])
    assert commit(db, got, intents=[intent(got, "pay", 2)]).outcome == "invalid"
    commit(db, got, finish="failed", output={})


# --- ends

@pytest.mark.parametrize("status, detach, outcome", [
    ("prepared", False, "open_operations"), ("prepared", True, "open_operations"), ("unsent", False, "open_operations"),
    ("unsent", True, "open_operations"), ("dispatching", False, "open_operations"), ("dispatching", True, "ok"),
    ("unknown", False, "open_operations"), ("unknown", True, "ok"), ("succeeded", False, "ok"), ("failed_final", False, "ok")])
def test_success_with_open_operations(db, status, detach, outcome):
    got = held(db)
    op = intent(got, "pay")
    commit(db, got, intents=[op])
    if status != "prepared":
        settle(db, op["operation_id"], status)
    done = commit(db, got, finish="succeeded", output={}, detached=[op["operation_id"]] if detach else [])
    assert done.outcome == outcome, done
    assert db.run(got.run_id).status == ("succeeded" if outcome == "ok" else "running")
    row = db.operation(op["operation_id"])
    assert row.status == ("unknown" if status == "unsent" else status)
    assert row.detached is (outcome == "ok" and detach)
    if outcome != "ok":
        assert op["operation_id"] in done.detail


def test_success_with_an_intent_of_the_same_commit(db):
    got = held(db)
    assert commit(db, got, finish="succeeded", intents=[intent(got, "pay")]).outcome == "open_operations"
    assert db.one("SELECT count(*) FROM @schema@.tool_operations") == 0


def test_failure_cancels_what_was_not_sent_and_leaves_the_rest(db):
    got = held(db)
    ops = {status: intent(got, status) for status in ("prepared", "unsent", "dispatching", "unknown", "succeeded")}
    commit(db, got, intents=list(ops.values()))
    for status, op in ops.items():
        if status != "prepared":
            settle(db, op["operation_id"], status)
    assert commit(db, got, finish="failed", output={"reason": "no"}).outcome == "ok"
    assert {s: db.operation(op["operation_id"]).status for s, op in ops.items()} == {
        "prepared": "cancelled", "unsent": "cancelled", "dispatching": "dispatching", "unknown": "unknown", "succeeded": "succeeded"}
    assert db.events(got.run_id) == ["run.started", "operation.cancelled", "operation.cancelled", "run.failed"]


# --- retried runs

def retried(db, **request):
    """A run whose step `pay` succeeded, which then failed, and its retry in the hands of b."""
    got = held(db)
    op = intent(got, "pay")
    commit(db, got, intents=[op])
    settle(db, op["operation_id"], "succeeded")
    commit(db, got, finish="failed", output={})
    [made] = db.retry(task="t1", **request)
    assert made.outcome == "created", made
    [new] = db.claim("b")
    assert new.run_id == made.run_id
    return got, op, new


def test_a_retry_adopts_what_succeeded(db):
    old, op, new = retried(db)
    assert (new.first_run_id, new.prev_run_id) == (old.run_id, old.run_id)
    [earlier] = new.earlier
    assert earlier["run_id"] == str(old.run_id) and earlier["status"] == "failed"
    assert earlier["operations"][0]["result"] == {"ok": True}
    mine = intent(new, "pay")
    done = commit(db, new, "b", intents=[mine], wait_mode="all", waits=[mine["operation_id"]])
    assert (done.outcome, done.adopted, done.due, done.woke_reason) == ("ok", [mine["operation_id"]], True, "operations")
    row = db.operation(mine["operation_id"])
    assert (row.status, row.adopted_from, row.remote_id, row.result, row.attempts) == (
        "succeeded", op["operation_id"], "r1", {"ok": True}, 0)
    [again] = db.claim("c")
    assert again.operations[0]["adopted_from"] == op["operation_id"]
    assert commit(db, again, "c", finish="succeeded", output={}).outcome == "ok"


def test_success_at_once_with_an_adopted_intent(db):
    _, _, new = retried(db)
    assert commit(db, new, "b", intents=[intent(new, "pay")], finish="succeeded", output={}).outcome == "ok"


@pytest.mark.parametrize("change", [{"digest": "sha256:2"}, {"tool": "refund"}])
def test_a_changed_intent_is_not_adopted(db, change):
    _, _, new = retried(db)
    mine = intent(new, "pay") | change
    assert commit(db, new, "b", intents=[mine]).adopted is None
    assert db.operation(mine["operation_id"]).status == "prepared"
    commit(db, new, "b", finish="failed", output={})


def test_a_fresh_retry_adopts_nothing_and_says_what_it_does_again(db):
    got = held(db)
    op = intent(got, "pay")
    commit(db, got, intents=[op])
    settle(db, op["operation_id"], "succeeded")
    commit(db, got, finish="failed", output={})
    [made] = db.retry(task="t1", fresh=True)
    assert (made.outcome, made.again) == ("created", [op["operation_id"]])
    [new] = db.claim("b")
    mine = intent(new, "pay")
    assert commit(db, new, "b", intents=[mine]).adopted is None
    assert db.operation(mine["operation_id"]).status == "prepared"
    commit(db, new, "b", finish="failed", output={})


def test_what_was_compensated_or_replaced_is_not_adopted(db):
    got = held(db)
    ops = [intent(got, "a"), intent(got, "b"), intent(got, "c")]
    commit(db, got, intents=ops)
    for op in ops:
        settle(db, op["operation_id"], "succeeded")
    undo = intent(got, "undo", tool="refund", compensates=ops[0]["operation_id"])
    other = intent(got, "b", 2, digest="sha256:2")
    refused = intent(got, "c", 2, digest="sha256:2")
    commit(db, got, intents=[undo, other, refused])
    settle(db, undo["operation_id"], "succeeded")
    settle(db, other["operation_id"], "succeeded")
    settle(db, refused["operation_id"], "failed_final")
    commit(db, got, finish="failed", output={})
    db.retry(task="t1")
    [new] = db.claim("b")
    mine = [intent(new, step) for step in "abc"]
    done = commit(db, new, "b", intents=mine)
    assert done.adopted == [mine[2]["operation_id"]], "only the one that still stands"
    commit(db, new, "b", finish="failed", output={})


def test_adoption_over_a_chain_names_the_original(db):
    _, op, new = retried(db)
    commit(db, new, "b", intents=[intent(new, "pay")])
    commit(db, new, "b", finish="failed", output={})
    db.retry(task="t1")
    [third] = db.claim("c")
    assert [e["status"] for e in third.earlier] == ["failed", "failed"]
    mine = intent(third, "pay")
    assert commit(db, third, "c", intents=[mine]).adopted == [mine["operation_id"]]
    assert db.operation(mine["operation_id"]).adopted_from == op["operation_id"]


# --- races

def test_exactly_one_of_many_writers_with_one_revision_wins(db):
    import concurrent.futures
    got = held(db)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sessions = [db.another() for _ in range(8)]
        answers = list(pool.map(lambda pair: pair[1].commit(item(got, "a", checkpoint={"by": pair[0]}))[0],
                                enumerate(sessions)))
        for session in sessions:
            session.close()
    assert sorted(a.outcome for a in answers) == ["ok"] + ["revision_conflict"] * 7
    run = db.run(got.run_id)
    assert run.revision == 2
    assert answers[run.checkpoint["by"]].outcome == "ok"

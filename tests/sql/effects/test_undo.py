"""Cancelling is not revoking: the truth table per state and policy, and what undoes an effect after its run has ended."""
import psycopg
import pytest

from database import intent, item
from test_operator import STATES, in_state
from verbs import (answered, claim, claim_queries, compensate, converge, due, evidence, planned, said, sent, state,
                   told, undo_due)

POLICIES = {
    "finish": {"on_cancel": "finish"}, "undeclared": {},
    "remote_cancel": {"on_cancel": "remote_cancel", "remote_cancel_tool": "stop"},
    "compensate": {"on_cancel": "compensate", "compensate_tool": "refund"},
    "nothing": {"on_cancel": "compensate"}, # a policy without the tool that carries it out
}
IN_FLIGHT = ("dispatching", "unknown")


def claimed(db, declaration, **more):
    """A run cancelled while its operation was in flight."""
    got, [one] = planned(db, "s", declaration=declaration, **more)
    [c] = claim(db, one)
    db.cancel(run_id=got.run_id)
    return got, one, c


def undo(one, kind="compensate", tool="refund", **more):
    return {"operation_id": one, "kind": kind, "tool": tool} | more


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("status", STATES)
def test_cancel_is_a_truth_table(db, status, policy):
    if status == "cancelled":
        got, one = in_state(db, "prepared", declaration=POLICIES[policy])
        db.sql("UPDATE @schema@.tool_operations SET status = 'cancelled'")
    else:
        got, one = in_state(db, status, declaration=POLICIES[policy])
    [done] = db.cancel(run_id=got.run_id)
    assert done.outcome == "cancelled"
    after = db.operation(one)
    if status in ("prepared", "unsent"):
        assert (after.status, done.detached, done.policies) == ("cancelled", None, None)
    elif status in IN_FLIGHT:
        assert (after.status, done.detached) == (status, [one])
        [row] = done.policies
        shown = {"undeclared": "finish", "nothing": "compensate"}.get(policy, policy)
        assert (row["operation_id"], row["status"], row["policy"]) == (one, status, shown)
        word = {"finish": "authorised to finish", "undeclared": "authorised to finish", "remote_cancel": "remote is asked",
                "compensate": "it is compensated", "nothing": "a person decides"}[policy]
        assert word in row["what"] and "may have been executed" in row["what"] # never that it was not
    else:
        assert (after.status, done.detached, done.policies) == (status, None, None)
    wanted = policy if status in IN_FLIGHT and policy in ("remote_cancel", "compensate") else None
    assert after.undo == wanted
    assert [u.kind for u in undo_due(db)] == (["remote_cancel"] if wanted == "remote_cancel" else [])
    # Asked again, it says the same.
    [again] = db.cancel(run_id=got.run_id)
    assert (again.outcome, again.policies) == ("already_terminal", done.policies)


def test_compensated_once_it_has_succeeded(db):
    got, one, c = claimed(db, POLICIES["compensate"])
    assert undo_due(db) == []
    assert compensate(db, undo(one))[0].outcome == "not_allowed" # nothing to compensate yet
    answered(db, c)
    [row] = undo_due(db)
    assert (row.operation_id, row.kind, row.undo_tool, row.remote_id, row.request_body) == (one, "compensate", "refund", "r1", {"n": 1})
    [done] = compensate(db, undo(one, capability="idempotency_key", declaration={"retention_ms": 600000}))
    name = f"default/{got.run_id}/s.compensate/1"
    assert (done.outcome, done.operation_id, done.status, done.run_id) == ("registered", name, "prepared", got.run_id)
    assert row.compensation_id == name and undo_due(db) == []
    o = db.operation(name)
    assert (o.compensates, o.tool_name, o.capability, o.retention_ms, o.external_key, o.request_body) == (
        one, "refund", "idempotency_key", 600000, name, {"undo": 1})
    assert state(db, one) == ("succeeded", 1, 0) and evidence(db, one)[-1] == "undone_by"
    # Asked again: once for ever.
    [again] = compensate(db, undo(one))
    assert (again.outcome, again.status) == ("exists", "prepared")
    [other] = compensate(db, undo(one, digest="sha256:other"))
    assert other.outcome == "not_allowed" and "registered with" in other.detail
    # It is claimed although its run has ended, and settles like any other.
    [c] = claim(db)
    assert (c.operation_id, c.outcome, c.attempt) == (name, "claimed", 1)
    assert answered(db, c, digest="sha256:u").outcome == "recorded"
    assert told(db, name) == ["operation.succeeded"]
    assert compensate(db, undo(one))[0].status == "succeeded"
    assert compensate(db, undo(name))[0].outcome == "not_allowed" # no undoing of an undoing


def test_a_compensation_that_was_not_sent_is_sent_later_and_one_in_doubt_stays_in_doubt(db):
    _, one, c = claimed(db, POLICIES["compensate"])
    answered(db, c)
    [done] = compensate(db, undo(one))
    said(db, "record_not_sent", claim(db, done.operation_id)[0])
    assert state(db, done.operation_id) == ("unknown", 1, 1) # not cancelled: it is still to be done
    [c] = claim(db)
    assert c.operation_id == done.operation_id
    assert said(db, "record_unknown", c).outcome == "recorded"
    assert claim(db, done.operation_id)[0].outcome == "not_ready"
    assert told(db, done.operation_id) == ["operation.unknown"]


def test_a_failed_effect_needs_no_compensation(db):
    _, one, c = claimed(db, POLICIES["compensate"])
    answered(db, c, "failed_final")
    assert undo_due(db) == []
    assert compensate(db, undo(one))[0].outcome == "not_allowed"
    got, two, c = claimed(db, POLICIES["compensate"])
    said(db, "record_not_sent", c)
    assert state(db, two)[0] == "cancelled" and undo_due(db) == []


def test_a_late_success_of_a_cancelled_run_is_compensated(db):
    _, one, c = claimed(db, POLICIES["compensate"])
    said(db, "record_unknown", c)
    assert undo_due(db) == []
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "d1"})[0].outcome == "settled"
    assert [u.operation_id for u in undo_due(db)] == [one]


def test_the_remote_is_asked_to_cancel_while_it_is_at_work(db):
    got, one, c = claimed(db, POLICIES["remote_cancel"])
    [row] = undo_due(db)
    assert (row.kind, row.undo_tool, row.status) == ("remote_cancel", "stop", "dispatching")
    [done] = compensate(db, undo(one, "remote_cancel", "stop"))
    assert (done.outcome, done.operation_id) == ("registered", f"default/{got.run_id}/s.remote_cancel/1")
    assert undo_due(db) == []
    # The two are settled apart: a cancel that was accepted proves nothing about the effect.
    answered(db, claim(db, done.operation_id)[0], digest="sha256:u")
    assert state(db, one) == ("dispatching", 1, 0)
    answered(db, c)
    assert state(db, one) == ("succeeded", 1, 0)
    _, two, c = claimed(db, POLICIES["remote_cancel"])
    answered(db, c)
    assert undo_due(db) == [] # too late to cancel
    assert compensate(db, undo(two, "remote_cancel", "stop"))[0].outcome == "not_allowed"


@pytest.mark.parametrize("why,change", [
    ("its declaration names refund", {"tool": "other"}), ("its declaration names refund", {"tool": None}),
    ("its declaration names no tool", {"kind": "remote_cancel", "tool": "stop"}), ("a member is missing", {"body": None}),
    ("a member is missing", {"digest": ""}), ("unknown capability", {"capability": "magic"}),
    ("external_key must be", {"external_key": "somebody else's"})])
def test_what_may_not_be_registered(db, why, change):
    _, one, c = claimed(db, POLICIES["compensate"])
    answered(db, c)
    [done] = compensate(db, undo(one) | change)
    assert done.outcome == "not_allowed" and why in done.detail
    assert db.one("SELECT count(*) FROM @schema@.tool_operations") == 1 and len(undo_due(db)) == 1


def test_only_of_a_run_that_has_ended(db):
    got, [one] = planned(db, "s", declaration=POLICIES["compensate"])
    answered(db, claim(db, one)[0])
    [done] = compensate(db, undo(one))
    assert done.outcome == "not_allowed" and "not ended" in done.detail
    [b] = db.claim("b")
    db.commit(item(b, "b", finish="succeeded", output={}))
    assert undo_due(db) == []                              # nobody cancelled it,
    assert compensate(db, undo(one))[0].outcome == "registered" # but a person may want it
    assert compensate(db, undo("none"))[0].outcome == "missing"


def test_a_step_of_the_plan_that_has_that_name_is_not_taken_for_it(db):
    got, ids = planned(db, "s", "s.compensate", declaration=POLICIES["compensate"], park=False)
    for c in claim(db, *ids):
        answered(db, c)
    db.cancel(run_id=got.run_id)
    [done] = compensate(db, undo(ids[0], tool="refund"))
    assert done.outcome == "not_allowed" and done.operation_id == ids[1]


def test_the_key_of_the_submission(db):
    got, [one] = planned(db, "s", declaration=POLICIES["compensate"], task="t1", park=False)
    answered(db, claim(db, one)[0])
    db.cancel(run_id=got.run_id)
    key = f"default/{got.run_id}/s.compensate/1"
    [done] = compensate(db, undo(one, external_key=key))
    assert (done.outcome, db.operation(done.operation_id).external_key) == ("registered", key)
    # A compensated effect is not adopted by a retry.
    db.retry(task="t1")
    [again] = db.claim("b")
    [done] = db.commit(item(again, "b", intents=[intent(again, "s")]))
    assert done.adopted is None
    db.cancel(task="t1")


def test_each_version_is_undone_by_itself(db):
    [made] = db.submit(task="t1")
    [got] = db.acquire("a", made.run_id)
    ids = []
    for version in (1, 2):
        one = intent(got, "s", version, digest=f"sha256:{version}", declaration=POLICIES["compensate"])
        [done] = db.commit(item(got, "a", intents=[one]))
        got.revision = done.revision
        answered(db, claim(db, one["operation_id"])[0])
        ids.append(one["operation_id"])
    db.cancel(task="t1")
    done = compensate(db, *(undo(one) for one in ids))
    assert [d.operation_id for d in done] == [f"default/{got.run_id}/s.compensate/{v}" for v in (1, 2)]
    assert [d.outcome for d in done] == ["registered"] * 2


def test_what_is_a_bug_of_the_caller(db):
    for items in ([undo("x")] * 2, [undo("x", "undo")], [undo("x", None)]):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            compensate(db, *items)
    for limit in (None, 1001):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            undo_due(db, limit)


# --- escalation, and the story

def test_a_doubt_that_lasts_is_escalated_once(db):
    _, ids = planned(db, *"abc", declaration={"escalate_after_ms": 60000})
    _, [plain] = planned(db, "d")
    for one in ids + [plain]:
        sent(db, one)
    assert db.sweep().escalated == 0
    def late():
        db.sql("UPDATE @schema@.tool_operations SET escalate_at = clock_timestamp() WHERE escalate_at IS NOT NULL")
    late()
    converge(db, {"operation_id": ids[1]})
    assert db.sweep().escalated == 2
    assert db.sweep().escalated == 0
    assert evidence(db, ids[0])[-1] == "escalated" and evidence(db, plain) == ["claimed", "unknown"]
    assert [e.why for e in db.sql("SELECT body -> 'operation' -> 'detail' ->> 'why' AS why FROM @schema@.outbox_events "
                                  "WHERE body -> 'operation' ->> 'operation_id' = %s ORDER BY seq", ids[0])] == ["unanswered", "escalated"]
    shown = {r.operation_id: r.escalated_at is not None for r in db.sql("SELECT * FROM @schema@.unknown_operations")}
    assert shown == {ids[0]: True, ids[2]: True, plain: False}
    # Whatever may still settle it goes on.
    assert converge(db, {"operation_id": ids[0]})[0].outcome == "settled"


def test_its_age_counts_from_the_first_attempt_in_doubt(db):
    _, [one] = planned(db, "s", capability="idempotency_key", declaration={"retention_ms": 6000000, "escalate_after_ms": 60000})
    said(db, "record_not_sent", claim(db, one)[0])
    sent(db, one)
    first = db.operation(one)
    assert (first.escalate_at - first.first_sent_at).total_seconds() == 60
    due(db, one)
    [again] = claim(db, one, verb="claim_unknown")
    db.sql("UPDATE @schema@.tool_operations SET escalate_at = clock_timestamp()")
    assert db.sweep().escalated == 0 # it is being sent
    said(db, "record_unknown", again)
    assert db.sweep().escalated == 1


def test_the_story_of_an_operation(db):
    declared = POLICIES["compensate"] | {"timeout_ms": 1000, "absent_is_final_after_ms": 1000, "escalate_after_ms": 99}
    got, [one] = planned(db, "s", capability="query", declaration=declared)
    c = sent(db, one)
    due(db, one)
    claim_queries(db, "q1")
    converge(db, {"operation_id": one, "verdict": "absent", "owner": "q1", "evidence": {"http_status": 404}})
    def story():
        return db.one("SELECT story FROM @iface@.operation_story(%s)", one)
    s = story()
    assert (s["status"], s["may_have_been_sent"], s["run_id"], s["task_id"], s["queries"]) == ("unknown", True, str(got.run_id), got.task_id, 1)
    assert [e["kind"] for e in s["evidence"]] == ["claimed", "unknown", "fact"]
    assert s["evidence"][2]["detail"]["evidence"] == {"http_status": 404} and s["evidence"][0]["dispatch_owner"] == "d1"
    assert s["absent_final_at"] > s["dispatch_until"] and "it is compensated" in s["when_cancelled"]
    assert "request_body" not in s and s["undone_by"] == []
    db.cancel(run_id=got.run_id)
    converge(db, {"operation_id": one, "attempt": c.attempt})
    compensate(db, undo(one))
    s = story()
    assert [u["operation_id"] for u in s["undone_by"]] == [f"default/{got.run_id}/s.compensate/1"]
    assert db.one("SELECT story FROM @iface@.operation_story('none')") is None

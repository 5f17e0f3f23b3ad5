"""What a person decides: resolve, cancel_operation, raise_capability. Always on a state that was looked at, with who and why."""
import psycopg
import pytest

from verbs import (answered, cancel_operation, claim, claim_queries, converge, due, evidence, planned, raise_capability,
                   record_query, resolve, said, sent, state, told)


def revision(db, one):
    return db.operation(one).revision


def doubt(db, step="s", **members):
    got, [one] = planned(db, step, **members)
    sent(db, one)
    return got, one


def in_state(db, status, **members):
    """(got, operation) in that status; unsent is one, too."""
    got, [one] = planned(db, "s", **members)
    if status == "prepared":
        return got, one
    [claimed] = claim(db, one)
    if status in ("succeeded", "failed_final"):
        answered(db, claimed, status)
    elif status in ("unsent", "cancelled"):
        said(db, "record_not_sent", claimed)
        if status == "cancelled":
            db.cancel(run_id=got.run_id)
    elif status == "unknown":
        said(db, "record_unknown", claimed)
    return got, one


STATES = ("prepared", "dispatching", "unknown", "unsent", "succeeded", "failed_final", "cancelled")


@pytest.mark.parametrize("verdict", ["succeeded", "failed_final"])
def test_resolve_settles_wakes_and_is_kept_with_who_and_why(db, verdict):
    got, one = doubt(db)
    act = {"operation_id": one, "revision": revision(db, one), "verdict": verdict, "remote_id": "r9", "result": {"n": 1},
           "evidence": {"ticket": 7}}
    [done] = resolve(db, act)
    assert (done.outcome, done.status, done.woke, done.run_id) == ("resolved", verdict, True, got.run_id)
    assert done.revision == act["revision"] + 1
    o = db.operation(one)
    assert (o.status, o.remote_id, o.result) == (verdict, "r9", {"n": 1})
    [kept] = db.sql("SELECT detail FROM @schema@.operation_evidence WHERE kind = 'manual'")
    assert {k: kept.detail[k] for k in ("who", "why", "verdict", "evidence", "status")} == {
        "who": "ann", "why": "asked them", "verdict": verdict, "evidence": {"ticket": 7}, "status": "unknown"}
    assert told(db, one)[1:] == ["operation." + verdict.replace("_final", "")]
    [again] = resolve(db, act)
    assert (again.outcome, again.woke) == ("resolved", True)
    assert resolve(db, act | {"who": "bob"})[0].outcome == "stale"
    assert len(told(db, one)) == 2 and evidence(db, one).count("manual") == 1
    assert db.claim("b")[0].woke_reason == "operations"


@pytest.mark.parametrize("status,succeeded,failed", [
    ("prepared", "not_allowed", "not_allowed"), ("dispatching", "not_allowed", "not_allowed"),
    ("unsent", "not_allowed", "not_allowed"), ("unknown", "resolved", "resolved"),
    ("succeeded", "stale", "contradiction"), ("failed_final", "contradiction", "stale"), ("cancelled", "contradiction", "stale")])
@pytest.mark.parametrize("verdict", ["succeeded", "failed_final"])
def test_resolve_in_every_state(db, status, succeeded, failed, verdict):
    _, one = in_state(db, status)
    before = db.operation(one)
    [done] = resolve(db, {"operation_id": one, "revision": before.revision, "verdict": verdict})
    wanted = succeeded if verdict == "succeeded" else failed
    assert done.outcome == wanted
    after = db.operation(one)
    if wanted != "resolved":
        assert (after.status, after.revision, after.result) == (before.status, before.revision, before.result)
    assert ("operation.contradiction" in told(db, one)) == (wanted == "contradiction")
    assert ("contradiction" in evidence(db, one)) == (wanted == "contradiction")


def test_resolve_is_stale_when_the_operation_went_on_and_not_when_it_was_queried(db):
    _, one = doubt(db, capability="idempotency_key", declaration={"retention_ms": 600000, "query": True})
    seen = revision(db, one)
    due(db, one)
    claim_queries(db, "q1")
    record_query(db, {"operation_id": one, "owner": "q1", "query": 1, "retry_ms": 0})
    assert revision(db, one) == seen
    [again] = claim(db, one, verb="claim_unknown")
    said(db, "record_unknown", again)
    assert resolve(db, {"operation_id": one, "revision": seen})[0].outcome == "stale"
    assert resolve(db, {"operation_id": one, "revision": None})[0].outcome == "stale"
    assert state(db, one) == ("unknown", 2, 0)
    # During a query a person's word counts, and the query is over.
    due(db, one)
    claim_queries(db, "q1")
    assert resolve(db, {"operation_id": one, "revision": revision(db, one)})[0].outcome == "resolved"
    assert record_query(db, {"operation_id": one, "owner": "q1", "query": 2})[0].outcome == "late"


def test_a_fact_that_denies_a_decision_is_a_contradiction(db):
    _, one = doubt(db)
    resolve(db, {"operation_id": one, "revision": revision(db, one), "verdict": "failed_final"})
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "d1"})[0].outcome == "contradiction"
    assert state(db, one) == ("failed_final", 1, 0)


def test_a_terminal_run_s_doubt_is_resolved_and_wakes_nobody(db):
    got, one = doubt(db)
    db.cancel(run_id=got.run_id)
    [done] = resolve(db, {"operation_id": one, "revision": revision(db, one)})
    assert (done.outcome, done.woke) == ("resolved", False)
    assert db.run(got.run_id).status == "cancelled"


# --- cancel_operation

@pytest.mark.parametrize("status,outcome", [
    ("prepared", "cancelled"), ("unsent", "cancelled"), ("dispatching", "not_allowed"), ("unknown", "not_allowed"),
    ("succeeded", "terminal"), ("failed_final", "terminal"), ("cancelled", "terminal")])
def test_cancel_operation_in_every_state(db, status, outcome):
    got, one = in_state(db, status)
    before = db.operation(one)
    act = {"operation_id": one, "revision": before.revision}
    [done] = cancel_operation(db, act)
    assert done.outcome == outcome
    assert (done.policy, done.what is None) == (("finish", False) if outcome == "not_allowed" else (None, True))
    if outcome == "cancelled":
        assert (done.status, done.woke, done.revision) == ("cancelled", True, before.revision + 1)
        assert [r.woke_reason for r in db.claim("b")] == ["operations"]
        assert told(db, one) == ["operation.cancelled"] and evidence(db, one)[-1] == "manual"
        assert cancel_operation(db, act)[0].outcome == "cancelled" # asked again
        assert cancel_operation(db, act | {"who": "bob"})[0].outcome == "terminal"
        assert claim(db, one)[0].outcome == "terminal"
        assert len(told(db, one)) == 1
    else:
        assert db.operation(one).revision == before.revision
        if outcome == "not_allowed":
            assert "may have been executed" in done.what


def test_cancel_operation_is_stale_after_a_claim_that_did_not_send(db):
    _, [one] = planned(db, "s")
    seen = revision(db, one)
    said(db, "record_not_sent", claim(db, one)[0])
    assert cancel_operation(db, {"operation_id": one, "revision": seen})[0].outcome == "stale"
    assert [o.outcome for o in cancel_operation(db, {"operation_id": "none", "revision": 1},
                                                {"operation_id": one, "revision": revision(db, one)})] == ["missing", "cancelled"]


# --- raise_capability

def test_raised_later_claims_go_by_the_new_declaration(db):
    _, one = doubt(db)
    assert db.operation(one).not_before is None
    before = {"operation_id": one, "revision": revision(db, one)}
    act = before | {"capability": "idempotency_key", "declaration": {"retention_ms": 600000}}
    assert claim(db, one, verb="claim_unknown")[0].outcome == "not_allowed"
    [done] = raise_capability(db, act)
    assert (done.outcome, done.capability, done.status, done.revision) == ("ok", "idempotency_key", "unknown", act["revision"] + 1)
    [kept] = db.sql("SELECT detail FROM @schema@.operation_evidence WHERE kind = 'manual'")
    assert (kept.detail["from"], kept.detail["to"], kept.detail["who"], kept.detail["why"], kept.detail["declaration_before"]) == (
        "none", "idempotency_key", "ann", "they told us", {})
    assert raise_capability(db, act)[0].outcome == "ok" # asked again
    assert evidence(db, one).count("manual") == 1
    [again] = claim(db, verb="claim_unknown")
    assert (again.operation_id, again.capability, again.declaration) == (one, "idempotency_key", {"retention_ms": 600000})


def test_raised_to_a_query(db):
    _, one = doubt(db)
    assert claim_queries(db) == []
    raise_capability(db, {"operation_id": one, "revision": revision(db, one), "capability": "query",
                          "declaration": {"timeout_ms": 1, "absent_is_final_after_ms": 5}})
    [row] = claim_queries(db)
    assert row.operation_id == one and row.absent_final_at is not None


@pytest.mark.parametrize("old", ["none", "query", "deterministic_id", "idempotency_key"])
@pytest.mark.parametrize("new", ["none", "query", "deterministic_id", "idempotency_key"])
def test_never_lowered(db, old, new):
    declared = {"retention_ms": 600000}
    _, one = doubt(db, capability=old, declaration=declared)
    ranks = ["none", "query", "deterministic_id", "idempotency_key"]
    [done] = raise_capability(db, {"operation_id": one, "revision": revision(db, one), "capability": new, "declaration": declared})
    assert done.outcome == ("ok" if ranks.index(new) >= ranks.index(old) else "not_allowed")
    assert done.capability == (new if done.outcome == "ok" else old) and (done.detail is None) == (done.outcome == "ok")


@pytest.mark.parametrize("status", STATES)
def test_raised_in_every_state(db, status):
    _, one = in_state(db, status)
    act = {"operation_id": one, "revision": revision(db, one), "capability": "query", "declaration": {}}
    wanted = "terminal" if status in ("succeeded", "failed_final", "cancelled") else "ok"
    assert raise_capability(db, act)[0].outcome == wanted
    assert raise_capability(db, act | {"revision": 99})[0].outcome == ("terminal" if wanted == "terminal" else "stale")
    if status == "prepared":
        assert claim(db, one)[0].capability == "query"


def test_raised_how_not(db):
    _, one = doubt(db)
    act = {"operation_id": one, "revision": revision(db, one), "capability": "idempotency_key", "declaration": {}}
    assert raise_capability(db, act)[0].outcome == "not_allowed"
    assert raise_capability(db, act | {"declaration": {"retention_ms": "1"}})[0].outcome == "not_allowed"
    assert raise_capability(db, act | {"operation_id": "none"})[0].outcome == "missing"
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        raise_capability(db, act | {"capability": "magic"})


@pytest.mark.parametrize("verb", [resolve, cancel_operation, raise_capability])
@pytest.mark.parametrize("lack", [{"who": None}, {"who": " "}, {"why": None}, {"why": ""}])
def test_nothing_without_who_and_why(db, verb, lack):
    _, one = doubt(db)
    act = {"operation_id": one, "revision": revision(db, one)} | ({"capability": "query"} if verb is raise_capability else {}) | lack
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="who and why"):
        verb(db, act)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        verb(db, *[act | {"who": "a", "why": "b"}] * 2)

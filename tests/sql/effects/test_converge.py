"""converge: facts that arrive beside the dispatch. What settles, what is evidence, what contradicts."""
import psycopg
import pytest

from verbs import (answered, claim, claim_queries, converge, due, evidence, final_now, planned, said, sent, state, told)

ASKED = {"capability": "query", "declaration": {"timeout_ms": 1000, "absent_is_final_after_ms": 1000}}


def doubt(db, **members):
    got, [one] = planned(db, "s", **members)
    return got, one, sent(db, one)


@pytest.mark.parametrize("fact", [{}, {"attempt": 1}, {"attempt": 1, "owner": "d1"}])
@pytest.mark.parametrize("verdict", ["succeeded", "failed_final"])
def test_a_late_fact_settles_what_is_in_doubt_and_wakes_its_run(db, fact, verdict):
    got, one, _ = doubt(db)
    fact = {"operation_id": one, "verdict": verdict, "remote_id": "r7", "result": {"n": 1}} | fact
    [done] = converge(db, fact)
    assert (done.outcome, done.status, done.woke, done.run_id, done.epoch) == ("settled", verdict, True, got.run_id, 1)
    o = db.operation(one)
    assert (o.status, o.remote_id, o.result, o.not_before) == (verdict, "r7", {"n": 1}, None)
    assert told(db, one)[-1] == "operation." + verdict.replace("_final", "")
    [again] = converge(db, fact)
    assert (again.outcome, again.status, again.woke) == ("settled", verdict, True)
    [b] = db.claim("b")
    assert b.woke_reason == "operations"
    assert converge(db, fact)[0].woke is False
    assert evidence(db, one) == ["claimed", "unknown", "converged"]
    assert len(told(db, one)) == 2 and db.operation(one).revision == o.revision


def test_while_it_is_dispatching(db):
    _, [one] = planned(db, "s")
    [claimed] = claim(db, one)
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "d1", "remote_id": "r1"})[0].outcome == "settled"
    # The dispatcher's own answer is the same fact; another one is not.
    assert answered(db, claimed).outcome == "recorded"
    assert answered(db, claimed, remote_id="r2").outcome == "contradiction"
    assert said(db, "record_unknown", claimed).outcome == "late"
    assert state(db, one) == ("succeeded", 1, 0)


def test_a_success_of_any_attempt_settles_and_a_refusal_only_if_no_other_may_have_been_sent(db):
    declared = {"capability": "idempotency_key", "declaration": {"retention_ms": 600000}}
    _, one, _ = doubt(db, **declared)
    due(db, one)
    [second] = claim(db, one, verb="claim_unknown", owner="d2")
    for fact in ({"attempt": 1, "owner": "d1"}, {"attempt": 2, "owner": "d2"}, {}):
        assert converge(db, {"operation_id": one, "verdict": "failed_final"} | fact)[0].outcome == "evidence_only", fact
    assert state(db, one) == ("dispatching", 2, 0)
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "d1"})[0].outcome == "settled"
    assert evidence(db, one).count("fact") == 3
    # The other one was not sent after all: then the refusal stands alone.
    _, two, _ = doubt(db, **declared)
    due(db, two)
    [second] = claim(db, two, verb="claim_unknown", owner="d2")
    said(db, "record_not_sent", second, "d2")
    assert converge(db, {"operation_id": two, "attempt": 2, "owner": "d2", "verdict": "failed_final"})[0].outcome == "evidence_only"
    assert converge(db, {"operation_id": two, "attempt": 1, "owner": "d1", "verdict": "failed_final"})[0].outcome == "settled"


def test_a_refusal_of_the_operation_while_another_attempt_is_being_sent(db):
    _, [one] = planned(db, "s")
    said(db, "record_not_sent", claim(db, one)[0])
    claim(db, one, owner="d2")
    # It may be the answer to the first, and the second acts.
    assert converge(db, {"operation_id": one, "verdict": "failed_final"})[0].outcome == "evidence_only"
    assert converge(db, {"operation_id": one, "verdict": "failed_final", "attempt": 2})[0].outcome == "settled"


def test_only_claims_that_existed_and_the_same_request(db):
    _, one, _ = doubt(db)
    for fact in ({"attempt": 2}, {"attempt": 0}, {"attempt": 1, "owner": "forged"}):
        [done] = converge(db, {"operation_id": one} | fact)
        assert (done.outcome, done.status) == ("missing", "unknown"), fact
    for digest in ("sha256:2", None):
        assert converge(db, {"operation_id": one, "digest": digest})[0].outcome == "digest_mismatch"
    [none] = converge(db, {"operation_id": "none"})
    assert (none.outcome, none.status, none.run_id) == ("missing", None, None)
    assert state(db, one) == ("unknown", 1, 0)
    assert evidence(db, one) == ["claimed", "unknown"] + ["unmatched"] * 3 + ["digest_mismatch"] * 2
    assert db.one("SELECT sum(refused)::int FROM @schema@.refusals WHERE verb = 'converge'") == 5


def test_what_was_never_claimed_is_not_settled(db):
    _, [one] = planned(db, "s")
    for verdict in ("succeeded", "failed_final", "absent"):
        assert converge(db, {"operation_id": one, "verdict": verdict})[0].outcome == "evidence_only"
    assert state(db, one) == ("prepared", 0, 0)
    assert claim(db, one)[0].outcome == "claimed"


@pytest.mark.parametrize("settled,fact,outcome", [
    ("succeeded", {"verdict": "failed_final"}, "contradiction"),
    ("succeeded", {"verdict": "failed_final", "attempt": 1}, "contradiction"),
    ("succeeded", {"remote_id": "other"}, "contradiction"),
    ("succeeded", {"remote_id": "r1", "result": {"more": 1}}, "evidence_only"),
    ("succeeded", {"verdict": "absent"}, "contradiction"),
    ("failed_final", {}, "contradiction"),
    ("failed_final", {"attempt": 1}, "contradiction"),
    ("failed_final", {"verdict": "absent"}, "evidence_only"),
    ("failed_final", {"verdict": "failed_final", "result": {"more": 1}}, "evidence_only"),
    ("cancelled", {}, "contradiction"),
    ("cancelled", {"verdict": "failed_final"}, "evidence_only"),
])
def test_a_fact_against_a_settled_operation_changes_nothing(db, settled, fact, outcome):
    got, [one] = planned(db, "s", **ASKED)
    [claimed] = claim(db, one)
    if settled == "cancelled":
        said(db, "record_not_sent", claimed)
        db.cancel(run_id=got.run_id)
    else:
        answered(db, claimed, settled)
    before, events = db.operation(one), len(told(db, one))
    for _ in range(2):
        [done] = converge(db, {"operation_id": one} | fact)
        assert (done.outcome, done.status, done.woke) == (outcome, settled, False)
    after = db.operation(one)
    assert (after.status, after.result, after.remote_id, after.revision) == (
        before.status, before.result, before.remote_id, before.revision)
    # Published and counted once for ever, kept each time.
    assert told(db, one)[events:] == (["operation.contradiction"] if outcome == "contradiction" else [])
    assert evidence(db, one)[-2:] == [{"evidence_only": "fact"}.get(outcome, outcome)] * 2


def test_a_refusal_of_an_attempt_beside_the_one_that_succeeded_is_no_contradiction(db):
    _, one, _ = doubt(db, capability="idempotency_key", declaration={"retention_ms": 600000})
    due(db, one)
    [second] = claim(db, one, verb="claim_unknown", owner="d2")
    answered(db, second, owner="d2")
    assert converge(db, {"operation_id": one, "attempt": 1, "verdict": "failed_final"})[0].outcome == "evidence_only"
    assert converge(db, {"operation_id": one, "attempt": 2, "verdict": "failed_final"})[0].outcome == "contradiction"


# --- not found

def test_not_found_settles_only_when_the_tool_declared_when_and_it_was_asked_after_that(db):
    got, one, claimed = doubt(db, **ASKED)
    due(db, one)
    [early] = claim_queries(db, "q1")
    assert early.absent_counts is False
    wait = (early.absent_final_at - db.operation(one).dispatch_until).total_seconds()
    assert wait == 2 # the request time-out, and what the tool declared
    absent = {"operation_id": one, "verdict": "absent"}
    assert converge(db, absent | {"owner": "q1"})[0].outcome == "evidence_only" # too early; its query is over
    assert converge(db, absent)[0].outcome == "evidence_only"                   # nobody was asked
    # Asked before, told after: the answer may be older than the time from which it counts.
    due(db, one)
    claim_queries(db, "q1")
    final_now(db, one)
    db.sql("UPDATE @schema@.tool_operations SET query_since = dispatch_until + interval '1.9 seconds'")
    assert converge(db, absent | {"owner": "q1"})[0].outcome == "evidence_only"
    assert state(db, one) == ("unknown", 1, 0)
    due(db, one)
    [query] = claim_queries(db, "q1")
    assert query.absent_counts is True
    assert converge(db, absent | {"owner": "q2"})[0].outcome == "evidence_only" # not the holder
    [done] = converge(db, absent | {"owner": "q1"})
    assert (done.outcome, done.status, done.woke) == ("settled", "unknown", False)
    assert state(db, one) == ("unknown", 1, 1) # unsent
    o = db.operation(one)
    assert (o.first_sent_at, o.query_owner) == (None, None)
    # Claimable anew, as a new attempt; whoever held the first has no say in it any more.
    [again] = claim(db, one, owner="d2")
    assert (again.outcome, again.attempt) == ("claimed", 2)
    assert said(db, "record_not_sent", claimed).outcome == "late"
    assert db.operation(one).first_sent_at is not None
    assert told(db, one) == ["operation.unknown"]
    db.cancel(run_id=got.run_id)


@pytest.mark.parametrize("members", [
    {"capability": "none", "declaration": {"absent_is_final_after_ms": 0, "timeout_ms": 1}},
    {"capability": "idempotency_key", "declaration": {"absent_is_final_after_ms": 0, "timeout_ms": 1, "retention_ms": 99999999, "query": True}},
    {"capability": "query", "declaration": {"timeout_ms": 1}},
    {"capability": "deterministic_id", "declaration": {"absent_is_final_after_ms": "0", "timeout_ms": 1}}])
def test_not_found_is_no_fact_of_a_tool_that_did_not_declare_it(db, members):
    _, one, _ = doubt(db, **members)
    final_now(db, one)
    due(db, one)
    rows = claim_queries(db, "q1")
    assert all(r.absent_final_at is None and not r.absent_counts for r in rows)
    assert converge(db, {"operation_id": one, "verdict": "absent", "owner": "q1"})[0].outcome == "evidence_only"
    assert state(db, one) == ("unknown", 1, 0)


def test_not_found_of_a_run_that_has_ended_cancels(db):
    got, one, _ = doubt(db, **ASKED)
    db.cancel(run_id=got.run_id)
    final_now(db, one)
    due(db, one)
    claim_queries(db, "q1")
    [done] = converge(db, {"operation_id": one, "verdict": "absent", "owner": "q1"})
    assert (done.outcome, done.status) == ("settled", "cancelled")
    assert told(db, one) == ["operation.unknown", "operation.cancelled"]
    assert evidence(db, one)[-1] == "absent"
    # And the remote was wrong: an effect after all.
    assert converge(db, {"operation_id": one})[0].outcome == "contradiction"


def test_not_found_is_no_fact_after_a_lost_history(db):
    _, one, _ = doubt(db, **ASKED)
    final_now(db, one)
    due(db, one)
    claim_queries(db, "q1")
    absent = {"operation_id": one, "verdict": "absent", "owner": "q1"}
    db.sql("SELECT * FROM @iface@.gate_close('test', 'test')")
    assert converge(db, absent)[0].outcome == "evidence_only"
    # Opened: claims of the history that was lost may still be on their way; it counts from now.
    db.sql("SELECT * FROM @iface@.gate_open('test', 'test', false, true)")
    due(db, one)
    [query] = claim_queries(db, "q1")
    assert query.absent_counts is False
    assert converge(db, absent)[0].outcome == "evidence_only"
    assert state(db, one) == ("unknown", 1, 0)


def test_a_claim_that_vanished_and_speaks_again_after_the_remote_knew_nothing(db):
    """The holder of the latest claim says "not sent" after that was settled: counted once."""
    _, [one] = planned(db, "s", **ASKED)
    [claimed] = claim(db, one)
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp()")
    db.one("SELECT expired FROM @iface@.expire_claims(10)")
    final_now(db, one)
    due(db, one)
    claim_queries(db, "q1")
    assert converge(db, {"operation_id": one, "verdict": "absent", "owner": "q1"})[0].outcome == "settled"
    assert said(db, "record_not_sent", claimed).outcome == "late"
    assert state(db, one) == ("unknown", 1, 1)
    # A success of that attempt, later than the tool said it could be, is still the truth.
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "d1"})[0].outcome == "settled"
    assert state(db, one) == ("succeeded", 1, 1)


def test_an_attempt_the_remote_spoke_of_was_sent(db):
    _, [one] = planned(db, "s", capability="idempotency_key", declaration={"retention_ms": 600000})
    sent(db, one)
    due(db, one)
    [second] = claim(db, one, verb="claim_unknown", owner="d2")
    converge(db, {"operation_id": one, "attempt": 2, "owner": "d2", "verdict": "failed_final"})
    assert said(db, "record_not_sent", second, "d2").outcome == "late"
    assert state(db, one) == ("dispatching", 2, 0)


def test_any_answer_to_a_query_ends_it(db):
    _, ids = planned(db, "a", "b", "c", **ASKED)
    for one in ids:
        sent(db, one)
        due(db, one)
    assert len(claim_queries(db, "q1")) == 3
    a, b, c = ids
    done = converge(db, {"operation_id": a, "owner": "q1"}, {"operation_id": b, "owner": "q1", "verdict": "absent"},
                    {"operation_id": c, "owner": "q1", "digest": "sha256:2"})
    assert [d.outcome for d in done] == ["settled", "evidence_only", "digest_mismatch"]
    assert [db.operation(one).query_owner for one in ids] == [None] * 3
    assert [o.due for o in db.sql("SELECT not_before > clock_timestamp() AS due FROM @schema@.tool_operations "
                                  "WHERE operation_id = ANY (%s)", [b, c])] == [True, True]
    db.operation(b)


def test_a_lost_history_attempt_may_be_answered(db):
    _, [one] = planned(db, "s")
    db.sql("SELECT * FROM @iface@.gate_open('test', 'restored', true)")
    assert state(db, one) == ("unknown", 1, 0)
    # Its claim is lost with that history; the remote knows it by its number.
    assert converge(db, {"operation_id": one, "attempt": 1, "owner": "lost"})[0].outcome == "settled"


def test_several_facts_of_one_run_wake_it_once(db):
    got, ids = planned(db, *"abcd")
    for one in ids:
        sent(db, one)
    first = converge(db, *({"operation_id": one} for one in ids[:3]))
    assert [f.woke for f in first] == [False] * 3
    assert converge(db, {"operation_id": ids[3]})[0].woke is True
    assert db.run(got.run_id).woke_reason == "operations"


def test_what_is_a_bug_of_the_caller(db):
    for facts in ([{"operation_id": "x"}] * 2, [{"operation_id": "x", "verdict": "maybe"}], [{"operation_id": "x", "verdict": None}]):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            converge(db, *facts)

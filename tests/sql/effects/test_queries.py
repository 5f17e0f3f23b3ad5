"""claim_queries, record_query: one reconciler at a time asks the remote, and it is asked before its key is used again."""
import uuid

import psycopg
import pytest

from verbs import (answered, claim, claim_queries, due, evidence, planned, record_query, said, sent, state)

ASKED = {"capability": "query", "declaration": {"timeout_ms": 1000, "absent_is_final_after_ms": 1000}}
KEY = {"capability": "idempotency_key", "declaration": {"retention_ms": 600000, "query": True}}


def test_what_is_in_doubt_and_can_be_asked_and_nothing_else(db):
    got, ids = planned(db, "doubt", "prepared", "flying", "unsent", "settled", "later", **ASKED)
    doubt, _, flying, unsent, settled, later = ids
    for capability, declaration, step in (("none", {}, "none"), ("idempotency_key", {"retention_ms": 600000}, "key"),
                                          ("deterministic_id", {}, "name"), ("idempotency_key", KEY["declaration"], "both")):
        _, [one] = planned(db, step, capability=capability, declaration=declaration)
        sent(db, one)
        due(db, one)
    sent(db, doubt), sent(db, later)
    claim(db, flying)
    said(db, "record_not_sent", claim(db, unsent)[0])
    answered(db, claim(db, settled)[0])
    for one in (doubt, unsent):
        due(db, one)
    db.sql("UPDATE @schema@.tool_operations SET not_before = clock_timestamp() + interval '1 hour' WHERE operation_id = %s", later)
    before = db.operation(doubt)
    rows = claim_queries(db)
    assert sorted(r.step_id for r in rows) == ["both", "doubt", "name"]
    [row] = [r for r in rows if r.step_id == "doubt"]
    assert (row.item >= 1, row.outcome, row.attempt, row.attempts_not_sent, row.queries, row.epoch) == (True, "claimed", 1, 0, 1, 1)
    assert row.request_body == {"n": 1} and row.request_digest == "sha256:1" and 0 < row.ttl_ms <= 30000
    after = db.operation(doubt)
    assert (after.status, after.revision, after.attempts) == ("unknown", before.revision, before.attempts)


def test_only_one_reconciler_and_nobody_sends_meanwhile(db):
    _, [one] = planned(db, "s", **KEY)
    sent(db, one)
    due(db, one)
    [row] = claim_queries(db, "q1")
    assert row.operation_id == one
    assert claim_queries(db, "q2") == []
    assert claim(db, one, verb="claim_unknown")[0].outcome == "busy"
    assert claim(db, verb="claim_unknown") == []
    # Its query ran out: anybody's again.
    db.sql("UPDATE @schema@.tool_operations SET query_until = clock_timestamp(), not_before = clock_timestamp()")
    [other] = claim_queries(db, "q2")
    assert (other.operation_id, other.queries) == (one, 2)
    # The first one comes back: evidence, and the second's query goes on.
    assert record_query(db, {"operation_id": one, "owner": "q1", "query": 1})[0].outcome == "late"
    assert db.operation(one).query_owner == "q2"
    assert record_query(db, {"operation_id": one, "owner": "q2", "query": 2})[0].outcome == "recorded"
    assert record_query(db, {"operation_id": one, "owner": "q2", "query": 2})[0].outcome == "recorded" # asked again
    assert record_query(db, {"operation_id": one, "owner": "q2", "query": 3})[0].outcome == "missing"
    assert record_query(db, {"operation_id": "none", "owner": "q2", "query": 1})[0].outcome == "missing"
    assert evidence(db, one) == ["claimed", "unknown", "late", "query"]


def test_query_first_where_there_is_a_query_then_the_key(db):
    _, [one] = planned(db, "s", **KEY)
    sent(db, one)
    due(db, one)
    assert claim(db, one, verb="claim_unknown")[0].outcome == "not_ready"
    assert claim(db, verb="claim_unknown") == []
    claim_queries(db, "q1")
    record_query(db, {"operation_id": one, "owner": "q1", "query": 1, "retry_ms": 0, "evidence": {"http_status": 500}})
    [again] = claim(db, verb="claim_unknown", owner="d2")
    assert (again.operation_id, again.attempt) == (one, 2)
    # After the next attempt it is asked again first.
    assert said(db, "record_unknown", again, "d2").outcome == "recorded"
    due(db, one)
    assert claim(db, one, verb="claim_unknown")[0].outcome == "not_ready"
    assert [r.queries for r in claim_queries(db)] == [2]


def test_a_key_past_its_retention_is_still_asked_about(db):
    _, [one] = planned(db, "s", capability="idempotency_key", declaration={"retention_ms": 1, "query": True})
    sent(db, one)
    assert db.operation(one).not_before is not None
    due(db, one)
    assert claim(db, one, verb="claim_unknown")[0].outcome == "not_allowed"
    assert len(claim_queries(db)) == 1


def test_back_off(db):
    _, [one] = planned(db, "s", **ASKED)
    sent(db, one)
    due(db, one)
    claim_queries(db, "q1")
    record_query(db, {"operation_id": one, "owner": "q1", "query": 1, "retry_ms": 3600000})
    assert claim_queries(db) == []
    wait = db.one("SELECT extract(epoch FROM not_before - clock_timestamp()) FROM @schema@.tool_operations")
    assert 3500 < wait <= 3600
    for number in (2, 3):
        due(db, one)
        claim_queries(db, "q1")
        record_query(db, {"operation_id": one, "owner": "q1", "query": number})
        wait = db.one("SELECT extract(epoch FROM not_before - clock_timestamp()) FROM @schema@.tool_operations")
        assert 2 ** number - 2 < wait <= 2 ** number


def test_a_lost_answer_is_asked_again(db):
    _, ids = planned(db, "a", "b", **ASKED)
    for one in ids:
        sent(db, one)
        due(db, one)
    token = uuid.uuid4()
    first = claim_queries(db, "q1", token=token)
    again = claim_queries(db, "q1", token=token)
    assert [(r.operation_id, r.outcome, r.queries) for r in again] == [(r.operation_id, "claimed", 1) for r in first]
    assert [r.query_until for r in again] == [r.query_until for r in first] # extends nothing
    record_query(db, {"operation_id": first[0].operation_id, "owner": "q1", "query": 1, "retry_ms": 0})
    again = claim_queries(db, "q1", token=token)
    assert [r.outcome for r in again] == ["token_used", "claimed"] # and takes nothing new
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        claim_queries(db, "q2", token=token)
    empty = uuid.uuid4()
    for one in ids:
        db.sql("UPDATE @schema@.tool_operations SET not_before = clock_timestamp() + interval '1 hour'")
    assert claim_queries(db, "q1", token=empty) == []
    due(db, ids[0])
    assert claim_queries(db, "q1", token=empty) == []


def test_the_gate(db):
    _, [one] = planned(db, "s", **ASKED)
    sent(db, one)
    due(db, one)
    db.sql("SELECT * FROM @iface@.gate_close('test', 'test')")
    assert [r.outcome for r in claim_queries(db)] == ["gate_closed"]
    db.sql("SELECT * FROM @iface@.gate_open('test', 'test', false, true)")
    assert [r.outcome for r in claim_queries(db)] == ["claimed"]


def test_a_new_attempt_ends_the_query_of_the_one_before(db):
    _, [one] = planned(db, "s", **ASKED)
    [claimed] = claim(db, one)
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp()")
    db.one("SELECT expired FROM @iface@.expire_claims(10)")
    due(db, one)
    [query] = claim_queries(db, "q1")
    # The dispatcher that was paused says that it never sent.
    assert said(db, "record_not_sent", claimed).outcome == "recorded"
    assert claim(db, one, owner="d2")[0].outcome == "claimed"
    assert db.operation(one).query_owner is None
    assert record_query(db, {"operation_id": one, "owner": "q1", "query": query.queries})[0].outcome == "late"
    assert state(db, one) == ("dispatching", 2, 1)


def test_what_is_a_bug_of_the_caller(db):
    for limit, ttl_ms in ((0, 1000), (1001, 1000), (1, 0), (1, 10 ** 9)):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            claim_queries(db, limit=limit, ttl_ms=ttl_ms)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        record_query(db, *[{"operation_id": "x", "owner": "q", "query": 1}] * 2)

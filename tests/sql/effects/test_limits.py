"""Limits of a tool over all pods, and that a slow tool does not keep the others waiting."""
import psycopg
import pytest

from psycopg.types.json import Jsonb
from verbs import answered, claim, claim_queries, due, planned, said, sent


def register(db, tool, **declaration):
    [row] = db.call("register", p_kind=(["tool"], "text[]"), p_names=([tool], "text[]"), p_digests=([str(declaration)], "text[]"),
                    p_declarations=([Jsonb(declaration)], "jsonb[]"), p_pod=("pod", "text"))
    return row.outcome


def test_in_flight_over_all_pods(db):
    register(db, "pay", max_in_flight_total=3)
    _, ids = planned(db, *"abcde")
    first = claim(db, owner="pod1", limit=2)
    second = claim(db, owner="pod2", limit=10)
    assert [len(first), len(second)] == [2, 1]
    assert claim(db, owner="pod3") == []
    left = [i for i in ids if i not in {c.operation_id for c in first + second}]
    assert [c.outcome for c in claim(db, *left, owner="pod3")] == ["not_ready"] * 2 # hints obey it, too
    answered(db, first[0], owner="pod1")
    assert sorted(c.outcome for c in claim(db, *left, owner="pod3")) == ["claimed", "not_ready"]
    # A claim past its deadline may still be under way: it counts until somebody recorded that it ran out.
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() WHERE status = 'dispatching'")
    assert claim(db, owner="pod3") == []
    db.one("SELECT expired FROM @iface@.expire_claims(10)")
    assert len(claim(db, owner="pod3")) == 1


def test_same_key_and_queries_count_too(db):
    register(db, "pay", max_in_flight_total=2)
    declared = {"retention_ms": 600000}
    _, keys = planned(db, *"abc", capability="idempotency_key", declaration=declared)
    for one in keys:
        sent(db, one)
        due(db, one)
    assert len(claim(db, verb="claim_unknown")) == 2
    assert claim(db, verb="claim_unknown") == []
    _, asked = planned(db, "q", capability="query")
    db.sql("UPDATE @schema@.tool_limits SET max_in_flight = 3")
    sent(db, asked[0])
    due(db, asked[0])
    assert len(claim_queries(db)) == 1
    assert claim(db, verb="claim_unknown") == [] # the query is in flight
    assert [c.outcome for c in claim(db, keys[2], verb="claim_unknown")] == ["not_ready"]


def test_rate(db):
    register(db, "pay", rate_per_s=10, rate_burst=3)
    _, ids = planned(db, *"abcdefgh")
    assert len(claim(db)) == 3
    db.sql("UPDATE @schema@.tool_limits SET tokens = 0, tokens_at = clock_timestamp() + interval '1 minute'") # no token comes
    assert claim(db) == []
    db.sql("UPDATE @schema@.tool_limits SET tokens = 0, tokens_at = clock_timestamp() - interval '0.2 seconds'")
    assert 2 <= len(claim(db)) <= 3
    db.sql("UPDATE @schema@.tool_limits SET tokens = 0, tokens_at = clock_timestamp() - interval '1 hour'")
    assert len(claim(db, limit=2)) == 2
    assert db.one("SELECT tokens BETWEEN 1 AND 1.9 FROM @schema@.tool_limits") # the bucket holds three, not an hour


def test_a_claim_never_waits_for_another_ones_count(db):
    register(db, "pay", max_in_flight_total=2)
    planned(db, *"abc")
    _, [mail] = planned(db, "m", tool="mail")
    other = db.another()
    other.begin()
    assert len(claim(other, owner="pod1", limit=1, tools=["pay"])) == 1
    # The count is the other's at the moment: this one is given what has no limit, at once.
    assert [c.operation_id for c in claim(db, owner="pod2")] == [mail]
    other.end()
    assert len(claim(db, owner="pod2")) == 1
    other.close()


@pytest.mark.parametrize("verb", ["claim_operations", "claim_unknown", "claim_queries"])
def test_a_backlog_does_not_starve_the_others(db, verb):
    members = {"capability": "query"} if verb == "claim_queries" else {
        "capability": "idempotency_key", "declaration": {"retention_ms": 600000}}
    ids = []
    for _ in range(4):
        ids += planned(db, *"abcdefgh", tool="aslow", **members)[1]
    ids += planned(db, "x", tool="quick", **members)[1]
    if verb != "claim_operations":
        for one in ids:
            sent(db, one)
            due(db, one)
    rows = claim_queries(db, limit=10) if verb == "claim_queries" else claim(db, verb=verb, limit=10)
    assert len(rows) == 10 and [r.tool_name for r in rows].count("quick") == 1
    # And a slow one at its limit leaves its share to them.
    register(db, "aslow", max_in_flight_total=1)
    planned(db, *"abcd", tool="quick")
    assert {c.tool_name for c in claim(db)} == {"quick"}


def test_the_latest_declaration_holds_and_none_is_none(db):
    assert register(db, "pay", max_in_flight_total=1, rate_per_s=0.5) == "registered"
    assert register(db, "pay", max_in_flight_total=1, rate_per_s=0.5) == "exists"
    [row] = db.sql("SELECT max_in_flight, rate_per_s, burst, tokens FROM @schema@.tool_limits")
    assert (row.max_in_flight, row.rate_per_s, row.burst, row.tokens) == (1, 0.5, 1, 1)
    register(db, "pay", max_in_flight_total=5)
    [row] = db.sql("SELECT max_in_flight, rate_per_s FROM @schema@.tool_limits")
    assert (row.max_in_flight, row.rate_per_s) == (5, None)
    register(db, "pay")
    assert db.sql("SELECT FROM @schema@.tool_limits") == []


@pytest.mark.parametrize("bad", [0, -1, "5", None, True])
@pytest.mark.parametrize("name", ["max_in_flight_total", "rate_per_s", "rate_burst"])
def test_a_limit_that_is_none_is_refused(db, name, bad):
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="limit"):
        register(db, "pay", **{name: bad})


def test_a_named_tool_twice_is_not_given_twice(db):
    register(db, "pay", max_in_flight_total=2)
    planned(db, *"abcde")
    assert len(claim(db, tools=["pay", "pay"])) == 2

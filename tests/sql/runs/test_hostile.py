"""What a confused or hostile session tries through the interface, and what it gets."""
import uuid

import psycopg
import pytest

from database import intent, item, of_claim


@pytest.fixture
def held(db):
    """A run in the hands of p1."""
    db.submit(task="t")
    [got] = db.claim("p1")
    return got


def write(db, got, **members):
    [done] = db.commit(item(got, "p1", **members))
    if done.outcome == "ok":
        got.revision = done.revision
    return done


def operation(got, step, version=1):
    return f"{got.tenant_id}/{got.run_id}/{step}/{version}"


def settle(db, got, step, **members):
    """The step's effect is made and recorded."""
    assert write(db, got, intents=[intent(got, step, **members)]).outcome == "ok"
    [claim] = db.dispatch("d", operation(got, step))
    [done] = db.answer(of_claim(claim, "d", remote_id="r"))
    assert done.outcome == "recorded"


def again(db, got):
    """The run fails and is retried."""
    assert write(db, got, finish="failed", output={}).outcome == "ok"
    [made] = db.retry(task=got.task_id)
    assert made.outcome == "created"
    [new] = db.claim("p1")
    return new


def test_a_handler_named_twice_gives_out_no_run_twice(db):
    db.submit({"task": "a"}, {"task": "b"})
    assert [g.outcome for g in db.claim("p1", 10, handlers=["plan", "plan", None])] == ["acquired", "acquired"]


def test_a_handler_that_is_null_serves_nothing(db):
    db.submit(task="t", handler="other")
    [run] = db.sql("SELECT active_run_id AS id FROM @schema@.agent_tasks")
    assert [g.outcome for g in db.acquire("p1", run.id, handlers=["plan", None])] == ["not_ready"]


def test_a_compensation_excuses_only_the_doubt_it_compensates(db, held):
    assert write(db, held, intents=[intent(held, "pay"), intent(held, "other")]).outcome == "ok"
    db.dispatch("d", operation(held, "pay"))
    v2 = intent(held, "pay", 2, digest="sha256:2")
    assert write(db, held, intents=[v2]).outcome == "effect_in_doubt"
    assert write(db, held, intents=[v2 | {"compensates": operation(held, "other")}]).outcome == "effect_in_doubt"
    assert write(db, held, intents=[v2 | {"compensates": operation(held, "pay")}]).outcome == "ok"
    db.cancel(task="t")


def test_an_effect_compensated_under_an_adopters_name_is_not_adopted(db, held):
    settle(db, held, "pay")
    second = again(db, held)
    assert write(db, second, intents=[intent(second, "pay")]).adopted == [operation(second, "pay")]
    settle(db, second, "refund", compensates=operation(second, "pay"))
    third = again(db, second)
    assert write(db, third, intents=[intent(third, "pay")]).adopted is None
    assert db.operation(operation(third, "pay")).status == "prepared"


@pytest.mark.parametrize("key", ["", "same", "default/{other}/pay/1", "{operation}x"])
def test_an_external_key_of_another_intent_is_refused(db, held, key):
    [other] = db.submit(task="other")
    key = key.format(other=other.run_id, operation=operation(held, "pay"))
    assert write(db, held, intents=[intent(held, "pay", external_key=key)]).outcome == "invalid"


def test_the_external_key_of_the_submission_goes_on(db, held):
    second = again(db, held)
    assert write(db, second, intents=[intent(second, "pay", external_key=operation(held, "pay"))]).outcome == "ok"


@pytest.mark.parametrize("retention", [2**63 - 1, 92 * 10**14, 1e30, -5, 1.5])
def test_no_retention_stops_the_sweep(db, held, retention):
    assert write(db, held, intents=[intent(held, "pay", capability="idempotency_key",
                                           declaration={"retention_ms": retention})]).outcome == "ok"
    [claim] = db.dispatch("d")
    assert claim.outcome == "claimed"
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp()")
    assert db.sweep().claims_expired == 1
    db.sql("UPDATE @schema@.tool_operations SET not_before = clock_timestamp()")
    assert [c.outcome for c in db.dispatch("d", ttl_ms=1, verb="claim_unknown")] == ["claimed"] * (retention > 5)


def test_a_retry_that_never_comes_is_invalid(db, held):
    [mine] = [write(db, held, retry_ms=2**63 - 1)]
    assert mine.outcome == "invalid"


@pytest.mark.parametrize("members", [{"step": ""}, {"tool": ""}, {"digest": ""}])
def test_an_intent_with_an_empty_member_is_invalid(db, held, members):
    op = intent(held, "pay") | members
    op |= dict.fromkeys(("operation_id", "external_key"), operation(held, op["step"]))
    assert write(db, held, intents=[op]).outcome == "invalid"


def test_the_systems_events_are_not_a_handlers_to_make(db, held):
    for name in ("run.succeeded", "Run.Succeeded", "OPERATION.failed", "submission.rejected"):
        assert write(db, held, events=[(name, {})]).outcome == "invalid"


def test_who_said_that_it_may_have_sent_cannot_take_it_back(db, held):
    assert write(db, held, intents=[intent(held, "a"), intent(held, "b"), intent(held, "c")]).outcome == "ok"
    a, b, c = db.dispatch("d", *(operation(held, step) for step in "abc"))
    assert [x.outcome for x in db.not_answered("record_unknown", of_claim(a, "d"))] == ["recorded"]
    assert [x.outcome for x in db.answer(of_claim(b, "d", digest="sha256:other"))] == ["digest_mismatch"]
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = %s", c.operation_id)
    db.sweep()
    assert [x.outcome for x in db.answer(of_claim(c, "d"))] == ["late"]
    assert [x.outcome for x in db.not_answered("record_not_sent", *(of_claim(x, "d") for x in (a, b, c)))] == ["late"] * 3
    assert [db.operation(x.operation_id).attempts_not_sent for x in (a, b, c)] == [0, 0, 0]
    assert [x.outcome for x in db.dispatch("d2", *(x.operation_id for x in (a, c)))] == ["not_ready", "not_ready"]


def test_no_retry_beside_an_effect_that_outlives_its_run_and_is_still_to_be_sent(db, held):
    assert write(db, held, intents=[intent(held, "pay")]).outcome == "ok"
    [claim] = db.dispatch("d")
    assert write(db, held, finish="succeeded", output={}, detached=[claim.operation_id]).outcome == "ok"
    assert [x.status for x in db.not_answered("record_not_sent", of_claim(claim, "d", retry_ms=0))] == ["unknown"]
    [refused] = db.retry(task="t")
    assert (refused.outcome, refused.unsettled) == ("unsettled_operations", [claim.operation_id])
    assert [x.detached for x in db.cancel(task="t")] == [[claim.operation_id]]


def test_claims_of_others_cannot_be_named(db, held):
    assert write(db, held, intents=[intent(held, "pay")]).outcome == "ok"
    [claim] = db.dispatch("d")
    for forged in ({"owner": "x"}, {"owner": None}, {"revision": 0}, {"revision": None}, {"attempt": 2}, {"attempt": None}):
        mine = of_claim(claim, "d") | forged
        assert [x.outcome for x in db.answer(mine)] == ["missing"]
        for verb in ("record_not_sent", "record_unknown"):
            assert [x.outcome for x in db.not_answered(verb, mine)] == ["missing"]
    assert db.operation(claim.operation_id).status == "dispatching"
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        db.answer(of_claim(claim, "d"), of_claim(claim, "d"))


def test_a_call_that_a_closed_gate_answered_takes_nothing_later(db, held):
    """Its first delivery may still be on the way when the gate opens again: nobody would wait for what it took."""
    assert write(db, held, intents=[intent(held, "pay")]).outcome == "ok"
    db.submit(task="ready")
    db.sql("SELECT FROM @iface@.gate_close('test', 'test')")
    calls = [lambda k: db.claim("p", token=k), lambda k: db.acquire("p", held.run_id, token=k),
             lambda k: db.dispatch("d", token=k), lambda k: db.dispatch("d", token=k, verb="claim_unknown"),
             lambda k: db.dispatch("d", operation(held, "pay"), token=k)]
    tokens = [uuid.uuid4() for _ in calls]
    assert [call(token)[0].outcome for call, token in zip(calls, tokens)] == ["gate_closed"] * 5
    db.sql("SELECT FROM @iface@.gate_open('test', 'test')")
    assert [[row.outcome for row in call(token)] for call, token in zip(calls, tokens)] == [[], ["token_used"], [], [], []]
    assert [row.outcome for row in db.claim("p") + db.dispatch("d")] == ["acquired", "claimed"]


@pytest.mark.parametrize("cancel_previous", [False, True])
def test_a_run_id_of_another_task_is_an_error_and_no_answer(db, held, cancel_previous):
    with pytest.raises(psycopg.errors.UniqueViolation):
        db.submit(tenant="other", task="mine", run_id=held.run_id, cancel_previous=cancel_previous)
    assert write(db, held).outcome == "ok"
    assert db.one("SELECT count(*) FROM @schema@.agent_tasks") == 1


def test_labels_have_a_limit(db):
    db.sql("UPDATE @schema@.control SET max_output_bytes = 1000")
    [row] = db.submit(task="t", labels={"a": "x" * 2000})
    assert row.outcome == "invalid" and "labels" in row.detail["detail"]


def test_a_handlers_own_compensation_ends_with_its_run(db, held):
    """Only what `compensate` registers outlives a run: naming an operation to compensate does not detach an intent."""
    settle(db, held, "pay")
    undo = intent(held, "refund", compensates=operation(held, "pay"))
    assert write(db, held, intents=[undo]).outcome == "ok"
    [claim] = db.dispatch("d", operation(held, "refund"))
    assert [done.outcome for done in db.cancel(task="t")] == ["cancelled"]
    db.not_answered("record_not_sent", of_claim(claim, "d", retry_ms=0))
    assert db.operation(claim.operation_id).status == "cancelled"
    assert [c.outcome for c in db.dispatch("d2", claim.operation_id)] != ["claimed"]

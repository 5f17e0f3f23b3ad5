"""The dispatcher on a real ledger, a real Kafka and a remote that misbehaves and counts."""
import json
import signal

import pytest

from tests.integration.outbox_stack import Installation
from tests.lib.stack import wait_until

ONLY_DISPATCH = "[relay]\nenabled = false"
# A long interval: what a test sees within it came by a hint.
BY_HINT = "[dispatch]\ninterval_ms = 60000\nretry_ms = 50\nretry_max_ms = 200"
BY_SWEEP = "[dispatch]\ninterval_ms = 50\nretry_ms = 50\nretry_max_ms = 200"


def tool(remote, path="/pay", **members):
    members = {"kind": "http", "url": remote.url + path, "allow_private": "true", "timeout_ms": 5000} | members
    return "[tool.pay]\n" + "\n".join(f"{name} = {value}" for name, value in members.items())


@pytest.fixture
def house(build, postgres, kafka, tmp_path):
    made = Installation(build, postgres, kafka, tmp_path)
    yield made
    made.close()


@pytest.fixture
def remote(house):
    return house.remote()


IDEMPOTENT = {"capability": "idempotency_key", "declaration": {"capability": "idempotency_key", "retention_ms": 3600000}}


def expire(house, operation_id):
    """The claim's time is over, as the sweep finds it."""
    house.db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = %s", operation_id)
    house.db.call("expire_claims", p_limit=(100, "integer"))


# ---- the ordinary way ----

def test_a_hint_is_dispatched_and_wakes_its_run(house, remote):
    got = house.run_of("t1")
    [operation] = house.register(got, ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_HINT, tool(remote, **{"header.X-Api-Version": "7"}))
    # The look at start finds it, too: the second one comes by its hint alone.
    house.await_status(operation, "succeeded")
    again = house.run_of("t2")
    [second] = house.register(again, ["b"])
    house.hint(second)
    row = house.await_status(second, "succeeded")
    assert row.remote_id == "remote-2" and row.result["execution"] == 2

    [_, sent] = remote.ledger()["executions"]
    headers = sent["headers"]
    assert sent["body"] == '{"step":"b"}' and headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == second and headers["holdfast-operation-id"] == second
    assert headers["holdfast-run-id"] == str(again.run_id) and headers["holdfast-epoch"] == str(again.epoch)
    assert headers["x-api-version"] == "7" and "expect" not in headers

    wakeups = {json.loads(r.value())["run_id"]: json.loads(r.value())["epoch"] for r in house.read("wakeups", 2)}
    assert wakeups == {str(got.run_id): got.epoch + 1, str(again.run_id): again.epoch + 1}
    assert house.db.run(again.run_id).ready and house.db.run(again.run_id).woke_reason == "operations"
    pod.stop()


def test_without_hints_the_look_finds_what_is_due(house, remote):
    ids = house.register(house.run_of("t1"), [f"s{n}" for n in range(50)])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    for operation in ids:
        house.await_status(operation, "succeeded")
    assert remote.ledger()["by_key"] == {operation: 1 for operation in ids}
    assert len(house.read("wakeups", 1, settle=True)) == 1, "the last result woke the run, no other"
    pod.stop()


def test_limits_of_tool_and_pod_are_kept(house, remote):
    ids = house.register(house.run_of("t1"), [f"s{n}" for n in range(20)])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/pay?fault=hang", max_in_flight=3))
    wait_until(lambda: remote.ledger()["requests"] == 3, 20, "three requests arrive")
    assert pod.health()["in_flight"] == 3
    statuses = house.db.sql("SELECT status, count(*) n FROM @schema@.tool_operations GROUP BY 1")
    assert {row.status: row.n for row in statuses} == {"dispatching": 3, "prepared": 17}, "nothing is claimed beyond room"

    def all_done():
        remote.release()
        return remote.ledger()["requests"] == 20 and pod.health()["in_flight"] == 0
    wait_until(all_done, 40, "all were carried, three at a time")
    for operation in ids:
        house.await_status(operation, "succeeded")
    pod.stop()


def test_the_key_may_be_quoted_and_credentials_are_sent(house, remote, monkeypatch):
    monkeypatch.setenv("PAY_SECRET", "s3cret")
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, key_quoted="true", credential_env="PAY_SECRET"))
    house.await_status(operation, "succeeded")
    [sent] = remote.ledger()["executions"]
    assert sent["headers"]["idempotency-key"] == f'"{operation}"'
    assert sent["headers"]["authorization"] == "Bearer s3cret"
    pod.stop()
    with open(pod.log, encoding="utf-8") as log:
        assert "s3cret" not in log.read()


def test_hints_that_name_nothing_are_dead_lettered(house, remote):
    got = house.run_of("t1")
    [operation] = house.register(got, ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_HINT, tool(remote))
    house.await_status(operation, "succeeded")
    digest = house.db.operation(operation).request_digest
    run = str(got.run_id)
    house.produce("intents", run, {"operation_id": "default/x/y/1", "run_id": run, "tool_name": "pay", "request_digest": digest})
    house.produce("intents", run, "no JSON at all")
    letters = house.read("dead-letters", 2)
    reasons = {}
    for letter in letters:
        headers = {name: value.decode() for name, value in letter.headers()}
        assert headers["original_topic"] == house.topic("intents")
        reasons[letter.value()] = headers["reason"]
    assert reasons.pop(b"no JSON at all") != "missing"
    assert list(reasons.values()) == ["missing"]
    other = house.register(house.run_of("t2"), ["b"])[0]
    row = house.db.operation(other)
    house.produce("intents", str(row.run_id), {"operation_id": other, "run_id": str(row.run_id), "tool_name": "pay",
                                               "request_digest": "sha256:" + "0" * 64})
    house.await_status(other, "succeeded")  # the ledger decides; the hint was wrong
    assert remote.ledger()["executions"][-1]["body"] == '{"step":"b"}'
    assert ("reason", b"digest_mismatch") in [h for letter in house.read("dead-letters", 3) for h in letter.headers()]
    pod.stop()


# ---- what answers mean ----

def test_what_a_status_means(house, remote):
    remote.script("/pay", {"status": 422, "body": '{"error":"no money"}'})
    [refused] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    row = house.await_status(refused, "failed_final")
    assert row.result == {"status": 422, "body": {"error": "no money"}}

    remote.script("/pay", {"status": 429, "retry_after": "1"}, "ok")
    [limited] = house.register(house.run_of("t2"), ["a"])
    row = house.await_status(limited, "succeeded")
    assert (row.attempts, row.attempts_not_sent) == (2, 1)
    kinds = [e.kind for e in house.evidence(limited)]
    assert kinds.index("not_sent") < kinds.index("response"), kinds
    at = [e["at"] for e in remote.ledger()["executions"] if e["key"] == limited]
    assert at[1] - at[0] >= 1, "Retry-After was honoured"

    for number, plan in enumerate([{"status": 500}, {"status": 503}, {"status": 200, "body": "<html>"}, {"fault": "half"},
                                   {"fault": "garbage"}, {"fault": "reset_after"}, {"fault": "redirect"}]):
        remote.script("/pay", plan)
        [doubtful] = house.register(house.run_of(f"u{number}"), ["a"])
        row = house.await_status(doubtful, "unknown")
        assert row.attempts - row.attempts_not_sent == 1, plan
    pod.stop()
    body = house.evidence(doubtful)[-1].detail
    assert body["evidence"]["status"] == 302 and body["evidence"]["headers"]["location"] == "/redirected", body


def test_an_empty_success_and_one_that_jsonb_cannot_hold(house, remote):
    remote.script("/pay", {"status": 204, "body": ""}, {"status": 200, "body": '{"id": 12345678901234567890}'})
    first, second = house.register(house.run_of("t1"), ["a"])[0], None
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    assert house.await_status(first, "succeeded").result is None
    [second] = house.register(house.run_of("t2"), ["a"])
    row = house.await_status(second, "succeeded")
    assert row.result is None and row.remote_id == "12345678901234567890"
    assert "12345678901234567890" in house.evidence(second)[-1].detail["evidence"]["body"]
    pod.stop()


def test_a_refused_connection_is_not_sent_and_tried_again(house, remote):
    [operation] = house.register(house.run_of("t1"), ["a"])
    url = remote.url
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/pay").replace(url, "http://127.0.0.1:9"))
    wait_until(lambda: house.db.operation(operation).attempts >= 2, 20, "it was tried twice")
    row = house.db.operation(operation)
    pod.stop()
    row = house.db.operation(operation)
    assert row.status == "unknown" and row.attempts == row.attempts_not_sent, "unsent: in no doubt"
    other = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    house.await_status(operation, "succeeded")
    assert remote.executions(operation) == 1
    other.stop()


def test_a_private_address_needs_permission(house, remote):
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, allow_private="false"))
    wait_until(lambda: house.db.operation(operation).attempts_not_sent >= 1, 20, "it was not sent")
    faults = {e.detail.get("evidence", {}).get("fault") for e in house.evidence(operation)}
    assert "address_denied" in faults
    assert remote.ledger()["requests"] == 0
    pod.stop()


# ---- one claim sends at most once ----

def test_a_kept_connection_that_executes_and_closes(house, remote):
    """An ordinary client would send the second request again on a new connection."""
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/idem", capability="idempotency_key", retention_ms=3600000))
    [warm] = house.register(house.run_of("t1"), ["a"], **IDEMPOTENT)
    house.await_status(warm, "succeeded")
    remote.script("/idem", "close_after")
    [operation] = house.register(house.run_of("t2"), ["a"], **IDEMPOTENT)
    row = house.await_status(operation, "succeeded")  # by a retry under the same key, as the declaration allows
    assert row.attempts == 2
    evidence = [e for e in house.evidence(operation) if e.kind != "claimed"]
    assert evidence[0].detail["evidence"]["fault"] == "resend", evidence
    assert remote.executions(operation) == 1
    assert remote.ledger()["requests"] == 3, "one for the first run, two for the second: one per claim"
    pod.stop()


def test_a_changed_request_is_not_sent(house, remote):
    """What is sent is what was registered: the bytes' digest is compared with the ledger's right before."""
    [operation] = house.register(house.run_of("t1"), ["a"])
    house.db.sql("UPDATE @schema@.tool_operations SET request_body = '{\"step\": \"b\"}' WHERE operation_id = %s", operation)
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    wait_until(lambda: "not_sent" in [e.kind for e in house.evidence(operation)], 20, "it is given back")
    assert pod.events("dispatch.digest_mismatch")
    row = house.db.operation(operation)
    assert row.attempts == row.attempts_not_sent and remote.ledger()["requests"] == 0
    pod.stop()


def test_none_has_a_connection_per_attempt_and_stays_unknown(house, remote):
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    [first] = house.register(house.run_of("t1"), ["a"])
    house.await_status(first, "succeeded")
    remote.script("/pay", "close_after")
    [operation] = house.register(house.run_of("t2"), ["a"])
    row = house.await_status(operation, "unknown")
    assert row.attempts == 1
    [third] = house.register(house.run_of("t3"), ["a"])
    house.await_status(third, "succeeded")
    ledger = remote.ledger()
    assert ledger["by_key"] == {first: 1, operation: 1, third: 1} and ledger["connections"] == 3
    assert house.db.operation(operation).status == "unknown"
    pod.stop()


@pytest.mark.parametrize("capability", ["none", "idempotency_key"])
def test_killed_after_the_claim(house, remote, capability):
    more = IDEMPOTENT if capability == "idempotency_key" else {}
    declared = {"capability": capability} | ({"retention_ms": 3600000} if more else {})
    [operation] = house.register(house.run_of("t1"), ["a"], **more)
    house.arm("dispatch.after_claim", "die")
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/idem", **declared))
    assert pod.wait() == -signal.SIGKILL
    assert house.db.operation(operation).status == "dispatching"
    expire(house, operation)
    assert house.db.operation(operation).status == "unknown"
    other = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/idem", **declared))
    if capability == "none":
        [marker] = house.register(house.run_of("t2"), ["a"])
        house.await_status(marker, "succeeded")  # the other pod looked, and left the doubtful one alone
        assert house.db.operation(operation).status == "unknown" and remote.executions(operation) == 0
    else:
        house.await_status(operation, "succeeded")
        assert remote.executions(operation) == 1
    other.stop()


@pytest.mark.parametrize("capability", ["none", "idempotency_key"])
def test_killed_between_answer_and_record(house, remote, capability):
    more = IDEMPOTENT if capability == "idempotency_key" else {}
    declared = {"capability": capability} | ({"retention_ms": 3600000} if more else {})
    [operation] = house.register(house.run_of("t1"), ["a"], **more)
    house.arm("dispatch.after_response_before_record", "die")
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/idem", **declared))
    assert pod.wait() == -signal.SIGKILL
    assert remote.executions(operation) == 1
    expire(house, operation)
    other = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/idem", **declared))
    if capability == "none":
        [marker] = house.register(house.run_of("t2"), ["a"])
        house.await_status(marker, "succeeded")
        assert house.db.operation(operation).status == "unknown"
    else:
        house.await_status(operation, "succeeded")
    assert remote.executions(operation) == 1
    other.stop()


def test_a_dispatcher_that_wakes_past_its_claim_does_not_send(house, remote):
    """Hole 4 of section 12: paused after its claim, continued when the claim is over."""
    [operation] = house.register(house.run_of("t1"), ["a"], **IDEMPOTENT)
    house.arm("dispatch.after_claim", "hold")
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP + "\nclaim_ttl_ms = 1000", tool(remote, timeout_ms=400, connect_timeout_ms=400))
    house.await_reached("dispatch.after_claim")
    pod.signal(signal.SIGSTOP)
    house.disarm("dispatch.after_claim", "hold")
    wait_until(lambda: house.db.one("SELECT dispatch_until < clock_timestamp() AS over FROM @schema@.tool_operations "
                                    "WHERE operation_id = %s", operation), 20, "the claim is over")
    pod.signal(signal.SIGCONT)
    row = house.await_status(operation, "succeeded")
    first = [e for e in house.evidence(operation) if e.kind == "not_sent"][0]
    assert first.detail["evidence"]["fault"] == "deadline" and first.attempt == 1
    assert (row.attempts, row.attempts_not_sent) == (2, 1)
    assert remote.executions(operation) == 1 and remote.ledger()["requests"] == 1
    pod.stop()


def test_a_success_after_its_claim_is_evidence_and_settles_as_a_fact(house, remote):
    """record_result answers `late`; the verified success of an attempt that was made is a fact all the same (converge)."""
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/pay?fault=hang"))
    wait_until(lambda: remote.ledger()["requests"] == 1, 20, "it was sent")
    expire(house, operation)
    remote.release()
    wait_until(lambda: "late" in [e.kind for e in house.evidence(operation)], 20, "the late answer is evidence")
    wait_until(lambda: house.db.operation(operation).status == "succeeded", 20, "the fact settles it")
    assert remote.executions(operation) == 1
    pod.stop()


# ---- the end of a pod ----

def test_shutdown_gives_back_what_was_not_sent(house, remote):
    [sent] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/pay?fault=hang", timeout_ms=20000))
    wait_until(lambda: remote.ledger()["requests"] == 1, 20, "it was sent")
    pod.stop(grace_ms=100)
    row = house.db.operation(sent)
    assert row.status == "unknown" and row.attempts_not_sent == 0
    assert house.evidence(sent)[-1].detail["evidence"]["fault"] == "cancelled"

    [unsent] = house.register(house.run_of("t2"), ["a"])
    house.arm("dispatch.after_claim", "hold")
    second = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    house.await_reached("dispatch.after_claim")
    second.say("stop 5000")
    house.disarm("dispatch.after_claim", "hold")
    assert second.wait() == 0
    row = house.db.operation(unsent)
    # It was claimed before the stop: either sent in the grace period, or given back as not sent; never in doubt.
    assert row.status == "succeeded" or row.attempts == row.attempts_not_sent, (row, house.evidence(unsent))
    assert remote.executions(unsent) == (1 if row.status == "succeeded" else 0)


def test_shutdown_waits_for_answers_in_flight(house, remote):
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote, "/pay?fault=ok&delay_ms=700"))
    wait_until(lambda: remote.ledger()["requests"] == 1, 20, "it was sent")
    pod.stop(grace_ms=10000)
    assert house.db.operation(operation).status == "succeeded"


# ---- services away ----

def test_postgres_away_while_an_answer_comes(house, remote, postgres):
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, "[postgres]\ncall_timeout_ms = 1000", tool(remote, "/pay?fault=hang"))
    wait_until(lambda: remote.ledger()["requests"] == 1, 20, "it was sent")
    postgres.pause()
    try:
        remote.release()
        wait_until(lambda: pod.events("dispatch.record_waits"), 20, "the record waits for the database")
    finally:
        postgres.resume()
    house.await_status(operation, "succeeded")
    assert remote.executions(operation) == 1
    pod.stop()


def test_the_gate_stops_claims(house, remote):
    [operation] = house.register(house.run_of("t1"), ["a"])
    house.db.call("gate_close", p_by=("test", "text"), p_reason=("test", "text"))
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(remote))
    wait_until(lambda: pod.health()["gate_closed"], 20, "the pod has seen the closed gate")
    assert house.db.operation(operation).status == "prepared" and remote.ledger()["requests"] == 0
    house.db.sql("UPDATE @schema@.control SET gate_closed = false")
    house.await_status(operation, "succeeded")
    pod.stop()


def test_async_failover_acknowledges_claims_of_none_on_kafka(house, remote):
    [operation] = house.register(house.run_of("t1"), ["a"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, "[failover]\nmode = async", tool(remote))
    house.await_status(operation, "succeeded")
    claims = [json.loads(r.value()) for r in house.read("intents", 1)]
    assert [(c["operation_id"], c["attempt"]) for c in claims if c.get("kind") == "claimed"] == [(operation, 1)]
    pod.stop()

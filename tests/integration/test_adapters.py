"""Tools of every kind on a real ledger: what they are told, and what their end means."""
import json
import os
import sys

import pytest

from tests.integration.outbox_stack import Installation
from tests.lib.stack import wait_until

ONLY_DISPATCH = "[relay]\nenabled = false"
BY_SWEEP = "[dispatch]\ninterval_ms = 50\nretry_ms = 50\nretry_max_ms = 200"
RETENTION = {"capability": "idempotency_key", "retention_ms": 3600000}


def tool(**members):
    return "[tool.pay]\n" + "\n".join(f"{name} = {value}" for name, value in members.items())


@pytest.fixture
def house(build, postgres, kafka, tmp_path):
    made = Installation(build, postgres, kafka, tmp_path)
    yield made
    made.close()


def keyed(**more):
    return {"capability": "idempotency_key", "declaration": RETENTION | more}


# ---- http: what a remote says about a key ----

def http(remote, path, **members):
    return tool(**({"kind": "http", "url": remote.url + path, "allow_private": "true", "timeout_ms": 5000} | members))


def test_the_key_goes_into_the_body_where_declared(house):
    remote = house.remote()
    [operation] = house.register(house.run_of("t1"), ["a"], declaration={"key_field": "/metadata/name"})
    [blocked] = house.register(house.run_of("t2"), ["b"], declaration={"key_field": "/step"})
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, http(remote, "/pay", idempotency_header=""))
    house.await_status(operation, "succeeded")
    [sent] = remote.ledger()["executions"]
    assert json.loads(sent["body"]) == {"metadata": {"name": operation}, "step": "a"}
    assert "idempotency-key" not in sent["headers"]
    row = house.await_status(blocked, "failed_final")
    assert "no place" in row.result["refused"], "a key that would replace what was asked for is never sent"
    assert remote.ledger()["requests"] == 1
    pod.stop()


def test_a_remote_that_still_works_on_the_key_is_asked_again_with_it(house):
    remote = house.remote()
    remote.script("/idem", {"fault": "close_after"}, {"status": 409, "retry_after": 1})
    [operation] = house.register(house.run_of("t1"), ["a"], **keyed())
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, http(remote, "/idem"))
    house.await_status(operation, "succeeded")
    assert remote.executions(operation) == 1 and remote.ledger()["requests"] == 3
    readings = [row.detail.get("evidence", {}).get("reading") for row in house.evidence(operation)]
    assert "in_progress" in readings
    pod.stop()


def test_a_key_used_with_other_parameters_is_an_alarm_and_no_refusal(house):
    remote = house.remote()
    remote.script("/idem", {"fault": "close_after"}, {"status": 422}, {"status": 422})
    [operation] = house.register(house.run_of("t1"), ["a"], **keyed())
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, http(remote, "/idem"))
    wait_until(lambda: pod.events("dispatch.key_conflict"), 20, "the alarm")
    assert house.db.operation(operation).status in ("unknown", "dispatching")
    assert remote.executions(operation) == 1
    pod.stop()


def test_a_first_422_is_about_the_request(house):
    remote = house.remote()
    [operation] = house.register(house.run_of("t1"), ["a"], **keyed())
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, http(remote, "/pay?status=422"))
    house.await_status(operation, "failed_final")
    assert not pod.events("dispatch.key_conflict")
    pod.stop()


# ---- exec ----

PROGRAM = r"""
import json, os, sys, time
act = json.load(sys.stdin)["step"]
with open(os.environ["SEEN"], "a") as out:
    out.write(json.dumps({"argument": sys.argv[1], "act": act,
                          "environment": {k: v for k, v in os.environ.items() if k.startswith("HOLDFAST_")}}) + "\n")
if act == "refuse":
    print(json.dumps({"why": "closed"}))
    sys.exit(64)
if act == "later" and not os.path.exists(os.environ["SEEN"] + ".later"):
    open(os.environ["SEEN"] + ".later", "w").close()
    sys.exit(75)
if act == "crash":
    os.abort()
if act == "other":
    sys.exit(3)
if act == "hang":
    time.sleep(600)
if act == "flood":
    while True:
        sys.stdout.write("x" * 65536)
if act == "chatter":
    print("no JSON at all")
    sys.exit(0)
print(json.dumps({"id": "e-" + act}))
"""


@pytest.fixture
def program(house, tmp_path, monkeypatch):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    seen = tmp_path / "seen"
    monkeypatch.setenv("SEEN", str(seen))
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "debug")
    monkeypatch.setenv("PAY_SECRET", "s3cret")

    class Program:
        line = f"{sys.executable} {path}"

        @staticmethod
        def runs(act):
            lines = seen.read_text().splitlines() if seen.exists() else []
            return [run for run in map(json.loads, lines) if run["act"] == act]
    return Program


def test_a_program_is_told_its_operation_and_its_exit_code_decides(house, program):
    got = house.run_of("t1")
    acts = ["pay", "refuse", "later", "crash", "other", "hang", "flood", "chatter"]
    ids = dict(zip(acts, house.register(got, acts)))
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(kind="exec", command=program.line, timeout_ms=1500, connect_timeout_ms=1000,
                                                  max_response_bytes=100000, credential_env="PAY_SECRET"))
    row = house.await_status(ids["pay"], "succeeded")
    assert row.remote_id == "e-pay" and row.result == {"id": "e-pay"}
    [run] = program.runs("pay")
    assert run["argument"] == ids["pay"]
    assert run["environment"] == {"HOLDFAST_OPERATION_ID": ids["pay"], "HOLDFAST_KEY": ids["pay"],
                                  "HOLDFAST_RUN_ID": str(got.run_id), "HOLDFAST_EPOCH": str(got.epoch),
                                  "HOLDFAST_ATTEMPT": "1", "HOLDFAST_TRACEPARENT": "",
                                  "HOLDFAST_CREDENTIAL": "s3cret"}, "and nothing of the pod's own"
    assert house.await_status(ids["refuse"], "failed_final").result == {"exit": 64, "body": {"why": "closed"}}
    assert house.await_status(ids["later"], "succeeded").attempts == 2
    for act in ("crash", "other", "hang", "flood", "chatter"):
        house.await_status(ids[act], "unknown")
        assert len(program.runs(act)) == 1, f"{act}: of capability none, never again"
    faults = {act: house.evidence(ids[act])[-1].detail["evidence"] for act in ("crash", "hang", "flood")}
    assert {act: detail["fault"] for act, detail in faults.items()} == {
        "crash": "none", "hang": "timeout", "flood": "too_large"}
    assert faults["crash"]["exit"] == 128 + 6, "the shell's word for SIGABRT"
    pod.stop()


def test_a_pod_that_stops_waits_for_programs_and_then_kills_them(house, program):
    [hang] = house.register(house.run_of("t1"), ["hang"])
    pod = house.pod(ONLY_DISPATCH, BY_SWEEP, tool(kind="exec", command=program.line, timeout_ms=20000))
    wait_until(lambda: program.runs("hang"), 20, "it runs")
    pod.stop(grace_ms=300)
    assert house.db.operation(hang).status == "unknown"

"""What is said later about an operation, over Kafka: it carries no authority, the ledger decides what it is worth."""
import uuid

import pytest
from confluent_kafka.admin import NewTopic

from tests.integration.outbox_stack import Installation
from tests.integration.test_adapters import http
from tests.lib.stack import wait_until

INBOUND = "[relay]\nenabled = false\n[dispatch]\ninterval_ms = 50\nretry_ms = 50\nretry_max_ms = 200\ncompletions = true"


@pytest.fixture
def house(build, postgres, kafka, tmp_path):
    made = Installation(build, postgres, kafka, tmp_path)
    for done in made.admin.create_topics([NewTopic(made.topic("completions"), 1, 1)]).values():
        done.result(30)
    yield made
    made.close()


def test_a_completion_settles_and_forged_ones_are_dead_lettered(house):
    remote = house.remote()
    got = house.run_of("t1")
    [operation] = house.register(got, ["a"])
    pod = house.pod(INBOUND, http(remote, "/pay?fault=close_after"))
    row = house.await_status(operation, "unknown")
    run = str(got.run_id)
    good = {"operation_id": operation, "run_id": run, "request_digest": row.request_digest, "verdict": "succeeded",
            "remote_id": "c-1", "result": {"paid": 7}}
    stranger = f"default/{uuid.uuid4()}/a/1"
    bad = [
        dict(good, request_digest="sha256:" + "0" * 64),                              # another request
        dict(good, run_id=str(uuid.uuid4())),                                         # another run
        dict(good, operation_id=stranger, run_id=stranger.split("/")[1]),             # no such operation
        dict(good, verdict="maybe"),
        dict(good, surprise=1),
        dict(good, attempt=7),                                                        # no such attempt
    ]
    for one in bad:
        house.produce("completions", run, one)
    letters = house.read("dead-letters", len(bad), timeout=60)
    reasons = sorted(dict(letter.headers())["reason"].decode() for letter in letters)
    assert reasons == ["digest_mismatch", "invalid", "invalid", "invalid", "missing", "missing"]
    assert house.db.operation(operation).status == "unknown", "nothing forged moved it"

    house.produce("completions", run, good)
    house.produce("completions", run, good)
    row = house.await_status(operation, "succeeded")
    assert row.remote_id == "c-1" and row.result == {"paid": 7}
    assert house.db.run(got.run_id).woke_reason == "operations"

    house.produce("completions", run, dict(good, verdict="failed_final"))
    wait_until(lambda: "contradiction" in [e.kind for e in house.evidence(operation)], 30, "the contradiction is kept")
    assert house.db.operation(operation).status == "succeeded", "a settled operation is not overwritten"
    pod.stop()

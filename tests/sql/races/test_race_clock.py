"""The clock is read after the last lock: a call that waited for its row is judged by the time after the wait."""
import time

import pytest

from test_race_pairs import raced  # noqa: F401  (a fixture)
from triples import STEP_SECONDS, Driver


@pytest.mark.parametrize("verb, refusal", [("commit", "lease_lost"), ("finish", "lease_lost"), ("park", "lease_lost"),
                                           ("release", "not_holder")])
@pytest.mark.parametrize("table", ["worker_leases", "agent_runs"])
def test_a_lease_that_ran_out_during_the_wait(raced, verb, refusal, table):  # noqa: F811
    driver = Driver(raced)
    driver.world("held")
    session = driver.sessions[0]
    driver.one("UPDATE holdfast.worker_leases SET expires_at = clock_timestamp() + interval '1 second' RETURNING 1")
    driver.gate.execute("BEGIN")
    driver.gate.execute(f"SELECT FROM holdfast.{table} FOR UPDATE")
    session.send(verb)
    assert driver.gate.info.backend_pid in driver.settle(session)
    assert driver.one("SELECT expires_at > clock_timestamp() FROM holdfast.worker_leases"), "too slow to show anything"
    end = time.monotonic() + STEP_SECONDS
    while driver.one("SELECT expires_at > clock_timestamp() FROM holdfast.worker_leases"):
        assert time.monotonic() < end
    driver.gate.execute("COMMIT")
    assert session.answer().startswith(refusal)
    driver.close()

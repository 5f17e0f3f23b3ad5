"""A real standby: what the gate says before, at and after a promotion, in both modes."""
import os
import pathlib
import pwd
import subprocess
import sys
import tempfile
import time

import psycopg
import pytest

from database import Database
from stack import HOST, Postgres
from test_races import claim, planned, result

INSTALL = pathlib.Path(__file__).resolve().parents[3] / "schemas" / "sql" / "install.py"
LIMIT = 60


class Standby(Postgres):
    """A streaming standby of another server of this test."""

    def __init__(self, primary):
        super().__init__()
        self.primary = primary

    def prepare(self):
        self.data = tempfile.mkdtemp(prefix="holdfast-pgdata-", dir="/tmp")
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.data, entry.pw_uid, entry.pw_gid)
        subprocess.run([os.path.join(self.bindir(), "pg_basebackup"), "-h", HOST, "-p", str(self.primary.port), "-U", "postgres",
                        "-D", self.data, "-R", "-X", "stream", "-c", "fast"], check=True, capture_output=True, cwd="/",
                       timeout=120, preexec_fn=self._before_exec)
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as conf:
            for key, value in self.settings.items():
                conf.write(f"{key} = '{value}'\n")


@pytest.fixture
def pair():
    with Postgres() as primary:
        script = subprocess.run([sys.executable, INSTALL], capture_output=True, text=True, check=True).stdout
        primary.psql(script, database="holdfast", extra=("--single-transaction",))
        with Standby(primary) as standby:
            yield primary, standby


def until(fact, what):
    end = time.monotonic() + LIMIT
    while True:
        try:
            if fact():
                return
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < end, what
        time.sleep(0.05)


def gate(db):
    row = db.one("SELECT open, reason FROM holdfast_v1.gate_status()")
    return row.reason if not row.open else "open"


def outcomes(rows):
    return [row.outcome for row in rows]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["async", "strict"])
def test_promotion(pair, mode):
    primary, standby = pair
    db = Database(primary.dsn)
    db.sql("UPDATE holdfast.control SET failover_mode = %s", mode)
    if mode == "strict":
        assert gate(db) == "no_synchronous_standby"
        db.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        db.sql("SELECT pg_reload_conf()")
        until(lambda: gate(db) == "open", "strict, with a synchronous standby")
        db.sql("SET synchronous_commit = 'local'")
        assert gate(db) == "not_synchronous"
        assert outcomes(claim(db)) == ["gate_closed"]
        db.sql("RESET synchronous_commit")
    sent, kept = planned(db, tasks=2)
    [claimed] = claim(db, sent)
    epoch = db.run(claimed.run_id).epoch

    there = Database(standby.dsn)
    until(lambda: there.one("SELECT count(*) FROM holdfast.operation_evidence") == 1, "replication")
    assert gate(there) == "not_primary"
    assert outcomes(claim(there)) == ["gate_closed"]
    facts = there.one("SELECT in_recovery, read_only, timeline, gate_reason FROM holdfast_v1.server_facts()")
    assert (facts.in_recovery, facts.read_only, facts.timeline, facts.gate_reason) == (True, True, 1, "not_primary")
    assert there.one("SELECT prepared FROM holdfast_v1.stats()") == 1

    db.close()
    primary.kill()
    there.sql("SELECT pg_promote(true, 60)")
    there.close()
    there = Database(standby.dsn)
    # At once, before any checkpoint of the new timeline: the control file would still say 1.
    status = there.one("SELECT open, reason, timeline, known_timeline FROM holdfast_v1.gate_status()")
    assert (status.open, status.reason, status.timeline, status.known_timeline) == (False, "other_timeline", 2, 1)
    assert outcomes(claim(there)) == ["gate_closed"]
    assert outcomes(claim(there, kept)) == ["gate_closed"]
    assert outcomes(there.acquire("pod", claimed.run_id)) == ["gate_closed"]
    there.sql("SET synchronous_commit = 'local'")  # the test's new primary has no standby to wait for
    # What was sent before is recorded while the gate is closed.
    assert outcomes(result(there, [claimed])) == ["recorded"]

    if mode == "strict":
        there.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
        there.sql("SELECT pg_reload_conf()")
        assert there.one("SELECT outcome FROM holdfast_v1.gate_open('test', 'promoted')") == "not_allowed"
        there.sql("UPDATE holdfast.control SET failover_mode = 'async'")
        answer = there.one("SELECT outcome, epochs_raised, operations_doubted FROM holdfast_v1.gate_open("
                           "'test', 'it was synchronous until now', p_nothing_lost => true)")
        assert (answer.outcome, answer.epochs_raised, answer.operations_doubted) == ("ok", 0, 0)
        assert outcomes(claim(there, kept)) == ["claimed"]
    else:
        answer = there.one("SELECT outcome, epochs_raised, operations_doubted FROM holdfast_v1.gate_open('test', 'promoted')")
        assert (answer.outcome, answer.epochs_raised, answer.operations_doubted) == ("ok", 2, 1)
        assert there.run(claimed.run_id).epoch == epoch + 1_000_000
        assert outcomes(claim(there, kept)) == ["not_ready"]
        assert there.operation(kept).status == "unknown"
    assert gate(there) == "open"
    [got] = there.acquire("pod", claimed.run_id)
    assert got.outcome == "acquired" and got.epoch > epoch
    assert there.sql("SELECT * FROM holdfast.stranded") == []
    there.close()

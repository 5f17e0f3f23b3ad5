"""What the database call runtime makes of standbys, promotions, lost histories and waits for a synchronous standby.

Real servers: a primary, a streaming standby, and a third one that has nothing to do with them.
"""
import json
import os
import queue
import re
import socket
import subprocess
import threading

import pytest

from tests.lib import stack

NOTE = ("create schema probe; create table probe.notes(n bigint generated always as identity, x int);"
        "create function probe.note() returns table(n bigint) language sql as"
        " $$ insert into probe.notes(x) values (1) returning n $$;")


class Standby(stack.Postgres):
    """A streaming standby of that primary, by pg_basebackup."""

    name = "standby"

    def __init__(self, primary):
        super().__init__()
        self.primary = primary

    def prepare(self):
        self.data = os.path.join("/tmp", f"holdfast-standby-{self.port}")
        run = subprocess.run(
            [os.path.join(self.bindir(), "pg_basebackup"), "-D", self.data, "-R", "-c", "fast", "-d",
             f"{self.primary.url('postgres')}?application_name=s1"],
            capture_output=True, text=True, cwd="/", timeout=120, preexec_fn=self._before_exec, check=False)
        assert run.returncode == 0, run.stderr
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as conf:
            conf.write(f"port = {self.port}\nsynchronous_standby_names = ''\n")

    def ready(self):
        return self.psql("select 1", check=False) == "1"


class Pooler(stack.Server):
    """PgBouncer in transaction mode with one server connection, so that its clients share it for certain."""

    name = "pgbouncer"

    def __init__(self, primary):
        super().__init__()
        self.primary = primary
        self.port = stack.free_port()

    def prepare(self):
        self.file = os.path.join("/tmp", f"holdfast-pgbouncer-{self.port}.ini")
        with open(self.file, "w", encoding="utf-8") as ini:
            ini.write(f"[databases]\n{self.primary.database} = host={stack.HOST} port={self.primary.port}"
                      f" dbname={self.primary.database} user=postgres\n[pgbouncer]\nlisten_addr = {stack.HOST}\n"
                      f"listen_port = {self.port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 1\n"
                      "unix_socket_dir =\n")

    def command(self):
        drop = ["-u", "postgres"] if os.geteuid() == 0 else []
        return ["pgbouncer", *drop, self.file]

    def ready(self):
        with socket.socket() as s:
            return s.connect_ex((stack.HOST, self.port)) == 0

    def close(self):
        super().close()
        os.unlink(self.file)


class Probe:
    """A process of schemas_probe.c."""

    def __init__(self, build, dsn, timeout_ms=10000, wait_for_standby=False, pooler=False):
        options = "w" * wait_for_standby + "p" * pooler + "-"
        self.process = subprocess.Popen(
            [os.path.join(build, "tests", "schemas_probe"), dsn, "probe", str(timeout_ms), options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.heard = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.heard.put(json.loads(line))

    def say(self, verb):
        self.process.stdin.write(verb + "\n")

    def hear(self, timeout=30):
        return self.heard.get(timeout=timeout)

    def ask(self, verb):
        self.say(verb)
        return self.hear()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@pytest.fixture(scope="module")
def primary():
    with stack.Postgres() as server:
        server.psql(NOTE, server.database)
        yield server


@pytest.fixture(scope="module")
def standby(primary):
    with Standby(primary) as server:
        yield server


@pytest.fixture
def probe(build, primary):
    opened = []

    def open_one(**options):
        opened.append(Probe(build, primary.dsn, **options))
        assert opened[-1].ask("connect")["outcome"] == "ok"
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def synchronous(primary, standby):
    """Commits wait for the standby, and it does not answer."""
    stack.wait_until(lambda: primary.psql("select state from pg_stat_replication") == "streaming", 30, "streaming")
    primary.psql("alter system set synchronous_standby_names = 's1'")
    primary.psql("select pg_reload_conf()")
    stack.wait_until(lambda: primary.psql("select sync_state from pg_stat_replication") == "sync", 30, "synchronous")
    standby.pause()
    yield standby
    standby.resume()
    primary.psql("set synchronous_commit = local; alter system reset synchronous_standby_names")
    primary.psql("select pg_reload_conf()")


def waiting(primary):
    return primary.psql("select pid from pg_stat_activity where wait_event = 'SyncRep'")


def test_a_statement_that_waits_for_a_standby_keeps_its_connection(primary, probe, synchronous):
    lane = probe(timeout_ms=200, wait_for_standby=True)
    lane.say("write")
    stack.wait_until(lambda: waiting(primary), 20, "a commit that waits")
    pid = waiting(primary)

    def says_so():
        return lane.ask("waits") == {"waits": True}

    stack.wait_until(says_so, 20, "the process to know that it waits")
    synchronous.resume()
    answer = lane.hear()
    assert answer["outcome"] == "ok" and str(answer["pid"]) == pid
    assert lane.ask("waits") == {"waits": False}


def test_a_heartbeat_does_not_wait(primary, probe, synchronous):
    lane = probe(timeout_ms=200, wait_for_standby=False)
    answer = lane.ask("write")
    assert answer["outcome"] == "db_unknown" and not answer["connected"]


@pytest.mark.parametrize("end", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_cancelled_wait_is_unknown_and_not_success(primary, probe, synchronous, end):
    lane = probe()
    lane.say("write")
    stack.wait_until(lambda: waiting(primary), 20, "a commit that waits")
    primary.psql(f"select {end}({waiting(primary)})")
    answer = lane.hear()
    assert answer["outcome"] == "db_unknown" and not answer["connected"]


def test_several_hosts_lead_to_the_primary(build, primary, standby):
    lane = Probe(build, re.sub(r"@[^/]*/", f"@{stack.HOST}:{standby.port},{stack.HOST}:{primary.port}/", primary.dsn))
    assert lane.ask("connect")["outcome"] == "ok"
    assert lane.ask("write")["outcome"] == "ok"
    lane.close()


def test_lanes_share_a_poolers_connection(build, primary):
    with Pooler(primary) as pooler:
        lanes = [Probe(build, f"postgresql://postgres@{stack.HOST}:{pooler.port}/{primary.database}", pooler=True)
                 for _ in range(3)]
        for lane in lanes:
            assert lane.ask("connect")["outcome"] == "ok"
        for _ in range(5):
            for lane in lanes:
                assert lane.ask("write")["outcome"] == "ok"
        assert primary.psql("select count(*) from pg_stat_activity where application_name = 'schemas probe'") == "1"
        for lane in lanes:
            lane.close()


def test_another_system_stops_the_pod_until_it_is_confirmed(probe):
    lane = probe()
    with stack.Postgres() as other:
        lane.ask(f"dsn {other.dsn}")
        answer = lane.ask("connect")
        assert answer["outcome"] == "other_system" and not answer["connected"]
        assert "an operator must confirm" in answer["message"]
        lane.ask("forget")
        assert lane.ask("connect")["outcome"] == "ok"


def test_after_a_promotion_the_old_primary_is_refused(primary, standby, probe):
    lane = probe()
    lane.ask(f"dsn {standby.dsn}")
    answer = lane.ask("connect")
    assert answer["outcome"] == "not_primary" and "in recovery" in answer["message"]
    standby.psql("select pg_promote()")
    answer = lane.ask("connect")
    assert answer["outcome"] == "ok" and answer["timeline"] == 2
    lane.ask(f"dsn {primary.dsn}")
    answer = lane.ask("connect")
    assert answer["outcome"] == "not_primary" and not answer["connected"]
    assert "timeline 2 was seen" in answer["message"]

"""A fresh installation per test: a private server for the whole session, one database from a template for each test.

HOLDFAST_TEST_PG=<url of a server, as superuser> uses that server instead of a private one.
"""
import os
import pathlib
import subprocess
import sys
import urllib.parse
import uuid

import psycopg
import pytest

SQL = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SQL))
sys.path.insert(0, str(SQL.parent / "lib"))
sys.path.insert(0, str(SQL / "effects"))
from database import Database  # noqa: E402
from stack import Postgres  # noqa: E402

INSTALL = SQL.parent.parent / "schemas" / "sql" / "install.py"


class Server:
    """A PostgreSQL with the installation as a template database."""

    def __init__(self, url):
        self.url = url
        self.template = f"template_{uuid.uuid4().hex[:12]}"
        self.admin(f"CREATE DATABASE {self.template}")
        script = subprocess.run([sys.executable, INSTALL], capture_output=True, text=True, check=True).stdout
        done = subprocess.run(["psql", "-Xqd", self.of(self.template), "-v", "ON_ERROR_STOP=1", "--single-transaction"],
                              input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "WARNING" not in done.stderr, done.stderr

    def of(self, database):
        parts = urllib.parse.urlsplit(self.url)
        return urllib.parse.urlunsplit((parts.scheme, parts.netloc, "/" + database, parts.query, ""))

    def admin(self, sql):
        with psycopg.connect(self.of("postgres"), autocommit=True) as connection:
            connection.execute(sql)

    def fresh(self):
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.admin(f"CREATE DATABASE {name} TEMPLATE {self.template}")
        return name


@pytest.fixture(scope="session")
def server():
    url = os.environ.get("HOLDFAST_TEST_PG")
    if url:
        made = Server(url)
        yield made
        made.admin(f"DROP DATABASE {made.template} WITH (FORCE)")
        return
    with Postgres() as pg:
        yield Server(pg.url("postgres"))


@pytest.fixture(scope="session")
def installation(server):
    """The database that the tests of a session share; each finds it as it was installed."""
    name = server.fresh()
    dsn = server.of(name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.control_at_install AS SELECT * FROM holdfast.control")
    yield dsn
    server.admin(f"DROP DATABASE {name} WITH (FORCE)")


EMPTIED = """outbox_events run_history refusals operation_evidence claims signals timers ready requests tool_operations run_data
    worker_leases agent_runs agent_tasks service_leases tool_limits registry control""".split()


@pytest.fixture
def dsn(installation):
    with psycopg.connect(installation, autocommit=True) as connection:
        connection.execute("; ".join(f"DELETE FROM holdfast.{table}" for table in EMPTIED)
                           + "; INSERT INTO holdfast.control SELECT * FROM public.control_at_install")
    return installation


@pytest.fixture
def db(dsn):
    """The database of this test. At its end nothing may be stranded or orphaned, whatever the test did."""
    database = Database(dsn)
    yield database
    stranded = database.sql("SELECT * FROM @schema@.stranded")
    orphans = database.sql("SELECT * FROM @schema@.orphans")
    database.close()
    assert not stranded, stranded
    assert not orphans, orphans

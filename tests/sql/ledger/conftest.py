"""A fresh installation per test: a private server for the run, one database made from a template for each test.

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

SQL = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SQL))
sys.path.insert(0, str(SQL.parent / "lib"))
from database import Database  # noqa: E402
from stack import Postgres  # noqa: E402

INSTALL = SQL.parent.parent / "schemas" / "sql" / "install.py"


class Server:
    """A PostgreSQL with the installation as a template database."""

    def __init__(self, url):
        self.url = url
        self.template = f"template_{uuid.uuid4().hex[:12]}"
        self.made = []
        self.admin(f"CREATE DATABASE {self.template}")
        script = subprocess.run([sys.executable, INSTALL], capture_output=True, text=True, check=True).stdout
        done = subprocess.run(["psql", "-Xqd", self.of(self.template), "-v", "ON_ERROR_STOP=1", "--single-transaction"],
                              input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "WARNING" not in done.stderr, done.stderr

    def of(self, database, user=None):
        parts = urllib.parse.urlsplit(self.url)
        host = parts.netloc if user is None else f"{user}@{parts.netloc.rpartition('@')[2]}"
        return urllib.parse.urlunsplit((parts.scheme, host, "/" + database, parts.query, ""))

    def admin(self, sql):
        with psycopg.connect(self.of("postgres"), autocommit=True) as connection:
            connection.execute(sql)

    def fresh(self):
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.admin(f"CREATE DATABASE {name} TEMPLATE {self.template}")
        # A copy of a database has not the grants of its template on the database itself.
        self.admin(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC")
        self.made.append(name)
        return name

    def drop(self, name):
        self.admin(f"DROP DATABASE {name} WITH (FORCE)")
        self.made.remove(name)


@pytest.fixture(scope="session")
def server():
    url = os.environ.get("HOLDFAST_TEST_PG")
    if url:
        yield Server(url)
        return
    with Postgres() as pg:
        yield Server(pg.url("postgres"))


@pytest.fixture
def name(server):
    name = server.fresh()
    yield name
    server.drop(name)


@pytest.fixture
def dsn(server, name):
    return server.of(name)


@pytest.fixture
def db(dsn):
    database = Database(dsn)
    yield database
    database.close()

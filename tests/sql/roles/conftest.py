"""Logging in as somebody else than the superuser of the tests."""
import time
import urllib.parse

import psycopg
import pytest


class Logins:
    """Databases and logins of one test's installation."""

    def __init__(self, server, name):
        self.server, self.name = server, name

    def admin(self, sql):
        self.server.admin(sql)

    def drop(self, user):
        """After the last session of that role is gone: what it made in pg_temp goes with it, a moment after its end."""
        end = time.monotonic() + 20
        with psycopg.connect(self.server.of(self.name), autocommit=True) as connection:
            while connection.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [user]).fetchone()[0]:
                assert time.monotonic() < end, f"{user} is still there"
                time.sleep(0.02)
            connection.execute(f"DROP OWNED BY {user}")
            connection.execute(f"DROP ROLE {user}")

    def url(self, user):
        parts = urllib.parse.urlsplit(self.server.of(self.name))
        return urllib.parse.urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def logins(server, dsn):
    name = urllib.parse.urlsplit(dsn).path.lstrip("/")
    # A copy of a database has not the grants of its template on the database itself.
    server.admin(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC")
    return Logins(server, name)

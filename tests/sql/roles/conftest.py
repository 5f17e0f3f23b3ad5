"""Logging in as somebody else than the superuser of the tests."""
import urllib.parse

import pytest


class Logins:
    """Databases and logins of one test's installation."""

    def __init__(self, server, name):
        self.server, self.name = server, name

    def admin(self, sql):
        self.server.admin(sql)

    def url(self, user):
        parts = urllib.parse.urlsplit(self.server.of(self.name))
        return urllib.parse.urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def logins(server, dsn):
    name = urllib.parse.urlsplit(dsn).path.lstrip("/")
    # A copy of a database has not the grants of its template on the database itself.
    server.admin(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC")
    return Logins(server, name)

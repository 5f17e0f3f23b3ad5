#!/usr/bin/env python3
"""Installs the schema and runs every SQL test and isolation spec; the last line is `N passed, N failed`.

    tests/sql/run.py                    with a private PostgreSQL
    tests/sql/run.py --dsn URL          on that server, as a superuser: each test makes and drops a database of its own
    tests/sql/run.py -- -k commit -x    what follows -- goes to pytest

Exit 0: all passed; 1: something failed; 2: could not run.
"""
import argparse
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


class Count:
    """Counts tests as people do: one that fails in its setup or its end has failed, once."""

    def __init__(self):
        self.passed, self.failed = set(), set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", help="URL of a server, e.g. postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    if args.dsn:
        os.environ["HOLDFAST_TEST_PG"] = args.dsn
    count = Count()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=120", *(args.rest or [str(HERE), str(HERE / "random_verbs.py")])], plugins=[count])
    passed = len(count.passed - count.failed)
    print(f"{passed} passed, {len(count.failed)} failed")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return 2
    return 0 if not count.failed and passed else 1


if __name__ == "__main__":
    sys.exit(main())

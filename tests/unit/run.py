#!/usr/bin/env python3
"""Runs the unit tests of a build folder with a PostgreSQL of their own.

    tests/unit/run.py BUILD [ctest options]        e.g. tests/unit/run.py build/debug -R schemas_db -V
"""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.lib import stack  # noqa: E402


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with stack.Postgres() as server:
        # As keywords and not as a URI: tests append others.
        dsn = f"host={stack.HOST} port={server.port} user=postgres dbname={server.database}"
        command = ["ctest", "--test-dir", sys.argv[1], "-L", "unit", *sys.argv[2:]]
        return subprocess.call(command, env={**os.environ, "HOLDFAST_TEST_DSN": dsn}, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())

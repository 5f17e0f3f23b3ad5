"""Every .sql file of this folder runs in an installation of its own; the first failing statement fails it."""
import pathlib
import subprocess

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.sql")))
def test_file(file, server):
    name = server.fresh()
    done = subprocess.run(["psql", "-XqAt", "-d", server.of(name), "-f", FOLDER / file], capture_output=True, text=True,
                          timeout=120, check=False)
    server.admin(f"DROP DATABASE {name} WITH (FORCE)")
    assert done.returncode == 0, done.stderr

"""Isolation specs: each hole of the seed's SQL, with the seed's statement and with ours.

A permutation that contains a step seed_… must end in a verdict 'broken': the spec shows the hole. Every other one must end
in 'holds'. Errors and invalid permutations fail."""
import pathlib
import re
import subprocess

import pytest

from stack import Postgres

FOLDER = pathlib.Path(__file__).resolve().parent / "specs"


def isolationtester():
    bindir = pathlib.Path(Postgres.bindir())
    for pkglibdir in (subprocess.run([bindir / "pg_config", "--pkglibdir"], capture_output=True, text=True, check=False).stdout.strip(),
                      str(bindir.parent / "lib")):
        path = pathlib.Path(pkglibdir) / "pgxs/src/test/isolation/isolationtester"
        if path.exists():
            return path
    raise AssertionError("isolationtester is missing: it is in postgresql-client-15, under $(pg_config --pkglibdir)")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.spec")))
def test_spec(name, dsn):
    subprocess.run(["psql", "-Xqd", dsn, "-v", "ON_ERROR_STOP=1", "-f", FOLDER / "probe.sql"], check=True, capture_output=True)
    done = subprocess.run([isolationtester(), dsn], input=(FOLDER / f"{name}.spec").read_text(), capture_output=True, text=True,
                          timeout=100, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    blocks = re.split(r"^starting permutation: ", output, flags=re.M)[1:]
    assert blocks, output
    for block in blocks:
        steps = block.splitlines()[0].split()
        assert "ERROR" not in block and "invalid permutation" not in block, block
        verdict = re.findall(r"^\s*(holds|broken).*$", block.split("step verdict:")[-1], flags=re.M)
        expected = "broken" if any(step.startswith("seed_") for step in steps) else "holds"
        assert verdict == [expected], block

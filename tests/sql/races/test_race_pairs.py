"""Every ordered pair of the interface's verbs on one run: both orders, and each while the other's transaction is open."""
import os
import pathlib
import subprocess
import sys

import psycopg
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import specs  # noqa: E402
from table import ELSEWHERE, IS, PASSES, VERBS, WORLDS  # noqa: E402
from test_specs import isolationtester  # noqa: E402

STEP_SECONDS, SPEC_SECONDS = 10, 240  # of one step; of all permutations of one verb, on a machine that does much else


@pytest.fixture
def raced(dsn):
    """The database with what races are made of."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute((HERE / "race.sql").read_text())
        connection.execute("SELECT race.keep(%s)", [list(WORLDS)])
    return dsn


def test_no_verb_is_forgotten(raced):
    """A verb that the interface gets has to be raced, or its reason given."""
    with psycopg.connect(raced) as connection:
        interface = {name for name, in connection.execute(
            "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'holdfast_v1'::regnamespace")}
    known = {IS.get(verb, verb) for verb in VERBS} | set(ELSEWHERE)
    assert interface == known, f"not in table.py: {sorted(interface - known)}; gone: {sorted(known - interface)}"


@pytest.mark.parametrize("world", WORLDS)
def test_worlds(raced, world):
    """Each world can be made, twice alike, and nothing in it is broken."""
    with psycopg.connect(raced, autocommit=True) as connection:
        states = set()
        for _ in range(2):
            connection.execute("SELECT race.world(%s)", [world])
            states.add(connection.execute("SELECT race.state(), race.broken()").fetchone())
    [(state, broken)] = states
    assert broken is None and "operation 1 ship" in state, (state, broken)


def test_verbs_do_something_where_the_table_says(raced):
    """In its worlds a verb changes something when it comes alone: or its races would show nothing."""
    idle = []
    with psycopg.connect(raced, autocommit=True) as connection:
        for verb, worlds in VERBS.items():
            for world in worlds.split():
                connection.execute("SELECT race.world(%s)", [world])
                before = connection.execute("SELECT race.state(), race.leases()").fetchone()
                [answer] = connection.execute(f"SELECT race.{verb}('left')").fetchone()
                if connection.execute("SELECT race.state(), race.leases()").fetchone() == before:
                    idle.append((verb, world, answer))
    assert not idle, idle


@pytest.mark.timeout(SPEC_SECONDS + 30)
@pytest.mark.parametrize("left", VERBS)
def test_pairs_of(raced, left, tmp_path):
    text, cases = specs.spec(left, list(VERBS))
    (tmp_path / f"{left}.spec").write_text(text)
    done = subprocess.run([isolationtester(), raced], input=text, capture_output=True, text=True, timeout=SPEC_SECONDS,
                          check=False, env={**os.environ, "PGISOLATIONTIMEOUT": str(STEP_SECONDS)})
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    wrong, waited = specs.faults(left, specs.read(done.stdout, cases), PASSES)
    assert not wrong, f"{len(wrong)} of {len(cases)}, spec in {tmp_path}:\n" + "\n\n".join(wrong[:5])
    assert waited, "nothing ever waited: nothing was raced"
    print(f"{left}: {len(cases)} permutations, {waited} waited")

#!/usr/bin/env python3
"""Plays scenes (*.scn beside this file) with real processes of holdfast on real Kafka, PostgreSQL and Redis.

    tests/scenario/run.py --binary build/debug/cli/holdfast-test            all scenes
    tests/scenario/run.py --binary … B_old_owner_resumes                    one
    tests/scenario/run.py --parse                                           only read them
    tests/scenario/run.py --verbs                                           the language

Exit: 0 all passed, 1 some failed, 2 could not run. On failure the logs of all actors follow, interleaved by time.
"""
import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]

import language   # noqa: E402
import verbs      # noqa: E402
from world import SceneFailed, World   # noqa: E402

LINES_SHOWN = 400


def main():
    arguments = options()
    if arguments.verbs:
        for name in sorted(verbs.VERBS):
            print("\n".join(verbs.VERBS[name].__doc__.strip().splitlines()[0].split(" || ")))
        return 0
    scenes = find_scenes(arguments.scenes)
    read = [(path, load(path)) for path in scenes]
    if arguments.parse:
        print(f"{len(read)} scenes can be read")
        return 0
    if not arguments.binary or not os.access(arguments.binary, os.X_OK):
        print("run.py: --binary must name holdfast-test; build it with: cmake --build build/debug", file=sys.stderr)
        return 2
    arguments.binary = os.path.abspath(arguments.binary)  # pods run in folders of their own
    import services
    directory = tempfile.mkdtemp(prefix="holdfast-scenes-")
    os.chmod(directory, 0o755)   # PostgreSQL runs as another user when we are root
    failed = 0 if arguments.scenes else test_language()
    played = len(read) + (not arguments.scenes)
    with services.Services(directory, arguments.binary) as shared:
        for path, (limit, statements) in read:
            failed += not play(shared, path, limit, statements, directory, arguments)
    if arguments.keep or failed:
        print(f"logs: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{played - failed} passed, {failed} failed")
    return 1 if failed else 0


def test_language():
    """The tests of the language itself count as one."""
    suite = unittest.defaultTestLoader.loadTestsFromName("language_test")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    print(f"{'PASS' if result.wasSuccessful() else 'FAIL'} language", flush=True)
    return 0 if result.wasSuccessful() else 1


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", help="names or files (default: all)")
    parser.add_argument("--binary", default=os.environ.get("HOLDFAST_TEST_BINARY"))
    parser.add_argument("--parse", action="store_true")
    parser.add_argument("--verbs", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the logs also when all is well")
    parser.add_argument("--verbose", action="store_true", help="print each statement as it is played")
    return parser.parse_args()


def find_scenes(names):
    if not names:
        return sorted(os.path.join(HERE, f) for f in os.listdir(HERE) if f.endswith(".scn"))
    return [name if os.path.exists(name) else os.path.join(HERE, name.removesuffix(".scn") + ".scn") for name in names]


def load(path):
    """(time limit, statements); every verb is known, so that a typo shows before anything is started."""
    try:
        with open(path, encoding="utf-8") as text:
            statements = language.parse(text.read(), os.path.basename(path))
    except (OSError, language.SceneError) as error:
        sys.exit(f"run.py: {error}")
    limit = 60.0
    if statements and statements[0].words[0] == "limit":
        limit = language.seconds(statements.pop(0).words[1].text)
    for statement in statements:
        if statement.words[0].text not in verbs.VERBS:
            sys.exit(f"run.py: {statement.path}:{statement.line}: there is no verb \"{statement.words[0].text}\"")
    return limit, statements


def play(shared, path, limit, statements, directory, arguments):
    name = os.path.basename(path).removesuffix(".scn")
    started = time.monotonic()
    world, where = None, None
    try:
        world = World(shared, name, os.path.join(directory, name), arguments.binary, limit)
        for where in statements:
            if time.monotonic() > world.deadline:
                raise SceneFailed(f"the scene's limit of {limit:g} s is over")
            world.journal.add("scene", str(where))
            if arguments.verbose:
                print(f"  {time.monotonic() - started:7.2f} {where}", flush=True)
            words = [language.substitute(w, world.variables, where) for w in where.words]
            verbs.run_statement(world, where, words)
        verbs.always(world)
    except Exception as error:   # a failing scene must not keep the others from being played
        print(f"FAIL {name} ({time.monotonic() - started:.1f} s)")
        place = f"{where.path}:{where.line}: " if where else ""
        print(f"  {place}{error}")
        if not isinstance(error, (SceneFailed, language.SceneError)):
            traceback.print_exc(file=sys.stdout)
        if world:
            report(world)
        return False
    finally:
        if world:
            world.end()
    print(f"PASS {name} ({time.monotonic() - started:.1f} s)", flush=True)
    return True


def report(world):
    rows = world.interleaved()
    if len(rows) > LINES_SHOWN:
        print(f"  … {len(rows) - LINES_SHOWN} earlier lines are in {world.dir}")
    for at, actor, text in rows[-LINES_SHOWN:]:
        stamp = time.strftime("%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}"
        print(f"  {stamp} {actor:>10} {text}")


if __name__ == "__main__":
    sys.exit(main())

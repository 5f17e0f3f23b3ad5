"""Takes each guard of the protocol away in turn (mutants.py) and runs the tests named for it: they must go red.

    scripts/mutants                        all
    scripts/mutants --only NAME …          these
    scripts/mutants --pick N --seed TEXT   N of them, chosen by the text (a commit)
    scripts/mutants --ref COMMIT           of a commit; default: the working tree as it is
    scripts/mutants --write                also writes docs/MUTANTS.md; with --only, the other rows as they were last found
    scripts/mutants --list

The named tests are run first without any change, and must pass. The tree is copied to build/mutants/tree and built in
build/mutants/cmake, which later runs use again (another folder: HOLDFAST_MUTANTS_DIR). The last line of standard output is one JSON object. Exit 0: all killed;
1: some survived; 2: some could not be tried, or nothing could.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "mutants")]

from mutants import MUTANTS  # noqa: E402
from tests.lib import stack  # noqa: E402

# Two runs at one time need a folder each.
WORK = pathlib.Path(os.environ.get("HOLDFAST_MUTANTS_DIR", ROOT / "build" / "mutants")).resolve()
TREE, BUILD, LOGS = WORK / "tree", WORK / "cmake", WORK / "logs"
BUILD_SECONDS, TEST_SECONDS = 900, 300
TAIL = 25
BEGIN = time.monotonic()
# What the tests of each kind need built.
PROGRAMS = {"sql": [], "scene": ["holdfast-test"], "integration": ["outbox_probe"]}


class CannotRun(Exception):
    """Not a verdict: something stands in the way."""


def say(text):
    print(f"[{time.monotonic() - BEGIN:6.1f} s] {text}", flush=True)


def run(name, command, limit, **named):
    """(exit code, seconds); None as exit code: the time limit. Output goes to a log of that name."""
    log = LOGS / f"{name}.log"
    begin = time.monotonic()
    with open(log, "w", encoding="utf-8") as out:
        out.write("$ " + " ".join(map(str, command)) + "\n")
        out.flush()
        process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True, **named)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:  # also when this program is told to end
                for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
                    os.killpg(process.pid, number)
                    try:
                        process.wait(patience)
                        break
                    except subprocess.TimeoutExpired:
                        continue
    return code, time.monotonic() - begin


def tail(name):
    lines = (LOGS / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join("   | " + line[:200] for line in lines[-TAIL:])


# ---- the copy of the tree --------------------------------------------------------------------------------------------

def files_of(ref):
    """{path: bytes} of a commit, or of the working tree without what is ignored."""
    if ref is None:
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                                capture_output=True).stdout.decode().split("\0")
        return {name: (ROOT / name).read_bytes() for name in listed if name and (ROOT / name).is_file()}
    listed = subprocess.run(["git", "ls-tree", "-rz", "--name-only", ref], cwd=ROOT, check=True,
                            capture_output=True).stdout.decode().split("\0")
    text = subprocess.run(["git", "cat-file", "--batch"], cwd=ROOT, check=True, capture_output=True,
                          input="".join(f"{ref}:{name}\n" for name in listed if name).encode()).stdout
    files, at = {}, 0
    for name in filter(None, listed):
        end = text.index(b"\n", at)
        size = int(text[at:end].split()[2])
        files[name] = text[end + 1:end + 1 + size]
        at = end + size + 2
    return files


def copy_tree(ref):
    """Only what differs is written, so that what was built before stays good."""
    files = files_of(ref)
    TREE.mkdir(parents=True, exist_ok=True)
    for path in [p for p in TREE.rglob("*") if p.is_file() and not p.is_symlink()]:
        if str(path.relative_to(TREE)) not in files:
            path.unlink()
    for name, content in files.items():
        path = TREE / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if (ROOT / name).exists():
                shutil.copymode(ROOT / name, path)
            elif content.startswith(b"#!"):
                path.chmod(0o755)
    deps = TREE / ".deps"
    if not deps.is_symlink():
        deps.symlink_to(stack.DEPS)


class Changed:
    """The tree with one guard taken away, for as long as the block lasts."""

    def __init__(self, mutant):
        self.mutant, self.before = mutant, {}

    def __enter__(self):
        texts = {}
        for name, old, new in self.mutant.edits:
            path = TREE / name
            if not path.exists():
                raise CannotRun(f"{name} is not there")
            text = texts.get(path) or path.read_text(encoding="utf-8")
            self.before.setdefault(path, text)
            if text.count(old) != 1:
                raise CannotRun(f"{name} has {text.count(old)} times: {old.strip()[:80]}")
            texts[path] = text.replace(old, new)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")

    def __exit__(self, *_):
        for path, text in self.before.items():
            path.write_text(text, encoding="utf-8")


# ---- building and testing --------------------------------------------------------------------------------------------

def configure():
    code, _ = run("configure", ["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                                f"-DHOLDFAST_DEPS={stack.DEPS}"], BUILD_SECONDS)
    if code != 0:
        raise CannotRun("cmake fails:\n" + tail("configure"))


def programs_of(tests):
    return sorted({program for kind, name in tests for program in ([name] if kind == "unit" else PROGRAMS[kind])})


class Bench:
    """The database server that the SQL and unit tests share, and how each kind of test is run."""

    def __init__(self, server):
        self.server = server
        self.url = server.url("postgres")

    def build(self, name, tests):
        """What these tests need; the SQL has to be installable, too."""
        programs = programs_of(tests)
        if programs:
            code, _ = run(f"{name}-build", ["ninja", "-C", BUILD, "-j", os.cpu_count() or 2, *programs], BUILD_SECONDS)
            if code != 0:
                raise CannotRun("it does not build:\n" + tail(f"{name}-build"))
        if any(kind == "sql" for kind, _ in tests):
            self.install(name)

    def install(self, name):
        database = f"mutant_{os.getpid()}"
        admin = ["psql", "-Xqd", self.url, "-c"]
        script = f"set -o pipefail; {sys.executable} {TREE}/schemas/sql/install.py | " \
                 f"psql -Xqd {self.url.rsplit('/', 1)[0]}/{database} -v ON_ERROR_STOP=1 --single-transaction"
        subprocess.run([*admin, f"CREATE DATABASE {database}"], check=True, capture_output=True)
        code, _ = run(f"{name}-install", ["bash", "-c", script], BUILD_SECONDS)
        subprocess.run([*admin, f"DROP DATABASE {database} WITH (FORCE)"], check=True, capture_output=True)
        if code != 0:
            raise CannotRun("its SQL cannot be installed:\n" + tail(f"{name}-install"))

    def command(self, kind, names):
        if kind == "sql":
            return [sys.executable, TREE / "tests/sql/run.py", "--dsn", self.url, "--", "-x",
                    *[TREE / "tests/sql" / n for n in names]]
        if kind == "integration":
            return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                    *[TREE / "tests/integration" / n for n in names]]
        if kind == "scene":
            return [sys.executable, TREE / "tests/scenario/run.py", *names]
        [program] = names
        return [BUILD / "tests" / program]

    def test(self, name, kind, names):
        """(None: red by the time limit, 0: green, 1: red, else it could not run; seconds)"""
        dsn = f"host={stack.HOST} port={self.server.port} user=postgres dbname={self.server.database}"
        environment = {**os.environ, "HOLDFAST_BUILD": str(BUILD), "HOLDFAST_TEST_DSN": dsn, "PYTHONDONTWRITEBYTECODE": "1",
                       "HOLDFAST_TEST_BINARY": str(BUILD / "cli" / "holdfast-test"), "HOLDFAST_DEPS": stack.DEPS}
        code, seconds = run(name, self.command(kind, names), TEST_SECONDS, cwd=TREE, env=environment)
        if kind == "unit" and code is not None and code != 0:
            code = 1  # cmocka answers the number of failures; a crash is red, too
        return code, seconds


def grouped(tests):
    """{kind: names}, except that each unit test is a program of its own."""
    groups = {}
    for kind, name in dict.fromkeys(tests):
        groups.setdefault((kind, name) if kind == "unit" else (kind,), []).append(name)
    return [(key[0], names) for key, names in groups.items()]


def baseline(bench, mutants):
    """The named tests as they are; {(kind, name)} of those that do not pass."""
    tests = [test for mutant in mutants for test in mutant.tests]
    bench.build("baseline", tests)
    bad = set()
    for number, (kind, names) in enumerate(grouped(tests)):
        log = f"baseline-{kind}-{number}"
        code, seconds = bench.test(log, kind, names)
        say(f"unchanged: {len(names)} {kind} {'pass' if code == 0 else 'DO NOT PASS'} in {seconds:.0f} s")
        if code != 0:  # one by one, to know which
            print(tail(log), flush=True)
            for name in names if len(names) > 1 else ():
                if bench.test(f"{log}-one", kind, [name])[0] != 0:
                    bad.add((kind, name))
            bad |= {(kind, names[0])} if len(names) == 1 else set()
    return bad


def judge(bench, mutant, bad):
    """(verdict, which tests went red, seconds, why)"""
    begin = time.monotonic()

    def done(verdict, red=(), why=""):
        return {"mutant": mutant, "verdict": verdict, "red": list(red), "seconds": time.monotonic() - begin, "why": why}
    if not mutant.edits or not mutant.tests:
        return done("broken", why="no change, or no test")
    if set(mutant.tests) & bad:
        return done("broken", why="a test named for it does not pass unchanged")
    try:
        with Changed(mutant):
            bench.build(mutant.name, mutant.tests)
            red = []
            for number, (kind, names) in enumerate(grouped(mutant.tests)):
                code, _ = bench.test(f"{mutant.name}-{number}", kind, names)
                if code not in (None, 0, 1):
                    raise CannotRun(f"its test could not run ({code}):\n" + tail(f"{mutant.name}-{number}"))
                if code != 0:
                    red += [f"{kind} {red_name(mutant.name, number, names)}"]
                    break
            return done("killed" if red else "survived", red)
    except CannotRun as error:
        return done("broken", why=str(error))


def red_name(name, number, names):
    """Of several tests in one call, which one failed: pytest stops at the first."""
    if len(names) == 1 and "::" in names[0]:
        return names[0]
    text = (LOGS / f"{name}-{number}.log").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^(?:FAILED|ERROR) (?:tests/\w+/)?(\S+(?:\[[^\]]*\])?)|^FAIL (\S+) \(|^\[  FAILED  \] (?:\w+: )?([a-z]\w+)$",
                      text, re.M)
    one = next((g for g in found.groups() if g), None) if found else None
    return one if one and "::" in one or not one else f"{names[0]}: {one}" if one not in names else one


# ---- what comes out --------------------------------------------------------------------------------------------------

def matrix(results):
    wide = max(len(r["mutant"].name) for r in results)
    for r in results:
        print(f"  {r['mutant'].name:{wide}}  {r['verdict']:8}  {r['seconds']:5.0f} s  {', '.join(r['red']) or r['why'].splitlines()[0] if r['red'] or r['why'] else ''}")


def keep(results):
    """Remembers what was found, by what each mutant is; returns all that is known, in the order of the table."""
    path = ROOT / "build" / "mutants" / "results.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known |= {repr(r["mutant"]): {key: r[key] for key in ("verdict", "red", "seconds", "why")} for r in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known), encoding="utf-8")
    return [{"mutant": m, **known.get(repr(m), {"verdict": "not tried", "red": [], "seconds": 0, "why": ""})} for m in MUTANTS]


def page(results):
    lines = ["# Mutants", "",
             "What the tests are worth: each guard of the protocol is taken away in turn, and the tests named for it must",
             "notice. Written by `scripts/mutants --write`; the changes and the tests are in `tests/mutants/mutants.py`.", "",
             "| guard | mutant | without it | in | result | noticed by |", "|---|---|---|---|---|---|"]
    for r in results:
        m = r["mutant"]
        where = ", ".join(dict.fromkeys(f"`{name}`" for name, *_ in m.edits))
        noticed = ", ".join(f"`{test}`" for test in r["red"]) or "–"
        lines.append(f"| {m.guard} | `{m.name}` | {m.harm} | {where} | {r['verdict']} | {noticed} |".replace("[", "\\["))
    counts = tally(results)
    lines += ["", f"{counts['killed']} killed, {counts['survived']} survived, {counts['broken']} broken. "
              "A mutant that survives means that a test is missing; a broken one that its row is out of date.", ""]
    (ROOT / "docs" / "MUTANTS.md").write_text("\n".join(lines), encoding="utf-8")
    say("docs/MUTANTS.md written")


def tally(results):
    def named(verdict):
        return [r["mutant"].name for r in results if r["verdict"] == verdict]
    return {"killed": len(named("killed")), "survived": len(named("survived")), "broken": len(named("broken")),
            "survivors": named("survived")}


def chosen(arguments):
    known = {mutant.name: mutant for mutant in MUTANTS}
    if arguments.only:
        unknown = set(arguments.only) - set(known)
        if unknown:
            raise CannotRun(f"no mutant {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        return [known[name] for name in arguments.only]
    if arguments.pick:
        return sorted(MUTANTS, key=lambda m: hashlib.sha256(f"{arguments.seed} {m.name}".encode()).digest())[:arguments.pick]
    return list(MUTANTS)


def options():
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--pick", type=int, metavar="N")
    parser.add_argument("--seed", default="", help="for --pick; default: HEAD")
    parser.add_argument("--ref", help="a commit; default: the working tree")
    parser.add_argument("--write", action="store_true", help="write docs/MUTANTS.md")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.pick and not arguments.seed:
        arguments.seed = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                                        check=False).stdout.strip()
    return arguments


def main():
    arguments = options()
    if arguments.list:
        for mutant in MUTANTS:
            print(f"{mutant.name:30} {mutant.guard:24} {mutant.harm}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    results = []
    try:
        todo = chosen(arguments)
        LOGS.mkdir(parents=True, exist_ok=True)
        copy_tree(arguments.ref)
        say(f"{len(todo)} mutants of {arguments.ref or 'the working tree'}")
        if programs_of([test for mutant in todo for test in mutant.tests]):
            configure()
        with stack.Postgres() as server:
            bench = Bench(server)
            bad = baseline(bench, todo)
            for mutant in todo:
                results.append(judge(bench, mutant, bad))
                r = results[-1]
                say(f"{mutant.name}: {r['verdict']} in {r['seconds']:.0f} s  {', '.join(r['red'])}{r['why']}")
    except (CannotRun, stack.StackError, subprocess.CalledProcessError, OSError) as error:
        print(json.dumps({**tally(results), "error": str(error)}), flush=True)
        return 2
    except SystemExit:
        print(json.dumps({**tally(results), "error": "told to end"}), flush=True)
        raise
    print()
    matrix(results)
    seconds = time.monotonic() - BEGIN
    everything = keep(results)
    if arguments.write:
        page(everything)
    counts = tally(results)
    if counts["broken"]:
        counts["error"] = "broken: " + ", ".join(r["mutant"].name for r in results if r["verdict"] == "broken")
    print(json.dumps({**counts, "seconds": round(seconds)}), flush=True)
    return 2 if counts["broken"] else 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())

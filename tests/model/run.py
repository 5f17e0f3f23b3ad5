"""Runs spin over tests/model/holdfast.pml: every configuration must hold, every model without a guard must be found wrong.

    tests/model/run.py [--quick] [--only NAME…] [--list]

Exhaustive search only: no bit state, no hash compaction, and a search that met its depth or memory limit has failed.
The last line is one JSON object: states, errors, complete; broken: guards taken out, missed: those spin did not miss.
Exit 0: all holds; 1: it does not; 2: it could not be run.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODEL = os.path.join(HERE, "holdfast.pml")
BUILD = os.path.join(ROOT, "build", "model")
MEMORY_MB = 1800  # of one search; two run side by side
DEPTH = 100000
LIMIT = int(os.environ.get("HOLDFAST_MODEL_LIMIT", "900"))  # seconds of one search

# Small products that together cover the protocol: name, what is in it (the head of the model explains the words).
CONFIGURATIONS = [
    ("lease", "TOKENS MAXREV=3"),
    ("writers", "GHOST WORKERS=2 MAXREV=3 MAXTRIES=0"),
    ("ledger", "LEDGER WORKERS=1 CLAIMS=2 MAXREV=3 MAXTRIES=0"),
    ("keys", "LEDGER PLAN ONE WORKERS=1 CLAIMS=3 MAXTRIES=0 CAP0=KEY"),
    ("versions", "LEDGER VERSIONS WORKERS=1 CLAIMS=2 MAXREV=3 MAXTRIES=0 CAP0=KEY"),
    ("run-and-ledger", "LEDGER PLAN WORKERS=3 CLAIMS=1 MAXTRIES=0"),
    ("failover-lease", "FAILOVER WORKERS=2 MAXREV=2 MAXTRIES=0"),
    ("failover-none", "LEDGER PLAN ONE FAILOVER WORKERS=1 CLAIMS=2 MAXTRIES=0"),
    ("failover-key", "LEDGER PLAN ONE FAILOVER WORKERS=1 CLAIMS=2 MAXTRIES=0 CAP0=KEY"),
]
QUICK = {"writers", "keys"}

# What shows a guard, and is too large to be searched whole with all guards in it.
WIDER = [
    ("failover-none-2", "LEDGER PLAN ONE FAILOVER WORKERS=2 CLAIMS=2 MAXREV=3 MAXTRIES=0"),
]
# A guard, and the configuration that shows what it is for.
BROKEN = [
    ("NO_EXPIRY_CHECK", "writers"),
    ("NO_EXPIRY_CHECK_IN_RENEW", "writers"),
    ("NO_HOLDER_CHECK", "writers"),
    ("NO_HOLDER_CHECK_IN_RELEASE", "writers"),
    ("NO_REVISION_CHECK", "writers"),
    ("NO_STATUS_CHECK", "writers"),
    ("NO_TERMINAL_CHECK", "writers"),
    ("NO_EPOCH_KEPT", "writers"),
    ("NO_COMMIT_ID", "writers"),
    ("NO_PREVIOUS_COMMIT", "lease"),
    ("NO_READY_DELETE", "writers"),
    ("NO_CANCEL_OPEN", "ledger"),
    ("NO_OPEN_OPERATIONS", "ledger"),
    ("NO_WAKE_IN_COMMIT", "ledger"),
    ("NO_WAKE_IN_RECORD", "ledger"),
    ("NO_UNKNOWN_ON_EXPIRY", "ledger"),
    ("NO_UNSENT_RULE", "ledger"),
    ("NO_CAPABILITY_CHECK", "ledger"),
    ("NO_CANCEL_UNSENT", "ledger"),
    ("NO_CLAIM_IDENTITY", "keys"),
    ("NO_TOLD_ONCE", "keys"),
    ("NO_DOUBT_RULE", "keys"),
    ("NO_STABLE_IDENTITY", "run-and-ledger"),
    ("NO_EFFECT_IN_DOUBT", "versions"),
    ("NO_WAIT_FOR_PREDECESSOR", "versions"),
    ("NO_EPOCH_CHECK", "failover-lease"),
    ("NO_EPOCH_RAISE", "failover-lease"),
    ("NO_GATE", "failover-none"),
    ("NO_LOST_HISTORY", "failover-none"),
    ("NO_AUDIT", "failover-none-2"),
    ("NO_WAIT_FOR_LOST_CLAIMS", "failover-none-2"),
    ("NO_DISPATCH_REVISION", "failover-none"),
    ("NO_DOUBT_BEFORE_OPENING", "failover-none"),
    ("NO_DOUBT_OF_CLAIMS", "failover-none"),
    ("NO_SESSION_PER_HISTORY", "failover-none-2"),
]
# Guards that the model needs and the SQL has not yet: each counts as an error. Delete the line with the fix.
HOLES = {}


def search(name, flags, limit):
    """One exhaustive search -> (states, verdict, text); verdict is holds, wrong or incomplete."""
    where = os.path.join(BUILD, name)
    shutil.rmtree(where, ignore_errors=True)
    os.makedirs(where)
    options = [f"-D{flag}" for flag in flags.split()]
    made = subprocess.run(["spin", "-a", *options, MODEL], cwd=where, capture_output=True, text=True, check=False)
    if made.returncode or re.search(r"\berror\b", made.stdout + made.stderr, re.I):
        raise RuntimeError(f"{name}: spin: {made.stdout}{made.stderr}")
    made = subprocess.run(["gcc", "-O2", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"],
                          cwd=where, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"{name}: gcc: {made.stderr}")
    began = time.monotonic()
    try:
        done = subprocess.run(["nice", "-n", "10", "./pan", f"-m{DEPTH}", "-w22"], cwd=where, capture_output=True,
                              text=True, timeout=limit, check=False)
        text = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return 0, "incomplete", f"time limit of {limit} s"
    with open(os.path.join(where, "pan.out"), "w", encoding="utf-8") as log:
        log.write(text)
    states = int(m.group(1)) if (m := re.search(r"(\d+) states, stored", text)) else 0
    errors = int(m.group(1)) if (m := re.search(r"errors: (\d+)", text)) else None
    seconds = time.monotonic() - began
    if errors:
        what = next((line for line in text.splitlines() if line.startswith("pan:1:")), "")
        return states, "wrong", f"{what[7:130]} ({states} states, {seconds:.0f} s)"
    if errors is None or re.search(r"max search depth too small|out of memory|Search not completed|aborted", text):
        return states, "incomplete", text[-300:]
    return states, "holds", f"{states} states, {seconds:.0f} s"


def story(name, flags):
    """The steps that lead to an error, for a person."""
    where = os.path.join(BUILD, name)
    options = [f"-D{flag}" for flag in flags.split()]
    told = subprocess.run(["spin", "-t", "-k", "holdfast.pml.trail", "-p", "-g", *options, MODEL], cwd=where,
                          capture_output=True, text=True, check=False)
    with open(os.path.join(where, "story.txt"), "w", encoding="utf-8") as log:
        log.write(told.stdout)
    return os.path.relpath(os.path.join(where, "story.txt"), ROOT)


def run(configurations, broken):
    total = errors = missed = 0
    complete = True
    jobs = [(name, flags, None) for name, flags in configurations] + [
        (guard.lower().replace("no_", "without_"), f"{dict(CONFIGURATIONS + WIDER)[base]} {guard}", guard)
        for guard, base in broken]
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for job, future in [(job, pool.submit(search, job[0], job[1], LIMIT)) for job in jobs]:
            name, flags, guard = job
            states, verdict, text = future.result()
            total += states
            if guard is None:
                print(f"{name}: {verdict}: {text}", flush=True)
                complete = complete and verdict == "holds" or complete and verdict == "wrong"
                if verdict == "wrong":
                    errors += 1
                    print(f"   the steps: {story(name, flags)}", flush=True)
            elif guard in HOLES:
                print(f"{guard}: {verdict}: {text}\n   A HOLE: the SQL does not have this guard: {HOLES[guard]}",
                      flush=True)
                print(f"   the steps: {story(name, flags)}", flush=True)
                errors += 1
            else:
                print(f"{guard}: {'found wrong' if verdict == 'wrong' else 'NOT FOUND: ' + verdict}: {text}",
                      flush=True)
                missed += verdict != "wrong"
    return {"states": total, "errors": errors, "complete": complete, "configurations": len(configurations),
            "broken": len(broken), "missed": missed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small configurations and the guards they show")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these configurations or guards")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    configurations, broken = CONFIGURATIONS, BROKEN
    if arguments.quick:
        configurations = [c for c in configurations if c[0] in QUICK]
        broken = [b for b in broken if b[1] in QUICK]
    if arguments.only:
        configurations = [c for c in CONFIGURATIONS if c[0] in arguments.only]
        broken = [b for b in BROKEN if b[0] in arguments.only]
    if arguments.list:
        print("\n".join([f"{n}: {f}" for n, f in configurations] + [f"{g} (in {b})" for g, b in broken]))
        return 0
    if not configurations and not broken:
        print(json.dumps({"states": 0, "errors": 0, "complete": False, "error": "nothing has that name"}))
        return 2
    try:
        result = run(configurations, broken)
    except (OSError, RuntimeError) as error:
        print(json.dumps({"states": 0, "errors": 0, "complete": False, "error": str(error)[:500]}))
        return 2
    print(json.dumps(result))
    return 0 if result["complete"] and not result["errors"] and not result["missed"] else 1


if __name__ == "__main__":
    sys.exit(main())

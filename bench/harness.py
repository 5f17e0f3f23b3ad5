#!/usr/bin/env python3
"""Runs one benchmark: product and other side in turn, several times, on servers of its own (PostgreSQL with fsync).

Prints a table with PostgreSQL's own account of each side, then one JSON object (acceptance.md section 5): `ratio` is
the median of the paired repetitions, turned so that more is better; `bar` is what it is held against.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
import psycopg  # noqa: E402
import stack as servers  # noqa: E402

PROGRAMS = os.environ.get("HOLDFAST_BUILD", os.path.join(ROOT, "build", "bench"))
HOLDFAST = os.path.join(PROGRAMS, "cli", "holdfast")
PG_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "log_lock_waits": "off", "track_io_timing": "off",
               "deadlock_timeout": "1s"}


class Account:
    """What PostgreSQL says of a stretch of work: transactions, WAL, dead tuples, lock waits, autovacuum."""

    QUERY = """
        SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
               pg_current_wal_lsn() - '0/0'::pg_lsn,
               (SELECT wal_sync FROM pg_stat_wal),
               (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables),
               (SELECT coalesce(sum(autovacuum_count), 0) FROM pg_stat_user_tables),
               (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())"""
    NAMES = ("transactions", "wal_bytes", "fsyncs", "dead_tuples", "autovacuums", "deadlocks")

    def __init__(self, connection, pid):
        self.connection, self.pid, self.waits = connection, pid, 0

    def look(self):
        self.connection.execute("SELECT pg_stat_clear_snapshot()")
        return [int(value) for value in self.connection.execute(self.QUERY).fetchone()]

    def __enter__(self):
        self.connection.execute("CHECKPOINT")
        self.before, self.cpu = self.look(), family_cpu(self.pid)
        return self

    def sample(self):
        """Called while the work goes on: how many backends wait for a lock right now."""
        self.waits = max(self.waits, self.connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()[0])

    def __exit__(self, *_):
        time.sleep(0.6)  # backends report their statistics at most twice a second
        self.facts = dict(zip(self.NAMES, (b - a for a, b in zip(self.before, self.look()))))
        self.facts["most_waiting_for_locks"] = self.waits
        self.facts["postgres_cpu_s"] = round(family_cpu(self.pid) - self.cpu, 2)


def family_cpu(pid):
    """CPU seconds of a process and of its children, those that have ended included."""
    total, tick = 0, os.sysconf("SC_CLK_TCK")
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    for one in [pid, *map(int, children)]:
        with contextlib.suppress(OSError), open(f"/proc/{one}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
            if one == pid:
                total += int(fields[13]) + int(fields[14])
    return total / tick


def watched(account, command, **options):
    """Runs a program to its end while the account is sampled; returns (standard output, its CPU seconds, peak MiB)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    end = time.monotonic() + 600
    while process.poll() is None:
        if time.monotonic() > end:
            process.kill()
            raise SystemExit(f"{command[0]}: not done after 600 s")
        account.sample()
        time.sleep(0.1)
    out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} ended with {process.returncode}: {err[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return out, round(cpu, 2), after.ru_maxrss // 1024


def pgbench(account, dsn, script, clients, seconds, *extra):
    out, cpu, _ = watched(account, [
        os.path.join(servers.Postgres.bindir(), "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j",
        str(min(2, clients)), "-T", str(seconds), "-f", os.path.join(HERE, script), *extra, dsn])
    rate = next(float(line.split()[2]) for line in out.splitlines() if line.startswith("tps"))
    done = next(int(line.split(":")[1].split("/")[0]) for line in out.splitlines()
                if line.startswith("number of transactions actually processed"))
    return rate, done, cpu


def fresh_database(pg, name, shards=8):
    pg.psql(f'drop database if exists "{name}" with (force)')
    dsn = pg.create_database(name)
    # Not every bench has a relay for whose comparison claims could wait.
    subprocess.run([HOLDFAST, "migrate", "--shards", str(shards), "--set", f"postgres.dsn={dsn}", "--set",
                    "relay.enabled=false"], check=True, timeout=120, stdout=subprocess.DEVNULL)
    return dsn


class ProtectedWrite:
    """Checkpoints through the pod's commit path against the seed's five statements from 32 connections."""

    kinds, unit, bar = ("pg",), "writes/s", 10.0

    def product(self, stack, seconds):
        dsn = fresh_database(stack.pg, "product")
        with psycopg.connect(dsn, autocommit=True) as c, Account(c, stack.pg.process.pid) as account:
            out, cpu, peak = watched(account, [os.path.join(PROGRAMS, "bench", "protected_write"), dsn, str(seconds)])
        said = json.loads(out.splitlines()[-1])
        return said["rate"], {"work": said["writes"], "client_cpu_s": cpu, "client_peak_mib": peak, **account.facts}

    def other(self, stack, seconds):
        stack.pg.psql('drop database if exists "seed" with (force)')
        dsn = stack.pg.create_database("seed")
        with open(os.path.join(HERE, "seed_tables.sql"), encoding="utf-8") as tables:
            stack.pg.psql(tables.read(), "seed")
        with psycopg.connect(dsn, autocommit=True) as c, Account(c, stack.pg.process.pid) as account:
            rate, done, cpu = pgbench(account, dsn, "seed_write.pgbench", 32, seconds, "-D", "n=0")
            conflicts = c.execute("SELECT sum(revision) FROM seed.agent_runs").fetchone()[0]
        if int(conflicts) != done:
            raise RuntimeError(f"the seed's side wrote {conflicts} of {done} checkpoints")
        return rate, {"work": done, "client_cpu_s": cpu, **account.facts}


class EndToEnd:
    """No-op plans, Kafka to PostgreSQL to Kafka, counted at a read_committed consumer, against the same row work as
    raw batched SQL (2 connections, batches of 256, no Kafka)."""

    kinds, unit, bar = ("pg", "redis", "kafka"), "runs/s", 0.3
    runs = 20000

    def product(self, stack, seconds):
        import end_to_end
        dsn = fresh_database(stack.pg, "product", shards=2)  # one a lane of the relay: two cores fill no more
        with psycopg.connect(dsn, autocommit=True) as c, Account(c, stack.pg.process.pid) as account:
            said = end_to_end.drain(HOLDFAST, stack, dsn, self.runs, account)
        return said.pop("rate"), {**said, **account.facts}

    def other(self, stack, seconds):
        dsn = fresh_database(stack.pg, "raw")
        with open(os.path.join(HERE, "raw_rows.sql"), encoding="utf-8") as rows:
            stack.pg.psql(rows.read(), "raw")
        with psycopg.connect(dsn, autocommit=True) as c, Account(c, stack.pg.process.pid) as account:
            rate, batches, cpu = pgbench(account, dsn, "raw_rows.pgbench", 2, seconds)
            done = c.execute("SELECT count(*) FROM holdfast.agent_runs WHERE status = 'succeeded'").fetchone()[0]
        return rate * done / batches, {"work": done, "client_cpu_s": cpu, **account.facts}


BENCHES = {"protected-write": ProtectedWrite, "end-to-end": EndToEnd}


def table(rows):
    print(f"\n{'side':8} {'rate':>10} {'work':>9} {'tx/1000':>8} {'WAL B':>7} {'fsyncs/1000':>11} {'dead':>8} "
          f"{'waiting':>7} {'autovac':>7} {'pg cpu s':>8} {'cpu s':>6}")
    for side, rate, facts in rows:
        per = facts["work"] or 1
        print(f"{side:8} {rate:10.0f} {facts['work']:9d} {1000 * facts['transactions'] / per:8.1f} "
              f"{facts['wal_bytes'] / per:7.0f} {1000 * facts['fsyncs'] / per:11.1f} {facts['dead_tuples']:8d} "
              f"{facts['most_waiting_for_locks']:7d} {facts['autovacuums']:7d} {facts['postgres_cpu_s']:8.1f} "
              f"{facts.get('client_cpu_s', 0):6.1f}")
    print(flush=True)


def measure(name, repetitions, seconds):
    bench = BENCHES[name]()
    ratios, rates, others, rows = [], [], [], []
    with servers.Stack(*bench.kinds, pg={"durable": True, "settings": PG_SETTINGS}) as stack:
        for repetition in range(repetitions):
            sides = [("product", bench.product), ("other", bench.other)]
            got = {}
            for side, run in sides if repetition % 2 == 0 else reversed(sides):
                got[side], facts = run(stack, seconds)
                rows.append((side, got[side], facts))
                print(f"{name} {repetition + 1}/{repetitions} {side}: {got[side]:.0f} {bench.unit}", file=sys.stderr,
                      flush=True)
            ratios.append(got["product"] / got["other"])
            rates.append(got["product"])
            others.append(got["other"])
    table(rows)
    ratio = statistics.median(ratios)
    print(json.dumps({
        "name": name, "ratio": round(ratio, 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3),
        "bar": bench.bar, "median": round(statistics.median(rates), 1), "unit": bench.unit,
        "other": round(statistics.median(others), 1)}))
    return 0 if ratio >= bench.bar else 1


def main():
    parser = argparse.ArgumentParser(prog="bench/run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=[*BENCHES, "--list"])
    parser.add_argument("--list", action="store_true", help="the names, a line each")
    parser.add_argument("--repetitions", type=int, default=3, help="pairs of product and other (default 3)")
    parser.add_argument("--seconds", type=int, default=10, help="length of a timed side (default 10)")
    arguments = parser.parse_args()
    if arguments.list or not arguments.name:
        for name, bench in BENCHES.items():
            print(f"{name}: {' '.join(bench.__doc__.split())}")
        return 0
    try:
        return measure(arguments.name, max(1, arguments.repetitions), arguments.seconds)
    except Exception as error:  # whatever it was: said on the last line, for a script to read
        print(json.dumps({"name": arguments.name, "error": str(error)}))
        return 2


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The demo: three pods, real tasks, one pod stopped in mid-step and continued after its work was taken over, one killed.

Everything it reports is read, never assumed: how tasks ended from the result topic, what was refused from PostgreSQL,
what was paid from the payment service's own ledger. The last line of standard output is one JSON object.
Exit: 0 everything held, 1 something did not, 2 it could not run.
"""
import argparse
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENDS = {"run.succeeded": "succeeded", "run.failed": "failed", "run.cancelled": "cancelled"}
PLAIN = sys.stdout.isatty() is False
STARTED = time.monotonic()


class CannotRun(Exception):
    """The demo could not be carried out; the text says why and what to do."""


def style(code, text):
    return text if PLAIN else f"\x1b[{code}m{text}\x1b[0m"


def say(text, code="0"):
    print(f"{time.monotonic() - STARTED:6.1f}s  {style(code, text)}", flush=True)


def wait_until(fact, seconds, what):
    end = time.monotonic() + seconds
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > end:
            raise CannotRun(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Process:
    """A child with its output in a file; ended with the demo."""

    def __init__(self, arguments, log, **options):
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(arguments, stdout=options.pop("stdout", out), stderr=out,
                                            stdin=options.pop("stdin", subprocess.DEVNULL), **options)

    def alive(self):
        return self.process.poll() is None

    def tail(self):
        with open(self.log, errors="replace", encoding="utf-8") as log:
            return "".join(log.readlines()[-15:])

    def end(self, number=signal.SIGTERM, patience=60):
        if self.alive():
            self.process.send_signal(number)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class Payments:
    """The service that is paid; its own ledger says how often it executed what."""

    def __init__(self, binary, directory):
        self.child = Process([binary, "--port", "0"], os.path.join(directory, "payments.log"), stdout=subprocess.PIPE,
                             stdin=subprocess.PIPE)
        line = self.child.process.stdout.readline()
        if not line:
            raise CannotRun(f"the payment service did not start: {self.child.tail()}")
        self.port = json.loads(line)["port"]
        self.url = f"http://127.0.0.1:{self.port}"

    def ledger(self):
        with urllib.request.urlopen(self.url + "/ledger", timeout=10) as answer:
            return json.loads(answer.read())


class Stack:
    """`holdfast up` and what it tells about itself."""

    def __init__(self, binary, directory, broker, config):
        self.binary, self.dir = binary, os.path.join(directory, "stack")
        arguments = [binary, "up", "--pods", "3", "--dir", self.dir, "--config", config]
        if broker:
            arguments += ["--broker", broker]
        self.child = Process(arguments, os.path.join(directory, "up.log"))
        facts = os.path.join(self.dir, "stack.json")

        def up():
            if not self.child.alive():
                raise CannotRun(f"holdfast up ended: {self.child.tail()}")
            return os.path.exists(facts)
        wait_until(up, 150, "the stack is up")
        with open(facts, encoding="utf-8") as text:
            self.facts = json.load(text)
        self.pods = {pod["name"]: pod for pod in self.facts["pods"]}
        self.environment = dict(os.environ, HOLDFAST_CONFIG=self.facts["config"])
        self.psql_program = os.path.join(self.facts["postgres_bin"], "psql")
        self.schema = self.facts["schema"]

    def command(self, *arguments, text=None):
        done = subprocess.run([self.binary, *arguments], input=text, capture_output=True, text=True, timeout=60,
                              env=self.environment, check=False)
        if done.returncode == 2:
            raise CannotRun(f"holdfast {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def rows(self, sql):
        """The answer of a read-only query, as JSON rows."""
        done = subprocess.run(
            [self.psql_program, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.facts["admin_dsn"], "-c",
             f"select coalesce(jsonb_agg(to_jsonb(q)), '[]') from ({sql}) q"],
            capture_output=True, text=True, timeout=30, env=dict(os.environ, PGOPTIONS=f"-csearch_path={self.schema}"),
            check=False)
        if done.returncode:
            raise CannotRun(f"PostgreSQL: {done.stderr.strip()}")
        return json.loads(done.stdout)


class Results:
    """Every event of the result topic, read as a downstream consumer reads it."""

    def __init__(self, stack, directory):
        self.events, self.lock = {}, threading.Lock()
        self.child = Process([stack.binary, "tail", "--json", "--from-beginning"],
                             os.path.join(directory, "tail.log"), stdout=subprocess.PIPE, env=stack.environment)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        for line in self.child.process.stdout:
            event = json.loads(line)
            with self.lock:
                self.events.setdefault(event["event_id"], event)

    def all(self):
        with self.lock:
            return list(self.events.values())

    def of(self, *types):
        return [event for event in self.all() if event["type"] in types]


def tasks():
    """What is produced: slow reports that hold leases, payments whose service answers slowly, and a few that fail."""
    for n in range(1, 25):
        yield {"task_id": f"report-{n}", "handler": "report", "input": {"pages": 8 + n, "seconds_a_page": 0.5}}
    for n in range(1, 31):
        yield {"task_id": f"order-{n}", "handler": "plan", "input": {"steps": [
            {"id": "reserve", "tool": "payments", "request": {"amount": 10 * n, "currency": "EUR", "kind": "reserve"}},
            {"id": "pay", "tool": "payments_slow",
             "request": {"amount": 10 * n, "currency": "EUR", "reserved": {"$ref": "/steps/reserve/result/id"}}}]}}
    for n in range(1, 4):
        yield {"task_id": f"declined-{n}", "handler": "plan", "input": {"steps": [
            {"id": "pay", "tool": "payments_declined", "request": {"amount": n, "currency": "EUR"}}]}}
    yield {"task_id": "withdrawn-1", "handler": "report", "input": {"pages": 200, "seconds_a_page": 0.5}}


CONFIG = """\
[lease]
ttl_ms = 3000
heartbeat_ms = 500
heartbeat_timeout_ms = 500
[sweep]
interval_ms = 250
[dispatch]
claim_ttl_ms = 4000
[handler.report]
kind = exec
command = python3 {here}/report.py
processes = 8
"""
TOOL = """\
[tool.{name}]
kind = http
url = {url}
allow_private = true
capability = idempotency_key
retention_ms = 3600000
timeout_ms = 2500
connect_timeout_ms = 1000
"""


def write_config(directory, payments):
    path = os.path.join(directory, "demo.conf")
    with open(path, "w", encoding="utf-8") as out:
        out.write(CONFIG.format(here=HERE))
        for name, query in (("payments", ""), ("payments_slow", "?delay_ms=1500"), ("payments_declined", "?decline=1")):
            out.write(TOOL.format(name=name, url=payments.url + "/payments" + query))
    return path


class Demo:
    def __init__(self, stack, results):
        self.stack, self.results = stack, results
        self.submitted = 0
        self.moments = []

    def tell(self, text, code="1"):
        self.moments.append((time.monotonic() - STARTED, text))
        say(text, code)

    def progress(self):
        ends = collections.Counter(ENDS[e["type"]] for e in self.results.of(*ENDS))
        held = self.stack.rows("select split_part(owner, '/', 1) pod, count(*) n from worker_leases"
                               " where owner is not null and expires_at > clock_timestamp() group by 1 order by 1")
        holders = ", ".join(f"{row['pod']} {row['n']}" for row in held) or "nobody"
        say(f"{sum(ends.values()):3d} of {self.submitted} ended ({ends['succeeded']} succeeded, {ends['failed']} failed,"
            f" {ends['cancelled']} cancelled); leases: {holders}", "2")

    def watch(self, fact, seconds, what):
        """Waits with a progress line every second."""
        end, next_line = time.monotonic() + seconds, 0.0
        while True:
            value = fact()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {seconds} s")
            if time.monotonic() >= next_line:
                self.progress()
                next_line = time.monotonic() + 2
            time.sleep(0.1)

    def held_by(self, pod):
        return self.stack.rows(f"select run_id, owner, epoch from worker_leases where owner like '{pod}/%'"
                               " and expires_at > clock_timestamp()")

    def claimed_by(self, pod):
        return self.stack.rows("select operation_id, dispatch_owner from tool_operations where status = 'dispatching'"
                               f" and dispatch_owner like '{pod}%' and dispatch_until > clock_timestamp() + interval '1 s'")

    def submit(self):
        records = "".join(json.dumps(task) + "\n" for task in tasks())
        done = self.stack.command("submit", "-", text=records)
        if done.returncode:
            raise CannotRun(done.stderr.strip())
        say(done.stdout.strip())
        wanted = records.count("\n")
        wait_until(lambda: self.accepted() == wanted, 60, f"{wanted} submissions are accepted")
        self.submitted = wanted

    def accepted(self):
        return self.stack.rows("select count(*) n from requests where verb = 'submit' and outcome = 'created'")[0]["n"]

    def stop_one(self):
        """SIGSTOP to a pod that holds leases and has claimed payments; SIGCONT once its work was taken over."""
        def victim():
            for name in self.stack.pods:
                if self.held_by(name) and self.claimed_by(name):
                    return name
            return None
        name = self.watch(victim, 30, "a pod holds leases and a claim")
        pid = self.stack.pods[name]["pid"]
        os.kill(pid, signal.SIGSTOP)
        leases, claims = self.held_by(name), self.claimed_by(name)
        self.tell(f"SIGSTOP to {name}: it holds {len(leases)} leases and {len(claims)} claims, and hears nothing now", "1;33")
        self.wait_taken_over(name, leases)
        os.kill(pid, signal.SIGCONT)
        self.tell(f"SIGCONT to {name}: it believes that it still holds its runs, and says so", "1;33")
        self.watch(lambda: self.stale_refusals(leases, claims), 30, f"something of {name} is refused")
        self.tell(f"refused by PostgreSQL: what {name} wanted to write under its old epochs", "1;32")
        return name

    def wait_taken_over(self, name, leases):
        """Until each of these runs that has not ended is held under a later epoch, and the topic says so."""
        epochs = {lease["run_id"]: lease["epoch"] for lease in leases}

        def events():
            return [e for e in self.results.of("run.taken_over") if e["epoch"] > epochs.get(e["run_id"], e["epoch"])]

        def moved():
            rows = self.stack.rows("select run_id, epoch from worker_leases join agent_runs using (run_id)"
                                   f" where status = 'running' and run_id in ({quoted(epochs)})")
            told = {e["run_id"] for e in events()}
            return told and all(row["epoch"] > epochs[row["run_id"]] and row["run_id"] in told for row in rows)
        self.watch(moved, 30, f"the work of {name} is taken over")
        self.tell(f"taken over: {len({e['run_id'] for e in events()})} runs of {name} go on with other pods under the"
                  " next epoch", "1;32")

    def stale_refusals(self, leases, claims):
        owners = quoted([lease["owner"] for lease in leases] + [claim["dispatch_owner"] for claim in claims])
        return self.stack.rows(f"select 1 from refusals where owner in ({owners}) limit 1")

    def kill_one(self, but):
        def victim():
            for name in self.stack.pods:
                if name != but and len(self.held_by(name)) >= 2:
                    return name
            return None
        name = self.watch(victim, 30, "another pod holds leases")
        held = self.held_by(name)
        os.kill(self.stack.pods[name]["pid"], signal.SIGKILL)
        self.tell(f"SIGKILL to {name}: it dies with {len(held)} leases", "1;31")
        self.wait_taken_over(name, held)

    def cancel_one(self):
        done = self.stack.command("cancel", "withdrawn-1", "--reason", "the customer withdrew")
        if done.returncode:
            raise AssertionError(f"cancel: {done.stdout}{done.stderr}")
        self.tell("cancelled withdrawn-1 while it was running")

    def drain(self):
        self.watch(lambda: len({e["run_id"] for e in self.results.of(*ENDS)}) == self.submitted, 120, "every run has ended")
        wait_until(lambda: self.stack.rows("select count(*) n from outbox_events")[0]["n"] == 0, 30,
                   "every event is published")
        seen = -1
        while seen != len(self.results.all()):   # read to the end: a poll of the topic brings nothing new
            seen = len(self.results.all())
            time.sleep(0.5)


def quoted(values):
    return ", ".join("'" + str(value).replace("'", "''") + "'" for value in values) or "''"


def duplicates(ledger):
    return sum(1 for count in ledger["executions_by_key"].values() if count > 1)


def count(demo, payments):
    """The JSON object of the demo. Nothing in it comes from what the demo did, all from what others recorded."""
    ends = {e["run_id"]: ENDS[e["type"]] for e in demo.results.of(*ENDS)}
    by_end = collections.Counter(ends.values())
    stale = demo.stack.rows("select coalesce(sum(refused), 0) n from refusals"
                            " where epoch < current_epoch or reason in ('late', 'superseded', 'lease_lost', 'lost')")[0]["n"]
    return {"submitted": demo.accepted(), "succeeded": by_end["succeeded"], "failed": by_end["failed"],
            "cancelled": by_end["cancelled"], "takeovers": len(demo.results.of("run.taken_over")),
            "stale_writes_refused": stale, "duplicate_effects": duplicates(payments.ledger()),
            "events": len(demo.results.all())}


def wrongs(counts):
    if counts["succeeded"] + counts["failed"] + counts["cancelled"] != counts["submitted"]:
        yield "the ends do not add up to the submissions"
    if counts["failed"] != 3 or counts["cancelled"] != 1:
        yield "three orders are declined and one report is withdrawn, and that is not what was read"
    if counts["takeovers"] < 2:
        yield "fewer than two take-overs"
    if counts["stale_writes_refused"] < 1:
        yield "no stale write was refused"
    if counts["duplicate_effects"]:
        yield "a payment was executed more than once"


def ended_tasks(demo):
    """Those that changed hands first: they are what the demo is about."""
    print("\n" + style("1", "How the tasks ended") + "  (from the result topic)")
    print("  task            end         taken over by epoch")
    taken = collections.defaultdict(list)
    for event in demo.results.of("run.taken_over"):
        taken[event["run_id"]].append(event["epoch"])
    rows = sorted((-len(taken[e["run_id"]]), e["task_id"], ENDS[e["type"]], sorted(taken[e["run_id"]]))
                  for e in demo.results.of(*ENDS))
    moved = [row for row in rows if row[0] and row[2] == "succeeded"][:10]
    special = moved + [row for row in rows if row[2] != "succeeded"]
    for _, task, end, epochs in special:
        print(f"  {task:<15} {end:<11} {', '.join(map(str, epochs)) or 'never'}")
    rest = collections.Counter(row[2] for row in rows if row not in special)
    print(f"  and {sum(rest.values())} more: " + ", ".join(f"{n} {end}" for end, n in sorted(rest.items())))


def summary(demo, payments, counts):
    print("\n" + style("1", "What happened"))
    for at, text in demo.moments:
        print(f"  {at:6.1f}s  {text}")
    ended_tasks(demo)
    print("\n" + style("1", "What was refused") + "  (from PostgreSQL)")
    for row in demo.stack.rows("select verb, reason, split_part(owner, '/', 1) pod, sum(refused) n, min(epoch) epoch,"
                               " max(current_epoch) now from refusals group by 1, 2, 3 order by 4 desc limit 12"):
        print(f"  {row['pod'] or '?':<4} {row['verb']:<14} {row['reason']:<20} {row['n']:>4} times"
              f"   (epoch {row['epoch']}, when it was {row['now']})")
    ledger = payments.ledger()
    executed = ledger["executions_by_key"]
    print("\n" + style("1", "What was paid") + "  (from the payment service's own ledger)")
    print(f"  {ledger['requests']} requests, {len(executed)} operations, "
          f"{sum(executed.values())} executions, {counts['duplicate_effects']} executed more than once")


def run(arguments, directory):
    payments = stack = results = kafka = None
    try:
        broker = None
        if arguments.broker == "kafka":
            sys.path.insert(0, os.path.join(ROOT, "tests", "lib"))
            import stack as services
            say("starting Kafka")
            kafka = services.Kafka(os.path.join(directory, "kafka")).start()
            broker = kafka.bootstrap
        elif arguments.broker != "mock":
            broker = arguments.broker
        payments = Payments(arguments.payments, directory)
        say(f"a payment service listens on {payments.url}")
        say("starting PostgreSQL, Redis, " + (f"with Kafka at {broker}" if broker else "the embedded broker") +
            ", and three pods")
        stack = Stack(arguments.binary, directory, broker, write_config(directory, payments))
        results = Results(stack, directory)
        demo = Demo(stack, results)
        demo.submit()
        stopped = demo.stop_one()
        demo.cancel_one()
        demo.kill_one(stopped)
        demo.drain()
        counts = count(demo, payments)
        summary(demo, payments, counts)
        if arguments.keep:
            keep(stack, payments, directory)
        return counts
    finally:
        for actor in (results, stack, payments):
            if actor:
                actor.child.end()
        if kafka:
            kafka.close()


def keep(stack, payments, directory):
    prefix = stack.facts["topic_prefix"]
    print(f"\n{style('1', 'It keeps running')} until Ctrl-C; logs are in {directory}\n"
          f"  export HOLDFAST_CONFIG={stack.facts['config']}\n"
          f"  {stack.binary} show report-1\n"
          f"  {stack.binary} tail --from-beginning\n"
          f"  kcat -C -b {stack.facts['bootstrap']} -t {prefix}results -o beginning -X isolation.level=read_committed\n"
          f"  curl {payments.url}/ledger", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the program holdfast")
    parser.add_argument("--payments", required=True, help="the program payments")
    parser.add_argument("--broker", default="mock", help="mock (default), kafka (a private one), or HOST:PORT")
    parser.add_argument("--keep", action="store_true", help="leave everything running and say how to reach it")
    return parser.parse_args()


def main():
    arguments = options()
    arguments.binary, arguments.payments = os.path.abspath(arguments.binary), os.path.abspath(arguments.payments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    directory = tempfile.mkdtemp(prefix="holdfast-demo-")
    os.chmod(directory, 0o755)   # PostgreSQL runs as another user when we are root
    counts, code = {}, 2
    try:
        counts = run(arguments, directory)
        found = list(wrongs(counts))
        for wrong in found:
            print(style("1;31", f"WRONG: {wrong}"))
        if found:
            counts["error"] = "; ".join(found)
        code = 1 if found else 0
    except AssertionError as error:   # it ran, and what must hold did not
        counts, code = {"error": str(error)}, 1
    except (CannotRun, OSError, subprocess.SubprocessError, KeyboardInterrupt) as error:
        counts, code = {"error": str(error) or "interrupted"}, 2
    print(f"\n{'everything held' if code == 0 else 'logs: ' + directory}")
    if code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(counts), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

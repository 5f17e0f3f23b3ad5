"""Cuts one run at every protocol message: before it, in it, after it, by silence, by kill -9 and by SIGSTOP.

A calm run is recorded first (several times): which messages its pod sends to PostgreSQL, Kafka, Redis and the tools
between submission and published end. Then every one of them is a point, and every point is cut in each way, many cases
side by side on one stack, each with a database, topics, a remote with a ledger and pods of its own. Each must end in a
correct state, which is judged by SQL, by the remote's ledger and by a read_committed consumer, never by the pods' word.

    run.py --binary HOLDFAST [--limit N] [--side-by-side N] [--only TEXT] [--keep]

A point is named by its kind and its number within the run (pg commit 2: the second commit). A run whose timing moved so
that the point did not come is played again, up to twice, the last time at a message of that kind that did come (counted as
moved). A kind without which there is no run (CORE) that never came is not_reached, which fails the whole; another kind is
absent: a run need not have it, nothing was cut, and it is no case.
The last line is JSON. Exit: 0 all correct and reached, 1 not, 2 could not run.
"""
import argparse
import asyncio
import collections
import concurrent.futures
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import proxy   # noqa: E402
import remote  # noqa: E402
import stack   # noqa: E402
import topics  # noqa: E402
from oracle import judge   # noqa: E402
from run_errors import Broken, Wrong   # noqa: E402

HANDLER = os.path.join(os.path.dirname(HERE), "scenario", "handlers", "steps.py")
PROTOCOLS = ("pg", "kafka", "redis", "http")
ACTIONS = ("before", "torn", "after", "blackhole", "kill", "stop")
CALM_RUNS = 10
IDLE_KINDS = 2      # of what a pod says also without work: so many of each are points
IDLE_S = 4.0
# What a pod says by its own clock, whether or not it did so while the idle pod was listened to.
BY_CLOCK = {("pg", kind) for kind in (
    "events_read", "relay_position", "sweep", "renew", "service_renew", "service_acquire", "server_facts", "stats",
    "claim", "claim_operations", "claim_unknown", "claim_queries", "register", "gate_status", "barrier")} | {
    ("kafka", kind) for kind in ("Fetch", "Heartbeat", "Metadata", "ApiVersions", "ListOffsets", "FindCoordinator")}
# Without these there is no run.
CORE = {("pg", kind) for kind in ("submit", "commit", "claim_operations", "record_result", "events_read",
                                  "events_delete")} | {
    ("kafka", kind) for kind in ("Fetch", "OffsetCommit tasks", "Produce intents", "EndTxn")} | {
    ("http", "POST /idem/safe")}
TRIES = 3
CONSUMERS = 3       # of a pod: tasks, wake-ups, intents
CASE_LIMIT = 150.0   # of waits for the product: only what is wrong costs it
POLL = 0.1
AFTER_S = 4.0
FLOWS = {
    "plan": {"handler": "plan", "input": {"steps": [
        {"id": "reserve", "tool": "safe", "request": {"sku": "a-1"}},
        {"id": "pay", "tool": "bare", "request": {"for": {"$ref": "/steps/reserve/result/id"}}},
        {"id": "ship", "tool": "safe", "request": {"paid": {"$ref": "/steps/pay/result/id"}}}]}},
    "exec": {"handler": "steps", "input": {"saves": 1, "call": {"tool": "safe", "request": {"amount": 5}}}},
}

Point = collections.namedtuple("Point", "flow protocol kind number")


async def run_program(*command, within=120):
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        out, _ = await asyncio.wait_for(process.communicate(), within)
    except asyncio.TimeoutError:
        process.kill()
        raise Broken(f"{' '.join(command[:3])}: not within {within} s") from None
    if process.returncode:
        raise Broken(f"{' '.join(command[:3])} ended with {process.returncode}: {out.decode()[-500:]}")


class Pod:
    def __init__(self, case, name):
        self.case, self.name = case, name
        self.log = os.path.join(case.dir, f"{name}.log")
        self.process = None
        self.stopped = False

    async def start(self, sections):
        config = os.path.join(self.case.dir, f"{self.name}.conf")
        write_config(config, sections)
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                self.case.binary, "run", "--config", config, "--name", self.name, stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.case.dir, preexec_fn=stack.die_with_parent)

    def alive(self):
        return self.process is not None and self.process.returncode is None

    def signal(self, number):
        if self.alive():
            self.process.send_signal(number)
            self.stopped = number == signal.SIGSTOP

    def said(self, event):
        with open(self.log, "rb") as log:
            for line in log:
                if event.encode() in line:
                    try:
                        row = json.loads(line)
                    except ValueError:
                        continue
                    if row.get("event") == event:
                        return row
        return None

    async def ready(self):
        """Its console answers 200 to /readyz."""
        row = self.said("console.listening")
        if not row:
            return False
        host, port = row["address"].rsplit(":", 1)
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 2)
            writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
            line = await asyncio.wait_for(reader.readline(), 2)
            writer.close()
        except (OSError, asyncio.TimeoutError):
            return False
        return b" 200" in line

    async def end(self):
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            await self.process.wait()


def write_config(path, sections):
    with open(path, "w", encoding="utf-8") as out:
        for section, rows in sections.items():
            out.write(f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items()) + "\n")


class Case:
    """One run in surroundings of its own. point None: a calm run, recorded."""

    def __init__(self, world, name, flow, point=None, action=None):
        self.world, self.name, self.flow, self.point, self.action = world, name, flow, point, action
        self.binary = world.binary
        self.dir = os.path.join(world.dir, name)
        self.database, self.prefix, self.task = f"cut_{name}", f"{name}.", f"t-{name}"
        self.fronts, self.pods = {}, []
        self.counts = collections.Counter()
        self.since_start = collections.Counter()
        self.counting, self.fired = False, asyncio.Event()
        self.remote, self.remote_server, self.db = None, None, None
        self.timeline = []

    # ---- what the proxy asks ----

    def watch(self, message):
        key = (message.protocol, message.kind)
        self.since_start[key] += 1
        if not self.counting:
            return None
        self.counts[key] += 1
        if self.point is None or self.fired.is_set() or key != self.point[1:3] or self.counts[key] != self.point.number:
            return None
        self.fired.set()
        self.note(f"{self.action} at {message.protocol} {message.kind} {self.point.number}")
        if self.action == "kill":
            return lambda link: self.pods[0].signal(signal.SIGKILL)
        if self.action == "stop":
            return lambda link: self.pods[0].signal(signal.SIGSTOP)
        return self.action

    def note(self, text):
        self.timeline.append(f"{time.strftime('%H:%M:%S')} {text}")

    # ---- surroundings ----

    def sections(self, direct):
        """What a pod is configured with; direct: past the proxy."""
        world = self.world
        port = {protocol: (front.target if direct else front.port) for protocol, front in self.fronts.items()}
        tool = {"kind": "http", "allow_private": "true", "timeout_ms": "1500", "connect_timeout_ms": "700"}
        return {
            "postgres": {"dsn": f"postgresql://cut_pod@127.0.0.1:{port['pg']}/{self.database}"
                                "?sslmode=disable&gssencmode=disable",
                         "call_timeout_ms": "4000", "connect_timeout_ms": "4000"},
            "redis": {"url": f"redis://127.0.0.1:{port['redis']}/0", "prefix": f"{self.name}:"},
            "kafka": {"bootstrap.servers": f"127.0.0.1:{port['kafka']}", "socket.timeout.ms": "5000",
                      "consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1000",
                      "reconnect.backoff.max.ms": "1000"},
            "topics": {"prefix": self.prefix, "partitions": "1", "replication_factor": "1"},
            "pod": {"development": "true"},
            "lease": {"ttl_ms": "2000", "heartbeat_ms": "400", "heartbeat_timeout_ms": "400"},
            "pool": {"grace_ms": "3000", "workers": "1"},
            "sweep": {"interval_ms": "400", "ttl_ms": "1500"},
            "ingest": {"group": f"{self.name}-pods"},
            "dispatch": {"claim_ttl_ms": "2500", "interval_ms": "400", "retry_ms": "200", "retry_max_ms": "1000",
                         "group": f"{self.name}-dispatchers"},
            "relay": {"lanes": "1", "shard_ttl_ms": "1500", "interval_ms": "100", "transaction_timeout_ms": "5000"},
            "admin": {"listen": "127.0.0.1:0"},
            "log": {"level": "debug"},
            "handler.steps": {"kind": "exec", "command": f"{sys.executable} {HANDLER}"},
            "tool.safe": {**tool, "url": f"http://127.0.0.1:{port['http']}/idem/safe",
                          "capability": "idempotency_key", "retention_ms": "3600000"},
            "tool.bare": {**tool, "url": f"http://127.0.0.1:{port['http']}/bare", "capability": "none"},
        } | world.extra

    async def set_up(self):
        os.makedirs(self.dir, exist_ok=True)
        self.remote = remote.Remote()
        self.remote_server = await asyncio.start_server(
            lambda r, w: remote.serve(self.remote, r, w), "127.0.0.1", 0, limit=1 << 22)
        targets = {"pg": self.world.stack.pg.port, "kafka": self.world.stack.kafka.port,
                   "redis": self.world.stack.redis.port, "http": self.remote_server.sockets[0].getsockname()[1]}
        for protocol in PROTOCOLS:
            self.fronts[protocol] = await proxy.Front(protocol, targets[protocol], self.watch).start()
        await self.world.create_database(self.database)
        self.db = await self.world.connect(self.database)
        config = os.path.join(self.dir, "admin.conf")
        sections = self.sections(direct=True)
        sections["postgres"]["dsn"] = self.world.stack.pg.url(self.database)
        write_config(config, sections)
        async with self.world.topics_at_once:   # many at once would only wait for each other in the broker
            await run_program(self.binary, "topics", "apply", "--config", config)
        pod = Pod(self, "p1")
        self.pods.append(pod)
        await pod.start(self.sections(direct=False))
        await self.until(pod.ready, CASE_LIMIT, "p1 is ready", Broken)

        async def assigned():
            return self.since_start["kafka", "OffsetFetch"] >= CONSUMERS
        await self.until(assigned, CASE_LIMIT, "p1 reads its topics", Broken)

    async def until(self, fact, limit, what, error=Wrong):
        end = time.monotonic() + limit
        while not await fact():
            if time.monotonic() > end:
                raise error(f"{what}: not within {limit:g} s")
            await asyncio.sleep(POLL)

    async def value(self, sql):
        return (await (await self.db.execute(sql)).fetchone())[0]

    async def over(self):
        """The run has ended, or waits for a person because nobody can know; and all events are published."""
        return await self.value(
            "select (select count(*) from holdfast.agent_runs) = 1"
            "   and not exists (select from holdfast.agent_runs r where r.status in ('pending', 'running')"
            "        and not exists (select from holdfast.unknown_operations u where u.run_id = r.run_id"
            "                        and u.capability = 'none'))"
            "   and not exists (select from holdfast.worker_leases where owner is not null)"
            "   and not exists (select from holdfast.outbox_events)")

    async def play(self):
        """Returns True when the point was reached; raises Wrong."""
        await self.set_up()
        self.counting = True
        self.note("submitted")
        record = {"task_id": self.task, "request_id": f"r-{self.name}", **FLOWS[self.flow]}
        await self.world.produce(f"{self.prefix}tasks", self.task, json.dumps(record))

        async def fired_or_over():
            return self.fired.is_set() or await self.over()
        await self.until(fired_or_over, CASE_LIMIT, "the run has ended")
        if self.point is None:
            self.counting = False
        elif not self.fired.is_set():
            # What comes after the end (a deleted batch, a stored offset, a beat) may still come.
            end = time.monotonic() + AFTER_S
            while not self.fired.is_set() and time.monotonic() < end:
                await asyncio.sleep(POLL)
        reached = self.fired.is_set()
        if self.action in ("kill", "stop", "blackhole") and reached:
            if self.action == "kill":
                await asyncio.wait_for(self.pods[0].process.wait(), 10)
            await self.next_pod()
        await self.until(self.over, CASE_LIMIT, "the run has ended and its events are published")
        self.note("over")
        if self.pods[0].stopped:
            self.pods[0].signal(signal.SIGCONT)
            self.note("p1 continued")
        # What a pod still had to say it says when it ends, and that may open the question again (a request that it
        # knows was never sent): then a pod that comes later must be able to finish.
        await self.hand_back()
        while not await self.over():
            if len(self.pods) > 4:
                raise Wrong("the run is open again after every pod that finished it")
            await self.next_pod()
            await self.until(self.over, CASE_LIMIT, "the run has ended after the pods' last words")
            await self.hand_back()
        await judge(self)
        return reached

    async def next_pod(self):
        pod = Pod(self, f"p{len(self.pods) + 1}")
        self.pods.append(pod)
        await pod.start(self.sections(direct=True))
        self.note(f"{pod.name} started")

    async def hand_back(self):
        """SIGTERM to every pod; each must end by itself, in order."""
        for pod in self.pods:
            pod.signal(signal.SIGTERM)
        for pod in self.pods:
            if self.action == "kill" and pod is self.pods[0] and self.fired.is_set():
                continue
            try:
                code = await asyncio.wait_for(pod.process.wait(), CASE_LIMIT)
            except asyncio.TimeoutError:
                raise Wrong(f"{pod.name} does not end after SIGTERM") from None
            if code != 0 and not (code == -signal.SIGTERM and not pod.said("pod.starting")):   # not yet a pod
                raise Wrong(f"{pod.name} ended with {code} after SIGTERM")

    async def take_down(self, keep):
        for pod in self.pods:
            await pod.end()
        for front in self.fronts.values():
            front.stop()
        if self.remote_server:
            self.remote_server.close()
        if self.db:
            await self.db.close()
        await self.world.drop(self)
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class World:
    """One PostgreSQL, one Kafka, one Redis for all cases."""

    def __init__(self, binary, directory, extra):
        self.binary, self.dir, self.extra = binary, directory, extra
        self.stack = stack.Stack("pg", "redis", "kafka", folder=os.path.join(directory, "stack"),
                                 pg={"settings": {"max_connections": 900, "autovacuum_naptime": "600s",
                                                  "shared_buffers": "256MB", "log_lock_waits": "off"}},
                                 kafka={"settings": {"group.min.session.timeout.ms": 500}, "heap": "768m"})
        self.threads = concurrent.futures.ThreadPoolExecutor(8)
        self.topics_at_once = asyncio.Semaphore(3)
        self.producer = None

    def prepare(self):
        from confluent_kafka import Producer
        self.producer = Producer({"bootstrap.servers": self.stack.kafka.bootstrap, "log_level": 0, "acks": "all"})
        dsn = self.stack.pg.create_database("cut_template")
        config = os.path.join(self.dir, "template.conf")
        write_config(config, {"postgres": {"dsn": dsn}, "kafka": {"bootstrap.servers": self.stack.kafka.bootstrap},
                              "pod": {"development": "true"}})
        import subprocess
        subprocess.run([self.binary, "migrate", "--shards", "1", "--config", config], check=True,
                       stdout=subprocess.DEVNULL)
        self.stack.pg.psql("create role cut_pod login in role holdfast_worker")

    async def connect(self, database):
        import psycopg
        return await psycopg.AsyncConnection.connect(self.stack.pg.url(database), autocommit=True)

    async def in_thread(self, work, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def create_database(self, name):
        async with await self.connect("postgres") as db:
            await db.execute(f'drop database if exists "{name}" with (force)')
            await db.execute(f'create database "{name}" template cut_template')

    async def produce(self, topic, key, value):
        def work():
            failed = []
            self.producer.produce(topic, value, key, on_delivery=lambda e, _m: failed.append(e) if e else None)
            self.producer.flush(30)
            if failed:
                raise Broken(f"submission: {failed[0]}")
        await self.in_thread(work)

    async def read_all(self, names):
        """Every committed record of the topics, up to the end as it is now; {topic: [(key, value, headers)]}."""
        return await self.in_thread(topics.read_all, self.stack.kafka.bootstrap, names)

    async def drop(self, case):
        """Its topics stay until the broker is stopped: to delete them costs it more than to keep them."""
        async with await self.connect("postgres") as db:
            await db.execute(f'drop database if exists "{case.database}" with (force)')


# ---- all of them ----

async def one(world, report, keep, name, flow, point=None, action=None):
    """Plays a case, again when the point moved away. Returns (case, state, text)."""
    text, came = "", 0
    for attempt in range(TRIES):
        moved = attempt == TRIES - 1 and 0 < came < point.number
        played = point._replace(number=came) if moved else point
        case = Case(world, f"{name}_{attempt}" if attempt else name, flow, played, action)
        state = "wrong"
        try:
            reached = await asyncio.wait_for(case.play(), CASE_LIMIT * 3)
            state = "ok" if reached or not point else "not_reached" if point[1:3] in CORE else "absent"
            state = "moved" if moved and state == "ok" else state
            came = case.counts[point[1:3]] if point else 0
        except Wrong as wrong:
            text = str(wrong)
        except (Broken, OSError, asyncio.TimeoutError) as broken:
            state, text = "broken", f"{type(broken).__name__}: {broken}"
        finally:
            failed = state == "wrong" or state == "broken" and attempt == TRIES - 1
            if failed:
                await report(case, state, text)
            elif state == "broken":
                print(f"could not be played, again: {case.name}: {text[:300]}", flush=True)
            await case.take_down(keep or failed)
        if state in ("ok", "wrong", "moved"):
            break
    return case, state, text


def pick_points(calm, idle):
    """Of each kind as many as every calm run had; of what a pod says without work a few."""
    points = []
    for flow, counters in calm.items():
        for key in sorted(set.intersection(*(set(c) for c in counters))):
            number = min(c[key] for c in counters)
            if key in idle or key in BY_CLOCK or key[1].startswith(("prepare ", "Startup")):
                number = min(number, IDLE_KINDS)
            points += [Point(flow, *key, n) for n in range(1, number + 1)]
    return points


def cases_of(points):
    """Torn can only be what has an end of its own."""
    return [(point, action) for point in points for action in ACTIONS
            if action != "torn" or point.protocol in ("pg", "http")]


async def record_idle(world, keep):
    """What a pod says without work."""
    case = Case(world, "idle", "plan")
    try:
        await case.set_up()
        case.counting = True
        end = time.monotonic() + IDLE_S   # what is measured is a stretch of time
        while time.monotonic() < end:
            await asyncio.sleep(POLL)
        return set(case.counts)
    finally:
        await case.take_down(keep)


async def everything(options, world):
    failures, begin = [], time.monotonic()

    async def report(case, state, text):
        what = f"{case.flow} {case.point and ' '.join(map(str, case.point[1:]))} {case.action}"
        failures.append((what, state, text))
        print(f"\n== {state}: {what}: {text}\n   case {case.name}; {'; '.join(case.timeline)}; logs in {case.dir}",
              flush=True)

    flows = [flow for flow in FLOWS if options.flow in (None, flow)]
    idle = await record_idle(world, options.keep)
    calm = {flow: [] for flow in flows}
    # As many side by side as later, for what comes how often depends on how busy the machine is.
    gate = asyncio.Semaphore(options.side_by_side)

    async def calm_run(flow, n):
        async with gate:
            return await one(world, report, options.keep, f"calm_{flow}_{n}", flow)
    recorded = await asyncio.gather(*(calm_run(flow, n) for flow in flows for n in range(CALM_RUNS)))
    for case, state, text in recorded:
        if state != "ok":
            return {"cases": 0, "wrong": 0, "not_reached": 0, "error": f"a calm run failed: {text}"}, 2
        calm[case.flow].append(case.counts)
    points = pick_points(calm, idle)
    todo = cases_of(points)
    if options.only:
        todo = [c for c in todo if options.only in f"{c[0].flow} {c[0].protocol} {c[0].kind} {c[0].number} {c[1]}"]
    total = len(todo)
    if options.limit and options.limit < total:   # spread over all points and actions
        step = total / options.limit
        todo = [todo[int(n * step)] for n in range(options.limit)]
    if options.list:
        for point, action in todo:
            print(*point, action)
    by_protocol = collections.Counter(point.protocol for point in points)
    print(f"{len(points)} points ({', '.join(f'{n} {p}' for p, n in by_protocol.items())}), {total} cases, "
          f"{len(todo)} played, {options.side_by_side} side by side; {time.monotonic() - begin:.0f} s", flush=True)
    random.Random(1).shuffle(todo)   # so that what waits long is spread
    states, slow = collections.Counter(), []
    queue = list(enumerate(todo))

    async def lane():
        while queue:
            number, (point, action) = queue.pop()
            began = time.monotonic()
            _, state, _ = await one(world, report, options.keep, f"c{number}", point.flow, point, action)
            states[state] += 1
            slow.append((time.monotonic() - began, f"{' '.join(map(str, point))} {action}"))
            if state in ("not_reached", "absent", "moved"):
                print(f"{state}: {' '.join(map(str, point))} {action}", flush=True)
            if sum(states.values()) % 25 == 0:
                print(f"[{time.monotonic() - begin:5.0f} s] {dict(states)}", flush=True)
    await asyncio.gather(*(lane() for _ in range(options.side_by_side)))
    for seconds, what in sorted(slow)[-5:]:
        print(f"slowest: {seconds:.1f} s {what}")
    for what, state, text in failures:
        print(f"{state}: {what}: {text}")
    answer = {"cases": sum(states.values()) - states["absent"], "wrong": states["wrong"] + states["broken"],
              "not_reached": states["not_reached"], "moved": states["moved"], "absent": states["absent"],
              "points": len(points),
              "seconds": round(time.monotonic() - begin)}
    return answer, 0 if answer["cases"] and not answer["wrong"] and not answer["not_reached"] else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--limit", type=int, help="play so many cases, spread over all")
    parser.add_argument("--side-by-side", type=int, default=16)
    parser.add_argument("--only", help="cases whose name contains this text")
    parser.add_argument("--flow", choices=list(FLOWS))
    parser.add_argument("--list", action="store_true", help="print the cases that are played")
    parser.add_argument("--keep", action="store_true", help="leave the cases' folders")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="holdfast-cut-")
    code, answer = 2, {"cases": 0, "wrong": 0, "not_reached": 0}
    world = None

    def stopped(*_):
        """From outside: pods end with us, servers are stopped here."""
        if world:
            world.stack.close()
        print(json.dumps({**answer, "error": "stopped by a signal"}), flush=True)
        os._exit(2)
    signal.signal(signal.SIGTERM, stopped)
    signal.signal(signal.SIGINT, stopped)
    try:
        world = World(os.path.abspath(options.binary), directory, {})
        with world.stack:
            world.prepare()
            answer, code = asyncio.run(everything(options, world))
    except Exception as error:  # whatever it is: the caller wants its line
        answer["error"] = f"{type(error).__name__}: {error}"
    if code == 0 and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(answer), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

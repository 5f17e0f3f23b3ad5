"""Random overlapping faults under load, then quiet, a full drain, and independent judges.

    run.py --binary HOLDFAST --porcupine PROGRAM [--minutes N] [--seed S] [--rate R] [--write]

Seed and commit say which schedule of faults it was. N is the time with faults; start, calm run and drain come on top.
Red is also a run in which a kind of fault was not injected, a refusal or a step of the ledger was never seen, or fewer
runs ended than half of the calm rate: a test that never reached the dangerous state has failed. --write appends the run
to docs/FAULTS.md. The last line is JSON. Exit: 0 holds, 1 does not, 2 could not run.
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
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "lib"), HERE]
import proxy    # noqa: E402
import remote   # noqa: E402
import stack    # noqa: E402
from faults import Nemesis   # noqa: E402
from judge import Judge                     # noqa: E402
from load import Load                       # noqa: E402
from topics import read_all                 # noqa: E402

PODS = 3
TTL_MS = 2000
CALM_S = 15.0
EVERY_S = 1.7          # a fault begins about so often
DRAIN_LIMIT_S = 240.0
PREFIX = "chaos."
# What must have been seen in a run of some minutes: (name, SQL that counts it).
SEEN = {
    "commit refused: lease_lost": "select count(*) from holdfast.refusals where verb = 'commit' and reason = 'lease_lost'",
    "renewal refused: lost": "select count(*) from holdfast.refusals where verb = 'renew' and reason = 'lost'",
    "take-over": "select count(*) from holdfast.run_history where kind = 'taken_over'",
    "request_conflict": "select count(*) from holdfast.requests where outcome = 'request_conflict'",
    "duplicate": "select count(*) from holdfast.requests where outcome = 'duplicate'",
    "cancelled": "select count(*) from holdfast.requests where verb = 'cancel' and outcome = 'cancelled'",
    "already_terminal": "select count(*) from holdfast.requests where verb = 'cancel' and outcome = 'already_terminal'",
    "retry created": "select count(*) from holdfast.requests where verb = 'retry' and outcome = 'created'",
    "failed": "select count(*) from holdfast.agent_runs where status = 'failed'",
    "operation succeeded after doubt":
        "select count(*) from holdfast.tool_operations where status = 'succeeded' and attempts > attempts_not_sent + 1",
    "operation in doubt": "select count(*) from holdfast.unknown_operations where capability = 'none'",
    "claim expired": "select count(*) from holdfast.operation_evidence where kind = 'expired'",
}


class CannotRun(Exception):
    """Nothing is said about the product."""


class Weather(remote.Remote):
    """The remote of all runs, with a fault for everybody while there is one."""

    def __init__(self):
        super().__init__()
        self.weather = {}

    def choose(self, request):
        return dict(self.weather)


class Pod:
    def __init__(self, world, name, front):
        self.world, self.name, self.front = world, name, front
        self.process, self.lives, self.log = None, 0, None

    async def start(self, clock=0):
        if self.process is not None:
            return
        self.lives += 1
        self.log = os.path.join(self.world.dir, f"{self.name}.{self.lives}.log")
        self.world.logs.append((self.log, clock))
        environment = dict(os.environ)
        if clock:
            environment.update(LD_PRELOAD=self.world.clock, CLOCK_SHIFT_S=str(clock))
        config = self.world.config(self.front)
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                self.world.binary, "run", "--config", config, "--name", self.name, stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.world.dir, env=environment, preexec_fn=stack.die_with_parent)

    def signal(self, number):
        if self.process and self.process.returncode is None:
            self.process.send_signal(number)

    async def kill(self):
        self.signal(signal.SIGKILL)
        await self.ended(signal.SIGKILL)

    async def term(self, limit=60):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        await self.ended(signal.SIGTERM, limit)

    async def ended(self, why, limit=20):
        if self.process is None:
            return
        process, self.process = self.process, None
        try:
            code = await asyncio.wait_for(process.wait(), limit)
        except asyncio.TimeoutError:
            self.world.trouble.append(f"{self.name} did not end within {limit} s after {signal.Signals(why).name}; {self.log}")
            process.kill()
            await process.wait()
            return
        if code not in ((-9,) if why == signal.SIGKILL else (0,)):
            self.world.trouble.append(f"{self.name} ended with {code} after {signal.Signals(why).name}; log {self.log}")

    def crashed(self):
        """It ended and nobody asked it to."""
        return self.process is not None and self.process.returncode is not None


class World:
    def __init__(self, options, directory):
        self.options, self.dir = options, directory
        self.binary, self.porcupine = os.path.abspath(options.binary), os.path.abspath(options.porcupine)
        self.ttl = TTL_MS / 1000
        self.clock = os.path.join(directory, "clock.so")
        done = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.clock, os.path.join(HERE, "clock.c"), "-ldl"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotRun(f"clock.c: {done.stderr}")
        os.chmod(directory, 0o755)
        # Kafka is to wait for the disk no more than the others: processes are killed, the machine is not.
        self.stack = stack.Stack("pg", "redis", "kafka", folder=os.path.join(directory, "stack"),
                                 pg={"settings": {"max_connections": 400}}, kafka={"heap": "768m"})
        self.threads = concurrent.futures.ThreadPoolExecutor(16)
        self.logs, self.trouble = [], []
        self.fronts, self.pods, self.extras = {}, [], 0
        self.remote, self.remote_server, self.load = Weather(), None, None
        self.porcupine_answer, self.events_read = {}, 0
        self.begin, self.stood_still = time.monotonic(), 0.0

    def say(self, text):
        print(f"[{time.monotonic() - self.begin:6.1f} s] {text}", flush=True)

    async def in_thread(self, work, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def connect(self):
        import psycopg
        return await psycopg.AsyncConnection.connect(self.stack.pg.dsn, autocommit=True, connect_timeout=5)

    async def sql(self, text, patience=60):
        """Asked again while the server is away, which is what we do to it."""
        import psycopg
        end = time.monotonic() + patience
        while True:
            try:
                async with await self.connect() as db:
                    cursor = await db.execute(text)
                    return await cursor.fetchall() if cursor.description else []
            except psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.3)

    def redis_command(self, *words):
        import redis
        client = redis.Redis(port=self.stack.redis.port, socket_timeout=1, decode_responses=True)
        try:
            return client.execute_command(*words)
        except (redis.RedisError, OSError):
            return None   # it is away by another fault
        finally:
            client.close()

    async def read_all(self, topic):
        return (await self.in_thread(read_all, self.stack.kafka.bootstrap, [PREFIX + topic]))[PREFIX + topic]

    def config(self, front):
        """The file a pod is started with: through the proxy or past it."""
        port = {name: f.port if front or name == "http" else f.target for name, f in self.fronts.items()}
        path = os.path.join(self.dir, "front.conf" if front else "direct.conf")
        tool = {"kind": "http", "allow_private": "true", "timeout_ms": "1500", "connect_timeout_ms": "700"}
        sections = {
            "postgres": {"dsn": f"postgresql://chaos_pod@127.0.0.1:{port['pg']}/{self.stack.pg.database}"
                                "?sslmode=disable&gssencmode=disable", "call_timeout_ms": "3000",
                         "connect_timeout_ms": "3000"},
            "redis": {"url": self.stack.redis.url},
            "kafka": {"bootstrap.servers": f"127.0.0.1:{port['kafka']}", "socket.timeout.ms": "4000",
                      "consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1000",
                      "reconnect.backoff.max.ms": "1000"},
            "topics": {"prefix": PREFIX, "partitions": "8", "replication_factor": "1"},
            "pod": {"development": "true"},
            "lease": {"ttl_ms": str(TTL_MS), "heartbeat_ms": "400", "heartbeat_timeout_ms": "500"},
            "pool": {"grace_ms": "4000", "workers": "2"},
            "sweep": {"interval_ms": "300", "ttl_ms": "1500"},
            "dispatch": {"claim_ttl_ms": "2500", "interval_ms": "300", "retry_ms": "200", "retry_max_ms": "2000"},
            "relay": {"shard_ttl_ms": "1500", "interval_ms": "50", "transaction_timeout_ms": "5000"},
            "admin": {"listen": "127.0.0.1:0"},
            "log": {"level": "debug"},
            "handler.steps": {"kind": "exec", "processes": "8",
                              "command": f"{sys.executable} {os.path.join(HERE, 'handler.py')}"},
            "tool.safe": {**tool, "url": f"http://127.0.0.1:{port['http']}/idem/safe",
                          "capability": "idempotency_key", "retention_ms": "36000000"},
            "tool.bare": {**tool, "url": f"http://127.0.0.1:{port['http']}/bare", "capability": "none"}}
        with open(path, "w", encoding="utf-8") as out:
            for section, rows in sections.items():
                out.write(f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items()) + "\n")
        return path

    def extra_pod(self):
        self.extras += 1
        return Pod(self, f"extra{self.extras}", False)

    async def set_up(self):
        self.remote_server = await asyncio.start_server(lambda r, w: remote.serve(self.remote, r, w), "127.0.0.1", 0,
                                                        limit=1 << 22, backlog=4096)
        for name, target in (("pg", self.stack.pg.port), ("kafka", self.stack.kafka.port),
                             ("http", self.remote_server.sockets[0].getsockname()[1])):
            self.fronts[name] = await proxy.Front(name, target, parse=False).start()
        config = self.config(False)
        for command in (("migrate",), ("topics", "apply")):
            done = await self.in_thread(lambda command=command: subprocess.run(
                [self.binary, *command, "--config", config, "--set", f"postgres.dsn={self.stack.pg.dsn}"],
                capture_output=True, text=True, timeout=120, check=False))
            if done.returncode:
                raise CannotRun(f"holdfast {' '.join(command)}: {done.stderr.strip()}")
        await self.sql("create role chaos_pod login in role holdfast_worker")
        # Tokens are what the histories of leases are read from: keep them all.
        await self.sql("update holdfast.control set token_keep_ms = 86400000")
        self.pods = [Pod(self, f"p{n + 1}", front=n < PODS - 1) for n in range(PODS)]
        for pod in self.pods:
            await pod.start()
        self.load = Load(self.stack.kafka.bootstrap, PREFIX + "tasks", random.Random(self.options.seed + 1),
                         self.options.rate)

    async def ends(self):
        return (await self.sql("select count(*) from holdfast.run_history"
                               " where kind in ('succeeded', 'failed', 'cancelled')"))[0][0]

    def lag(self):
        """Records of the task topic that the pods' group has not stored as done."""
        from confluent_kafka import Consumer, TopicPartition
        consumer = Consumer({"bootstrap.servers": self.stack.kafka.bootstrap, "group.id": "holdfast-pods",
                             "enable.auto.commit": False, "log_level": 0})
        try:
            places = [TopicPartition(PREFIX + "tasks", n) for n in range(8)]
            total = 0
            for place in consumer.committed(places, timeout=15):
                _, high = consumer.get_watermark_offsets(place, timeout=15)
                total += high - max(place.offset, 0)
            return total
        finally:
            consumer.close()

    async def drained(self):
        facts = (await self.sql(
            "select (select count(*) from holdfast.agent_runs r where status in ('pending', 'running') and not exists"
            "   (select from holdfast.unknown_operations u where u.run_id = r.run_id and u.capability = 'none')),"
            " (select count(*) from holdfast.outbox_events),"
            " (select count(*) from holdfast.tool_operations where status in ('prepared', 'dispatching')"
            "    or (status = 'unknown' and not (capability = 'none' and attempts > attempts_not_sent))),"
            " (select count(*) from holdfast.worker_leases where owner is not null)"))[0]
        waiting = dict(zip(("open runs", "events", "operations", "leases"), facts), lag=await self.in_thread(self.lag))
        return waiting if any(waiting.values()) else None

    async def drain(self, limit):
        end, said = time.monotonic() + limit, None
        while True:
            waiting = await self.drained()
            if not waiting:
                return
            if said is None or time.monotonic() > said + 10:
                said = time.monotonic()
                self.say(f"not yet: {waiting}")
            if time.monotonic() > end:
                self.trouble.append(f"not drained {limit:g} s after the last fault: {waiting}")
                return
            await self.watch_pods()
            await asyncio.sleep(0.5)

    async def watch_pods(self):
        for pod in self.pods:
            if pod.crashed():
                self.trouble.append(f"{pod.name} ended by itself with {pod.process.returncode}; log {pod.log}")
                pod.process = None
                await pod.start()

    async def hand_back(self):
        await asyncio.gather(*(pod.term() for pod in self.pods))

    async def close(self):
        for pod in self.pods:
            pod.signal(signal.SIGCONT)
            pod.signal(signal.SIGKILL)
            if pod.process:
                await pod.process.wait()


async def watch_ourselves(world):
    """Tells when the harness itself stood still: what was slow then was not the product."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.5)
        late = time.monotonic() - before - 0.5
        if late > 2:
            world.stood_still += late
            world.say(f"the harness itself stood still for {late:.1f} s")


async def play(options, world):
    # A remote whose caller was reset in the middle of a request says so on the loop; that is what we do to it.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    rng = random.Random(options.seed)
    nemesis = Nemesis(world, rng)
    await world.set_up()
    watcher = asyncio.ensure_future(watch_ourselves(world))
    world.say(f"seed {options.seed}, commit {options.commit}, {len(nemesis.kinds)} kinds of faults")

    world.load.start()   # first records also warm what is cold: the calm rate is taken after them
    end = time.monotonic() + 90
    while await world.ends() < 50:
        if time.monotonic() > end:
            raise CannotRun("the calm pods do not work")
        await asyncio.sleep(0.2)
    before, began = await world.ends(), time.monotonic()
    while time.monotonic() < began + CALM_S:
        await asyncio.sleep(0.1)
    calm = (await world.ends() - before) / (time.monotonic() - began)
    world.say(f"calm: {calm:.0f} runs end a second")

    faults_begin, faults_end = time.monotonic(), time.monotonic() + options.minutes * 60
    ends_before = await world.ends()
    while time.monotonic() < faults_end:
        await world.watch_pods()
        kind, target = nemesis.draw()
        if kind:
            nemesis.start(kind, target, rng.uniform(0.2, 3.5))
        await asyncio.sleep(rng.uniform(0.5, 1.5) * EVERY_S)
    rate = (await world.ends() - ends_before) / (time.monotonic() - faults_begin)
    world.load.stop()
    world.say("quiet: faults are healed, nothing is submitted")
    await nemesis.heal()
    await world.in_thread(world.load.flush, 120)
    world.say("healed: everything must drain")
    await world.drain(DRAIN_LIMIT_S)
    world.say("drained: pods hand back")
    await world.hand_back()
    if await world.drained():   # what pods said when they ended may have opened something again
        for pod in world.pods:
            await pod.start()
        await world.drain(60)
        await world.hand_back()

    watcher.cancel()
    world.say("judged")
    violations = await Judge(world).all() + world.trouble
    hollow = [f"no fault of kind {kind}" for kind in nemesis.kinds if kind not in nemesis.injected]
    seen = {}
    for name, sql in SEEN.items():
        seen[name] = (await world.sql(sql))[0][0]
        if not seen[name]:
            hollow.append(f"never seen: {name}")
    if rate < calm / 2:
        hollow.append(f"{rate:.0f} runs a second with faults, {calm:.0f} without")
    runs = (await world.sql("select count(*) from holdfast.agent_runs"))[0][0]
    operations = (await world.sql(
        "select (select count(*) from holdfast.requests) + (select coalesce(sum(epoch), 0) from holdfast.worker_leases)"
        " + (select count(*) from holdfast.run_history where kind in ('succeeded', 'failed', 'cancelled'))"
        " + (select coalesce(sum(attempts), 0) from holdfast.tool_operations)"
        " + (select coalesce(sum(refused), 0) from holdfast.refusals)"))[0][0]
    refusals = await world.sql("select verb, reason, sum(refused)::bigint from holdfast.refusals group by 1, 2 order by 1, 2")
    print(f"faults: {json.dumps(dict(sorted(nemesis.injected.items())))}")
    print(f"seen: {json.dumps(seen)}")
    print(f"refusals: {json.dumps({f'{v} {r}': n for v, r, n in refusals})}")
    print(f"leases judged by Porcupine: {json.dumps(world.porcupine_answer)}; events read: {world.events_read}; "
          f"executions: {len(world.remote.executions)}; {calm:.0f} runs/s calm, {rate:.0f} with faults")
    for text, count in collections.Counter(violations).most_common():
        print(f"VIOLATION: {text}" + (f" ({count} times)" if count > 1 else ""))
    for text in hollow:
        print(f"HOLLOW: {text}")
    return {"faults": sum(nemesis.injected.values()), "kinds": len(nemesis.injected), "runs": runs,
            "operations": int(operations), "violations": len(violations), "seed": options.seed,
            "commit": options.commit, "hollow": len(hollow), "refused": int(sum(n for _, _, n in refusals)),
            "calm_rate": round(calm, 1), "rate": round(rate, 1), "stood_still_s": round(world.stood_still)}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def write(answer, minutes):
    """Appends one line to the ledger of runs."""
    row = (f"| {time.strftime('%Y-%m-%d')} | {answer['commit']} | {answer['seed']} | {minutes:g} | {answer['faults']} | "
           f"{answer['kinds']} | {answer['runs']} | {answer['operations']} | {answer['refused']} | {answer['violations']} |\n")
    with open(os.path.join(ROOT, "docs", "FAULTS.md"), "a", encoding="utf-8") as out:
        out.write(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--porcupine", required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--rate", type=float, default=70, help="submissions a second")
    parser.add_argument("--write", action="store_true", help="append the run to docs/FAULTS.md")
    parser.add_argument("--keep", action="store_true", help="leave the logs")
    options = parser.parse_args()
    options.commit = commit()
    answer, code = {"faults": 0, "kinds": 0, "runs": 0, "operations": 0, "violations": 0, "seed": options.seed,
                    "commit": options.commit}, 2
    directory = tempfile.mkdtemp(prefix="holdfast-chaos-")
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
        world = World(options, directory)
        with world.stack:
            async def whole():
                try:
                    return await play(options, world)
                finally:
                    await world.close()
            answer = asyncio.run(whole())
            code = 1 if answer["violations"] or answer["hollow"] else 0
            if options.write:
                write(answer, options.minutes)
    except Exception as error:  # whatever it is: the caller wants its line
        answer["error"] = f"{type(error).__name__}: {error}"
    if code == 0 and not options.keep:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        print(f"logs: {directory}")
    print(json.dumps(answer), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Private PostgreSQL, Redis and Kafka for tests, the demo and benches.

Each server has its own folder, a free loopback port, a readiness check with a time limit, and is stopped when the
block ends, when it fails, and (by the kernel) when this process is killed. It keeps its port over restarts.

    with Postgres() as pg, Redis() as redis, Kafka() as kafka:
        pg.dsn, redis.url, kafka.bootstrap

or as a program in the foreground, which prints one line of JSON when all are ready and stops on SIGTERM:

    python3 tests/lib/stack.py --dir /tmp/mine pg redis kafka
"""
import argparse
import contextlib
import ctypes
import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPS = os.environ.get("HOLDFAST_DEPS", os.path.join(ROOT, ".deps"))
HOST = "127.0.0.1"
_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """For preexec_fn: the child gets SIGKILL when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class StackError(RuntimeError):
    """A server did not do what it should; the text carries the tail of its log."""


def free_port():
    """A loopback port below the ephemeral range, where no outgoing connection takes it between now and the start."""
    for _ in range(200):
        port = 12000 + int.from_bytes(os.urandom(2), "big") % 20000
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
                return port
            except OSError:
                continue
    raise StackError("no free loopback port found")


def wait_until(fact, timeout, what, every=0.05):
    """Waits for fact() to be true and returns its value; an exception of the fact counts as not yet."""
    end = time.monotonic() + timeout
    last = None
    while True:
        try:
            value = fact()
            if value:
                return value
            last = None
        except Exception as error:  # the fact may fail while the server comes up
            if isinstance(error, StackError):
                raise
            last = error
        if time.monotonic() > end:
            raise StackError(f"{what}: not within {timeout} s" + (f" ({last})" if last else ""))
        time.sleep(every)


class Server:
    """One server process: start, stop, kill -9, pause, go on."""

    name = "server"
    stop_signals = (signal.SIGTERM, signal.SIGKILL)
    start_timeout = 60
    user = None

    def __init__(self, folder=None):
        self.own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix=f"holdfast-{self.name}-")
        os.makedirs(self.folder, exist_ok=True)
        self.log = os.path.join(self.folder, f"{self.name}.log")
        self.process = None
        self.prepared = False

    # What a kind of server says about itself.
    def prepare(self):
        """Makes the data folder and the configuration, once."""

    def command(self):
        raise NotImplementedError

    def environment(self):
        return None

    def ready(self):
        raise NotImplementedError

    def launch(self):
        """Starts the process and does not wait for it to be ready."""
        if not self.prepared:
            self.prepare()
            self.prepared = True
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=self.environment(),
                start_new_session=True, preexec_fn=self._before_exec)
        return self

    def _before_exec(self):
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.setgroups([entry.pw_gid])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        # After setuid, which clears it. A server must not outlive a test that was killed.
        _libc.prctl(PR_SET_PDEATHSIG, self.stop_signals[-2 if len(self.stop_signals) > 2 else -1])

    def wait_ready(self):
        def fact():
            if self.process.poll() is not None:
                raise StackError(f"{self.name} ended with {self.process.returncode} at start\n{self.log_tail()}")
            return self.ready()
        try:
            wait_until(fact, self.start_timeout, f"{self.name} ready")
        except StackError as error:
            tail = "" if "\n" in str(error) else "\n" + self.log_tail()
            self.kill()
            raise StackError(f"{error}{tail}") from None
        return self

    def start(self):
        return self.launch().wait_ready()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, patience=15):
        if not self.alive():
            self.process = None
            return
        self.signal(signal.SIGCONT)
        for number in self.stop_signals:
            self.signal(number)
            try:
                self.process.wait(patience)
                break
            except subprocess.TimeoutExpired:
                continue
        self._sweep_group()
        self.process = None

    def kill(self):
        """SIGKILL to the whole group, as a machine that vanishes."""
        if self.process is None:
            return
        self._sweep_group()
        self.process.wait(10)
        self.process = None

    def discard(self):
        """Ends it without its leave: its data are thrown away anyway, and an orderly end can take a minute."""
        if self.alive():
            self.kill()

    def _sweep_group(self):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def restart(self, kill=False):
        self.kill() if kill else self.stop()
        return self.start()

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def pause(self):
        """SIGSTOP to the whole group: connections stay open and nothing answers."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def log_tail(self, lines=30):
        with contextlib.suppress(OSError), open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-lines:])
        return ""

    def close(self):
        if self.own_folder and not os.environ.get("HOLDFAST_KEEP"):
            self.discard()
        elif self.alive():
            with contextlib.suppress(ProcessLookupError):
                self.resume()
            self.stop()
        if self.own_folder and not os.environ.get("HOLDFAST_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


class Postgres(Server):
    """PostgreSQL of the distribution. As root it runs as `postgres`, its data in a folder that this user can enter."""

    name = "pg"
    stop_signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)

    def __init__(self, folder=None, database="holdfast", durable=False, settings=None):
        super().__init__(folder)
        self.port = free_port()
        self.database = database
        self.user = "postgres" if os.geteuid() == 0 else None
        self.data = None
        self.settings = {
            "listen_addresses": HOST, "port": self.port, "max_connections": 200, "shared_buffers": "128MB",
            "unix_socket_directories": "", "log_line_prefix": "%m [%p] %u ", "log_lock_waits": "on",
            "client_connection_check_interval": "2s", "max_wal_size": "2GB",
        }
        if not durable:  # the machine does not lose power in a test; processes killed lose nothing by this
            self.settings.update({"fsync": "off", "full_page_writes": "off"})
        self.settings.update(settings or {})

    @staticmethod
    def bindir():
        for candidate in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
            if os.path.exists(os.path.join(candidate, "initdb")):
                return candidate
        found = shutil.which("pg_config")
        if found:
            return subprocess.check_output([found, "--bindir"], text=True).strip()
        raise StackError("PostgreSQL's server programs are missing: run scripts/deps")

    def prepare(self):
        # Not under self.folder: a root-only folder or a clone under /root cannot be entered by `postgres`.
        self.data = tempfile.mkdtemp(prefix="holdfast-pgdata-", dir="/tmp")
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.data, entry.pw_uid, entry.pw_gid)
        run = subprocess.run(
            [os.path.join(self.bindir(), "initdb"), "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
             "--locale=C.UTF-8", "--no-sync"], capture_output=True, text=True, cwd="/", timeout=120,
            preexec_fn=self._before_exec, check=False)
        if run.returncode:
            raise StackError(f"initdb failed: {run.stdout}{run.stderr}")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as conf:
            for key, value in self.settings.items():
                conf.write(f"{key} = '{value}'\n")

    def command(self):
        return [os.path.join(self.bindir(), "postgres"), "-D", self.data]

    def psql(self, sql, database="postgres", check=True, extra=()):
        """Runs SQL by psql (also scripts with backslash commands); returns its output, tuples only."""
        run = subprocess.run(
            [os.path.join(self.bindir(), "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d",
             self.url(database), *extra], input=sql, capture_output=True, text=True, timeout=120, check=False)
        if check and run.returncode:
            raise StackError(f"psql: {run.stderr.strip()}")
        return run.stdout.strip()

    def ready(self):
        run = subprocess.run(
            [os.path.join(self.bindir(), "pg_isready"), "-q", "-h", HOST, "-p", str(self.port)], timeout=10,
            check=False)
        if run.returncode:
            return False
        if not self.psql(f"select 1 from pg_database where datname = '{self.database}'"):
            self.create_database(self.database)
        return True

    def create_database(self, name):
        self.psql(f'create database "{name}"')
        return self.url(name)

    def url(self, database=None, user="postgres"):
        return f"postgresql://{user}@{HOST}:{self.port}/{urllib.parse.quote(database or self.database)}"

    @property
    def dsn(self):
        return self.url()

    def _sweep_group(self):
        # Backends are in groups of their own: without their postmaster's shared memory they would linger.
        with contextlib.suppress(subprocess.SubprocessError, ProcessLookupError, PermissionError):
            children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True,
                                      check=False).stdout.split()
            super()._sweep_group()
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)

    def pause(self):
        for pid in self._family():
            os.kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _family(self):
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [self.process.pid] + [int(pid) for pid in children.stdout.split()]

    def close(self):
        super().close()
        if self.data and not os.environ.get("HOLDFAST_KEEP"):
            shutil.rmtree(self.data, ignore_errors=True)


class Redis(Server):
    name = "redis"
    start_timeout = 20

    def __init__(self, folder=None):
        super().__init__(folder)
        self.port = free_port()

    def command(self):
        program = shutil.which("redis-server")
        if not program:
            raise StackError("redis-server is missing: run scripts/deps")
        return [program, "--port", str(self.port), "--bind", HOST, "--save", "", "--appendonly", "no", "--dir",
                self.folder]

    def ready(self):
        with socket.create_connection((HOST, self.port), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")

    @property
    def url(self):
        return f"redis://{HOST}:{self.port}/0"


class Kafka(Server):
    """One Apache Kafka node in KRaft mode, from the jars of `scripts/deps --tests`."""

    name = "kafka"
    start_timeout = 120
    cluster = "aG9sZGZhc3QtdGVzdHMwMQ"

    def __init__(self, folder=None, settings=None, heap="512m"):
        super().__init__(folder)
        self.port = free_port()
        self.controller = free_port()
        self.heap = heap
        self.settings = {
            "process.roles": "broker,controller", "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{self.controller}", "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT", "log.dirs": os.path.join(self.folder, "data"),
            "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4, "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
            # A dead producer's transaction is looked for often: tests wait for that fact.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            # Topics are made by `topics apply`, not by a typo.
            "auto.create.topics.enable": "false", "num.network.threads": 2, "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 2097152, "group.min.session.timeout.ms": 1000,
        }
        self.settings.update(settings or {})
        self.properties = os.path.join(self.folder, "server.properties")
        self.log_start = 0

    def _java(self, heap, *arguments):
        libs = os.path.join(os.environ.get("HOLDFAST_KAFKA", os.path.join(DEPS, "kafka")), "libs")
        if not glob.glob(os.path.join(libs, "kafka_*.jar")):
            raise StackError("Kafka's jars are missing: run scripts/deps --tests")
        java = shutil.which("java")
        if not java:
            raise StackError("java is missing: run scripts/deps --tests")
        return [java, "-Xms64m", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
                "-cp", os.path.join(libs, "*"), *arguments]

    def prepare(self):
        with open(self.properties, "w", encoding="utf-8") as out:
            for key, value in self.settings.items():
                out.write(f"{key}={value}\n")
        run = subprocess.run(
            self._java("128m", "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", self.cluster, "-c",
                       self.properties),
            capture_output=True, text=True, timeout=120, check=False)
        if run.returncode:
            raise StackError(f"Kafka's storage could not be formatted: {run.stdout}{run.stderr}")

    def command(self):
        return self._java(self.heap, "kafka.Kafka", self.properties)

    def launch(self):
        self.log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        return super().launch()

    def ready(self):
        # Kafka's own word, said after the node has registered and serves requests. The log goes on over restarts.
        with open(self.log, "rb") as log:
            log.seek(self.log_start)
            return b"Kafka Server started" in log.read()

    @property
    def bootstrap(self):
        return f"{HOST}:{self.port}"


KINDS = {"pg": Postgres, "redis": Redis, "kafka": Kafka}


class Stack:
    """Several servers, started side by side. `stack.pg`, `stack.redis`, `stack.kafka`."""

    def __init__(self, *kinds, folder=None, **options):
        self.own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="holdfast-stack-")
        os.makedirs(self.folder, exist_ok=True)
        self.servers = {kind: KINDS[kind](os.path.join(self.folder, kind), **options.get(kind, {}))
                        for kind in kinds or KINDS}

    def __getattr__(self, kind):
        try:
            return self.__dict__["servers"][kind]
        except KeyError:
            raise AttributeError(kind) from None

    def __enter__(self):
        try:
            # Kafka takes longest: it comes up while the others are made.
            for kind in sorted(self.servers, key=lambda kind: kind != "kafka"):
                self.servers[kind].launch()
            for server in self.servers.values():
                server.wait_ready()
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

    def close(self):
        for server in self.servers.values():
            server.close()
        if self.own_folder and not os.environ.get("HOLDFAST_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def facts(self):
        known = {"dir": self.folder}
        if "pg" in self.servers:
            known["dsn"] = self.pg.dsn
        if "redis" in self.servers:
            known["redis_url"] = self.redis.url
        if "kafka" in self.servers:
            known["bootstrap"] = self.kafka.bootstrap
        return known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", help="folder for logs and data (default: a fresh one, removed at the end)")
    parser.add_argument("--durable", action="store_true", help="PostgreSQL with fsync and full page writes, for benches")
    parser.add_argument("--lifetime", type=float, help="stop after so many seconds")
    parser.add_argument("servers", nargs="*", choices=[*KINDS, []], help="pg redis kafka (default: all)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Stack(*arguments.servers, folder=arguments.dir, pg={"durable": arguments.durable}) as stack:
            print(json.dumps(stack.facts()), flush=True)
            if arguments.lifetime:
                signal.alarm(int(arguments.lifetime) or 1)
                signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))
            while True:
                signal.pause()
    except KeyboardInterrupt:
        pass
    except StackError as error:
        print(f"stack: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

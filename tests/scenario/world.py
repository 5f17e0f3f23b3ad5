"""What a scene plays in: services, pods, a remote, observers of Kafka; and the order to end all of it.

Nothing here decides what is right. Every wait is for a fact, with a time limit; a scene has one over all of it.
"""
import calendar
import json
import os
import signal
import subprocess
import threading
import time

from language import SceneError

POLL = 0.05


class SceneFailed(Exception):
    """The product did not do what the scene says."""


class Journal:
    """What happened, by whom, when; printed interleaved with the actors' logs when a scene fails."""

    def __init__(self):
        self.entries, self.lock = [], threading.Lock()

    def add(self, actor, text, at=None):
        with self.lock:
            self.entries.append((at if at is not None else time.time(), actor, text))


class Pod:
    """A process of the product. Its folder of stop points is its own."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.dir = os.path.join(world.dir, name)
        self.stops = os.path.join(self.dir, "stops")
        os.makedirs(self.stops, exist_ok=True)
        self.log = os.path.join(self.dir, "log.jsonl")
        self.process, self.stopped = None, False

    def start(self, settings):
        if self.process and self.process.poll() is None:
            raise SceneError(f"{self.name} runs already")
        command = [self.world.binary, "run", "--config", self.world.write_config(self.dir), "--name", self.name]
        for setting in settings:
            command += ["--set", setting]
        environment = dict(os.environ, HOLDFAST_STOP_DIR=self.stops)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=environment, cwd=self.dir)

    def signal(self, number):
        if not self.process or self.process.poll() is not None:
            raise SceneFailed(f"{self.name} does not run any more (exit code {self.process and self.process.poll()})")
        self.process.send_signal(number)

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(10)

    def lines(self):
        """The log's JSON lines; what is not JSON (a sanitizer's report) comes as {"text": …}."""
        if not os.path.exists(self.log):
            return []
        found = []
        with open(self.log, "rb") as log:
            for line in log.read().decode("utf-8", "replace").splitlines():
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                found.append(value if isinstance(value, dict) else {"text": line})
        return found


class Reader:
    """Follows a topic from its beginning with kcat, as any user would: read_committed, no group."""

    FORMAT = "%p\\x1f%o\\x1f%k\\x1f%h\\x1f%s\\x1e"

    def __init__(self, bootstrap, topic):
        self.records, self.lock = [], threading.Lock()
        self.process = subprocess.Popen(
            ["kcat", "-C", "-q", "-u", "-b", bootstrap, "-t", topic, "-o", "beginning", "-f", self.FORMAT,
             "-X", "isolation.level=read_committed", "-X", "topic.metadata.refresh.interval.ms=500"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        rest = b""
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            *whole, rest = (rest + chunk).split(b"\x1e")
            for record in whole:
                partition, offset, key, headers, value = record.decode("utf-8", "replace").split("\x1f", 4)
                pairs = dict(h.split("=", 1) for h in headers.split(",") if "=" in h)
                with self.lock:
                    self.records.append({"partition": int(partition), "offset": int(offset), "key": key,
                                         "headers": pairs, "value": value, "at": time.time()})

    def all(self):
        with self.lock:
            return list(self.records)

    def end(self):
        self.process.kill()
        self.process.wait(10)


class Session:
    """A psql session of its own that can hold locks across statements."""

    def __init__(self, world, name, dsn):
        self.name, self.answers, self.lock = name, [], threading.Lock()
        self.sent = 0
        self.process = subprocess.Popen(
            [world.psql, "-X", "-q", "-A", "-t", dsn], env=dict(os.environ, PGAPPNAME=f"scene_{name}"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        lines = []
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line == "\x1edone":
                with self.lock:
                    self.answers.append("\n".join(lines))
                lines = []
            else:
                lines.append(line)

    def send(self, sql):
        self.sent += 1
        self.process.stdin.write(f"{sql}\n;\n\\echo '\x1edone'\n")
        self.process.stdin.flush()

    def answered(self):
        with self.lock:
            return self.answers[-1] if len(self.answers) == self.sent else None

    def end(self):
        self.process.kill()
        self.process.wait(10)


class World:
    """One scene's surroundings. `services` is what tests/lib/stack.py started, shared by the scenes."""

    def __init__(self, services, name, directory, binary, limit):
        self.services, self.name, self.dir, self.binary = services, name, directory, binary
        self.deadline = time.monotonic() + limit
        self.journal = Journal()
        self.variables, self.pods, self.remotes, self.sessions, self.readers = {}, {}, {}, {}, {}
        self.sections = {}
        self.psql = services.psql
        self.races = []
        self.unfinished = set()   # runs that the scene leaves open on purpose
        os.makedirs(directory, exist_ok=True)
        services.give(self)       # database, topics, Redis of this scene: dsn, bootstrap, prefix, base sections

    def set(self, section, key, value):
        self.sections.setdefault(section, {})[key] = value

    def write_config(self, directory):
        path = os.path.join(directory, "holdfast.conf")
        with open(path, "w", encoding="utf-8") as out:
            for section, rows in self.sections.items():
                out.write(f"[{section}]\n")
                out.writelines(f"{key} = {value}\n" for key, value in rows.items())
                out.write("\n")
        return path

    def run_command(self, *arguments, check=True, within=30):
        """A command of the product, configured as the pods are."""
        command = [self.binary, *arguments, "--config", self.write_config(self.dir)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
        if check and done.returncode != 0:
            raise SceneFailed(f"holdfast {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
        return done

    def query(self, sql, dsn=None):
        done = subprocess.run([self.psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", dsn or self.dsn, "-c", sql],
                              capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise SceneError(f"SQL failed: {done.stderr.strip()}\n{sql}")
        return done.stdout.strip()

    def reader(self, topic):
        if topic not in self.readers:
            self.readers[topic] = Reader(self.bootstrap, self.prefix + topic)
        return self.readers[topic]

    def produce(self, topic, key, value, headers=()):
        command = ["kcat", "-P", "-b", self.bootstrap, "-t", self.prefix + topic, "-X", "acks=all"]
        if key is not None:
            command += ["-k", key]
        for header in headers:
            command += ["-H", header]
        file = os.path.join(self.dir, "record.bin")   # a file is one record, whatever bytes it holds
        with open(file, "wb") as out:
            out.write(value if isinstance(value, bytes) else value.encode())
        done = subprocess.run(command + [file], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise SceneError(f"kcat: {done.stderr.strip()}")

    def wait(self, what, fact, limit):
        """Until fact() is true. `what` is asked for words only when it never was."""
        end = min(time.monotonic() + limit, self.deadline)
        while True:
            if fact():
                return
            if time.monotonic() >= end:
                scene_over = " (the scene's own limit)" if end == self.deadline else ""
                raise SceneFailed(f"{what() if callable(what) else what} after {limit:g} s{scene_over}")
            time.sleep(POLL)

    def end(self):
        for group in (self.pods, self.sessions, self.readers, self.remotes):
            for actor in group.values():
                try:
                    actor.end()
                except (OSError, subprocess.SubprocessError) as error:
                    self.journal.add("runner", f"ending {actor}: {error}")
        self.services.take_back(self)

    def interleaved(self):
        """Everything that every actor said, by time."""
        rows = list(self.journal.entries)
        for pod in self.pods.values():
            last = 0.0
            for line in pod.lines():
                last = log_time(line) or last
                rows.append((last, pod.name, json.dumps(line, ensure_ascii=False)))
        for topic, reader in self.readers.items():
            rows += [(r["at"], topic, r["value"]) for r in reader.all()]
        for remote in self.remotes.values():
            rows += [(at, remote.name, text) for at, text in remote.journal()]
        return sorted(rows, key=lambda row: row[0])


def log_time(line):
    """Seconds since 1970 of a log line; the product writes RFC 3339 in UTC."""
    text = line.get("time") or line.get("at") or line.get("ts")
    if not isinstance(text, str):
        return None
    head, _, fraction = text.rstrip("Z").partition(".")
    try:
        whole = time.strptime(head, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return None
    return calendar.timegm(whole) + (float("0." + fraction) if fraction.isdigit() else 0.0)

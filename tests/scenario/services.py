"""The servers of the scenes: one PostgreSQL and one Kafka for all, a database, a topic prefix and a Redis per scene."""
import json
import os
import re
import subprocess
import sys
import urllib.request

import stack
from language import SceneError

HERE = os.path.dirname(os.path.abspath(__file__))
HANDLERS = os.path.join(HERE, "handlers")
TOPICS = ("tasks", "intents", "wakeups", "results", "dead-letters", "relay")

LOGINS = "".join(
    f"do $$ begin if not exists (select from pg_roles where rolname = 'scene_{login}') then"
    f" create role scene_{login} login in role {groups}; end if; end $$;\n"
    for login, groups in (("pod", "holdfast_worker"), ("operator", "holdfast_operator"), ("viewer", "holdfast_viewer")))


class Remote:
    """tests/lib/remote.py as an actor: a service whose own ledger is the judge."""

    def __init__(self, name):
        self.name = name
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "..", "lib", "remote.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=5) as answer:
            return json.loads(answer.read() or b"{}")

    def script(self, script):
        self.call("/_script", script)

    def release(self):
        self.call("/_release", {})

    def count(self, what, arguments):
        ledger = self.call("/_ledger")
        if what == "executed":
            return ledger["by_key"].get(arguments[0], 0)
        if what in ("requests", "connections", "resets"):
            return ledger[what]
        if what == "executions":
            return len(ledger["executions"])
        raise SceneError(f"remote {self.name} cannot count \"{what}\"")

    def journal(self):
        return [(e["at"], f"{e['method']} {e['path']} key={e['key']} run_id={e['headers'].get('run_id', e['headers'].get('holdfast-run-id', ''))}"
                 f" connection={e['connection']}") for e in self.call("/_ledger")["executions"]]

    def end(self):
        self.process.stdin.close()
        self.process.wait(10)


class Services:
    """Started for all scenes; give() makes a scene's own part of them."""

    def __init__(self, directory, binary):
        self.binary = binary
        self.stack = stack.Stack("pg", "kafka", folder=os.path.join(directory, "stack"))
        self.redis_servers = {}
        self.psql = os.path.join(stack.Postgres.bindir(), "psql")

    def __enter__(self):
        self.stack.__enter__()
        return self

    def __exit__(self, *_):
        for server in self.redis_servers.values():
            server.close()
        self.stack.close()

    def give(self, world):
        name = re.sub(r"\W", "_", world.name.lower())
        world.database = f"scene_{name}"
        self.stack.pg.psql(f'drop database if exists "{world.database}" with (force)')
        world.dsn = self.stack.pg.create_database(world.database)
        world.schema, world.bootstrap, world.prefix = "holdfast", self.stack.kafka.bootstrap, f"{name}."
        redis = stack.Redis(os.path.join(world.dir, "redis"))
        redis.start()
        self.redis_servers[world] = redis
        for section, rows in {
                "postgres": {"dsn": world.dsn},
                "redis": {"url": redis.url},
                "kafka": {"bootstrap.servers": world.bootstrap},
                "topics": {"prefix": world.prefix, "partitions": "4", "replication_factor": "1"},
                "pod": {"development": "true"},
                "lease": {"ttl_ms": "2000", "heartbeat_ms": "400", "heartbeat_timeout_ms": "400"},
                "sweep": {"interval_ms": "200", "ttl_ms": "1500"},
                # Groups of their own: the killed pods of an earlier scene are still members of theirs.
                "ingest": {"group": f"{name}-pods"},
                "dispatch": {"claim_ttl_ms": "3000", "group": f"{name}-dispatchers"},
                "admin": {"listen": "127.0.0.1:0"},
                "log": {"level": "debug"}}.items():
            for key, value in rows.items():
                world.set(section, key, value)
        world.variables.update(HANDLERS=HANDLERS, SCHEMA=world.schema, PREFIX=world.prefix, DIR=world.dir)
        world.run_command("migrate", within=60)
        world.run_command("topics", "apply", within=60)
        with open(os.path.join(HERE, "acts.sql"), encoding="utf-8") as acts:
            self.stack.pg.psql(LOGINS + acts.read(), database=world.database)
        world.set("postgres", "dsn", self.dsn_of(world, "pod"))

    def dsn_of(self, world, role):
        """As a pod or a person logs in: with no more rights than the role has."""
        return self.stack.pg.url(world.database, user=f"scene_{role}")

    def remote(self, world, name):
        return Remote(name)

    def redis(self, world, what):
        server = self.redis_servers[world]
        if what == "down":
            server.kill()
        elif what == "up":
            server.start()
        elif what == "pause":
            server.pause()
        elif what == "resume":
            server.resume()
        else:
            raise SceneError("redis down|up|pause|resume")

    def postgres(self, what):
        server = self.stack.pg
        {"down": lambda: server.kill(), "up": server.start, "pause": server.pause, "resume": server.resume}[what]()

    def take_back(self, world):
        server = self.redis_servers.pop(world, None)
        if server:
            server.close()

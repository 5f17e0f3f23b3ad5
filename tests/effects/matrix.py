"""Every capability against every fault: the final state in the ledger, and the remote's own count of effects.

    matrix.py --binary HOLDFAST_TEST [--only TEXT] [--keep]

Real PostgreSQL and Kafka, pods of the product (with stop points), and tests/lib/remote.py, whose ledger is the judge of
what was executed. Each cell is a tool of its own and one plan with one step. A cell that may end unknown (capability none,
a key whose retention has passed) must: one execution, or none where the request was lost, and a person decides.
The last line is JSON: cells, wrong, duplicate_effects. Exit: 0 all as promised, 1 not, 2 could not run.
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)
import psycopg  # noqa: E402
from confluent_kafka import Producer  # noqa: E402
from psycopg.rows import namedtuple_row  # noqa: E402

from tests.lib.stack import Kafka, Postgres, StackError, free_port, wait_until  # noqa: E402

CLAIM_TTL_MS = 3000
LIMIT_S = 150
QUERY = {"query_url": "{remote}/effects/{{operation_id}}", "absent_is_final_after_ms": 300}
CAPABILITIES = {
    "none": ("/plain", {}),
    "idempotency_key": ("/idem", {"capability": "idempotency_key", "retention_ms": 3600000}),
    "deterministic_id": ("/named", {
        "capability": "deterministic_id", "key_field": "/metadata/name", "idempotency_header": "",
        "query_url": "{remote}/named/{{operation_id}}", "tag": "/tag", "owner": "/owner", "owner_is": "holdfast",
        "spec": "/spec", "absent_is_final_after_ms": 300}),
    "query": ("/plain", {"capability": "query"} | QUERY),
    "key_and_query": ("/idem", {"capability": "idempotency_key", "retention_ms": 3600000, "query": "true"} | QUERY),
}
# fault: (what the remote does to the first request, what it is called)
FAULTS = {
    "before": (None, "timeout before send"),
    "after": ("hang", "timeout after send"),
    "reset": ("reset_after", "connection reset after the effect"),
    "half": ("half", "half an answer"),
    "5xx": ({"status": 500}, "5xx after the effect"),
    "kill": (None, "process killed with the answer in hand"),
    "late": (None, "answer after its claim had ended"),
    "lost": ("close_before", "closed without acting"),
    "retention": ("hang", "retention passed in doubt"),
}
DONE, DOUBT = ("succeeded", 1), ("unknown", 1)


def expected(capability, fault):
    """(status, executions); None: cannot happen."""
    if fault == "retention":
        return {"idempotency_key": DOUBT, "key_and_query": DONE}.get(capability)
    if capability != "none" or fault in ("before", "late"):
        return DONE
    return ("unknown", 0) if fault == "lost" else DOUBT


CELLS = [(c, f) for c in CAPABILITIES for f in FAULTS if expected(c, f)]


def tool_name(cell):
    return f"{cell[0]}-{cell[1]}"


def path_of(cell):
    return f"{CAPABILITIES[cell[0]][0]}/{tool_name(cell)}"


class Remote:
    def __init__(self, port=0):
        self.process = subprocess.Popen([sys.executable, os.path.join(ROOT, "tests", "lib", "remote.py"), "--port", str(port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = f"http://127.0.0.1:{json.loads(self.process.stdout.readline())['port']}"

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=20) as answer:
            return json.loads(answer.read())

    def executions(self):
        return self.ask("/_ledger")["by_key"]

    def close(self):
        self.process.kill()
        self.process.wait(10)


class BlackHole:
    """A port whose queue is full: a connection is neither made nor refused."""

    def __init__(self):
        self.port = free_port()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(0)
        self.waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", self.port))
            self.waiting.append(one)

    def close(self):
        for one in [*self.waiting, self.listener]:
            one.close()


class Pod:
    def __init__(self, house, name, text, stops=None, dispatches=True):
        self.stops = os.path.join(house.folder, f"{name}.stops")
        os.makedirs(self.stops)
        for point in stops or ():
            open(os.path.join(self.stops, f"{point}.hold"), "w", encoding="utf-8").close()
        path = os.path.join(house.folder, f"{name}.conf")
        with open(path, "w", encoding="utf-8") as out:
            out.write(house.common.format(name=name, dispatches=str(dispatches).lower()) + text)
        self.log = os.path.join(house.folder, f"{name}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([house.binary, "run", "--config", path], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=dict(os.environ, HOLDFAST_STOP_DIR=self.stops))

    def reached(self, point):
        return any(name.startswith(point) and name.endswith(".reached") for name in os.listdir(self.stops))

    def let_go(self, point):
        os.unlink(os.path.join(self.stops, f"{point}.hold"))

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-15:])


class House:
    """Schema, topics, remotes and pods."""

    def __init__(self, binary, postgres, kafka, folder):
        self.binary, self.folder = binary, folder
        postgres.create_database("matrix")
        self.common = "\n".join([
            "[postgres]", f"dsn = {postgres.url('matrix', 'matrix_pod')}", "[kafka]",
            f"bootstrap.servers = {kafka.bootstrap}", "[pod]", "name = {name}", "development = true",
            "[topics]", "partitions = 4", "replication_factor = 1", "[admin]", "listen = ", "[dispatch]", "enabled = {dispatches}", f"claim_ttl_ms = {CLAIM_TTL_MS}", "interval_ms = 100", "retry_ms = 50",
            "retry_max_ms = 300", "[sweep]", "interval_ms = 200", "[log]", "level = info", ""])
        owner = os.path.join(folder, "owner.conf")
        with open(owner, "w", encoding="utf-8") as out:
            out.write(self.common.format(name="owner", dispatches="true").replace("matrix_pod", "postgres"))
        dsn = postgres.url("matrix")
        for command in (["migrate"], ["topics", "apply"]):
            done = subprocess.run([binary, *command, "--config", owner, "--set", f"postgres.dsn={dsn}"], capture_output=True,
                                  text=True, timeout=90)
            if done.returncode != 0:
                raise StackError(f"holdfast {' '.join(command)}: {done.stdout}{done.stderr}")
        postgres.psql("CREATE ROLE matrix_pod LOGIN IN ROLE holdfast_worker", "matrix")
        self.db = psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row)
        self.producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def submit(self, cells):
        for cell in cells:
            name = tool_name(cell)
            task = {"task_id": name, "handler": "plan",
                    "input": {"steps": [{"id": "act", "tool": name, "request": {"cell": name}}]}}
            self.producer.produce("holdfast.tasks", key=name, value=json.dumps(task))
        if self.producer.flush(30):
            raise StackError("Kafka did not take the submissions")

    def operations(self):
        rows = self.db.execute(
            "SELECT r.task_id, o.operation_id, o.status, o.attempts, o.attempts_not_sent FROM holdfast.tool_operations o "
            "JOIN holdfast.agent_runs r USING (run_id)").fetchall()
        return {row.task_id: row for row in rows}


def section(cell, url, timeout_ms):
    members = CAPABILITIES[cell[0]][1]
    members = {"url": url + path_of(cell), "allow_private": "true", "timeout_ms": timeout_ms,
               "connect_timeout_ms": 500} | members
    if cell[1] == "retention":
        members["retention_ms"] = CLAIM_TTL_MS + 500
    lines = [f"{name} = {str(value).format(remote=url)}" for name, value in members.items()]
    return f"[tool.{tool_name(cell)}]\n" + "\n".join(lines) + "\n"


def of(cells, *faults):
    return [cell for cell in cells if cell[1] in faults]


def play(house, cells, closing):
    """Lets every fault happen, and waits until nothing moves any more; returns (operations, executions)."""
    remote = Remote()
    closing.callback(remote.close)
    hole = BlackHole()
    hole_url = f"http://127.0.0.1:{hole.port}"
    kills, lates, befores = of(cells, "kill"), of(cells, "late"), of(cells, "before")
    others = [cell for cell in cells if cell not in kills + lates]
    for cell in others:
        if FAULTS[cell[1]][0]:
            remote.ask("/_script", {"path": path_of(cell), "faults": [FAULTS[cell[1]][0]]})

    def sections(chosen):
        return "".join(section(cell, hole_url if cell[1] == "before" else remote.url, 1200) for cell in chosen)
    point = "dispatch.after_response_before_record"
    # One pod plans and sends nothing; the others send, each what its fault is made for.
    sender = "[pool]\nenabled = false\n[ingest]\nenabled = false\n"
    planner = "[relay]\nlanes = 2\n" + sections(cells)
    pods = [Pod(house, "pod-plain", sender + sections(others)), Pod(house, "pod-kill", sender + sections(kills), [point]),
            Pod(house, "pod-late", sender + sections(lates), [point]),
            Pod(house, "pod-plan", planner, dispatches=False)]
    for pod in pods:
        closing.callback(pod.kill)
    wait_until(lambda: all("pod.running" in open(pod.log, encoding="utf-8", errors="replace").read() for pod in pods), 60,
               "the pods run")
    house.submit(cells)
    wait_until(lambda: len(house.operations()) == len(cells), 60, "every operation is registered")
    wait_until(lambda: all(house.operations()[tool_name(c)].attempts_not_sent > 0 for c in befores), 60,
               "connections were tried and not made")
    hole.close()
    second = Remote(hole.port)
    closing.callback(second.close)

    def executed(chosen):
        ids, counts = house.operations(), remote.executions()
        return all(counts.get(ids[tool_name(c)].operation_id) for c in chosen)
    wait_until(lambda: executed(kills) and (pods[1].reached(point) or not kills), 60, "the effects of the pod to be killed")
    pods[1].kill()
    pods.append(Pod(house, "pod-after", sender + sections(kills)))
    closing.callback(pods[-1].kill)
    wait_until(lambda: executed(lates) and (pods[2].reached(point) or not lates), 60, "the effects of the pod that is late")
    expired = "SELECT count(DISTINCT operation_id) FROM holdfast.operation_evidence WHERE kind = 'expired' AND operation_id = ANY (%s)"
    late_ids = [house.operations()[tool_name(c)].operation_id for c in lates]
    wait_until(lambda: house.db.execute(expired, [late_ids]).fetchone()[0] == len(late_ids), 60, "their claims ended")
    pods[2].let_go(point)

    def settled():
        rows = house.operations()
        return all(rows[tool_name(c)].status == expected(*c)[0] for c in cells)
    with contextlib.suppress(StackError):  # what is not as promised is judged, not waited for
        wait_until(settled, LIMIT_S, "the promised states")
    # What must stay in doubt must still be so when everything that could move it had its time.
    until = house.db.execute("SELECT clock_timestamp() + interval '5 seconds'").fetchone()[0]
    wait_until(lambda: house.db.execute("SELECT clock_timestamp() > %s", [until]).fetchone()[0], 20, "five seconds more")
    counts = remote.executions()
    counts.update(second.executions())
    return house.operations(), counts, pods


def judge(cells, operations, counts):
    wrong = duplicates = 0
    print(f"{'capability':17} {'fault':40} {'final':13} {'effects':>7} {'attempts':>8} {'sent':>4}  {'promised'}")
    for cell in cells:
        row = operations[tool_name(cell)]
        got = (row.status, counts.get(row.operation_id, 0))
        good = got == expected(*cell)
        wrong += not good
        duplicates += max(0, got[1] - 1)
        print(f"{cell[0]:17} {FAULTS[cell[1]][1]:40} {got[0]:13} {got[1]:7} {row.attempts:8} "
              f"{row.attempts - row.attempts_not_sent:4}  {'yes' if good else 'NO: %s, %d' % expected(*cell)}")
    return wrong, duplicates


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--keep", action="store_true")
    options = arguments.parse_args()
    cells = [cell for cell in CELLS if options.only in tool_name(cell)]
    folder = tempfile.mkdtemp(prefix="holdfast-effects-")
    pods = []
    try:
        with Postgres() as postgres, Kafka() as kafka, contextlib.ExitStack() as closing:
            house = House(os.path.abspath(options.binary), postgres, kafka, folder)
            operations, counts, pods = play(house, cells, closing)
            wrong, duplicates = judge(cells, operations, counts)
            if wrong:
                print("".join(f"--- {pod.log}\n{pod.tail()}" for pod in pods))
        print(json.dumps({"cells": len(cells), "wrong": wrong, "duplicate_effects": duplicates}))
        return 1 if wrong or duplicates else 0
    except Exception as error:  # whatever stands in the way: the last line says so
        for name in sorted(os.listdir(folder)):
            if name.endswith(".log"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as log:
                    print(f"--- {name}\n" + "".join(log.readlines()[-8:]))
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "cells": 0, "wrong": 0, "duplicate_effects": 0}))
        return 2
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

"""Three verbs at once on one run, by a driver that sends without waiting and asks the server who really blocks whom.

Two ways to bring three calls together:

    chained   the first is open in a transaction; the second comes, then the third; the first commits
    gated     another transaction holds the rows of the run; all three queue up behind it; it lets go

A race is good when the answers and the whole state at its end are those of one of the serial orders, run on fresh copies
of the same world. A verb that passes over what is locked, and says so, counts as one that was not called.
"""
import itertools
import select
import time

import psycopg

from table import PASSES

SIDES = ("left", "right", "third")
STEP_SECONDS = 10


class Stuck(AssertionError):
    """A step took longer than its limit."""


class Session:
    """One connection; a call is sent and its answer fetched later."""

    def __init__(self, dsn, side):
        self.side = side
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.pq = self.connection.pgconn
        self.pid = self.pq.backend_pid
        self.busy = False

    def do(self, sql):
        self.connection.execute(sql)

    def send(self, verb):
        self.pq.send_query(f"SELECT race.{verb}('{self.side}')".encode())
        self.busy = True

    def answered(self, timeout=0):
        """Whether the answer is here; reads what has come."""
        if not self.busy or not self.pq.is_busy():
            return True
        if select.select([self.pq.socket], [], [], timeout)[0]:
            self.pq.consume_input()
        return not self.pq.is_busy()

    def answer(self):
        end = time.monotonic() + STEP_SECONDS
        while not self.answered(max(0, end - time.monotonic())):
            if time.monotonic() >= end:
                self.pq.get_cancel().cancel()
                raise Stuck(f"{self.side}: no answer within {STEP_SECONDS} s")
        results = []
        while (result := self.pq.get_result()) is not None:
            results.append(result)
        self.busy = False
        [result] = results
        if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
            return "error " + result.error_field(psycopg.pq.DiagnosticField.SQLSTATE).decode()
        return result.get_value(0, 0).decode()

    def close(self):
        self.connection.close()


class Driver:
    def __init__(self, dsn):
        self.sessions = [Session(dsn, side) for side in SIDES]
        self.judge = psycopg.connect(dsn, autocommit=True)
        self.gate = psycopg.connect(dsn, autocommit=True)
        self.chains = 0   # races in which somebody waited for somebody who waited
        self.blocked = 0  # calls that waited

    def close(self):
        for connection in (*self.sessions, self.judge, self.gate):
            connection.close()

    def one(self, sql, *parameters):
        return self.judge.execute(sql, parameters).fetchone()[0]

    def world(self, world):
        self.one("SELECT race.world(%s)", world)

    def ended(self, verbs, answers):
        broken = self.one("SELECT race.broken()")
        return (tuple(f"{verb}: {answers[side]}" if side in answers else None for side, verb in zip(SIDES, verbs)),
                self.one("SELECT race.state()"), broken)

    def serial(self, world, verbs, order):
        """The result of these sides, one after the other, on a fresh copy."""
        self.world(world)
        answers = {}
        for n in order:
            self.sessions[n].send(verbs[n])
            answers[SIDES[n]] = self.sessions[n].answer()
        return self.ended(verbs, answers)

    def serials(self, world, verbs):
        """Every serial order of the three, and of those that are left when some passed over."""
        results = {}
        passing = [n for n in range(3) if verbs[n] in PASSES]
        for k in range(len(passing) + 1):
            for left_out in itertools.combinations(passing, k):
                called = [n for n in range(3) if n not in left_out]
                for order in itertools.permutations(called):
                    results[order] = self.serial(world, verbs, order)
        return results

    def settle(self, session):
        """Until the call has its answer or waits for somebody; whom (their pids)."""
        end = time.monotonic() + STEP_SECONDS
        while not session.answered(0.002):
            blockers = self.one("SELECT pg_blocking_pids(%s)", session.pid)
            if blockers:
                return blockers
            if time.monotonic() > end:
                raise Stuck(f"{session.side}: neither answers nor waits")
        return []

    def chained(self, world, verbs, order, end="COMMIT"):
        self.world(world)
        first, *others = [self.sessions[n] for n in order]
        first.do("BEGIN")
        answers, waits = {}, {}
        try:
            first.send(verbs[order[0]])
            answers[first.side] = first.answer()
            for n, session in zip(order[1:], others):
                session.send(verbs[n])
                waits[session.pid] = self.settle(session)
        finally:
            first.do(end)
        for session in others:
            answers[session.side] = session.answer()
        self.count(waits, {session.pid for session in others})
        if end == "ROLLBACK":
            del answers[first.side]
        return self.ended(verbs, answers)

    def gated(self, world, verbs, order):
        """Locks of the gate are those a person could hold: row locks of task, lease, run and operations."""
        self.world(world)
        self.gate.execute("BEGIN")
        answers, waits = {}, {}
        try:
            for table in ("agent_tasks", "worker_leases", "agent_runs", "tool_operations"):
                self.gate.execute(f"SELECT FROM holdfast.{table} FOR NO KEY UPDATE")
            for n in order:
                self.sessions[n].send(verbs[n])
                waits[self.sessions[n].pid] = self.settle(self.sessions[n])
        finally:
            self.gate.execute("COMMIT")
        for n in order:
            answers[SIDES[n]] = self.sessions[n].answer()
        self.count(waits, {session.pid for session in self.sessions})
        return self.ended(verbs, answers)

    def count(self, waits, mine):
        self.blocked += sum(bool(w) for w in waits.values())
        self.chains += any(set(w) & mine for w in waits.values())


def same(race, serial, verbs):
    """A race ended as this serial order did; sides that were left out there passed over here."""
    answers, state, _ = race
    for verb, answer, expected in zip(verbs, answers, serial[0]):
        if expected is not None and answer != expected:
            return False
        if expected is None and answer is not None and answer.removeprefix(f"{verb}: ") not in PASSES.get(verb, ()):
            return False
    return state == serial[1]


def faults(driver, world, verbs):
    """What is wrong with the races of three verbs in a world, as text."""
    serials = driver.serials(world, verbs)
    wrong = [f"{world} {verbs} in order {order}: {broken}" for order, (_, _, broken) in serials.items() if broken]
    races = [("chained", order, driver.chained(world, verbs, order)) for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1))]
    races += [("gated", order, driver.gated(world, verbs, order)) for order in ((0, 1, 2), (2, 1, 0))]
    for kind, order, race in races:
        if race[2]:
            wrong.append(f"{world} {kind} {[verbs[n] for n in order]}: {race[2]}")
        if not any(same(race, serial, verbs) for serial in serials.values()):
            allowed = "\n".join(f"  {order}: {serial[0]}\n    {serial[1]}" for order, serial in serials.items() if len(order) == 3)
            wrong.append(f"{world} {kind} {[verbs[n] for n in order]} is no serial result:\n  {race[0]}\n    {race[1]}\nallowed:\n{allowed}")
    return wrong

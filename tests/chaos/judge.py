"""Whether everything ended correctly. Judges: SQL over history and ledger, the remote's own ledger, the result topic at a
read_committed consumer, and Porcupine over the histories of leases. The pods' word counts only for what they were told.
"""
import collections
import json
import os
import subprocess
from datetime import datetime

SETTLED = ("succeeded", "failed_final", "cancelled")
INFINITY = 1 << 62
PENDING_MAX = 4    # unheard writes of one run that the checker tries everywhere: each doubles its work

# Each gives rows that must not exist.
QUERIES = {
    "a run in no condition, or in two": "select * from holdfast.stranded",
    "a row that belongs to nothing": "select * from holdfast.orphans",
    "an event that was never published": "select seq, type, task_id from holdfast.outbox_events",
    "a lease that is still held": "select run_id, owner from holdfast.worker_leases where owner is not null",
    "an open run that waits for nothing in doubt":
        "select run_id, task_id, status from holdfast.agent_runs r where status in ('pending', 'running') and not exists"
        " (select from holdfast.unknown_operations u where u.run_id = r.run_id and u.capability = 'none')",
    "a life that does not begin with its creation":
        "select run_id from holdfast.run_history group by 1 having (array_agg(kind order by history_id))[1] <> 'created'"
        " or count(*) filter (where kind = 'created') <> 1 or count(*) filter (where kind = 'started') > 1",
    "a run without the end that its history has":
        "select r.run_id, r.status from holdfast.agent_runs r left join lateral"
        " (select count(*) as ends, min(kind) as kind from holdfast.run_history h where h.run_id = r.run_id"
        "   and h.kind in ('succeeded', 'failed', 'cancelled')) e on true"
        " where case when r.status in ('succeeded', 'failed', 'cancelled') then e.ends <> 1 or e.kind <> r.status"
        "   else e.ends <> 0 end",
    "an epoch or a revision that went back, or history after the end":
        "select * from (select run_id, kind, epoch, revision, lag(epoch) over w as epoch_before,"
        " lag(revision) over w as revision_before, lag(kind) over w as kind_before"
        " from holdfast.run_history window w as (partition by run_id order by history_id)) h"
        " where epoch < epoch_before or revision < revision_before or kind_before in ('succeeded', 'failed', 'cancelled')"
        " or (kind = 'taken_over' and epoch <= epoch_before)",
    "an epoch with two owners":
        "select run_id, epoch from (select run_id, epoch, owner from holdfast.run_history where owner is not null"
        " union select u.run_id, u.epoch, c.owner from holdfast.claims c, unnest(c.run_ids, c.epochs) u(run_id, epoch)) o"
        " group by 1, 2 having count(distinct owner) > 1",
    "two runs of one submission":
        "select tenant_id, task_id from holdfast.agent_runs where prev_run_id is null group by 1, 2 having count(*) > 1",
    "a run that no accepted request made":
        "select run_id from holdfast.agent_runs r where not exists (select from holdfast.requests q where q.run_id = r.run_id"
        " and q.outcome = 'created' and q.verb in ('submit', 'retry'))",
    "an accepted request without its run":
        "select request_key from holdfast.requests q where outcome = 'created' and not exists"
        " (select from holdfast.agent_runs r where r.run_id = q.run_id)",
    "a success with an operation that is not settled":
        "select o.operation_id from holdfast.tool_operations o join holdfast.agent_runs r using (run_id)"
        " where r.status = 'succeeded' and o.status not in ('succeeded', 'failed_final', 'cancelled') and not o.detached",
    "an operation in doubt without evidence":
        "select operation_id from holdfast.unknown_operations u where not exists (select from holdfast.operation_evidence e"
        " where e.operation_id = u.operation_id and e.kind <> 'claimed')",
}

EVENTS = {"started": "run.started", "taken_over": "run.taken_over", "succeeded": "run.succeeded", "failed": "run.failed",
          "cancelled": "run.cancelled"}


class Judge:
    def __init__(self, world):
        self.world, self.violations = world, []

    def wrong(self, what, example=""):
        self.violations.append(f"{what}: {example}" if example != "" else what)

    async def all(self):
        await self.by_sql()
        await self.submissions()
        await self.effects()
        await self.results()
        await self.leases()
        return self.violations

    async def by_sql(self):
        for what, sql in QUERIES.items():
            found = await self.world.sql(sql)
            if found:
                self.wrong(f"{what} ({len(found)})", str([tuple(map(str, row)) for row in found[:3]]))

    async def submissions(self):
        """Every record that Kafka accepted was answered once, and every submission that was accepted is one run."""
        load = self.world.load
        answers = {key: (verb, outcome, str(run)) for key, verb, outcome, run in await self.world.sql(
            "select substr(request_key, 3), verb, outcome, run_id from holdfast.requests where request_key like 'r:%'")}
        accepted = {(verb, request) for verb, request, _ in load.accepted}
        first = [request for verb, request in accepted if verb == "submit"]
        lost = [r for r in first if r not in answers]
        if lost:
            self.wrong(f"{len(lost)} accepted submissions are unknown to PostgreSQL", lost[:3])
        refused = [(r, answers[r][1]) for r in first if r in answers and answers[r][1] != "created"]
        if refused:
            self.wrong(f"{len(refused)} valid submissions were not accepted", refused[:3])
        for verb in ("cancel", "retry"):
            lost = [r for v, r in accepted if v == verb and r not in answers]
            if lost:
                self.wrong(f"{len(lost)} accepted {verb}s were never answered", lost[:3])
        known = {request for _, request, _ in load.accepted + load.doubtful}
        alien = [r for r in answers if r not in known]
        if alien:
            self.wrong(f"{len(alien)} requests that nobody sent", alien[:3])

    async def effects(self):
        executions = collections.Counter(e["key"] for e in self.world.remote.executions)
        operations = await self.world.sql(
            "select operation_id, external_key, status, capability, attempts, attempts_not_sent, adopted_from"
            " from holdfast.tool_operations")
        known = {key for _, key, *_ in operations}
        for key in executions:
            if key not in known:
                self.wrong("the remote executed what is no operation", key)
        for operation, key, status, capability, attempts, not_sent, adopted in operations:
            count = executions[key]
            if count > 1:
                self.wrong(f"{count} effects of one operation of capability {capability}", f"{operation} {status}")
            if status == "succeeded" and count != (0 if adopted else 1):   # an adopted one is its predecessor's effect
                self.wrong("an adopted success with an effect" if adopted else "a success without an effect", operation)
            if status == "cancelled" and count:
                self.wrong("an operation was cancelled as unsent, and was executed", operation)
            if status not in SETTLED and not (status == "unknown" and capability == "none" and attempts > not_sent):
                # An operation whose run was cancelled while it was in flight is left to the reconciler.
                self.wrong(f"an operation is left {status}", f"{operation} {capability} {attempts}/{not_sent}")

    async def results(self):
        events = [json.loads(value) for _, value, _ in await self.world.read_all("results")]
        self.world.events_read = len(events)
        for identity, count in collections.Counter(e["event_id"] for e in events).items():
            if count > 1:
                self.wrong(f"an event was read {count} times", identity)
        told = collections.Counter((e["run_id"], e["type"], e["epoch"]) for e in events
                                   if e["type"] in EVENTS.values())
        facts = collections.Counter((str(run), EVENTS[kind], epoch) for run, kind, epoch in await self.world.sql(
            "select run_id, kind, epoch from holdfast.run_history where kind <> 'created'") if kind in EVENTS)
        for what, difference in (("facts without their event", facts - told), ("events without a fact", told - facts)):
            if difference:
                self.wrong(f"{sum(difference.values())} {what}", str(list(difference)[:3]))
        settled = collections.Counter(e["operation"]["operation_id"] for e in events if e["type"] == "operation.succeeded")
        in_ledger = collections.Counter(row[0] for row in await self.world.sql(
            "select operation_id from holdfast.tool_operations where status = 'succeeded' and adopted_from is null"))
        if settled != in_ledger:
            self.wrong("operation.succeeded and the ledger differ", str(list((settled - in_ledger) + (in_ledger - settled))[:3]))
        last = {}
        for e in events:   # of one task, in one partition, in the order as read
            if e["type"].startswith("run."):
                place = (e["epoch"], e["revision"])
                if place < last.get(e["run_id"], (0, 0)):
                    self.wrong("events of a run out of order", f"{e['run_id']} {e['type']}")
                last[e["run_id"]] = place
        letters = await self.world.read_all("dead-letters")
        ours = sum(headers.get("reason", b"").decode().startswith("not_") for _, _, headers in letters)
        # A record is dead-lettered at least once; again when its pod died before it stored the offset.
        if ours < self.world.load.poisoned:
            self.wrong(f"{self.world.load.poisoned} poisonous records, {ours} dead letters")

    # ---- histories of leases ----

    def logged(self):
        """What pods were told, per session in its order: (microseconds, row)."""
        found = collections.defaultdict(list)
        for path, offset in self.world.logs:
            with open(path, "rb") as log:
                for line in log:
                    if b'"step.committed"' not in line and b'"write.refused"' not in line and b'"lease.' not in line:
                        continue
                    try:
                        row = json.loads(line)
                        at = datetime.fromisoformat(row["at"].replace("Z", "+00:00")).timestamp() - offset
                    except ValueError:   # the last line of a killed pod
                        continue
                    found[row.get("owner"), row.get("run_id")].append((int(at * 1e6), row))
        return found

    async def leases(self):
        sessions, operations = self.logged(), []
        acquired = await self.world.sql(
            "select c.owner, u.run_id, u.epoch, (extract(epoch from c.made_at) * 1000000)::bigint"
            " from holdfast.claims c, unnest(c.run_ids, c.epochs) u(run_id, epoch)")
        ended = {(str(run)): (kind, epoch, revision, at) for run, kind, epoch, revision, at in await self.world.sql(
            "select run_id, kind, epoch, revision, (extract(epoch from at) * 1000000)::bigint from holdfast.run_history"
            " where kind in ('succeeded', 'failed', 'cancelled')")}
        taken_over = {(str(run), epoch) for run, epoch in await self.world.sql(
            "select run_id, epoch from holdfast.run_history where kind = 'taken_over'")}
        clients, refusals, pending = {}, 0, collections.Counter()

        def add(run, client, kind, answer, epoch, call, back, revision=0, current=0):
            operations.append({"run": run, "client": clients.setdefault(client, len(clients)), "kind": kind,
                               "answer": answer, "epoch": epoch, "revision": revision, "current": current,
                               "call": call, "return": max(back, call + 1)})

        for owner, run, epoch, at in acquired:
            run, told, last, revision = str(run), sessions.get((owner, str(run)), []), at, 0
            first = next((t for t, row in told if row["event"] in ("lease.acquired", "lease.taken_over")), None)
            add(run, owner, "acquire", "ok", epoch, at, first if first else INFINITY)
            for t, row in told:
                if row.get("epoch") != epoch:
                    continue
                if row["event"] == "step.committed":
                    kind = "end" if ended.get(run, ("", 0, 0, 0))[1:3] == (epoch, row["revision"]) else "write"
                    add(run, owner, kind, "ok", epoch, last, t, row["revision"])
                    if kind == "end":
                        ended.pop(run)
                elif row["event"] == "write.refused" and row.get("outcome") in ("lease_lost", "superseded"):
                    refusals += 1
                    add(run, owner, "write", "fail", epoch, last, t, current=row.get("current_epoch", 0))
                last, revision = max(last, t), max(revision, row.get("revision", 0))
            # A holder that was taken over may have written once more without hearing of it: before that, and never after.
            if (run, epoch + 1) in taken_over and pending[run] < PENDING_MAX:
                pending[run] += 1
                add(run, f"{owner} unheard", "write", "info", epoch, last, INFINITY, revision + 1)
        for run, (_, epoch, revision, at) in ended.items():   # ends that no holder was told of, cancellations among them
            add(run, f"control {run}", "end", "ok", epoch, at, INFINITY, revision)
        path = os.path.join(self.world.dir, "leases.jsonl")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(o) + "\n" for o in operations)
        done = await self.world.in_thread(lambda: subprocess.run(
            [self.world.porcupine, path], capture_output=True, text=True, timeout=600, check=False))
        if done.returncode not in (0, 1):
            self.wrong("Porcupine could not judge", done.stderr[-300:])
            return
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        self.world.porcupine_answer = {k: v for k, v in answer.items() if k != "violations"} | {"refusals": refusals}
        if not answer["operations"]:
            self.wrong("Porcupine was given nothing")
        for text in answer["violations"]:
            self.wrong("a history of a lease is not linearizable", text)

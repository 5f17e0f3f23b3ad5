"""What the sessions of random_verbs.py were told, and the judge who holds the tables against it."""
import threading
import uuid

from database import Database

TERMINAL = ("succeeded", "failed", "cancelled")
SETTLED = ("succeeded", "failed_final", "cancelled")


class Truth:
    """What all sessions were told, by the calls that were committed."""

    def __init__(self):
        self.lock, self.gate, self.relay = threading.Lock(), threading.Lock(), threading.Lock()
        self.broken = []
        self.records = []   # (verb, item): deliveries
        self.answers = {}   # (tenant, key) → first outcome
        self.runs = []
        self.grants = {}    # run → {epoch: owner}
        self.valid = {}     # run → (epoch, time): surely held until then, unless its holder says something else
        self.raised = {}    # run → what openings of the gate added to its epoch
        self.applied = {}   # commit_id → SimpleNamespace(run, epoch, expected, revision)
        self.claims = {}    # operation → {attempt: owner}
        self.doubted = {}   # operation → attempts that openings of the gate added
        self.sent = {}      # operation → attempts that reached the remote
        self.not_sent = {}  # operation → attempts taken back
        self.published = []
        self.terminal = {}  # run → status, as of the last look
        self.grant_times, self.closed = [], []
        self.calls = {}

    def wrong(self, *what):
        self.broken.append(what)

    def newest(self, run):
        with self.lock:
            return max(self.grants.get(run, {0: None}))


class Judge:
    """Looks at the tables while nobody writes."""

    def __init__(self, dsn, truth):
        self.db, self.truth = Database(dsn), truth

    def look(self):
        self.views()
        runs = {row.run_id: row for row in self.db.sql(
            "SELECT r.*, l.epoch, l.owner FROM @schema@.agent_runs r JOIN @schema@.worker_leases l USING (run_id)")}
        history = self.db.sql("SELECT * FROM @schema@.run_history ORDER BY history_id")
        self.runs(runs, history)
        self.operations(runs)
        self.events(history)
        self.requests()
        for begin, end, what in self.truth.grant_times:
            if any(closed <= begin and end <= opened for closed, opened in self.truth.closed):
                self.truth.wrong("given out while the gate was closed", what)
        self.truth.grant_times.clear()
        return self.truth.broken

    def none(self, what, sql):
        rows = self.db.sql(sql)
        if rows:
            self.truth.wrong(what, rows[:3])

    def views(self):
        self.none("stranded", "SELECT * FROM @schema@.stranded")
        self.none("orphans", "SELECT * FROM @schema@.orphans")
        self.none("two runs of a task are open", "SELECT tenant_id, task_id FROM @schema@.agent_runs WHERE status IN "
                  "('pending', 'running') GROUP BY 1, 2 HAVING count(*) > 1")
        self.none("an open run is not its task's", "SELECT * FROM @schema@.agent_runs r JOIN @schema@.agent_tasks k USING (tenant_id, "
                  "task_id) WHERE r.status IN ('pending', 'running') AND k.active_run_id <> r.run_id")
        self.none("succeeded with an operation in doubt", "SELECT o.* FROM @schema@.tool_operations o JOIN @schema@.agent_runs r "
                  "USING (run_id) WHERE r.status = 'succeeded' AND o.status IN ('dispatching', 'unknown') AND NOT o.detached")
        self.none("a wait was met and nobody woke the run", """
            SELECT r.run_id, r.wait_mode, w.* FROM @schema@.agent_runs r CROSS JOIN LATERAL (
                SELECT bool_and(o.status IN ('succeeded', 'failed_final', 'cancelled')) AS every,
                       bool_or(o.status IN ('succeeded', 'failed_final', 'cancelled')) AS some
                FROM unnest(r.wait_operations) AS n(id) LEFT JOIN @schema@.tool_operations o ON o.operation_id = n.id) w
            WHERE r.status IN ('pending', 'running') AND r.woke_reason IS NULL
              AND (r.wait_mode = 'all' AND w.every OR r.wait_mode = 'any' AND w.some)""")

    def runs(self, runs, history):
        truth = self.truth
        if set(runs) != set(truth.runs):
            truth.wrong("runs that nobody was told of, or told and not there", set(runs) ^ set(truth.runs))
        for run, status in truth.terminal.items():
            if runs[run].status != status:
                truth.wrong("a terminal state changed", run, status, runs[run].status)
        truth.terminal = {run: row.status for run, row in runs.items() if row.status in TERMINAL}
        steps = dict.fromkeys(runs, 0)  # by the system: started, cancelled, failed
        for row in history:
            steps[row.run_id] += row.kind == "started" or (row.to_status in TERMINAL and row.commit_id is None)
        written = {}
        for write in truth.applied.values():
            if (write.run, write.expected) in written:
                truth.wrong("two writes with one expected revision", write)
            written[write.run, write.expected] = write
            steps[write.run] += 1
        last = {}
        for (run, revision), write in sorted(written.items(), key=lambda w: w[0][1]):
            if write.epoch < last.get(run, 0):
                truth.wrong("a write of an older epoch after one of a newer", write)
            last[run] = write.epoch
        for run, row in runs.items():
            if row.revision != steps[run]:
                truth.wrong("revision is not the number of writes", run, row.revision, steps[run])
            granted = truth.grants.get(run, {})
            if row.epoch != len(granted) + truth.raised.get(run, 0):
                truth.wrong("epoch is not the number of acquisitions", run, row.epoch, granted)

    def operations(self, runs):
        truth = self.truth
        claimed = {(row.operation_id, row.attempt): row for row in
                   self.db.sql("SELECT * FROM @schema@.operation_evidence WHERE kind = 'claimed'")}
        for row in self.db.sql("SELECT * FROM @schema@.tool_operations"):
            name, sent = row.operation_id, truth.sent.get(row.operation_id, set())
            claims, back = truth.claims.get(name, {}), truth.not_sent.get(name, set())
            if row.attempts != len(claims) + truth.doubted.get(name, 0) or row.attempts_not_sent != len(back):
                truth.wrong("attempts are not what was claimed and taken back", row, claims, back)
            if row.status == "prepared" and row.attempts > 0:
                truth.wrong("prepared after a claim", row)
            if row.status == "dispatching" and (name, row.attempts) not in claimed:
                truth.wrong("dispatching without a claim", row)
            if row.status == "dispatching" and (row.dispatch_owner, row.claimed_revision) != (
                    claimed[name, row.attempts].dispatch_owner, claimed[name, row.attempts].dispatch_revision):
                truth.wrong("dispatching under another claim", row)
            if row.status == "cancelled" and sent:
                truth.wrong("cancelled though it was sent", row, sent)
            if row.status in ("succeeded", "failed_final") and not sent and row.adopted_from is None:
                truth.wrong("settled though it was never sent", row)
            if len(sent) > 1 and row.capability != "idempotency_key":
                truth.wrong("sent twice", row, sent)
            if row.adopted_from and runs[row.run_id].first_run_id != runs[uuid.UUID(row.adopted_from.split("/")[1])].first_run_id:
                truth.wrong("adopted from another submission", row)

    def events(self, history):
        truth = self.truth
        events = truth.published + self.db.sql("SELECT * FROM @schema@.outbox_events ORDER BY seq")
        if len({event.event_id for event in events}) < len(events):
            truth.wrong("an event was published twice")
        told = sorted((str(row.run_id), row.kind, row.epoch, row.revision) for row in history
                      if row.kind != "created" and not (row.kind == "started" and row.owner is None))
        seen = sorted((str(e.run_id), e.type[4:], e.epoch, e.revision) for e in events if e.type.startswith("run."))
        if told != seen:
            truth.wrong("history and events differ", set(told) ^ set(seen))
        last, ends = {}, {}
        for event in events:
            if event.type.startswith("operation."):
                if event.type != "operation.unknown":
                    end = event.body["operation"]["operation_id"], event.type.replace("failed", "failed_final")[10:]
                    ends[end] = ends.get(end, 0) + 1
            elif event.run_id and event.type != "submission.duplicate":
                before = last.get(event.run_id)
                if before and (before.type[4:] in TERMINAL or (event.epoch, event.revision) < (before.epoch, before.revision)):
                    truth.wrong("order of events", before, event)
                last[event.run_id] = event
        settled = {(row.operation_id, row.status): 1 for row in self.db.sql(
            "SELECT * FROM @schema@.tool_operations WHERE adopted_from IS NULL") if row.status in SETTLED}
        contradicted = {end for end in ends if end[1] == "contradiction"}
        if {end: n for end, n in ends.items() if end not in contradicted} != settled:
            truth.wrong("an operation's last event", {end: ends.get(end) for end in set(ends) ^ set(settled)})

    def requests(self):
        stored = {(row.tenant_id, row.request_key): row.outcome for row in self.db.sql("SELECT * FROM @schema@.requests")}
        for key, outcome in self.truth.answers.items():
            if outcome != "waiting" and stored.get(key) != outcome:
                self.truth.wrong("a request was answered otherwise", key, outcome, stored.get(key))

    def restore(self):
        """As after a backup was restored: epochs grow, and what was not sent may have been sent."""
        self.truth.valid.clear()
        before = self.db.sql("SELECT run_id, epoch FROM @schema@.worker_leases")
        attempts = self.db.sql("SELECT operation_id, attempts FROM @schema@.tool_operations")
        self.db.call("gate_open", p_by=("judge", "text"), p_reason=("test", "text"), p_restored=(True, "boolean"))
        for row in before:
            grown = self.db.one("SELECT epoch FROM @schema@.worker_leases WHERE run_id = %s", row.run_id) - row.epoch
            if grown != (0 if row.run_id in self.truth.terminal else 1000000):
                self.truth.wrong("epoch after a restore", row, grown)
            self.truth.raised[row.run_id] = self.truth.raised.get(row.run_id, 0) + grown
        for row in attempts:
            grown = self.db.operation(row.operation_id).attempts - row.attempts
            if grown:
                self.truth.doubted[row.operation_id] = self.truth.doubted.get(row.operation_id, 0) + grown

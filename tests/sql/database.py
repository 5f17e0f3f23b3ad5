"""The functions of the interface as Python calls, for the SQL tests: no SQL of the product is repeated here.

    db = Database(dsn)
    run = db.submit(task="t1")[0].run_id
    [got] = db.claim("pod:1")
    db.commit([item(got, finish="succeeded", output={})])
"""
import types
import uuid

import psycopg
from psycopg.types.json import Jsonb

IFACE = "holdfast_v1"
SCHEMA = "holdfast"

# The commit's arrays: member of an item → (parameter, SQL type, value when absent).
COMMIT_ITEM = {
    "run_id": ("p_run_ids", "uuid"), "owner": ("p_owners", "text"), "epoch": ("p_epochs", "bigint"),
    "revision": ("p_revisions", "bigint"), "commit_id": ("p_commit_ids", "uuid"), "digest": ("p_digests", "text"),
    "checkpoint": ("p_checkpoints", "jsonb"), "finish": ("p_finish", "text"), "output": ("p_outputs", "jsonb"),
    "release": ("p_release", "boolean"), "wait_mode": ("p_wait_mode", "text"), "wait_signal": ("p_wait_signal", "text"),
    "wait_until": ("p_wait_until", "timestamptz"), "retry_ms": ("p_retry_ms", "bigint")}
COMMIT_INTENT = {
    "operation_id": ("p_i_operation_id", "text"), "step": ("p_i_step", "text"), "version": ("p_i_version", "integer"),
    "tool": ("p_i_tool", "text"), "digest": ("p_i_digest", "text"), "body": ("p_i_body", "jsonb"),
    "capability": ("p_i_capability", "text"), "declaration": ("p_i_declaration", "jsonb"),
    "external_key": ("p_i_external_key", "text"), "after_settled": ("p_i_after_settled", "boolean"),
    "compensates": ("p_i_compensates", "text")}
SUBMIT_ITEM = {
    "tenant": ("p_tenant", "text"), "task": ("p_task", "text"), "key": ("p_key", "text"),
    "own_key": ("p_own_key", "boolean"), "digest": ("p_digest", "text"), "source": ("p_source", "text"),
    "by": ("p_by", "text"), "reject": ("p_reject", "jsonb"), "handler": ("p_handler", "text"),
    "run_id": ("p_run_id", "uuid"), "input": ("p_input", "jsonb"), "priority": ("p_priority", "integer"),
    "not_before": ("p_not_before", "timestamptz"), "deadline": ("p_deadline", "timestamptz"),
    "max_attempts": ("p_max_attempts", "integer"), "cancel_previous": ("p_cancel_previous", "boolean"),
    "allow_unsettled": ("p_allow_unsettled", "boolean"), "labels": ("p_labels", "jsonb"),
    "traceparent": ("p_traceparent", "text"), "tracestate": ("p_tracestate", "text")}
CANCEL_ITEM = {name: SUBMIT_ITEM[name] for name in ("tenant", "task", "key", "own_key", "digest", "source", "by", "run_id")} | {
    "reason": ("p_reason", "text"), "record": ("p_record", "jsonb")}
RETRY_ITEM = {name: SUBMIT_ITEM[name] for name in ("tenant", "task", "key", "own_key", "digest", "source", "by", "run_id",
                                                   "allow_unsettled", "traceparent", "tracestate")} | {
    "new_run_id": ("p_new_run_id", "uuid"), "fresh": ("p_fresh", "boolean"), "reason": ("p_reason", "text")}
CLAIM_ITEM = {"operation_id": ("p_operation_ids", "text"), "owner": ("p_owners", "text"),
              "revision": ("p_revisions", "bigint"), "attempt": ("p_attempts", "integer"), "evidence": ("p_evidence", "jsonb")}
OPEN_ITEM = CLAIM_ITEM | {"retry_ms": ("p_retry_ms", "bigint")}
ANSWER_ITEM = CLAIM_ITEM | {"digest": ("p_digests", "text"), "verdict": ("p_verdicts", "text"),
                            "remote_id": ("p_remote_ids", "text"), "result": ("p_results", "jsonb")}
LEASE_ITEM = {"run_id": ("p_run_ids", "uuid"), "owner": ("p_owners", "text"), "epoch": ("p_epochs", "bigint")}


def arrays(members, items):
    """Items as parallel arrays: {parameter: (values, type)}."""
    for item in items:
        unknown = set(item) - set(members)
        assert not unknown, f"no such member: {unknown}"
    return {parameter: ([wrap(item.get(name), kind) for item in items], kind + "[]")
            for name, (parameter, kind) in members.items()}


def wrap(value, kind):
    return Jsonb(value) if kind == "jsonb" and value is not None and not isinstance(value, Jsonb) else value


class Database:
    """One connection in autocommit: every call is a transaction, unless the test opens one with begin()."""

    def __init__(self, dsn, iface=IFACE, schema=SCHEMA):
        self.dsn, self.iface, self.schema = dsn, iface, schema
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.name, self.counter = uuid.uuid4().hex, 0  # no two sessions ever make the same record

    def another(self):
        return Database(self.dsn, self.iface, self.schema)

    def close(self):
        self.connection.close()

    def sql(self, text, *parameters):
        cursor = self.connection.execute(text.replace("@schema@", self.schema).replace("@iface@", self.iface),
                                         parameters or None)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [types.SimpleNamespace(**dict(zip(names, row))) for row in cursor.fetchall()]

    def one(self, text, *parameters):
        [row] = self.sql(text, *parameters)
        values = list(vars(row).values())
        return values[0] if len(values) == 1 else row

    def begin(self):
        self.sql("BEGIN")

    def end(self, how="COMMIT"):
        self.sql(how)

    def call(self, name, **parameters):
        """parameters: (value, SQL type)."""
        text = ", ".join(f"{p} => %s::{kind}" for p, (_, kind) in parameters.items())
        return self.sql(f"SELECT * FROM {self.iface}.{name}({text})", *[value for value, _ in parameters.values()])

    # The verbs, with the defaults of a plain record.
    def record(self, members, item):
        self.counter += 1
        full = {"tenant": "default", "key": f"kafka:c/t/0/{self.name}{self.counter}/1", "own_key": False, "digest": "d",
                "source": f"t/0/{self.name}{self.counter}/1"} | item
        if full["own_key"] and "key" not in item:
            raise AssertionError("a producer's own key must be given")
        if "new_run_id" in members:
            full.setdefault("new_run_id", uuid.uuid4())
        if "handler" in members:
            full = {"handler": "plan", "run_id": uuid.uuid4()} | full
        return full

    def submit(self, *items, **item):
        return self.call("submit", **arrays(SUBMIT_ITEM, [self.record(SUBMIT_ITEM, i) for i in items or [item]]))

    def cancel(self, *items, **item):
        return self.call("cancel", **arrays(CANCEL_ITEM, [self.record(CANCEL_ITEM, i) for i in items or [item]]))

    def retry(self, *items, **item):
        return self.call("retry", **arrays(RETRY_ITEM, [self.record(RETRY_ITEM, i) for i in items or [item]]))

    def acquire(self, owner, *run_ids, token=None, ttl_ms=60000, handlers=None):
        return self.call("acquire", p_owner=(owner, "text"), p_token=(token or uuid.uuid4(), "uuid"),
                         p_run_ids=(list(run_ids), "uuid[]"), p_ttl_ms=(ttl_ms, "bigint"), p_handlers=(handlers, "text[]"))

    def claim(self, owner, limit=100, token=None, ttl_ms=60000, handlers=None):
        return self.call("claim", p_owner=(owner, "text"), p_token=(token or uuid.uuid4(), "uuid"),
                         p_limit=(limit, "integer"), p_ttl_ms=(ttl_ms, "bigint"), p_handlers=(handlers, "text[]"))

    def renew(self, *leases, ttl_ms=60000):
        return self.call("renew", **arrays(LEASE_ITEM, leases), p_ttl_ms=(ttl_ms, "bigint"))

    def release(self, *leases, graceful=False):
        return self.call("release", **arrays(LEASE_ITEM, leases), p_graceful=(graceful, "boolean"))

    def commit(self, *items):
        """Items of members of COMMIT_ITEM, plus intents, waits, events, detached, signals as lists."""
        plain, groups = [], {"i": [], "w": [], "e": [], "d": [], "s": []}
        for number, item in enumerate(items, 1):
            item = dict(item)
            for name, key in (("intents", "i"), ("waits", "w"), ("events", "e"), ("detached", "d"), ("signals", "s")):
                groups[key] += [(number, part) for part in item.pop(name, [])]
            plain.append({"commit_id": uuid.uuid4(), "digest": "d"} | item)
        parameters = arrays(COMMIT_ITEM, plain)
        intents = [part for _, part in groups["i"]]
        parameters |= arrays(COMMIT_INTENT, intents)
        for key in groups:
            parameters[f"p_{key}_item"] = ([number for number, _ in groups[key]], "integer[]")
        parameters["p_w_operation_id"] = ([part for _, part in groups["w"]], "text[]")
        parameters["p_d_operation_id"] = ([part for _, part in groups["d"]], "text[]")
        parameters["p_s_signal_id"] = ([part for _, part in groups["s"]], "text[]")
        parameters["p_e_type"] = ([part[0] for _, part in groups["e"]], "text[]")
        parameters["p_e_body"] = ([wrap(part[1], "jsonb") for _, part in groups["e"]], "jsonb[]")
        return self.call("commit", **parameters)

    def dispatch(self, owner, *operation_ids, token=None, ttl_ms=60000, limit=10, tools=None, verb="claim_operations"):
        """Named operations, or whatever is due."""
        return self.call(verb, p_owner=(owner, "text"), p_token=(token or uuid.uuid4(), "uuid"), p_limit=(limit, "integer"),
                         p_ttl_ms=(ttl_ms, "bigint"), p_tools=(tools, "text[]"),
                         p_operation_ids=(list(operation_ids) or None, "text[]"))

    def answer(self, *answers):
        """Answers of members of ANSWER_ITEM; remembered with the digest of intent()."""
        full = [{"digest": "sha256:1", "verdict": "succeeded"} | answer for answer in answers]
        return self.call("record_result", **arrays(ANSWER_ITEM, full))

    def not_answered(self, verb, *answers):
        """verb: record_not_sent or record_unknown."""
        return self.call(verb, **arrays(OPEN_ITEM, answers))

    def sweep(self, limit=1000):
        """As the holder of the sweep's lease, which it takes and gives back."""
        [lease] = self.call("service_acquire", p_name=("sweep", "text"), p_owner=("test", "text"), p_ttl_ms=(2000, "bigint"))
        assert lease.outcome == "acquired", lease
        [row] = self.call("sweep", p_owner=("test", "text"), p_epoch=(lease.epoch, "bigint"), p_limit=(limit, "integer"))
        self.call("service_release", p_name=("sweep", "text"), p_owner=("test", "text"), p_epoch=(lease.epoch, "bigint"))
        return row

    # What a test looks at or arranges.
    def run(self, run_id):
        return self.one("SELECT r.*, l.owner, l.epoch, l.expires_at, l.ran_out, l.lapsed_at, y.run_id IS NOT NULL AS ready, "
                        "m.at AS timer_at FROM @schema@.agent_runs r JOIN @schema@.worker_leases l USING (run_id) "
                        "LEFT JOIN @schema@.ready y USING (run_id) LEFT JOIN @schema@.timers m USING (run_id) "
                        "WHERE r.run_id = %s", run_id)

    def operation(self, operation_id):
        return self.one("SELECT * FROM @schema@.tool_operations WHERE operation_id = %s", operation_id)

    def events(self, run_id=None, task=None):
        """Types of the outbox's events in the order of their sequence."""
        return [row.type for row in self.sql("SELECT type FROM @schema@.outbox_events WHERE (%s::uuid IS NULL OR run_id = %s) "
                                             "AND (%s::text IS NULL OR task_id = %s) ORDER BY seq", run_id, run_id, task, task)]

    def expire(self, *run_ids):
        """Lets leases run out: as if their time had passed. The only way that needs no waiting."""
        self.sql("UPDATE @schema@.worker_leases SET expires_at = clock_timestamp() - interval '1 second' "
                 "WHERE run_id = ANY (%s)", list(run_ids))


def lease(got, owner):
    return {"run_id": got.run_id, "owner": owner, "epoch": got.epoch}


def item(got, owner, **members):
    return {"run_id": got.run_id, "owner": owner, "epoch": got.epoch, "revision": got.revision} | members


def intent(got, step, version=1, tool="pay", digest="sha256:1", **members):
    operation_id = f"{got.tenant_id}/{got.run_id}/{step}/{version}"
    return {"operation_id": operation_id, "step": step, "version": version, "tool": tool, "digest": digest,
            "body": {"n": 1}, "external_key": operation_id, "capability": "none", "declaration": {}} | members


def of_claim(got, owner, **members):
    """What the holder of a claim says about it."""
    return {"operation_id": got.operation_id, "owner": owner, "revision": got.revision, "attempt": got.attempt} | members

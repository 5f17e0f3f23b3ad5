"""The verbs of side effects as Python calls, and operations in the states that a test needs."""
import uuid

from database import SUBMIT_ITEM, arrays, intent, item

SIGNAL_ITEM = {name: SUBMIT_ITEM[name] for name in ("tenant", "task", "key", "own_key", "digest", "source", "by", "run_id")} | {
    "signal_id": ("p_signal_id", "text"), "name": ("p_name", "text"), "payload": ("p_payload", "jsonb"),
    "record": ("p_record", "jsonb")}
FACT_ITEM = {"operation_id": ("p_operation_ids", "text"), "attempt": ("p_attempts", "integer"), "owner": ("p_owners", "text"),
             "digest": ("p_digests", "text"), "verdict": ("p_verdicts", "text"), "remote_id": ("p_remote_ids", "text"),
             "result": ("p_results", "jsonb"), "evidence": ("p_evidence", "jsonb"), "by": ("p_by", "text")}
QUERY_ITEM = {"operation_id": ("p_operation_ids", "text"), "owner": ("p_owners", "text"), "query": ("p_queries", "integer"),
              "retry_ms": ("p_retry_ms", "bigint"), "evidence": ("p_evidence", "jsonb")}
ACT_ITEM = {"operation_id": ("p_operation_ids", "text"), "revision": ("p_revisions", "bigint"), "who": ("p_who", "text"),
            "why": ("p_why", "text")}
RESOLVE_ITEM = ACT_ITEM | {"verdict": ("p_verdict", "text"), "remote_id": ("p_remote_ids", "text"),
                           "result": ("p_results", "jsonb"), "evidence": ("p_evidence", "jsonb")}
RAISE_ITEM = ACT_ITEM | {"capability": ("p_capability", "text"), "declaration": ("p_declaration", "jsonb")}
UNDO_ITEM = {"operation_id": ("p_operation_ids", "text"), "kind": ("p_kind", "text"), "tool": ("p_tool", "text"),
             "body": ("p_body", "jsonb"), "digest": ("p_digest", "text"), "capability": ("p_capability", "text"),
             "declaration": ("p_declaration", "jsonb"), "external_key": ("p_external_key", "text"), "by": ("p_by", "text")}


def signal(db, *items, **one):
    full = []
    for given in items or [one]:
        got = {"name": "go", "signal_id": uuid.uuid4().hex} | given
        full.append(db.record(SIGNAL_ITEM, {"key": got["signal_id"], "own_key": True} | got))
    return db.call("signal", **arrays(SIGNAL_ITEM, full))


def converge(db, *facts):
    return db.call("converge", **arrays(FACT_ITEM, [{"digest": "sha256:1", "verdict": "succeeded", "by": "test"} | f
                                                    for f in facts]))


def claim_queries(db, owner="q1", limit=100, token=None, ttl_ms=30000, tools=None):
    return db.call("claim_queries", p_owner=(owner, "text"), p_token=(token or uuid.uuid4(), "uuid"),
                   p_limit=(limit, "integer"), p_ttl_ms=(ttl_ms, "bigint"), p_tools=(tools, "text[]"))


def record_query(db, *items):
    return db.call("record_query", **arrays(QUERY_ITEM, items))


def resolve(db, *items):
    return db.call("resolve", **arrays(RESOLVE_ITEM, [{"verdict": "succeeded", "who": "ann", "why": "asked them"} | i
                                                      for i in items]))


def cancel_operation(db, *items):
    return db.call("cancel_operation", **arrays(ACT_ITEM, [{"who": "ann", "why": "not wanted"} | i for i in items]))


def raise_capability(db, *items):
    return db.call("raise_capability", **arrays(RAISE_ITEM, [{"who": "ann", "why": "they told us"} | i for i in items]))


def compensate(db, *items):
    return db.call("compensate", **arrays(UNDO_ITEM, [{"kind": "compensate", "body": {"undo": 1}, "digest": "sha256:u",
                                                       "by": "test", "declaration": {}} | i for i in items]))


def undo_due(db, limit=100, tools=None):
    return db.call("undo_due", p_limit=(limit, "integer"), p_tools=(tools, "text[]"))


# --- operations, by the product's own verbs

def planned(db, *steps, park=True, task=None, **members):
    """A run that registered these steps and is parked until all are settled; (got, operation ids)."""
    [made] = db.submit(task=task or f"t{uuid.uuid4().hex[:8]}")
    [got] = db.acquire("pod", made.run_id)
    intents = [intent(got, step, **members) for step in steps]
    ids = [i["operation_id"] for i in intents]
    [answer] = db.commit(item(got, "pod", intents=intents, **({"waits": ids, "wait_mode": "all", "release": True} if park else {})))
    assert answer.outcome == "ok", answer
    got.revision = answer.revision
    return got, ids


def claim(db, *ids, owner="d1", ttl_ms=30000, verb="claim_operations", limit=100, tools=None):
    return db.call(verb, p_owner=(owner, "text"), p_token=(uuid.uuid4(), "uuid"), p_limit=(limit, "integer"),
                   p_ttl_ms=(ttl_ms, "bigint"), p_tools=(tools, "text[]"), p_operation_ids=(list(ids) or None, "text[]"))


def said(db, verb, claimed, owner="d1", retry_ms=0, **more):
    """record_not_sent or record_unknown of the holder of one claim."""
    return db.call(verb, p_operation_ids=([claimed.operation_id], "text[]"), p_owners=([owner], "text[]"),
                   p_revisions=([claimed.revision], "bigint[]"), p_attempts=([claimed.attempt], "integer[]"),
                   p_retry_ms=([retry_ms], "bigint[]"), p_evidence=([None], "jsonb[]"))[0]


def answered(db, claimed, verdict="succeeded", owner="d1", remote_id="r1", digest=None):
    return db.call("record_result", p_operation_ids=([claimed.operation_id], "text[]"), p_owners=([owner], "text[]"),
                   p_revisions=([claimed.revision], "bigint[]"), p_attempts=([claimed.attempt], "integer[]"),
                   p_digests=([digest or claimed.request_digest], "text[]"), p_verdicts=([verdict], "text[]"),
                   p_remote_ids=([remote_id], "text[]"), p_results=([None], "jsonb[]"), p_evidence=([None], "jsonb[]"))[0]


def sent(db, operation_id, owner="d1", **named):
    """One attempt that may have been sent, and its claim."""
    [claimed] = claim(db, operation_id, owner=owner, **named)
    assert claimed.outcome == "claimed", claimed
    assert said(db, "record_unknown", claimed, owner).outcome == "recorded"
    return claimed


def due(db, operation_id):
    """Its back-off is over, without waiting for it."""
    db.sql("UPDATE @schema@.tool_operations SET not_before = clock_timestamp() WHERE operation_id = %s AND not_before IS NOT NULL",
           operation_id)


def final_now(db, operation_id):
    """As if the last claim and the last change of the gate were an hour ago."""
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() - interval '1 hour' WHERE operation_id = %s",
           operation_id)
    db.sql("UPDATE @schema@.control SET gate_changed_at = clock_timestamp() - interval '1 hour'")


def evidence(db, operation_id):
    return [e.kind for e in db.sql("SELECT kind FROM @schema@.operation_evidence WHERE operation_id = %s ORDER BY evidence_id",
                                   operation_id)]


def told(db, operation_id):
    """Types of the events about one operation."""
    return [e.type for e in db.sql("SELECT type FROM @schema@.outbox_events WHERE body -> 'operation' ->> 'operation_id' = %s "
                                   "ORDER BY seq", operation_id)]


def state(db, operation_id):
    o = db.operation(operation_id)
    return o.status, o.attempts, o.attempts_not_sent

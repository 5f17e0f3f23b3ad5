"""Every (status × verb) cell of an operation, for the verbs that are about operations: a cell makes a step that is a row of
operation_transition, or none; and every row of these verbs is made by some cell, or the diagram lies."""
import pytest

from verbs import (answered, cancel_operation, claim, claim_queries, compensate, converge, due, final_now, planned,
                   raise_capability, record_query, resolve, said)

STATUSES = ("prepared", "dispatching", "unknown", "expired", "twice", "unsent", "succeeded", "failed_final", "cancelled")
TERMINAL = ("succeeded", "failed_final", "cancelled")
DECLARED = {"retention_ms": 600000, "timeout_ms": 1, "absent_is_final_after_ms": 1, "escalate_after_ms": 0,
            "on_cancel": "compensate", "compensate_tool": "refund", "remote_cancel_tool": "stop"}


def made(db, status, ended):
    """An operation in that status (twice: a second attempt is under way), its latest claim, its run cancelled if `ended`."""
    capability = "idempotency_key" if status == "twice" else "query"
    got, [one] = planned(db, "s", capability=capability, declaration=DECLARED)
    c = None
    if status != "prepared":
        [c] = claim(db, one)
    if status in ("succeeded", "failed_final"):
        answered(db, c, status)
    elif status in ("unsent", "cancelled"):
        said(db, "record_not_sent", c)
    elif status in ("unknown", "twice"):
        said(db, "record_unknown", c)
    elif status == "expired":
        db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = %s", one)
        db.one("SELECT expired FROM @iface@.expire_claims(10)")
    if status == "twice":
        due(db, one)
        [c] = claim(db, one, verb="claim_unknown")
    if status == "cancelled":
        cancel_operation(db, {"operation_id": one, "revision": db.operation(one).revision})
    if ended:
        db.cancel(run_id=got.run_id)
    due(db, one)
    return one, c


def key(db, one):
    db.sql("UPDATE @schema@.tool_operations SET capability = 'idempotency_key', retention_ms = 600000, queried_attempt = attempts, "
           "not_before = coalesce(not_before, clock_timestamp()) WHERE operation_id = %s", one)


def absent(db, one, c):
    final_now(db, one)
    claim_queries(db, "q")
    converge(db, {"operation_id": one, "verdict": "absent", "owner": "q"})


def act(db, one):
    return {"operation_id": one, "revision": db.operation(one).revision}


def late(db):
    db.sql("UPDATE @schema@.tool_operations SET dispatch_until = clock_timestamp() WHERE status = 'dispatching'")


VERBS = {
    "claim_operations": [lambda db, one, c: claim(db, one, owner="d2"), lambda db, one, c: claim(db, owner="d2")],
    "claim_unknown": [lambda db, one, c: (key(db, one), claim(db, one, owner="d2", verb="claim_unknown"))],
    "claim_queries": [lambda db, one, c: claim_queries(db)],
    "record_result": [lambda db, one, c: c and answered(db, c), lambda db, one, c: c and answered(db, c, "failed_final")],
    "record_not_sent": [lambda db, one, c: c and said(db, "record_not_sent", c)],
    "record_unknown": [lambda db, one, c: c and said(db, "record_unknown", c)],
    "record_query": [lambda db, one, c: (claim_queries(db, "q"), record_query(db, {"operation_id": one, "owner": "q", "query": 1}))],
    "expire_claims": [lambda db, one, c: (late(db), db.one("SELECT expired FROM @iface@.expire_claims(10)"))],
    "converge": [lambda db, one, c: converge(db, {"operation_id": one}),
                 lambda db, one, c: converge(db, {"operation_id": one, "verdict": "failed_final"}), absent],
    "resolve": [lambda db, one, c: resolve(db, act(db, one)),
                lambda db, one, c: resolve(db, act(db, one) | {"verdict": "failed_final"})],
    "cancel_operation": [lambda db, one, c: cancel_operation(db, act(db, one))],
    "raise_capability": [lambda db, one, c: raise_capability(db, act(db, one) | {"capability": "idempotency_key",
                                                                                "declaration": DECLARED})],
    "compensate": [lambda db, one, c: compensate(db, {"operation_id": one, "tool": "refund"}),
                   lambda db, one, c: compensate(db, {"operation_id": one, "tool": "stop", "kind": "remote_cancel"})],
    "gate_open": [lambda db, one, c: db.sql("SELECT * FROM @iface@.gate_open('test', 'restored', true)")],
    "escalate": [lambda db, one, c: (db.sql("UPDATE @schema@.tool_operations SET escalate_at = clock_timestamp()"), db.sweep())],
}


@pytest.mark.parametrize("verb", VERBS)
def test_cells(db, verb):
    rows = {(r.from_status, r.to_status) for r in db.sql(
        "SELECT from_status, to_status FROM @schema@.operation_transition WHERE verb = %s", verb)}
    steps = set()
    for status in STATUSES:
        for ended in (False, True):
            for do in VERBS[verb]:
                one, c = made(db, status, ended)
                before = db.operation(one)
                do(db, one, c)
                after = db.operation(one)
                cell = (status, ended, before.status, after.status)
                if before.status != after.status:
                    assert (before.status, after.status) in rows, cell
                    assert after.revision == before.revision + 1, cell
                    steps.add((before.status, after.status))
                if before.status in TERMINAL:
                    assert (after.status, after.revision, after.result, after.remote_id, after.attempts) == (
                        before.status, before.revision, before.result, before.remote_id, before.attempts), cell
                if before.attempts != before.attempts_not_sent and after.attempts == after.attempts_not_sent:
                    assert verb in ("record_not_sent", "converge"), cell # only these know that nothing was sent
                assert after.status != "prepared" or before.status == "prepared", cell
                # What was made to undo it is an operation of its own.
                for undone in db.sql("SELECT status FROM @schema@.tool_operations WHERE compensates = %s", one):
                    steps.add(("", undone.status))
                # None of the others' cells may see this one.
                if after.status not in TERMINAL:
                    db.sql("UPDATE @schema@.tool_operations SET not_before = '2999-01-01', dispatch_until = '2999-01-01', "
                           "tool_name = 'done' WHERE operation_id = %s", one)
                    if after.status == "prepared":
                        cancel_operation(db, act(db, one))
    assert steps == rows

"""Every (status × verb) cell of the two state machines: what a verb does to a status is a row, or nothing."""
import uuid

import psycopg
import pytest

from database import intent, item, lease
from test_commit import settle
from test_life import commit, held, later

RUN_STATUSES = ("pending", "running", "succeeded", "failed", "cancelled")
OPERATION_STATUSES = ("prepared", "dispatching", "unknown", "succeeded", "failed_final", "cancelled")


def run_in(db, status):
    """A run in that status, with what a holder knows about it."""
    [made] = db.submit(task="t1", max_attempts=1)
    if status == "pending":
        run = db.run(made.run_id)
        run.tenant_id, run.task_id = "default", "t1"
        return run
    [got] = db.acquire("a", made.run_id)
    if status in ("succeeded", "failed"):
        commit(db, got, finish=status, output={})
    if status == "cancelled":
        db.cancel(task="t1")
    return got


def expire_and(db, got, act):
    db.expire(got.run_id)
    return act()


RUN_VERBS = {
    "submit": lambda db, got: db.submit(task="t1", cancel_previous=True),
    "submit over": lambda db, got: db.submit(task="t1"),
    "retry": lambda db, got: db.retry(task="t1"),
    "acquire": lambda db, got: db.acquire("b", got.run_id),
    "acquire after expiry": lambda db, got: expire_and(db, got, lambda: db.acquire("b", got.run_id)),
    "claim": lambda db, got: db.claim("b"),
    "claim past the deadline": lambda db, got: (
        db.sql("UPDATE @schema@.agent_runs SET deadline = clock_timestamp() WHERE status IN ('pending', 'running')"),
        db.release(lease(got, "a")), db.claim("b")),
    "renew": lambda db, got: db.renew(lease(got, "a")),
    "release": lambda db, got: db.release(lease(got, "a")),
    "commit": lambda db, got: commit(db, got, checkpoint={"n": 1}),
    "commit succeeded": lambda db, got: commit(db, got, finish="succeeded"),
    "commit failed": lambda db, got: commit(db, got, finish="failed"),
    "commit retry": lambda db, got: commit(db, got, retry_ms=1),
    "commit park": lambda db, got: commit(db, got, wait_signal="x"),
    "cancel": lambda db, got: db.cancel(task="t1"),
    "sweep": lambda db, got: expire_and(db, got, db.sweep),
}


@pytest.mark.parametrize("status", RUN_STATUSES)
@pytest.mark.parametrize("verb", RUN_VERBS)
def test_run_cell(db, status, verb):
    got = run_in(db, status)
    before = db.run(got.run_id)
    assert before.status == status
    history = db.one("SELECT count(*) FROM @schema@.run_history WHERE run_id = %s", got.run_id)
    RUN_VERBS[verb](db, got)
    after = db.run(got.run_id)
    allowed = {row.to_status for row in db.sql(
        "WITH RECURSIVE w AS (SELECT %s::text AS status UNION SELECT x.to_status FROM w JOIN @schema@.run_transition x "
        "ON x.from_status = w.status AND x.verb = %s) SELECT status AS to_status FROM w", status, verb.split()[0])}
    assert after.status in allowed, (status, verb, after.status)
    if after.status != status:
        assert after.revision > before.revision, "a step of the state machine raises the revision"
        assert db.one("SELECT count(*) FROM @schema@.run_history WHERE run_id = %s", got.run_id) > history
    if status in ("succeeded", "failed", "cancelled"):
        assert (after.status, after.revision, after.checkpoint, after.ready) == (status, before.revision, before.checkpoint, False)


# The steps that only these cells can show are all reached: a row that no verb makes is a lie in the diagram.
RUN_STEPS = {
    ("", "submit", "pending"): lambda db: db.submit(task="t1"),
    ("", "retry", "pending"): lambda db: (run_in(db, "failed"), db.retry(task="t1")),
    ("pending", "acquire", "running"): lambda db: db.acquire("a", run_in(db, "pending").run_id),
    ("pending", "claim", "running"): lambda db: (run_in(db, "pending"), db.claim("a")),
    ("running", "commit", "succeeded"): lambda db: run_in(db, "succeeded"),
    ("running", "commit", "failed"): lambda db: run_in(db, "failed"),
    ("running", "acquire", "failed"): lambda db: RUN_VERBS["acquire after expiry"](db, run_in(db, "running")),
    ("running", "claim", "failed"): lambda db: RUN_VERBS["claim past the deadline"](db, run_in(db, "running")),
    ("running", "sweep", "failed"): lambda db: RUN_VERBS["sweep"](db, run_in(db, "running")),
    ("pending", "cancel", "cancelled"): lambda db: (run_in(db, "pending"), db.cancel(task="t1")),
    ("running", "cancel", "cancelled"): lambda db: run_in(db, "cancelled"),
    ("pending", "submit", "cancelled"): lambda db: (run_in(db, "pending"), db.submit(task="t1", cancel_previous=True)),
    ("running", "submit", "cancelled"): lambda db: (run_in(db, "running"), db.submit(task="t1", cancel_previous=True)),
}


@pytest.mark.parametrize("step", RUN_STEPS, ids=" ".join)
def test_run_step_is_made(db, step):
    RUN_STEPS[step](db)
    assert db.one("SELECT count(*) FROM @schema@.run_history WHERE coalesce(from_status, '') = %s AND to_status = %s", step[0], step[2])


def test_run_steps_are_all_walked(db):
    assert {(r.from_status, r.verb, r.to_status) for r in db.sql("SELECT * FROM @schema@.run_transition")} == set(RUN_STEPS)


# --- operations: the verbs of a run that touch them

def ready_to_fail(db, got):
    """The run is at its attempt limit and its lease ran out."""
    db.sql("UPDATE @schema@.agent_runs SET max_attempts = 1, attempts = 1")
    db.expire(got.run_id)


OPERATION_VERBS = {
    "commit": lambda db, got: commit(db, got, checkpoint={}, intents=[intent(got, "s")]),
    "commit next version": lambda db, got: commit(db, got, intents=[intent(got, "s", 2, digest="sha256:2")]),
    "commit failed": lambda db, got: commit(db, got, finish="failed"),
    "commit succeeded": lambda db, got: commit(db, got, finish="succeeded"),
    "cancel": lambda db, got: db.cancel(task="t1"),
    "submit": lambda db, got: db.submit(task="t1", cancel_previous=True),
    "acquire": lambda db, got: (ready_to_fail(db, got), db.acquire("b", got.run_id)),
    "claim": lambda db, got: (db.sql("UPDATE @schema@.agent_runs SET deadline = clock_timestamp()"),
                              db.release(lease(got, "a")), db.claim("b")),
    "sweep": lambda db, got: (ready_to_fail(db, got), db.sweep()),
    "renew": lambda db, got: db.renew(lease(got, "a")),
    "release": lambda db, got: db.release(lease(got, "a")),
    "retry": lambda db, got: db.retry(task="t1"),
}


@pytest.mark.parametrize("status", OPERATION_STATUSES + ("unsent",))
@pytest.mark.parametrize("verb", OPERATION_VERBS)
def test_operation_cell(db, status, verb):
    got = held(db)
    op = intent(got, "s")
    commit(db, got, intents=[op])
    if status == "cancelled":
        db.sql("UPDATE @schema@.tool_operations SET status = 'cancelled'")
    elif status != "prepared":
        settle(db, op["operation_id"], status)
    stored = "unknown" if status == "unsent" else status
    OPERATION_VERBS[verb](db, got)
    after = db.operation(op["operation_id"]).status
    rows = {r.to_status for r in db.sql("SELECT * FROM @schema@.operation_transition WHERE from_status = %s AND verb = %s",
                                        stored, verb.split()[0])}
    ends = verb in ("commit next version", "commit failed", "cancel", "acquire", "claim", "sweep") or (
        verb == "submit" and status not in ("dispatching", "unknown"))
    if status in ("prepared", "unsent") and ends:
        assert after == "cancelled" and after in rows
    else:
        assert after == stored, f"{verb} must leave a {status} operation alone"


def walk(db, table, transition, statuses, update):
    allowed = {(r.from_status, r.to_status) for r in db.sql(f"SELECT * FROM @schema@.{transition}")}
    for before in statuses:
        for after in statuses:
            if before == after:
                continue
            db.begin()
            try:
                db.sql(f"ALTER TABLE @schema@.{table} DISABLE TRIGGER USER")
                db.sql(update, before)
                db.sql(f"ALTER TABLE @schema@.{table} ENABLE TRIGGER USER")
                if (before, after) in allowed:
                    db.sql(update, after)
                else:
                    with pytest.raises(psycopg.errors.CheckViolation, match="no transition"):
                        db.sql(update, after)
            finally:
                db.end("ROLLBACK")


def test_the_guard_refuses_every_step_that_is_no_row(db):
    got = held(db)
    commit(db, got, intents=[intent(got, "s")])
    walk(db, "agent_runs", "run_transition", RUN_STATUSES, "UPDATE @schema@.agent_runs SET status = %s")
    walk(db, "tool_operations", "operation_transition", OPERATION_STATUSES, "UPDATE @schema@.tool_operations SET status = %s")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.sql("INSERT INTO @schema@.agent_runs (run_id, tenant_id, task_id, status, handler, first_run_id) "
               "VALUES (%s, 'default', 't1', 'running', 'plan', %s)", uuid.uuid4(), uuid.uuid4())
    commit(db, got, finish="failed")


def test_nothing_leaves_a_terminal_state(db):
    assert not db.sql("SELECT * FROM @schema@.run_transition WHERE from_status IN ('succeeded', 'failed', 'cancelled')")
    assert not db.sql("SELECT * FROM @schema@.operation_transition WHERE from_status IN ('succeeded', 'failed_final', 'cancelled')")

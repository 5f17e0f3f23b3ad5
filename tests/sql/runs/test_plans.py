"""A fresh installation has no statistics and a small batch must not read a big table: no verb scans one, by sequence or
through a whole index."""
import uuid

import verbs
from database import intent, item, lease
from test_life import later

BIG = 4000
TABLES = ("agent_tasks", "agent_runs", "run_data", "worker_leases", "tool_operations", "requests", "ready", "timers", "signals",
          "claims", "run_history", "outbox_events", "refusals")

FILL = """
    SET session_replication_role = replica;
    CREATE TEMP TABLE n AS SELECT gen_random_uuid() AS id, g FROM generate_series(1, {big}) g;
    INSERT INTO @schema@.agent_tasks SELECT 'default', 'old' || g, id FROM n;
    INSERT INTO @schema@.agent_runs (run_id, tenant_id, task_id, status, handler, first_run_id)
        SELECT id, 'default', 'old' || g, 'succeeded', 'plan', id FROM n;
    INSERT INTO @schema@.run_data (run_id) SELECT id FROM n;
    INSERT INTO @schema@.worker_leases (run_id, epoch) SELECT id, 1 FROM n;
    INSERT INTO @schema@.requests (tenant_id, request_key, verb, digest, task_id, outcome)
        SELECT 'default', 'old' || g, 'submit', 'd', 'old' || g, 'created' FROM n;
    INSERT INTO @schema@.tool_operations (operation_id, run_id, step_id, effect_version, tool_name, request_digest, request_body,
        status, external_key) SELECT 'default/' || id || '/s/1', id, 's', 1, 'pay', 'd', '{{}}', 'succeeded', 'x' FROM n;
    INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, name) SELECT 'default', 'old' || g, 's', 'go' FROM n;
    INSERT INTO @schema@.ready SELECT id, 'nobody', 9, clock_timestamp() FROM n;
    INSERT INTO @schema@.timers SELECT id, 'infinity' FROM n;
    INSERT INTO @schema@.claims (token, owner, made_at) SELECT id, 'x', clock_timestamp() FROM n;
    INSERT INTO @schema@.run_history (at, tenant_id, task_id, run_id, kind, to_status, epoch, revision)
        SELECT clock_timestamp(), 'default', 'old' || g, id, 'created', 'pending', 0, 0 FROM n;
    INSERT INTO @schema@.refusals SELECT id, 1, 'lost', 'renew', NULL, 1, 1, clock_timestamp(), clock_timestamp() FROM n;
    DROP TABLE n;
    SET session_replication_role = origin"""


def counters(db):
    db.sql("SELECT pg_stat_force_next_flush()")
    return {row.relname: (row.seq_tup_read, row.idx_tup_read) for row in db.sql(
        "SELECT s.relname, s.seq_tup_read, coalesce(s.idx_tup_fetch, 0) + coalesce((SELECT sum(i.idx_tup_read) "
        "FROM pg_stat_user_indexes i WHERE i.relid = s.relid), 0) AS idx_tup_read "
        "FROM pg_stat_user_tables s WHERE s.schemaname = 'holdfast'")}


def test_no_verb_reads_a_big_table(dsn):
    from database import Database
    db = Database(dsn)
    # The worst a planner can be told: that the tables are as small as they were when somebody counted.
    db.sql("VACUUM ANALYZE")
    for statement in FILL.format(big=BIG).split(";"):
        db.sql(statement)
    runs = [made.run_id for made in db.submit(*({"task": f"t{n}"} for n in range(8)))]
    steps = {
        "submit": lambda: db.submit({"task": "new"}, {"task": "t1"}, {"task": "t2", "cancel_previous": True}, {"task": "nb", "not_before": later(99)}),
        "cancel": lambda: db.cancel({"task": "t3"}, {"task": "none"}),
        "claim": lambda: db.claim("a", 2, handlers=["plan"]),
        "claim all": lambda: db.claim("a", 1, token=uuid.uuid4(), handlers=["plan", "exec"]),
        "acquire": lambda: db.acquire("b", *runs[4:]),
        "renew": lambda: db.renew(*({"run_id": r, "owner": "b", "epoch": 1} for r in runs)),
        "commit": lambda: db.commit(*({"run_id": r, "owner": "b", "epoch": 1, "revision": 1, "checkpoint": {"n": 1},
                                       "wait_signal": "go" if n else None} for n, r in enumerate(runs[4:]))),
        "finish": lambda: db.commit({"run_id": runs[4], "owner": "b", "epoch": 1, "revision": 2, "finish": "failed"}),
        "signal": lambda: verbs.signal(db, {"task": "t6", "name": "go"}, {"task": "t7"}, {"task": "nobody"}),
        "retry": lambda: db.retry({"task": "t4"}, {"task": "t5"}),
        "release": lambda: db.release(*({"run_id": r, "owner": "b", "epoch": 1} for r in runs)),
        "sweep": db.sweep,
    }
    for name, act in steps.items():
        before = counters(db)
        act()
        after = counters(db)
        for table in TABLES:
            sequential, by_index = (a - b for a, b in zip(after[table], before[table]))
            assert sequential < BIG / 2, f"{name} scans {table}: {sequential} rows"
            assert by_index < BIG / 2, f"{name} reads all of an index of {table}: {by_index} rows"
    db.close()

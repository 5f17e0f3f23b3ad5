"""Whether a case ended correctly: by SQL, by the remote's own ledger, by the result topic. Never by what a pod says."""
import collections
import json

from run_errors import Wrong

# What stands in the result topic for a row of the history.
EVENT_OF = {"started": "run.started", "taken_over": "run.taken_over", "succeeded": "run.succeeded",
            "failed": "run.failed", "cancelled": "run.cancelled"}
ENDS = ("succeeded", "failed", "cancelled")


async def rows(db, sql):
    from psycopg.rows import dict_row
    cursor = db.cursor(row_factory=dict_row)
    await cursor.execute(sql)
    return await cursor.fetchall()


def history_is_consistent(history, status):
    """A life of one run: created, started once, take-overs, one end; epochs and revisions only rise."""
    kinds = [row["kind"] for row in history]
    wrong = []
    if kinds[:1] != ["created"] or kinds.count("created") != 1:
        wrong.append(f"history begins {kinds}")
    if kinds.count("started") != 1:
        wrong.append(f"started {kinds.count('started')} times")
    ends = [kind for kind in kinds if kind in ENDS]
    if ends != ([status] if status in ENDS else []):
        wrong.append(f"status {status}, but history has the ends {ends}")
    for before, after in zip(history, history[1:]):
        if after["epoch"] < before["epoch"] or after["revision"] < before["revision"]:
            wrong.append(f"{after['kind']}: epoch or revision went back from {before['kind']}")
        if after["kind"] == "taken_over" and after["epoch"] <= before["epoch"]:
            wrong.append("a take-over without a new epoch")
        if before["kind"] in ENDS:
            wrong.append(f"{after['kind']} after the end")
    return wrong


async def judge(case):
    db, wrong = case.db, []
    runs = await rows(db, "select run_id::text, status, revision, task_id, handler from holdfast.agent_runs")
    requests = await rows(db, "select outcome, run_id::text, task_id, request_key from holdfast.requests")
    operations = await rows(db, "select operation_id, step_id, tool_name, status, attempts, attempts_not_sent,"
                                " external_key, remote_id, result, capability from holdfast.tool_operations")
    history = await rows(db, "select * from holdfast.run_history order by history_id")
    evidence = await rows(db, "select operation_id, kind, attempt from holdfast.operation_evidence order by evidence_id")
    for view in ("stranded", "orphans"):
        for row in await rows(db, f"select * from holdfast.{view}"):
            wrong.append(f"{view}: {row}")

    # One accepted submission is one run.
    if len(runs) != 1:
        raise Wrong(f"{len(runs)} runs for one submission")
    run = runs[0]
    accepted = [r for r in requests if r["outcome"] == "created"]
    if len(accepted) != 1 or accepted[0]["run_id"] != run["run_id"] or len(requests) != 1:
        wrong.append(f"requests: {requests}")
    wrong += history_is_consistent(history, run["status"])

    # Effects: by the remote's ledger.
    executions = collections.Counter(e["key"] for e in case.remote.executions)
    by_key = {o["external_key"]: o for o in operations}
    for key, count in executions.items():
        if key not in by_key:
            wrong.append(f"the remote executed {key!r}, which is no operation")
        elif count > 1:
            wrong.append(f"the remote executed {key} {count} times")
    doubted = []
    for o in operations:
        count = executions[o["external_key"]]
        if o["status"] == "succeeded":
            if count != 1:
                wrong.append(f"{o['operation_id']} succeeded with {count} executions")
        elif o["status"] == "unknown" and o["capability"] == "none" and o["attempts"] > o["attempts_not_sent"]:
            doubted.append(o)
            if not any(e["operation_id"] == o["operation_id"] and e["kind"] != "claimed" for e in evidence):
                wrong.append(f"{o['operation_id']} is unknown without evidence")
        else:
            wrong.append(f"{o['operation_id']} is left {o['status']} with {count} executions")
        claims = o["attempts"]
        if count > claims:
            wrong.append(f"{o['operation_id']} was executed {count} times by {claims} claims")
    expected = {"plan": 3, "exec": 1}[case.flow]
    if run["status"] == "succeeded":
        if len(operations) != expected or doubted:
            wrong.append(f"succeeded with operations {[(o['step_id'], o['status']) for o in operations]}")
    elif run["status"] != "running" or not doubted:
        wrong.append(f"the run is {run['status']} and nothing is in doubt")

    # The result topic: each event once, nothing without its fact, no fact without its event.
    read = await case.world.read_all([case.prefix + name for name in ("results", "dead-letters")])
    events = [json.loads(value) for _, value, _ in read[case.prefix + "results"]]
    dead = read[case.prefix + "dead-letters"]
    if dead:
        wrong.append(f"dead letters: {[headers for _, _, headers in dead]}")
    for identity, count in collections.Counter(e["event_id"] for e in events).items():
        if count > 1:
            wrong.append(f"event {identity} was read {count} times")
    told = collections.Counter(e["type"] for e in events)
    facts = collections.Counter(EVENT_OF[row["kind"]] for row in history if row["kind"] in EVENT_OF)
    facts["operation.succeeded"] = sum(o["status"] == "succeeded" for o in operations)
    for kind in set(told) | set(facts):
        if kind != "operation.unknown" and told[kind] != facts[kind]:
            wrong.append(f"{told[kind]} events {kind} for {facts[kind]} facts")
    for o in doubted:
        if not any(e["type"] == "operation.unknown" and e["operation"]["operation_id"] == o["operation_id"]
                   for e in events):
            wrong.append(f"{o['operation_id']} is unknown and nobody was told")
    places = [(e["epoch"], e["revision"]) for e in events if e["type"].startswith("run.")]
    if places != sorted(places):
        wrong.append(f"run events out of order: {places}")
    if wrong:
        raise Wrong("; ".join(wrong))

#!/usr/bin/env python3
"""The exec handler of the random faults: {"saves": n, "work_ms": m, "call": {"tool", "request"}, "fail": "why"}.

It saves n times with m milliseconds of work before each, goes on where its predecessor saved, then calls a tool, fails,
or succeeds. The work is a wait: what matters is that the run is held while faults happen.
"""
import json
import select
import sys


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def work(milliseconds):
    """Works for so long, or until it is told something; what it is told is kept for whoever reads next."""
    select.select([sys.stdin], [], [], milliseconds / 1000)


def step(context):
    wanted = context["input"]
    if context.get("operations"):
        return {"decision": "succeed", "output": {"operations": [o["status"] for o in context["operations"]]}}
    saved = (context.get("checkpoint") or {}).get("saved", 0)
    for n in range(saved + 1, wanted.get("saves", 0) + 1):
        work(wanted.get("work_ms", 0))
        say({"save": {"saved": n}})
        answer = hear()
        if "revision" not in answer:   # stopped, or another state is stored: this execution is over
            return {"decision": "continue"}
    if "call" in wanted:
        return {"decision": "plan", "wait": "all", "intents": [{"id": "call", **wanted["call"]}]}
    if "fail" in wanted:
        return {"decision": "fail", "failure": {"reason": wanted["fail"]}}
    return {"decision": "succeed", "output": {"epoch": context["epoch"]}}


while True:
    line = hear()
    if "context" in line:   # a late {"stop": …} belongs to a step that has ended
        say(step(line["context"]))

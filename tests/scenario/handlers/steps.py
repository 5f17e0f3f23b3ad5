#!/usr/bin/env python3
"""The exec handler of the scenes: does what the run's input says, so that a scene decides what happens and when.

    {"saves": 2}                  two intermediate checkpoints, {"saved": 1} and {"saved": 2}
    {"wait": "/dir/go.EPOCH"}     then waits until that file is there (EPOCH becomes the epoch that executes it)
    {"die": true}                 kills its own pod, as a handler that exhausts the machine would
    {"wait_signal": "go", "ms": 500}      waits for that signal, at most so long; then success with what it was told
    {"call": {"tool": …, "request": …}}   then one tool call, and success when it is settled
    {"fail": "why"}               then a final failure; without any of these: success
"""
import json
import os
import signal
import sys
import time


def say(value):
    print(json.dumps(value), flush=True)


def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def kill_pod():
    """There may be a shell between the pod and this process."""
    pid = os.getppid()
    while True:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            name, _, rest = stat.read().partition("(")[2].rpartition(")")
        if name.startswith("holdfast"):
            os.kill(pid, signal.SIGKILL)
            time.sleep(60)   # we die with it
        pid = int(rest.split()[1])


def step(context):
    wanted = context["input"]
    if context.get("operations"):
        return {"decision": "succeed", "output": {"operations": [o["status"] for o in context["operations"]]}}
    if wanted.get("die"):
        kill_pod()
    for n in range(1, wanted.get("saves", 0) + 1):
        say({"save": {"saved": n}})
        answer = hear()
        if "revision" not in answer:   # stopped, or another state is stored: this execution is over
            return {"decision": "continue"}
    if "wait" in wanted:
        file = wanted["wait"].replace("EPOCH", str(context["epoch"]))
        while not os.path.exists(file):
            time.sleep(0.02)
    if "wait_signal" in wanted:
        told = context.get("signals", [])
        if told:
            return {"decision": "succeed", "output": {"signals": [[s["name"], s.get("payload")] for s in told]}}
        if context.get("woke_reason") == "timeout":
            return {"decision": "succeed", "output": {"signals": []}}
        limit = {"ms": wanted["ms"]} if "ms" in wanted else {}
        return {"decision": "wait_signal", "name": wanted["wait_signal"], **limit}
    if "call" in wanted:
        return {"decision": "plan", "checkpoint": {"planned": True}, "wait": "all", "intents": [
            {"id": "call", "tool": wanted["call"]["tool"], "request": wanted["call"]["request"]}]}
    if "fail" in wanted:
        return {"decision": "fail", "failure": {"reason": wanted["fail"]}}
    return {"decision": "succeed", "output": {"by_epoch": context["epoch"]}}


while True:
    line = hear()
    if "context" in line:   # a late {"stop": …} belongs to a step that has ended
        say(step(line["context"]))

#!/usr/bin/env python3
"""The demo's slow handler: writes a report page by page and saves after each one, so that whoever takes the run over
goes on where the last accepted page ended."""
import json
import sys
import time


def write_report(context):
    pages = context["checkpoint"].get("pages", 0)
    while pages < context["input"]["pages"]:
        time.sleep(context["input"]["seconds_a_page"])
        pages += 1
        print(json.dumps({"save": {"pages": pages}}), flush=True)
        answer = json.loads(sys.stdin.readline())
        if "revision" not in answer:   # {"stop": …}: the run is somebody else's now, or was cancelled
            return {"decision": "continue"}
    return {"decision": "succeed", "output": {"pages": pages, "finished_by_epoch": context["epoch"]}}


for line in sys.stdin:
    message = json.loads(line)
    if "context" in message:
        print(json.dumps(write_report(message["context"])), flush=True)

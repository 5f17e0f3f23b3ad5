#!/usr/bin/env python3
"""An exec handler: one JSON line in, one decision out, for as long as the pod keeps it running.

    [handler.double]
    kind = exec
    command = python3 /path/to/handler.py
"""
import json
import sys

for line in sys.stdin:
    context = json.loads(line)["context"]
    print(json.dumps({"decision": "succeed", "output": {"doubled": context["input"]["n"] * 2}}), flush=True)

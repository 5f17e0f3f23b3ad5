#!/usr/bin/env python3
"""A remote service for tests: real HTTP on a loopback port, scripted faults, and a ledger of its own.

The ledger is the judge of every test about side effects: it counts executions, whatever the caller believes.

    remote.py [--port N]        prints one JSON line {"port": N} when it listens; ends when its standard input does

A fault is chosen by the query (?fault=close_after&status=500&delay_ms=200) or by a script set before:
    POST /_script   {"path": "/pay", "faults": ["hang", {"fault": "ok", "status": 429}]}   consumed one a request
    GET  /_ledger   {"executions": […], "by_key": {key: n}, "requests": n, "connections": n,
                     "resets": n}            callers that reset the connection before they had their answer
    POST /_release  answers what hangs
    POST /_reset    forgets everything

    GET  /effects/<key>     what was executed under that key: 200 with the answer it got, 404
    GET  /named/<key>       the resource of that name: 200 with name, tag, owner and spec, 404
Neither counts as a request, nor takes from a script.

Paths that begin with /named create the resource that the body's metadata.name names, once: 409 when it is there.
Paths that begin with /idem execute once per Idempotency-Key (same key with another body: 422) and repeat the stored
answer; every other path executes on each request.

Faults: ok; hang (execute, answer after /_release); close_before (close without executing); close_after (execute, close
without an answer; on a kept-alive connection this is what makes an ordinary client send again); reset_after (the same
by RST); half (execute, half of the promised body); drip (execute, one byte a delay_ms for ever); endless (a body
without end); head_flood (headers without end); continue_flood (interim responses without end); garbage (execute,
something that is not HTTP); redirect (302 to /redirected).
"""
import argparse
import asyncio
import hashlib
import json
import socket
import struct
import sys
import time
import urllib.parse


class Remote:
    def __init__(self):
        self.reset()
        self.connections = 0

    def reset(self):
        self.executions = []
        self.by_key = {}
        self.stored = {}
        self.named = {}
        self.scripts = {}
        self.requests = 0
        self.questions = 0
        self.resets = 0
        self.connections = 0
        self.held = []
        self.released = asyncio.Event()

    # ---- one request's effect ----

    def execute(self, request, connection):
        """Counts an execution; for /idem paths at most one a key. Returns (status, stored body or None)."""
        key = request["headers"].get("idempotency-key", "").strip('"')
        digest = hashlib.sha256(request["body"]).hexdigest()
        if request["path"].startswith("/named"):
            body = json.loads(request["body"])
            key = body["metadata"]["name"]
            if key in self.named:
                return 409, {"error": "there is a resource of this name"}
            spec = {name: value for name, value in body.items() if name != "metadata"}
            self.named[key] = {"name": key, "tag": key, "owner": "holdfast", "spec": dict(spec, size="default")}
        if request["path"].startswith("/idem"):
            known = self.stored.get(key)
            if known is not None:
                if known["digest"] != digest:
                    return 422, {"error": "this key was used with another body"}
                return 200, known["answer"]
        number = len(self.executions) + 1
        self.executions.append({
            "n": number, "at": time.time(), "method": request["method"], "path": request["path"], "key": key,
            "headers": request["headers"], "body": request["body"].decode("utf-8", "replace"),
            "sha256": digest, "connection": connection})
        self.by_key[key] = self.by_key.get(key, 0) + 1
        answer = {"id": f"remote-{number}", "key": key, "execution": number}
        self.stored[key] = {"digest": digest, "answer": answer}
        return 200, answer

    def choose(self, request):
        script = self.scripts.get(request["path"])
        if script:
            entry = script.pop(0)
            return dict(entry) if isinstance(entry, dict) else {"fault": entry}
        return dict(request["query"])

    def ledger(self):
        return {"executions": self.executions, "by_key": self.by_key, "requests": self.requests,
                "questions": self.questions, "connections": self.connections, "resets": self.resets}


def head(status, length=None, extra=()):
    lines = [f"HTTP/1.1 {status} Status", "Content-Type: application/json", "X-Request-Id: r-1"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines.extend(extra)
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer(writer, status, body, extra=()):
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(head(status, len(raw), extra) + raw)


def close_by_reset(writer):
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def read_request(reader):
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        return None if not end.partial else {"broken": True}
    lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {}
    for line in lines[1:]:
        if line:
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urllib.parse.urlsplit(target)
    query = {k: v[-1] for k, v in urllib.parse.parse_qs(parts.query).items()}
    return {"method": method, "path": parts.path, "query": query, "headers": headers, "body": body}


def look_up(remote, writer, request):
    """Questions about what was executed."""
    _, kind, key = request["path"].split("/", 2)
    key = urllib.parse.unquote(key)
    if kind == "named":
        found = remote.named.get(key)
    else:
        found = remote.stored[key]["answer"] if key in remote.stored else None
    remote.questions += 1
    answer(writer, 200 if found else 404, found or {"error": "no such operation"})


def control(remote, writer, request):
    path = request["path"]
    if path == "/_ledger":
        answer(writer, 200, remote.ledger())
    elif path == "/_script":
        script = json.loads(request["body"])
        remote.scripts[script["path"]] = list(script["faults"])
        answer(writer, 200, {})
    elif path == "/_release":
        remote.released.set()
        remote.released = asyncio.Event()
        answer(writer, 200, {})
    elif path == "/_reset":
        remote.reset()
        answer(writer, 200, {})
    else:
        answer(writer, 404, {"error": "no such control"})


async def flood(writer, first, piece):
    writer.write(first)
    while True:
        writer.write(piece)
        await writer.drain()


async def misbehave(remote, writer, request, plan, connection):
    """Carries out one fault; returns whether the connection lives on."""
    fault = plan.get("fault", "ok")
    delay = float(plan.get("delay_ms", 0)) / 1000
    if fault == "close_before":
        return False
    if fault == "redirect":
        answer(writer, 302, None, ["Location: /redirected"])
        return True
    released = remote.released
    status, body = remote.execute(request, connection)
    if "status" in plan:
        status = int(plan["status"])
    if "body" in plan:
        body = plan["body"].encode()
    extra = [f"Retry-After: {plan['retry_after']}"] if "retry_after" in plan else []
    if fault == "close_after":
        return False
    if fault == "reset_after":
        close_by_reset(writer)
        return False
    if fault == "half":
        writer.write(head(200, 1000) + b'{"id":')
        await writer.drain()
        return False
    if fault == "garbage":
        writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")
        return False
    if fault == "drip":
        writer.write(head(200, 100000))
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(delay or 0.05)
    if fault == "endless":
        await flood(writer, head(200), b"x" * 65536)
    if fault == "head_flood":
        await flood(writer, b"HTTP/1.1 200 OK\r\n", b"X-Flood: " + b"y" * 4000 + b"\r\n")
    if fault == "continue_flood":
        await flood(writer, b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    if fault == "hang":
        await released.wait()
    elif fault != "ok":
        raise ValueError(f"no such fault: {fault}")
    if delay:
        await asyncio.sleep(delay)
    answer(writer, status, body, extra)
    return True


async def serve(remote, reader, writer):
    remote.connections += 1
    connection = remote.connections
    counted = True
    answering = False
    try:
        while True:
            request = await read_request(reader)
            if request is None or "broken" in request:
                break
            if request["path"].startswith("/_"):
                if counted:
                    remote.connections -= 1
                    counted = False
                control(remote, writer, request)
                await writer.drain()
                continue
            if request["method"] == "GET" and request["path"].startswith(("/effects/", "/named/")):
                look_up(remote, writer, request)
                await writer.drain()
                continue
            remote.requests += 1
            answering = True
            if not await misbehave(remote, writer, request, remote.choose(request), connection):
                break
            await writer.drain()
            answering = False
            if request["headers"].get("connection", "").lower() == "close":
                break
    except ConnectionResetError:
        remote.resets += 1 if answering else 0
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def until_stdin_ends():
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)


async def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=0)
    options = arguments.parse_args()
    remote = Remote()
    server = await asyncio.start_server(lambda r, w: serve(remote, r, w), "127.0.0.1", options.port, limit=1 << 22,
                                        backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await until_stdin_ends()


if __name__ == "__main__":
    asyncio.run(main())

"""A TCP proxy that knows what passes: it counts the messages of PostgreSQL, Kafka, Redis and HTTP and cuts between two.

    front = Front("pg", 5432, watch=lambda message: "cut" if message.kind == "commit" else None)
    await front.start()          # front.port is what the product is told to connect to

`watch` is asked before each message that a client sends; its answer is what happens at that very message:

    None        it is forwarded
    before      it is not forwarded: both connections are reset
    torn        all of it but its end is forwarded, then both are reset (PostgreSQL: executed, and never committed)
    after       it is forwarded; when the answer comes the client does not get it: both are reset
    blackhole   it is swallowed, and so is everything later on this connection, in both directions, without a reset
    hook(link)  a callable: it is forwarded, and when the answer comes the callable runs, then the answer is forwarded

A message is one unit of conversation: PostgreSQL's frontend messages up to Sync or Query (kind: the function that is
called), one length-framed request of Kafka (kind: API and, where it names one, the topic), one RESP command of Redis,
one HTTP request. For random faults a front has a `mode` too: pass, refuse, blackhole, slow.
"""
import asyncio
import contextlib
import re
import socket
import struct

HOST = "127.0.0.1"
CHUNK = 1 << 18
ANSWER_LIMIT = 1.0   # of hook and after: what has no answer of its own (or a late one) is over by then

KAFKA_APIS = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 17: "SaslHandshake",
    18: "ApiVersions", 19: "CreateTopics", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn",
    26: "EndTxn", 28: "TxnOffsetCommit", 32: "DescribeConfigs", 36: "SaslAuthenticate", 60: "DescribeCluster"}
KAFKA_TOPIC = re.compile(rb"[A-Za-z0-9_.-]*?(tasks|intents|wakeups|results|dead-letters|relay)\b")
PG_CALL = re.compile(rb"\bfrom\s+\"?\w+\"?\.\"?(\w+)\"?\s*\(", re.I)


class Message:
    __slots__ = ("protocol", "kind", "head", "tail", "correlation", "link")

    def __init__(self, protocol, kind, head, tail=b"", correlation=None):
        self.protocol, self.kind, self.head, self.tail = protocol, kind, head, tail
        self.correlation, self.link = correlation, None


# ---- from bytes to messages: each parser is fed and gives what is whole ----

class PgParser:
    def __init__(self):
        self.buffer, self.parts, self.started = b"", [], False
        self.kind, self.names = None, {}

    def feed(self, data):
        self.buffer += data
        while True:
            if not self.started:
                if len(self.buffer) < 8:
                    return
                size, code = struct.unpack_from(">ii", self.buffer)
                if len(self.buffer) < size:
                    return
                raw, self.buffer = self.buffer[:size], self.buffer[size:]
                self.started = code >> 16 == 3
                yield Message("pg", "Startup", raw)
                continue
            if len(self.buffer) < 5:
                return
            size = 1 + struct.unpack_from(">i", self.buffer, 1)[0]
            if len(self.buffer) < size:
                return
            raw, self.buffer = self.buffer[:size], self.buffer[size:]
            self.note(raw)
            if raw[:1] in b"SQXHpdcf":
                head, self.parts = b"".join(self.parts), []
                kind, self.kind = self.kind or {b"X": "Terminate"}.get(raw[:1], "Sync"), None
                yield Message("pg", kind, head, raw)
            else:
                self.parts.append(raw)

    def note(self, raw):
        letter, body = raw[:1], raw[5:]
        if letter == b"P":
            name, _, rest = body.partition(b"\0")
            self.names[name] = self.word(rest.partition(b"\0")[0])
            self.kind = self.kind or "prepare " + self.names[name]
        elif letter == b"B":
            self.kind = self.names.get(body.split(b"\0", 2)[1], "Bind")
        elif letter == b"Q":
            self.kind = self.word(body.rstrip(b"\0"))

    @staticmethod
    def word(sql):
        found = PG_CALL.search(sql)
        return found.group(1).decode() if found else sql.split(None, 1)[0].decode("latin-1").lower() if sql else "empty"


class KafkaParser:
    def __init__(self):
        self.buffer = b""

    def feed(self, data):
        self.buffer += data
        while len(self.buffer) >= 12:
            size = 4 + struct.unpack_from(">i", self.buffer)[0]
            if len(self.buffer) < size:
                return
            raw, self.buffer = self.buffer[:size], self.buffer[size:]
            api, _, correlation = struct.unpack_from(">hhi", raw, 4)
            kind = KAFKA_APIS.get(api, f"api{api}")
            if api in (0, 8, 24):
                topic = KAFKA_TOPIC.search(raw, 12)
                kind += " " + topic.group(1).decode() if topic else ""
            yield Message("kafka", kind, b"", raw, correlation)


class RespParser:
    def __init__(self):
        self.buffer = b""

    def feed(self, data):
        self.buffer += data
        while self.buffer:
            found = self.one()
            if found is None:
                return
            size, kind = found
            raw, self.buffer = self.buffer[:size], self.buffer[size:]
            yield Message("redis", kind, b"", raw)

    def one(self):
        end = self.buffer.find(b"\r\n")
        if end < 0:
            return None
        if self.buffer[:1] != b"*":
            return end + 2, self.buffer[:end].split(b" ")[0].decode("latin-1").upper()
        at, word = end + 2, "?"
        for n in range(int(self.buffer[1:end])):
            end = self.buffer.find(b"\r\n", at)
            if end < 0:
                return None
            size = int(self.buffer[at + 1:end])
            if len(self.buffer) < end + 2 + size + 2:
                return None
            if n == 0:
                word = self.buffer[end + 2:end + 2 + size].decode("latin-1").upper()
            at = end + 2 + size + 2
        return at, word


class HttpParser:
    def __init__(self):
        self.buffer = b""

    def feed(self, data):
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].decode("latin-1")
            length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
            size = end + 4 + (int(length.group(1)) if length else 0)
            if len(self.buffer) < size:
                return
            raw, self.buffer = self.buffer[:size], self.buffer[size:]
            method, target = head.split(" ", 2)[:2]
            # Its end is the last byte: a server that has all but that byte must not act.
            yield Message("http", f"{method} {target.partition('?')[0]}", raw[:-1], raw[-1:])


PARSERS = {"pg": PgParser, "kafka": KafkaParser, "redis": RespParser, "http": HttpParser}


def reset(writer):
    """Closes by RST, as a machine in between that forgot the connection."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Link:
    """One client's connection and ours to the server behind it."""

    def __init__(self, front, reader, writer):
        self.front, self.reader, self.writer = front, reader, writer
        self.server = None
        self.parser = PARSERS[front.protocol]() if front.parse else None
        self.dark = self.ended = False
        self.awaited = None   # (correlation, act): what to do when that answer comes
        self.frames = bytearray()   # of Kafka's answers, which may be many megabytes

    async def run(self):
        pumps = []
        try:
            if self.front.mode == "blackhole":
                await self.front.light.wait()
            server_reader, self.server = await asyncio.open_connection(HOST, self.front.target, limit=CHUNK)
            pumps = [asyncio.ensure_future(self.up()), asyncio.ensure_future(self.down(server_reader))]
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self.dark and not self.ended:   # the silence lasts as long as the client bears it
                await asyncio.wait(pumps)
            for pump in done:
                pump.exception()
        except OSError:
            pass
        finally:
            for pump in pumps:
                pump.cancel()
            self.close()
            self.front.links.discard(self)

    def close(self):
        self.ended = True
        for writer in (self.writer, self.server):
            if writer is not None:
                with contextlib.suppress(Exception):
                    writer.close()

    def cut(self):
        self.ended = True
        for writer in (self.writer, self.server):
            if writer is not None:
                reset(writer)

    async def pace(self):
        if self.front.mode == "blackhole":
            await self.front.light.wait()
        elif self.front.mode == "slow":
            await asyncio.sleep(self.front.delay)   # the fault itself: a slow network

    async def up(self):
        while data := await self.reader.read(CHUNK):
            await self.pace()
            if self.dark:
                continue
            if self.parser is None:
                self.server.write(data)
            else:
                for message in self.parser.feed(data):
                    if not self.pass_on(message):
                        break
            if self.ended:
                return
            await self.server.drain()

    def pass_on(self, message):
        """Forwards one message, or does what the watch says; False when nothing more may follow."""
        message.link = self
        act = self.front.watch(message) if self.front.watch else None
        if act is None:
            self.server.write(message.head + message.tail)
            return True
        if act == "before":
            self.cut()
        elif act == "torn":
            self.server.write(message.head)
            asyncio.get_running_loop().create_task(self.cut_when_written())
        elif act == "blackhole":
            self.dark = True
        else:
            self.awaited = (message.correlation, act)
            self.server.write(message.head + message.tail)
            asyncio.get_running_loop().call_later(ANSWER_LIMIT, self.answered)
            return True
        return False

    async def cut_when_written(self):
        with contextlib.suppress(OSError):
            await self.server.drain()
        self.cut()

    def answered(self):
        """The awaited answer is here: True when the client must not get it."""
        if self.awaited is None:
            return False
        (_, act), self.awaited = self.awaited, None
        if act == "after":
            if not self.ended:
                self.cut()
            return True
        act(self)   # also when the client did not wait for its answer
        return False

    async def down(self, reader):
        while data := await reader.read(CHUNK):
            await self.pace()
            if self.dark:
                continue
            if self.front.protocol == "kafka":
                data = self.kafka_answers(data)
            elif self.awaited is not None and self.answered():
                return
            if self.ended:
                return
            if data:
                self.writer.write(data)
                await self.writer.drain()

    def kafka_answers(self, data):
        """Whole answers only, with the broker's address replaced by ours; stops before a cut."""
        self.frames += data
        out, at = [], 0
        while len(self.frames) - at >= 8:
            size = 4 + struct.unpack_from(">i", self.frames, at)[0]
            if len(self.frames) - at < size:
                break
            raw = bytes(self.frames[at:at + size])
            at += size
            if self.awaited is not None and self.awaited[0] == struct.unpack_from(">i", raw, 4)[0] and self.answered():
                break
            out.append(raw[:512].replace(self.front.theirs, self.front.ours) + raw[512:])
        del self.frames[:at]
        return b"".join(out)


class Front:
    """A port of ours before one server."""

    def __init__(self, protocol, target, watch=None, parse=True):
        self.protocol, self.target, self.watch, self.parse = protocol, target, watch, parse
        self.links, self.mode, self.delay = set(), "pass", 0.0
        self.light = asyncio.Event()
        self.light.set()
        self.listener = self.port = None
        self.theirs = self.ours = b""

    async def start(self):
        self.listener = await asyncio.start_server(self._accept, HOST, 0, limit=CHUNK, backlog=512)
        self.port = self.listener.sockets[0].getsockname()[1]
        address = HOST.encode()
        self.theirs = address + struct.pack(">i", self.target)
        self.ours = address + struct.pack(">i", self.port)
        return self

    async def _accept(self, reader, writer):
        link = Link(self, reader, writer)
        if self.mode == "refuse":
            reset(writer)
            return
        self.links.add(link)
        try:
            await link.run()
        except (OSError, asyncio.CancelledError):
            link.close()

    def set_mode(self, mode, delay=0.0):
        """pass, refuse (new connections are reset), blackhole (nothing passes, nothing is reset), slow."""
        self.mode, self.delay = mode, delay
        if mode == "blackhole":
            self.light.clear()
        else:
            self.light.set()

    def cut_all(self):
        for link in list(self.links):
            link.cut()

    def stop(self):
        self.listener.close()
        self.set_mode("pass")
        self.cut_all()

"""The ways to take all of something: one for each row of the table in `docs/security/fairness.md` that more than one client is
charged for.

A way has `take`, which takes one more for somebody and raises `Refused` where there is none for him. What it returns is
held until it is closed or over. Deliberately not here: how fast they come (`greedy.py`), and what becomes of others
(`fairness.py`).
"""

import asyncio
import contextlib
import dataclasses
import functools
import json
import ssl

from wire import PREFACE, Http1, Http2, Refused

MODERN, LEGACY = "2026-07-28", "2025-11-25"
BODY_BYTES = 4 << 20
PART_BYTES = 16 * 1024
# There is room for one of this size, whatever others hold.
SMALL_BODY_BYTES = 48 * 1024
# How long a gateway has to refuse what nobody waits for.
SETTLE_S = 0.02
SLOW_READ_BYTES, SLOW_READ_S = 1000, 0.1  # 10 kB/s
URIS = 1000
STREAMS_PER_CONNECTION = 100
FLOODS = 3
UNDECLARED = {}
CAN_BE_ASKED = {"elicitation": {"form": {}}}
# Sets of capabilities that no two servers' lists need be the same for.
PARTS = [{"roots": {}}, {"sampling": {}}, {"sampling": {"tools": {}}}, {"sampling": {"context": {}}}]
FORMS = [{}, {"elicitation": {}}, {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}]
DECLARED = [{**part, **form} for part in PARTS for form in FORMS]


@dataclasses.dataclass
class Who:
    """Somebody who attacks, or the one who is attacked: a principal, an address, and a connection that is kept."""

    number: int
    key: str
    source: str
    place: tuple
    connection: Http1 | None = None
    extra: object = None  # what an attack keeps for him
    turns: int = 0

    async def connect(self, **how):
        return await Http1.open(self.place, self.source, **how)

    async def post(self, path, message, headers):
        """A message on the kept connection; its reply."""
        if self.connection is None or self.connection.is_over:
            self.connection = await self.connect()
        self.connection.write(self.request(path, message, headers))
        return await self.connection.reply()

    def request(self, path, message, headers, length=None):
        body = json.dumps(message).encode()
        head = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in self.fields(headers).items())]
        return "\r\n".join([*head, f"Content-Length: {length or len(body)}", "", ""]).encode() + body

    def fields(self, headers):
        return {
            "Host": "127.0.0.1",
            "Authorization": f"Bearer {self.key}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **headers,
        }

    async def modern(self, path, method, params, declared=UNDECLARED, headers=()):
        return await self.post(path, *modern(method, params, declared, headers))

    async def session(self, path, declared=UNDECLARED, version=LEGACY):
        """Opens a session; returns its headers."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": declared, "clientInfo": {"name": "loadtest", "version": "1"}}}
        headers, _ = await self.post(path, message, {})
        own = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": version}
        await self.post(path, {"jsonrpc": "2.0", "method": "notifications/initialized"}, own)
        return own

    async def call(self, path, session, tool, **more):
        params = {"name": tool, "arguments": {}, **more}
        return await self.post(path, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)

    async def stream(self, path, session):
        """The stream of a session, open."""
        connection = await self.connect(reads_little=True)
        own = self.fields({**session, "Accept": "text/event-stream"})
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items()), "", ""]
        connection.write("\r\n".join(lines).encode())
        return await opened(connection)


def modern(method, params, declared=UNDECLARED, headers=()):
    """A message, and the headers that go with it."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "loadtest", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": declared}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    named = {"Mcp-Name": params["name"]} if "name" in params else {}
    return message, {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **named, **dict(headers)}


async def opened(connection):
    """The connection, whose reply has begun well."""
    status, headers = await connection.head()
    if status != 200:
        connection.close()
        raise Refused(str(status))
    if "content-length" in headers and int(headers["content-length"]) < 4096:
        # Over sessions an error comes with status 200.
        message = json.loads(await connection.reader.readexactly(int(headers["content-length"])))
        connection.close()
        raise Refused(str(message.get("error", {}).get("code", "answered")))
    return connection


async def connections(who):
    """A connection that says nothing, or not all of a head, or no more than that it is HTTP/2."""
    held = await who.connect()
    who.turns += 1
    held.write([b"", b"POST /mcp HTTP/1.1\r\nHost:", PREFACE][who.turns % 3])
    return held


async def unfinished_handshakes(who):
    """A TLS handshake that has begun, and no more."""
    held = await who.connect()
    outgoing = ssl.MemoryBIO()
    handshake = unverified().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    held.write(outgoing.read())
    return held


async def handshakes(who):
    """A whole one, and the end of its connection."""
    held = await who.connect(tls=unverified())
    held.close()


def unverified():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def bodies(who, length=BODY_BYTES):
    """A body of 4 MiB, but for its last bytes."""
    held = await who.connect()
    message, headers = modern("tools/call", {"name": "tool_0"})
    held.write(who.request("/mcp", message, headers, length))
    part = b" " * PART_BYTES
    try:
        for _ in range(length // len(part) - 1):
            held.write(part)
            await asyncio.wait_for(held.writer.drain(), 1)
            await asyncio.sleep(0)
    except TimeoutError as problem:
        held.close()
        raise Refused("not read") from problem
    except OSError as problem:
        raise Refused("closed") from problem
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(began := asyncio.create_task(held.reply())), SETTLE_S)
    began.add_done_callback(lambda task: task.cancelled() or task.exception())
    return held


async def bodies_http2(who, length=BODY_BYTES):
    """The same as a stream of HTTP/2, many on a connection."""
    message, headers = modern("tools/call", {"name": "tool_0"})
    shared = await http2_of(who, 65_535)
    stream = shared.begin(http2_head(who, "/mcp", headers, length), ends=False)
    body = json.dumps(message).encode()
    await shared.send(stream, body + b" " * (length - len(body) - 1), ends=False)
    await asyncio.sleep(SETTLE_S)
    return Stream(shared, stream)


async def slow_readers(who):
    """A large reply that is read at 10 kB/s."""
    held = await who.connect(reads_little=True)
    held.write(who.request("/large", *modern("tools/call", {"name": "large"})))
    await opened(held)
    held.reading = asyncio.create_task(read_slowly(held))
    return held


async def read_slowly(held):
    with contextlib.suppress(OSError):
        while await held.reader.read(SLOW_READ_BYTES):
            await asyncio.sleep(SLOW_READ_S)


async def slow_readers_http2(who):
    """A large reply on a stream with a window of one byte."""
    message, headers = modern("tools/call", {"name": "large"})
    body = json.dumps(message).encode()
    shared = await http2_of(who, 1)
    stream = shared.begin(http2_head(who, "/large", headers, len(body)), ends=False)
    await shared.send(stream, body, ends=True)
    await asyncio.sleep(SETTLE_S)
    return Stream(shared, stream)


@dataclasses.dataclass
class Stream:
    """One of HTTP/2."""

    shared: Http2
    stream: int

    def __post_init__(self):
        if self.is_over:
            raise Refused(self.shared.ended.get(self.stream, "closed"))

    @property
    def is_over(self):
        return self.stream in self.shared.ended or self.shared.is_over

    def close(self):
        self.shared.close()


async def http2_of(who, window):
    """A connection with room for one more stream."""
    who.turns += 1
    if who.extra is None or who.extra.is_over or who.turns % STREAMS_PER_CONNECTION == 0:
        who.extra = await Http2.open(who.place, who.source, window)
        await asyncio.sleep(SETTLE_S)
    return who.extra


def http2_head(who, path, headers, length):
    fields = {":method": "POST", ":scheme": "http", ":authority": "127.0.0.1", ":path": path,
              **who.fields({**headers, "Content-Length": str(length)})}
    return {name.lower(): value for name, value in fields.items() if name != "Host"}


async def sessions(who):
    """A session, and a call in it."""
    await who.call("/mcp", await who.session("/mcp"), "tool_0")
    return Kept()


async def upstream_sessions(who):
    """Four sessions with upstreams for one of its own."""
    session = await who.session("/four")
    for upstream in "abcd":
        await who.call("/four", session, f"{upstream}__tool_0")
    return Kept()


async def get_streams(who):
    """The stream of a session."""
    return await who.stream("/mcp", await who.session("/mcp"))


async def stream_queues(who):
    """What waits for the stream of a session that nobody opens. As its client takes requests, its upstream has one."""
    session = await who.session("/queued", {"sampling": {}})
    for _ in range(FLOODS):
        await who.call("/queued", session, "flood")
    return Kept()


async def subscriptions(who):
    """A subscription to many resources, the like of which nobody else has."""
    who.turns += 1
    uris = [f"note://{who.number}/{who.turns}/{number}" for number in range(URIS)]
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": uris}}
    held = await who.connect(reads_little=True)
    held.write(who.request("/talk", *modern("subscriptions/listen", wanted)))
    return await opened(held)


async def suspended_calls(who):
    """A call that waits for its client's answer."""
    params = {"name": "ask", "arguments": {}}
    _, message = await who.modern("/legacy", "tools/call", params, CAN_BE_ASKED)
    if message["result"].get("resultType") != "input_required":
        raise Refused("not asked")
    return Kept()


async def bridge_sessions(who):
    """A call whose client can be asked, so that it has a session with a legacy server to itself while it runs."""
    params = {"name": "slow", "arguments": {}}
    return await begun(who, "/bridged", *modern("tools/call", params, CAN_BE_ASKED))


async def tasks(who):
    """A task."""
    if who.extra is None:
        who.extra = await who.session("/legacy")
    _, message = await who.call("/legacy", who.extra, "task", task={"ttl": 60_000})
    if "task" not in message["result"]:
        raise Refused("no task")
    return Kept()


async def calls(who):
    """A call that takes its time, and is not waited for."""
    return await begun(who, "/busy", *modern("tools/call", {"name": "slow", "arguments": {}}))


async def begun(who, path, message, headers):
    """A call whose answer comes by itself."""
    held = await who.connect()
    held.write(who.request(path, message, headers))
    held.answer = asyncio.create_task(held.reply())
    await asyncio.sleep(0)
    held.answer.add_done_callback(lambda _: held.close())
    return held


async def limiter_keys(who):
    """A call with a value that no call had before."""
    who.turns += 1
    city = f"city-{who.turns}"
    params = {"name": "find", "arguments": {"city": city}}
    await who.modern("/limited", "tools/call", params, headers={"Mcp-Param-City": city})
    return Kept()


async def list_sessions(who):
    """A list, asked for with capabilities that need a session of the gateway's own."""
    who.turns += 1
    await who.modern("/legacy", "tools/list", {}, DECLARED[(who.turns + who.number) % len(DECLARED)])
    return Kept()


async def sse_sessions(who):
    """The stream of HTTP+SSE."""
    held = await who.connect(reads_little=True)
    own = who.fields({"Accept": "text/event-stream"})
    lines = ["GET /sse HTTP/1.1", *(f"{name}: {value}" for name, value in own.items()), "", ""]
    held.write("\r\n".join(lines).encode())
    return await opened(held)


async def children(who):
    """A child process of a session's own."""
    await who.call("/local", await who.session("/local"), "tool_0")
    return Kept()


class Kept:
    """What the gateway keeps without a connection."""

    is_over = False

    def close(self):
        """It is the gateway's to give up."""


ATTACKS = {
    way.__name__.replace("_", "-"): way
    for way in (
        connections, unfinished_handshakes, handshakes, bodies, bodies_http2, slow_readers, slow_readers_http2, sessions,
        upstream_sessions, get_streams, stream_queues, subscriptions, suspended_calls, bridge_sessions, tasks, calls,
        limiter_keys, list_sessions, sse_sessions, children,
    )
}
# What somebody who has nothing takes of the same, where it is less.
ATTEMPTS = {
    "bodies": functools.partial(bodies, length=SMALL_BODY_BYTES),
    "bodies-http2": functools.partial(bodies_http2, length=SMALL_BODY_BYTES),
}

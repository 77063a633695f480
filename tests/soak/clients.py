"""The clients of a soak: each kind does its own thing over and over, and says how it went.

A kind is a function that does it once with a `Client`. What it raises is an error; `Explained` says that the soak itself
made it. What it leaves behind on purpose, open sessions and half requests, the gateway has to clear away.
"""

import contextlib
import http.client
import itertools
import json
import random
import socket
import threading
import time

from fleet.client import LEGACY_VERSION, META, MODERN_VERSION, Client
from soak.site import EVENTS, KEYS

TIMEOUT_S = 20
HELD_S = 0.5
FAILING = "failing upstream"


class Explained(Exception):
    """An error that the soak makes; the message is its reason."""


class Wrong(Exception):
    """An answer that is not what it must be."""


class User(Client):
    """A principal with one kept connection."""

    def __init__(self, port, key):
        super().__init__(port)
        self.port, self.key = port, key

    def send(self, path, method, params, headers, request_id=1):
        """Headers and message of the answer; a stream's is its last."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        if request_id is None:
            del message["id"]
        status, headers, body = self.post(path, message, {"Authorization": f"Bearer {self.key}", **headers})
        if isinstance(body, bytes) and body.startswith((b"data:", b"id:", b"event:", b":")):
            body = json.loads(body.rpartition(b"data: ")[2])
        if status not in (200, 202):
            raise Wrong(f"{method}: {status} {str(body)[:200]}")
        return headers, body

    def modern(self, path, method, headers=(), declared=None, **params):
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": declared or {}}
        own = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method, **dict(headers)}
        if "name" in params:
            own["Mcp-Name"] = params["name"]
        return result(self.send(path, method, {**params, "_meta": meta}, own)[1])

    def session(self, path, version=LEGACY_VERSION, declared=None):
        """Opens one; returns its headers."""
        info = {"name": "soak", "version": "1"}
        params = {"protocolVersion": version, "capabilities": declared or {}, "clientInfo": info}
        headers, body = self.send(path, "initialize", params, {})
        result(body)
        own = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": version}
        self.send(path, "notifications/initialized", {}, own, None)
        return own

    def legacy(self, path, session, method, **params):
        return result(self.send(path, method, params, session)[1])

    def end(self, path, session):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("DELETE", path, headers={"Authorization": f"Bearer {self.key}", **session})
            status = connection.getresponse().status
        if status not in (200, 204):
            raise Wrong(f"DELETE: {status}")

    def stream(self, verb, path, body, headers):
        """A stream that is open: its connection and its response."""
        own = {"Authorization": f"Bearer {self.key}", "Accept": "text/event-stream", **headers}
        if body:
            own |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.request(verb, path, body, own)
        response = connection.getresponse()
        if response.status != 200:
            connection.close()
            raise Wrong(f"{verb} of a stream: {response.status} {response.read()[:200]}")
        return connection, response


def result(message):
    if not isinstance(message, dict) or "result" not in message:
        raise Wrong(f"no result: {str(message)[:200]}")
    return message["result"]


def modern_calls(user):
    """Calls and lists over a merged endpoint, of which one server always fails."""
    user.modern("/mcp", "tools/call", name="stub__tool_1", arguments={})
    user.modern("/demo", "tools/call", name="weather__forecast", arguments={"city": "Oslo", "days": 1},
                headers={"Mcp-Param-City": "Oslo"})
    if len(user.modern("/mcp", "tools/list")["tools"]) < 10:
        raise Wrong("a list without the tools of the servers that are well")


def event_streams(user):
    """A reply in events, in both eras."""
    user.modern("/mcp", "tools/call", name="events__tool_1", arguments={})
    session = user.session("/mcp")
    user.legacy("/mcp", session, "tools/call", name="events__tool_1", arguments={}, _meta={"progressToken": EVENTS})
    user.end("/mcp", session)


def questions(user):
    """A call that asks first, and is refused."""
    call = {"name": "notes__delete_note", "arguments": {"number": 1}}
    can_ask = {"elicitation": {"form": {}}}
    asked = user.modern("/demo", "tools/call", declared=can_ask, **call)
    answers = {key: {"action": "decline"} for key in asked["inputRequests"]}
    answered = {"inputResponses": answers, "requestState": asked["requestState"]}
    user.modern("/demo", "tools/call", declared=can_ask, **answered, **call)


def sessions(user):
    """A session that is ended, or left."""
    session = user.session("/mcp")
    user.legacy("/mcp", session, "tools/list")
    for name in ("stub__tool_1", "stub__tool_2"):
        user.legacy("/mcp", session, "tools/call", name=name, arguments={})
    if random.random() < 0.5:
        user.end("/mcp", session)


def crossed_eras(user):
    """A modern client of a legacy server."""
    user.modern("/crossed", "tools/call", name="tool_1", arguments={})
    user.modern("/crossed", "tools/list", declared={"roots": {}})


def session_streams(user):
    """The stream of a session, held for a while."""
    session = user.session("/mcp")
    connection, _ = user.stream("GET", "/mcp", None, session)
    with contextlib.closing(connection):
        user.legacy("/mcp", session, "tools/call", name="stub__tool_1", arguments={})
        time.sleep(HELD_S)
    user.end("/mcp", session)


def subscriptions(user):
    """A subscription, held for a while."""
    params = {"_meta": META, "notifications": {"toolsListChanged": True}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "subscriptions/listen"}
    connection, response = user.stream("POST", "/mcp", json.dumps(message), headers)
    with contextlib.closing(connection):
        while b"acknowledged" not in (line := response.readline()):
            if not line:
                raise Wrong("a subscription that ended")
        time.sleep(HELD_S)


def older_transport(user):
    """A session over HTTP+SSE."""
    connection, response = user.stream("GET", "/stub", None, {})
    with contextlib.closing(connection):
        target = next_data(response)
        for method, params, request_id in (
            ("initialize", {"protocolVersion": "2024-11-05", "capabilities": {},
                            "clientInfo": {"name": "soak", "version": "1"}}, 1),
            ("notifications/initialized", {}, None),
            ("tools/call", {"name": "tool_1", "arguments": {}}, 2),
        ):
            user.send(target, method, params, {}, request_id)
            if request_id:
                result(json.loads(next_data(response)))


def next_data(response):
    while line := response.readline():
        if line.startswith(b"data: "):
            return line.removeprefix(b"data: ").strip().decode()
    raise Wrong("a stream that ended")


def child_processes(user):
    """A child process of a session's own, ended with it."""
    session = user.session("/local")
    user.legacy("/local", session, "tools/call", name="tool_1", arguments={})
    user.end("/local", session)


def broken_requests(user):
    """Connections that end in the middle of what they say, or say nothing."""
    for begun in (b"", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                  b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", user.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(begun)


def calls_of_the_failing(user):
    """What the upstream that fails cannot answer, and the gateway must."""
    try:
        user.modern("/mcp", "tools/call", name="failing__anything", arguments={})
    except Wrong as wrong:
        raise Explained(FAILING) from wrong
    raise Wrong("an upstream that always fails has answered")


#: Kind → how many of it, and how long each rests between two turns, in seconds.
KINDS = {
    modern_calls: (2, 0.02),
    event_streams: (1, 0.05),
    questions: (1, 0.1),
    sessions: (2, 0.05),
    crossed_eras: (1, 0.05),
    session_streams: (4, 0),
    subscriptions: (4, 0),
    older_transport: (1, 0.1),
    child_processes: (1, 0.5),
    broken_requests: (1, 0.2),
    calls_of_the_failing: (1, 0.2),
}


class Crowd:
    """`with Crowd(port) as crowd:` – clients of all kinds, until the end of the block."""

    def __init__(self, port):
        self.begun = time.monotonic()
        self.ends = threading.Event()
        self.lock = threading.Lock()
        self.done = {kind.__name__.replace("_", " "): [] for kind in KINDS}
        self.explained, self.unexplained = {}, []
        keys = itertools.cycle(KEYS)
        self.threads = [
            threading.Thread(target=self._run, args=(kind, User(port, next(keys)), rest_s), daemon=True)
            for kind, (count, rest_s) in KINDS.items()
            for _ in range(count)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join(TIMEOUT_S)
        if any(thread.is_alive() for thread in self.threads):
            self.unexplained.append("a client that never came back")

    def _run(self, kind, user, rest_s):
        name = kind.__name__.replace("_", " ")
        while not self.ends.wait(rest_s):
            try:
                kind(user)
            except Explained as reason:
                with self.lock:
                    self.explained[str(reason)] = self.explained.get(str(reason), 0) + 1
            except (Wrong, OSError, http.client.HTTPException, ValueError, KeyError) as problem:
                with self.lock:
                    self.unexplained.append(f"{name}: {problem!r}")
                self.ends.wait(1)
                continue
            with self.lock:
                self.done[name].append(time.monotonic() - self.begun)
        user.close()

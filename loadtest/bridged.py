"""Clients of one era before a server of the other, beside those who speak the server's own; and calls that wait."""

import asyncio
import contextlib
import http.client
import itertools
import json
import re
import threading

from measure import Failed
from trunkline import LIMITS, gateway

# Calls that wait for their answers at once.
PARKED = 1000
# Calls that wait before the first look at the memory, so that it has what every call needs.
PARKED_BEFORE = 200
# Declared by clients that can be asked something.
ASKABLE = {"elicitation": {"form": {}}}
ANSWER_TIMEOUT_S = 10
CALLS_TIMEOUT_S = 120


def modern(site):
    """Modern clients, a modern server."""
    return _fixed(site, "trunkline-modern-native", "modern")


def modern_crossed(site):
    """Modern clients that cannot be asked anything, a legacy server."""
    return _fixed(site, "trunkline-modern-bridged", "legacy")


def modern_askable(site):
    """Modern clients that can be asked, a legacy server: one session for each call under way."""
    peer = _fixed(site, "trunkline-modern-askable", "legacy")
    peer.load = ["--capabilities", json.dumps(ASKABLE)]
    return peer


def legacy(site):
    """Legacy clients, a legacy server."""
    return _in_sessions(_fixed(site, "trunkline-legacy-native", "legacy"))


def legacy_crossed(site):
    """Legacy clients, a modern server."""
    return _in_sessions(_fixed(site, "trunkline-legacy-bridged", "modern"))


def parked(site):
    """Modern clients, a modern server, while calls of others wait for answers to a legacy server's questions."""
    server = _Asking()
    waiting = PARKED + PARKED_BEFORE
    more = f"""
[[endpoint]]
path = "/parked"
upstreams = ["asking"]

[upstream.asking]
url = "http://{server.address}/mcp"
eras = ["legacy"]
connections_max = {2 * waiting}
idle_connections_max = 0
bridge = {{ sessions_max = {2 * waiting}, suspended_calls_max = {2 * waiting}, suspended_calls_per_principal_max = {2 * waiting}, suspended_call_timeout = "10m" }}
"""
    peer = gateway(site, "trunkline-parked", ["a"], limits=LIMITS, more=more)
    peer.meanwhile = _Parking(peer, server).running
    return peer


def _fixed(site, name, era):
    return gateway(site, name, ["a"], upstream=f'eras = ["{era}"]\nbridge = {{ sessions_max = 4096 }}')


def _in_sessions(peer):
    peer.load, peer.holds_sessions = ["--era", "legacy"], True
    return peer


class _Parking:
    """Calls that wait, from before the load until its end."""

    def __init__(self, peer, server):
        self.peer, self.server = peer, server

    @contextlib.contextmanager
    def running(self, found):
        """Makes them, and sees what each takes."""
        with self.server.running():
            asyncio.run(self._call(PARKED_BEFORE))
            before = self._resident_bytes()
            asyncio.run(self._call(PARKED))
            found["parked_kib"] = round((self._resident_bytes() - before) / PARKED / 1024, 2)
            waiting = self._metric("trunkline_bridge_suspended_calls")
            if waiting != PARKED + PARKED_BEFORE:
                raise Failed(f"{waiting} calls wait instead of {PARKED + PARKED_BEFORE}")
            yield

    async def _call(self, count):
        places = asyncio.Semaphore(64)

        async def one(number):
            async with places:
                await self._park(number)

        async with asyncio.timeout(CALLS_TIMEOUT_S):
            await asyncio.gather(*(one(number) for number in range(count)))

    async def _park(self, number):
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "loadtest", "version": "1.0.0"},
            "io.modelcontextprotocol/clientCapabilities": ASKABLE,
        }
        params = {"name": "ask", "arguments": {"number": number}, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        host, port = self.peer.address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((
            f"POST /parked HTTP/1.1\r\nHost: {self.peer.address}\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: ask\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode())
        reply = await reader.read()
        writer.close()
        if b"input_required" not in reply:
            raise Failed(f"a call does not wait: {reply[:500]!r}")

    def _resident_bytes(self):
        return self._metric("process_resident_memory_bytes")

    def _metric(self, name):
        host, port = self.peer.admin.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_TIMEOUT_S)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        values = re.findall(rf"^{name}(?:{{.*}})? ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(float(value) for value in values)


class _Asking:
    """A legacy server whose only tool asks its client something and waits for ever. It has no stream for sessions."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.sessions = itertools.count(1)
        self.listener = self.loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        )
        self.address = "127.0.0.1:%d" % self.listener.sockets[0].getsockname()[1]

    @contextlib.contextmanager
    def running(self):
        """Serves until the end of the block."""
        thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(self._end)
            thread.join()
            self.loop.close()

    def _end(self):
        self.listener.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.call_soon(self.loop.stop)

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"^content-length: *(\d+)", head, re.IGNORECASE | re.MULTILINE)
                body = await reader.readexactly(int(length[1])) if length else b""
                writer.write(self._answer(head.split(" ", 1)[0], body))
                await writer.drain()
        writer.close()

    def _answer(self, verb, body):
        if verb == "GET":
            return b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
        if verb == "DELETE":
            return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        message = json.loads(body)
        method = message.get("method")
        if method is None or "id" not in message:
            return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        if method == "tools/call":
            question = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {
                "message": "which?", "requestedSchema": {"type": "object", "properties": {}}}}
            event = f"data: {json.dumps(question)}\n\n"
            return ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                    f"{len(event):x}\r\n{event}\r\n").encode()
        header, result = "", {}
        if method == "initialize":
            header = f"Mcp-Session-Id: {next(self.sessions)}\r\n"
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                      "serverInfo": {"name": "asking", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return (f"HTTP/1.1 200 OK\r\n{header}Content-Type: application/json\r\n"
                f"Content-Length: {len(answer)}\r\n\r\n{answer}").encode()

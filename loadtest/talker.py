"""An MCP server of both eras that does what the stub does not: it takes its time, says much, asks, and makes tasks.

    talker.py [--slow-ms N]

Prints `listening ADDRESS` when it is ready. `tools/call` of `quick` is answered at once, of `slow` after a while, of
`large` with LARGE_BYTES; `flood` first sends notifications on the streams of its session, `ask` asks the client and waits
for as long as it stays, and `task` makes a task. It answers one request of a connection after the other, and checks
nothing: the stub does.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import secrets

LARGE_BYTES = 4 << 20
# Large replies are written in such parts, so that no other one waits for the whole.
PART_BYTES = 64 * 1024
NOTICES, NOTICE_BYTES = 48, 2048
TOOLS = ["quick", "slow", "large", "flood", "ask", "task", "find"]
CITY = {"type": "string", "x-mcp-header": "City"}
TTL = {"ttlMs": 60_000, "cacheScope": "public"}
INFO = {
    "serverInfo": {"name": "talker", "version": "1"},
    "capabilities": {
        "tools": {"listChanged": True},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": True},
        "tasks": {"requests": {"tools": {"call": {}}}, "list": {}, "cancel": {}},
    },
}
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Talker:
    """The server; what it keeps are sessions and their streams."""

    def __init__(self, slow_s):
        self.slow_s = slow_s
        self.streams = {}  # session → the queue of its stream
        self.numbers = itertools.count(1)
        text = json.dumps({"content": [{"type": "text", "text": "x" * LARGE_BYTES}], "resultType": "complete"})
        self.large = text.encode()

    async def serve(self, reader, writer):
        """One connection, until it closes."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(head[0].split()[0], headers, json.loads(body) if body else {}, reader, writer)
        writer.close()

    async def answer(self, verb, headers, message, reader, writer):
        session, method = headers.get("mcp-session-id"), message.get("method")
        if verb == "GET":
            return await self.stream(session, reader, writer)
        if verb == "DELETE":
            self.streams.pop(session, None)
            return writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        if "id" not in message or method is None:
            return writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        if method == "initialize":
            session = secrets.token_hex(16)
            return self.reply(writer, message, {"protocolVersion": message["params"]["protocolVersion"], **INFO}, session)
        if method == "subscriptions/listen":
            return await self.listen(message, reader, writer)
        if method == "tools/call":
            return await self.call(message, session, reader, writer)
        return self.reply(writer, message, self.result(method))

    def result(self, method):
        if method == "server/discover":
            return {**INFO, "resultType": "complete", "supportedVersions": ["2026-07-28"], **TTL}
        if method == "tools/list":
            schema = {"type": "object", "properties": {"city": CITY}}
            tools = [{"name": name, "inputSchema": schema, "execution": {"taskSupport": "optional"}} for name in TOOLS]
            return {"tools": tools, "resultType": "complete", **TTL}
        lists = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
        return {"resultType": "complete", **({lists[method]: [], **TTL} if method in lists else {})}

    async def call(self, message, session, reader, writer):
        name = message["params"]["name"]
        if name == "large":
            return await self.reply_at_length(writer, message)
        if name == "ask":
            return await self.ask(message, reader, writer)
        if name == "slow":
            await asyncio.sleep(self.slow_s)
        if name == "flood" and session in self.streams:
            for _ in range(NOTICES):
                params = {"level": "error", "data": "x" * NOTICE_BYTES}
                self.streams[session].put_nowait({"method": "notifications/message", "params": params})
        result = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
        if name == "task":
            now = "2026-01-01T00:00:00Z"
            times = {"createdAt": now, "lastUpdatedAt": now, "ttl": 60_000}
            result = {"task": {"taskId": secrets.token_hex(16), "status": "working", **times}}
        return self.reply(writer, message, result)

    def reply(self, writer, message, result, session=None):
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        header = f"Mcp-Session-Id: {session}\r\n" if session else ""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{header}Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async def reply_at_length(self, writer, message):
        start = b'{"jsonrpc":"2.0","id":' + json.dumps(message["id"]).encode() + b',"result":'
        length = len(start) + len(self.large) + 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length + start)
        for at in range(0, len(self.large), PART_BYTES):
            writer.write(self.large[at:at + PART_BYTES])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"}")

    async def ask(self, message, reader, writer):
        """A question in the middle of a reply that never ends."""
        params = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
        writer.write(STREAM_HEAD)
        event(writer, {"id": next(self.numbers), "method": "elicitation/create", "params": params})
        await until_closed(reader)

    async def listen(self, message, reader, writer):
        params = {
            "_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]},
            "notifications": message["params"]["notifications"],
        }
        writer.write(STREAM_HEAD)
        event(writer, {"method": "notifications/subscriptions/acknowledged", "params": params})
        await until_closed(reader)

    async def stream(self, session, reader, writer):
        queue = self.streams[session] = asyncio.Queue()
        writer.write(STREAM_HEAD)
        closed = asyncio.create_task(until_closed(reader))
        while not closed.done():
            said = asyncio.create_task(queue.get())
            await asyncio.wait([said, closed], return_when=asyncio.FIRST_COMPLETED)
            if said.done():
                event(writer, said.result())
                await writer.drain()
            said.cancel()


def event(writer, message):
    data = b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def until_closed(reader):
    while await reader.read(PART_BYTES):
        pass
    raise ConnectionResetError


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow-ms", type=int, default=200)
    talker = Talker(parser.parse_args().slow_ms / 1000)
    server = await asyncio.start_server(talker.serve, "127.0.0.1", 0, limit=8 << 20, backlog=1024)
    print("listening %s:%d" % server.sockets[0].getsockname(), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())

"""A server of both eras whose tool takes its time: over HTTP, with JSON, with a stream of events or by HTTP+SSE, and as a child
process (`python slow.py SECONDS`)."""

import contextlib
import http.server
import json
import sys
import threading
import time

TOOLS = {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}
HELD = {"resultType": "complete", "ttlMs": 60000, "cacheScope": "private"}


def result_of(message, seconds):
    """The result of a request, after a while if it is a call."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "slow", "version": "1"}}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "slow", "version": "1"}, **HELD}
    if method == "tools/call":
        time.sleep(seconds)
        return {"content": [{"type": "text", "text": "late"}], "resultType": "complete"}
    return {**TOOLS, **HELD} if method == "tools/list" else {}


def answer(message, seconds):
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result_of(message, seconds)})


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seconds = 0.0
    streams = {}

    def log_message(self, *_):
        pass

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message or "method" not in message:
            return self.reply(202, "", "")
        if self.path.startswith("/messages"):
            stream = self.streams[int(self.path.partition("=")[2])]
            threading.Thread(target=lambda: stream.event("message", answer(message, self.seconds))).start()
            return self.reply(202, "", "")
        if self.path == "/events" and message["method"] == "tools/call":
            self.begin_events()
            self.event("message", answer(message, self.seconds))
            return None
        return self.reply(200, "application/json", answer(message, self.seconds))

    def do_GET(self):
        if self.path != "/sse":
            return self.reply(405, "", "")
        self.begin_events()
        number = len(self.streams)
        self.streams[number] = self
        self.event("endpoint", f"/messages?stream={number}")
        with contextlib.suppress(OSError):
            while self.rfile.read(1):
                pass
        return None

    do_DELETE = do_GET

    def reply(self, status, media, body):
        self.send_response(status)
        if media:
            self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        # A client that is gone does not get it.
        with contextlib.suppress(OSError):
            self.end_headers()
            self.wfile.write(body.encode())

    def begin_events(self):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()

    def event(self, kind, data):
        with contextlib.suppress(OSError):
            self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())
            self.wfile.flush()


@contextlib.contextmanager
def serving(seconds):
    """Its port."""
    handler = type("SlowHandler", (Handler,), {"seconds": seconds, "streams": {}})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def serve_stdio(seconds):
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            print(answer(message, seconds), flush=True)


if __name__ == "__main__":
    serve_stdio(float(sys.argv[1]))

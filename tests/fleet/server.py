"""An MCP server that knows which of its sessions each call came in."""

import collections
import http.server
import json
import threading
import time

UNKNOWN_TOOL = -32602
#: The seconds that each takes.
TOOLS = {"whoami": 0, "slow": 0.3, "long": 6, "longer": 14}


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request, client_address):
        pass  # a gateway that was killed takes no answer


class Server:
    """`with Server() as server:` – a server of both eras at `server.address`, whose tools differ in how long they take."""

    def __init__(self, port=0):
        self._lock = threading.Lock()
        self._counts = {}
        #: The number of times that each call came.
        self._received = collections.Counter()
        #: Of the tool `slow`.
        self.description = "Takes some time."
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server._answer(self, message)

            def do_GET(self):
                self._send(405, b"")

            def do_DELETE(self):
                self._send(200, b"")

            def _send(self, status, body, session=None):
                self.send_response(status)
                if session:
                    self.send_header("Mcp-Session-Id", session)
                if body:
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._http = Listener(("127.0.0.1", port), Handler)
        self.address = "127.0.0.1:%d" % self._http.server_address[1]

    def __enter__(self):
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()

    def sent_twice(self):
        """The calls that came more than once."""
        with self._lock:
            return [call for call, count in self._received.items() if count > 1]

    def _answer(self, handler, message):
        method = message.get("method", "")
        with self._lock:
            self._counts[method] = number = self._counts.get(method, 0) + 1
            if call := message.get("params", {}).get("arguments", {}).get("call"):
                self._received[call] += 1
        if "id" not in message:
            return handler._send(202, b"")
        session = f"upstream-session-{number}" if method == "initialize" else None
        told = self._result(method, message.get("params", {}), handler.headers.get("Mcp-Session-Id"))
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}).encode()
        return handler._send(200, body, session)

    def _result(self, method, params, session):
        info = {"serverInfo": {"name": "fleet", "version": "1"}, "capabilities": {"tools": {"listChanged": True}}}
        if method == "initialize":
            return {"result": {"protocolVersion": params["protocolVersion"], **info}}
        if method == "server/discover":
            versions = {"supportedVersions": ["2026-07-28"], "resultType": "complete"}
            return {"result": {**info, **versions, "ttlMs": 3_600_000, "cacheScope": "public"}}
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            tools[list(TOOLS).index("slow")]["description"] = self.description
            fresh = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public"}
            return {"result": {"tools": tools, **fresh}}
        if method == "tools/call":
            if params["name"] not in TOOLS:
                return {"error": {"code": UNKNOWN_TOOL, "message": "Unknown tool"}}
            time.sleep(TOOLS[params["name"]])
            text = [{"type": "text", "text": session or ""}]
            return {"result": {"resultType": "complete", "content": text, "isError": False}}
        return {"result": {}}

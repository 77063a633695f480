"""Clients of both eras, with kept connections and new ones, and a load of several of them."""

import dataclasses
import http.client
import json
import threading
import time
import uuid

LEGACY_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
TIMEOUT_S = 20
#: A connection that nobody has used for so long is opened anew, as a gateway that drains may be about to close it.
IDLE_MAX_S = 1
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "fleet", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Client:
    """Requests to one port over a kept connection, one after the other."""

    def __init__(self, port):
        self._port = port
        self._connection = None
        self._used = 0.0

    def post(self, path, message, headers):
        """The status, the headers and the parsed body; `OSError` and `http.client.HTTPException` where there is none."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        fixed = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        try:
            self._connection.request("POST", path, json.dumps(message), {**fixed, **headers})
            answer = self._connection.getresponse()
            body = answer.read()
            self._used = time.monotonic()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, answer.headers, json.loads(body) if body and is_json else body

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def modern(self, path, method, **params):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        status, _, body = self.post(path, message, headers)
        return status, body


class Session(Client):
    """A session of the legacy era at `/mcp`, which calls one tool."""

    def __init__(self, port, tool="whoami"):
        super().__init__(port)
        self._tool = tool
        params = {
            "protocolVersion": LEGACY_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "fleet", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        status, headers, _ = self.post("/mcp", message, {})
        assert status == 200, status
        self._headers = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": LEGACY_VERSION}
        status, *_ = self.post("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers)
        assert status == 202, status

    def call(self):
        """What the server says; `Unanswered` where there is another answer than the server's."""
        if time.monotonic() - self._used > IDLE_MAX_S:
            self.close()
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": self._tool, "arguments": new_arguments()},
        }
        status, _, body = self.post("/mcp", message, self._headers)
        return text_of(status, body)


class Visitor(Client):
    """Calls of the modern era at `/mcp`, each over a connection of its own."""

    def call(self):
        status, body = self.modern("/mcp", "tools/call", name="whoami", arguments=new_arguments())
        self.close()
        return text_of(status, body)


def new_arguments():
    """Those of one call alone, so that the server notices a call that comes twice."""
    return {"call": str(uuid.uuid4())}


def text_of(status, body):
    if status != 200 or "result" not in body:
        raise Unanswered(status, body)
    return body["result"]["content"][0]["text"]


#: How a call may fail: the connection ended before the answer, or a proxy in front of the gateways says that it did.
CLOSED = "closed"
BAD_GATEWAY = "502 of the proxy"


@dataclasses.dataclass(frozen=True)
class Failure:
    """A call without the server's answer."""

    begun: float
    ended: float
    #: `CLOSED`, `BAD_GATEWAY`, or in its own words whatever else it was.
    kind: str


def kind_of(failure):
    if isinstance(failure, (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead)):
        return CLOSED
    if isinstance(failure, Unanswered) and failure.status == 502 and isinstance(failure.body, bytes):
        return BAD_GATEWAY  # what a gateway says is JSON
    return repr(failure)


class Unanswered(Exception):
    """Another answer than the server's."""

    def __init__(self, status, body):
        super().__init__(status, body)
        self.status, self.body = status, body


class Load:
    """`with Load(clients) as load:` – each calls again and again until the end of the block, a pause after each answer."""

    def __init__(self, clients, pause_s=0):
        self._clients = clients
        self._pause_s = pause_s
        self._ends = threading.Event()
        # By client: what the server said to each call, when each of these calls began and ended, and the calls that failed.
        self.answers = [[] for _ in clients]
        self.spans = [[] for _ in clients]
        self.failures = [[] for _ in clients]

    def __enter__(self):
        numbers = range(len(self._clients))
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in numbers]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        assert not any(thread.is_alive() for thread in self._threads), "a call never ended"
        for client in self._clients:
            client.close()

    def counts(self):
        """The number of calls of each client that have been answered."""
        return [len(answers) for answers in self.answers]

    def failed(self):
        return [failure for failures in self.failures for failure in failures]

    def longest_s(self):
        """The time of that answered call which took longest."""
        return max(ended - begun for spans in self.spans for begun, ended in spans)

    def _run(self, number):
        while not self._ends.wait(self._pause_s):
            begun = time.monotonic()
            try:
                answer = self._clients[number].call()
                self.spans[number].append((begun, time.monotonic()))
                self.answers[number].append(answer)
            except (OSError, http.client.HTTPException, Unanswered) as failure:
                self.failures[number].append(Failure(begun, time.monotonic(), kind_of(failure)))


def sessions(port, count, tool="whoami"):
    return [Session(port, tool) for _ in range(count)]

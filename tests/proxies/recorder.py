"""The server behind each proxy: it notes what it is asked, byte for byte, and answers as it is told."""

import contextlib
import dataclasses
import json
import re
import socket
import threading

#: What a gateway asks on its own behalf.
OWN = ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list")


@dataclasses.dataclass(frozen=True)
class Request:
    method: str
    target: str
    body: bytes

    def __str__(self):
        body = self.body if len(self.body) < 80 else self.body[:38] + b"..." + self.body[-38:]
        return f"{self.method} {self.target} {len(self.body)} bytes: {body.decode(errors='backslashreplace')!r}"


class Unclear(Exception):
    """What came is not plainly framed."""


class Recorder:
    """`with Recorder() as recorder:` – a server at `recorder.port`."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._changed = threading.Condition()
        self._requests, self._begun = [], 0
        #: What is answered to the call `first`, and whether the connection ends with it; none: a result.
        self.reply = None
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def take(self):
        """What came since the last time, once nothing is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._begun == 0, timeout=5)
            requests, self._requests = self._requests, []
        return requests

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as file, contextlib.suppress(OSError, Unclear):
            while first := file.read(1):
                self._begin(1)
                try:
                    request = read(first, file)
                    own = message(request).get("method") in OWN
                    if not own:
                        with self._changed:
                            self._requests.append(request)
                finally:
                    self._begin(-1)
                reply = self.reply if b'"id":"first"' in request.body and not own else None
                connection.sendall(reply.bytes if reply else answer(request))
                if reply and reply.ends:
                    return

    def _begin(self, count):
        with self._changed:
            self._begun += count
            self._changed.notify_all()


def read(first, file):
    """The rest of a request. Whoever sends it is held to plain framing: this is no parser to be in doubt with."""
    lines = []
    while (line := file.readline()) != b"\r\n":
        if not line.endswith(b"\r\n"):
            raise Unclear(line)
        lines.append(line[:-2])
    method, target, _ = (first + lines[0]).decode("latin-1").split(" ")
    fields = [line.lower().split(b":", 1) for line in lines[1:]]
    lengths = [value.strip() for name, value in fields if name == b"content-length"]
    codings = [value.strip() for name, value in fields if name == b"transfer-encoding"]
    if codings == [b"chunked"] and not lengths:
        return Request(method, target, chunked(file))
    if codings or len(lengths) > 1 or lengths and not re.fullmatch(rb"\d{1,9}", lengths[0]):
        raise Unclear(lines)
    return Request(method, target, exactly(file, int(lengths[0]) if lengths else 0))


def chunked(file):
    body = b""
    while size := int(file.readline().split(b";")[0], 16):
        body += exactly(file, size)
        if exactly(file, 2) != b"\r\n":
            raise Unclear("a chunk")
    while file.readline() not in (b"\r\n", b""):
        pass
    return body


def exactly(file, count):
    data = file.read(count)
    if len(data) < count:
        raise Unclear("the end")
    return data


def message(request):
    with contextlib.suppress(ValueError):
        found = json.loads(request.body)
        if isinstance(found, dict):
            return found
    return {}


def answer(request):
    asked = message(request)
    fresh = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public"}
    result = {"resultType": "complete", "content": []}
    if asked.get("method") == "server/discover":
        info = {"serverInfo": {"name": "recorder", "version": "1"}, "capabilities": {"tools": {}}}
        result = {**info, **fresh, "supportedVersions": ["2026-07-28"]}
    elif asked.get("method") == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}], **fresh}
    body = json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": result}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + (b"" if request.method == "HEAD" else body)

"""One keep-alive connection on which one request follows the other, each after the reply to the one before."""

import dataclasses
import socket

TIMEOUT_S = 60
PIECE_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True)
class Request:
    headers: dict
    body: bytes

    def bytes_for(self, host):
        headers = {
            "Host": host,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
            "Content-Length": len(self.body),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + self.body


@dataclasses.dataclass(frozen=True)
class Reply:
    status: int
    headers: dict
    body: bytes


class Connection:
    def __init__(self, port):
        self.host = f"127.0.0.1:{port}"
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb", PIECE_BYTES)

    def close(self):
        self.input.close()
        self.socket.close()

    def call(self, request):
        return self.exchange(request.bytes_for(self.host))

    def exchange(self, request):
        self.socket.sendall(request)
        status = int(self.line().split()[1])
        headers = {}
        while line := self.line():
            name, _, value = line.partition(b":")
            headers[name.strip().lower().decode()] = value.strip().decode()
        return Reply(status, headers, self.body(headers))

    def line(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the daemon has closed the connection")
        return line[:-2]

    def body(self, headers):
        if "content-length" in headers:
            return self.input.read(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return b""
        chunks = []
        while size := int(self.line(), 16):
            chunks.append(self.input.read(size))
            self.line()
        self.line()
        return b"".join(chunks)

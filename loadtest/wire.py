"""Connections of attackers: HTTP/1.1, and as much HTTP/2 as it takes to hold requests open.

Both may come from an address of their own, and read as little as they like. Deliberately not here: what is sent, and
when.
"""

import asyncio
import json
import socket
import struct

TIMEOUT_S = 5
# Small, so that what is not read waits at the gateway and not in the kernel.
RECEIVE_BYTES = 4096
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384
DATA, HEADERS, RESET, SETTINGS, GO_AWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS, ACKNOWLEDGES = 1, 4, 1
WINDOW_SIZE = 4  # the setting
LARGEST_WINDOW = 2**31 - 1


class Refused(Exception):
    """What was asked for was not given; the message is a status, a JSON-RPC code, or `closed`."""


class Http1:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, place, source, tls=None, reads_little=False):
        """To `place`, from the address `source`."""
        client = socket.socket()
        client.setblocking(False)
        client.bind((source, 0))
        if reads_little:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(client, place), TIMEOUT_S)
            limit = RECEIVE_BYTES if reads_little else 1 << 20
            named = {"ssl": tls, "server_hostname": "localhost"} if tls else {}
            return cls(*await asyncio.open_connection(sock=client, limit=limit, **named))
        except (OSError, TimeoutError) as problem:
            client.close()
            raise Refused("closed") from problem

    @property
    def is_over(self):
        return self.reader.at_eof() or self.writer.is_closing()

    def write(self, data):
        self.writer.write(data)

    def close(self):
        self.writer.transport.abort()

    async def head(self):
        """Status and headers of the next reply."""
        try:
            lines = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)).decode("latin-1").split("\r\n")
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise Refused("closed") from problem
        except TimeoutError as problem:
            raise Refused("unanswered") from problem
        fields = (line.partition(":") for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    async def reply(self):
        """The headers and the message of the next reply; `Refused` where it is none or an error."""
        status, headers = await self.head()
        try:
            body = await asyncio.wait_for(self._body(headers), TIMEOUT_S)
        except (OSError, asyncio.IncompleteReadError) as problem:
            raise Refused("closed") from problem
        except TimeoutError as problem:
            raise Refused("unanswered") from problem
        message = json.loads(body) if body[:1] == b"{" else {}
        refuse(status, message)
        return headers, message

    async def event(self):
        """The next event of a stream that has one."""
        while True:
            line = await asyncio.wait_for(self.reader.readline(), TIMEOUT_S)
            if not line:
                raise Refused("closed")
            if line.startswith(b"data: "):
                return line.removeprefix(b"data: ").strip()

    async def _body(self, headers):
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        body = b""
        while headers.get("transfer-encoding") == "chunked":
            length = int(await self.reader.readline(), 16)
            body += (await self.reader.readexactly(length + 2))[:-2]
            if not length:
                break
        return body


def refuse(status, message):
    """Raises `Refused` where an answer is a refusal."""
    error = message.get("error")
    if status not in (200, 202, 204):
        raise Refused(str(status))
    if error:
        raise Refused(str(error["code"]))


class Http2:
    """One connection, whose streams each have a window of `window` bytes."""

    def __init__(self, connection, window):
        self.connection = connection
        self.next_stream, self.stream_window, self.window = 1, 65_535, 65_535
        self.windows, self.ended, self.changed = {}, {}, asyncio.Event()
        connection.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", WINDOW_SIZE, window)))
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, place, source, window=65_535):
        return cls(await Http1.open(place, source), window)

    @property
    def is_over(self):
        return self.reading.done()

    def close(self):
        self.reading.cancel()
        self.connection.close()

    def begin(self, headers, ends):
        """Sends a request's head; returns its stream."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.windows[stream] = self.stream_window
        block = b"".join(b"\0" + literal(name) + literal(value) for name, value in headers.items())
        flags = END_HEADERS | (END_STREAM if ends else 0)
        self.connection.write(frame(HEADERS, flags, stream, block))
        return stream

    async def send(self, stream, data, ends):
        """Sends data as far as the windows allow; `Refused` where the stream has ended before."""
        at = 0
        while at < len(data):
            if stream in self.ended or self.is_over:
                raise Refused(self.ended.get(stream, "closed"))
            room = min(self.windows[stream], self.window, FRAME_BYTES_MAX, len(data) - at)
            if room <= 0:
                self.changed.clear()
                try:
                    await asyncio.wait_for(self.changed.wait(), TIMEOUT_S)
                except TimeoutError as problem:
                    raise Refused("no window") from problem
                continue
            last = ends and at + room == len(data)
            self.connection.write(frame(DATA, END_STREAM if last else 0, stream, data[at:at + room]))
            self.windows[stream] -= room
            self.window -= room
            at += room

    async def _read(self):
        reader = self.connection.reader
        while True:
            head = await reader.readexactly(9)
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:]) & LARGEST_WINDOW
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            self._take(kind, flags, stream, payload)
            self.changed.set()

    def _take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACKNOWLEDGES:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == WINDOW_SIZE:
                    grown, self.stream_window = value - self.stream_window, value
                    self.windows = {each: room + grown for each, room in self.windows.items()}
            self.connection.write(frame(SETTINGS, ACKNOWLEDGES, 0, b""))
        elif kind == WINDOW_UPDATE:
            more = int.from_bytes(payload) & LARGEST_WINDOW
            if stream:
                self.windows[stream] = self.windows.get(stream, 0) + more
            else:
                self.window += more
        elif kind == RESET:
            self.ended.setdefault(stream, "reset")
        elif kind == GO_AWAY:
            self.ended |= {each: "closed" for each in self.windows if each not in self.ended}
        elif kind == DATA and b'"code":429' in payload:
            self.ended[stream] = "429"
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended.setdefault(stream, "answered")


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def literal(text):
    """A header's name or value as HPACK writes it in plain bytes."""
    raw = text.encode()
    length = bytes([len(raw)]) if len(raw) < 127 else bytes([127, (len(raw) - 127) & 127 | 128, (len(raw) - 127) >> 7])
    return length + raw

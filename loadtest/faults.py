"""An upstream that can be made to fail, and the ways in which it does.

As a program it is an upstream that answers nonsense from the first line on that it reads: `python3 faults.py ADDRESS`.

Each way is a context manager: the upstream fails while it is entered. Deliberately nothing is done to the network:
what hangs is a process, what swallows connections is a listener whose queue is full, so that no privileges are needed.
"""

import asyncio
import contextlib
import http.client
import itertools
import os
import signal
import socket
import sys
import threading

from measure import Failed
from peers import free_address
from processes import Child

# Of a well upstream's replies, so that ten times as much is something to notice.
DELAY_MS = 2
SLOW_FACTOR = 10
# How long a flapping upstream is there, and how long it is not.
FLAP_S = 0.5
# Connections that fill the queue of a listener that takes none, and how long one more must not come about.
FILLERS = 8
FULL_AFTER_S = 0.2
CONTROL_TIMEOUT_S = 5
REQUEST_BYTES_MAX = 65536
# What is no HTTP, and what is HTTP around what is no JSON.
NONSENSE = (
    b"\x00\x01nonsense\r\n\r\n",
    b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"jsonrpc":]',
)


class Upstream:
    """A stub at an address it keeps, in a process of its own."""

    def __init__(self, program, directory, options):
        self.address = free_address()
        self._command = [program, "--address", self.address, *options]
        self._log = directory / "failing-stub.log"
        self._child = None
        self._successor = None

    @contextlib.contextmanager
    def running(self):
        """From its start to its end."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self):
        """Starts it, and waits until it listens."""
        self._child = Child(self._command, self._log)
        _wait_for_line(self._child)

    def stop(self):
        """Ends it; its connections break."""
        for child in filter(None, (self._child, self._successor)):
            child.stop()
        self._child = self._successor = None

    def prepare(self, command):
        """Starts the program that is to take its place, so that its start is over by then."""
        self._successor = Child(command, self._log, takes_input=True)
        _wait_for_line(self._successor)

    def give_way(self):
        """Ends it, and lets what was prepared take its place."""
        successor, self._successor = self._successor, None
        self.stop()
        self._child = successor
        print(file=successor.process.stdin, flush=True)
        _wait_for_line(successor)

    def signal(self, number):
        """Sends its process a signal."""
        os.kill(self._child.process.pid, number)

    def cpu_s(self):
        """CPU time of its process, 0 while there is none."""
        child = self._child
        with contextlib.suppress(OSError):
            return child.cpu_s() if child else 0.0
        return 0.0

    def answer_after(self, delay_ms):
        """Makes its replies take so long."""
        connection = http.client.HTTPConnection(self.address, timeout=CONTROL_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("POST", f"/delay/{delay_ms}")
            if connection.getresponse().status != 202:
                raise Failed("the stub did not take its delay")


@contextlib.contextmanager
def hangs(upstream):
    """Connections come about and stay, and nothing is answered."""
    upstream.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        upstream.signal(signal.SIGCONT)


@contextlib.contextmanager
def black_holed(upstream):
    """Open connections break, and no new one comes about."""
    upstream.stop()
    place = _place(upstream.address)
    with contextlib.ExitStack() as sockets:
        hole = sockets.enter_context(socket.socket())
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            hole.setsockopt(socket.SOL_SOCKET, option, 1)
        hole.bind(place)
        hole.listen(0)
        for _ in range(FILLERS):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(place)
        with contextlib.suppress(TimeoutError):
            socket.create_connection(place, timeout=FULL_AFTER_S).close()
            raise Failed("connections come about where none should")
        yield


@contextlib.contextmanager
def flaps(upstream):
    """Its process ends and starts again all the time."""
    over, problems = threading.Event(), []

    def flap():
        while not over.is_set():
            upstream.stop()
            over.wait(FLAP_S)
            try:
                upstream.start()
            except (Failed, OSError) as problem:
                problems.append(problem)
                return
            over.wait(FLAP_S)

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise Failed(f"the stub did not start again: {problems[0]}")


@contextlib.contextmanager
def slow(upstream):
    """Its replies take ten times as long as those of the others."""
    upstream.answer_after(DELAY_MS * SLOW_FACTOR)
    try:
        yield
    finally:
        upstream.answer_after(DELAY_MS)


@contextlib.contextmanager
def refuses(upstream):
    """Open connections break, and new ones are refused."""
    upstream.stop()
    with socket.socket() as unused:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            unused.setsockopt(socket.SOL_SOCKET, option, 1)
        # Nobody listens, and nobody else may begin to.
        unused.bind(_place(upstream.address))
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(_place(upstream.address), timeout=CONTROL_TIMEOUT_S).close()
            raise Failed("connections come about where none should")
        yield


class Garbage:
    """Open connections break; on new ones every request is answered with nonsense."""

    def __init__(self, upstream):
        self._upstream = upstream
        upstream.prepare([sys.executable, __file__, upstream.address])

    def __enter__(self):
        self._upstream.give_way()

    def __exit__(self, *_problem):
        pass


def _wait_for_line(child):
    if not child.process.stdout.readline():
        raise Failed(f"the stub did not start: {child.last_words()}")


def _place(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


async def _answer_nonsense(address):
    replies = itertools.cycle(NONSENSE)

    async def answer(reader, writer):
        # Whoever is gone needs no answer.
        with contextlib.suppress(OSError):
            if await reader.read(REQUEST_BYTES_MAX):
                writer.write(next(replies))
                await writer.drain()
            writer.close()
            await writer.wait_closed()

    print("ready", flush=True)
    sys.stdin.readline()
    server = await asyncio.start_server(answer, *_place(address), reuse_port=True)
    print("listening", flush=True)
    await server.serve_forever()


FAULTS = {
    "hangs": hangs,
    "black-holed": black_holed,
    "flaps": flaps,
    "slow": slow,
    "refuses": refuses,
    "garbage": Garbage,
}

if __name__ == "__main__":
    asyncio.run(_answer_nonsense(sys.argv[1]))

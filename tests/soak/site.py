"""A gateway over upstreams of every kind, one of which always fails: all on the loopback interface."""

import contextlib
import hashlib
import itertools
import os
import pathlib
import re
import signal
import socketserver
import tempfile
import threading

from fleet.site import free_port, get, wait_for
from interop.process import Process

KEYS = [f"tl_{number}_{'6' * 40}" for number in range(4)]
IDLE_TIMEOUT_S = 5
#: The gateway takes no less.
SESSION_EXPIRY_MIN_S = 60
EVENTS = 5
CONFIGURATION = """
# {turn}
[listener]
address = "127.0.0.1:{port}"

[admin]
address = "127.0.0.1:{admin_port}"

[drain]
quiet = "10ms"

[limits]
idle_timeout = "{idle}s"
header_timeout = "2s"

[session]
# What clients leave behind is to be gone before the warm-up ends, and not after it.
idle_timeout = "{session_idle}s"
# So are the ids of sessions that were ended, which are refused by name until they would have expired.
expiry = "{session_expiry}s"
key = {{ file = "{directory}/session.key" }}

[[limit]]
name = "own"
by = ["principal"]
calls = 1000000
period = "1s"

[[endpoint]]
path = "/mcp"
upstreams = ["stub", "events", "demo", "failing"]

[[endpoint]]
path = "/stub"
upstreams = ["stub"]
sse = true

[[endpoint]]
path = "/crossed"
upstreams = ["legacy"]

[[endpoint]]
path = "/demo"
upstreams = ["demo"]

[[endpoint]]
path = "/local"
upstreams = ["local"]

[upstream.stub]
url = "http://{stub}/mcp"

[upstream.legacy]
url = "http://{stub}/mcp"
eras = ["legacy"]

[upstream.events]
url = "http://{events}/mcp"

[upstream.demo]
url = "http://127.0.0.1:{demo}/mcp"

[upstream.local]
command = ["{program}", "--stdio"]
child_idle_timeout = "2s"

[upstream.failing]
url = "http://127.0.0.1:{failing}/mcp"
eras = ["modern"]
response_timeout = "2s"
list_timeout = "1s"
"""


class Failing(socketserver.ThreadingTCPServer):
    """An upstream that fails with every request, each time in another way."""

    allow_reuse_address, daemon_threads = True, True
    REPLIES = (
        b"",
        b"not HTTP\r\n\r\n",
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n",
    )

    def __init__(self):
        turns = itertools.count()

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError):
                    self.request.recv(65_536)
                    self.request.sendall(Failing.REPLIES[next(turns) % len(Failing.REPLIES)])

        super().__init__(("127.0.0.1", 0), Handler)

    @contextlib.contextmanager
    def running(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        try:
            yield self.server_address[1]
        finally:
            self.shutdown()
            self.server_close()


class Site:
    """`with Site(binary, stub, session_idle_s) as site:` – everything runs."""

    def __init__(self, binary, stub, session_idle_s):
        self.binary, self.stub, self.session_idle_s = binary, stub, max(1, int(session_idle_s))
        self.turn, self.port, self.admin_port = 0, free_port(), free_port()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            key = self.directory / "session.key"
            key.touch(mode=0o600)
            key.write_text("7" * 64)
            self.addresses = {
                "demo": self._demo(stack),
                "stub": self._stub(stack, "stub"),
                "events": self._stub(stack, "events", "--sse", str(EVENTS)),
                "failing": stack.enter_context(Failing().running()),
            }
            self.write()
            command = [self.binary, "run", "--config", self.directory / "soak.toml"]
            self.process = stack.enter_context(Process("gateway", command, ready=r" ready "))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def write(self):
        """The configuration, in which something is another at every turn: the keys that there are beside those used."""
        values = {"port": self.port, "admin_port": self.admin_port, "idle": IDLE_TIMEOUT_S, "program": self.stub}
        values |= {"session_idle": self.session_idle_s, "session_expiry": max(SESSION_EXPIRY_MIN_S, self.session_idle_s)}
        values |= {"directory": self.directory, "turn": self.turn, **self.addresses}
        keys = [*KEYS, f"of turn {self.turn} 0123456789abcdef0123456789"]
        entries = [
            f'[[api_key]]\nname = "p{number}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
            for number, key in enumerate(keys)
        ]
        (self.directory / "soak.toml").write_text(CONFIGURATION.format(**values) + "\n".join(entries))

    def reload(self):
        """Changes the configuration, and waits until the change is in force."""
        before = self.reloads()
        self.turn += 1
        self.write()
        os.kill(self.pid, signal.SIGHUP)
        wait_for("the configuration is read again", lambda: self.reloads() > before)

    def reloads(self):
        return int(self.metric('trunkline_reloads_total{result="ok"}'))

    def metric(self, name):
        """The value of a series, written as in `/metrics`."""
        lines = get(f"http://127.0.0.1:{self.admin_port}/metrics").splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    @property
    def pid(self):
        return self.process.pid

    def _demo(self, stack):
        command = [self.binary, "demo", "--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        ready = re.escape("http://127.0.0.1:") + r"(\d+)/mcp"
        return int(stack.enter_context(Process("demo", command, ready=ready)).ready[1])

    def _stub(self, stack, name, *options):
        return stack.enter_context(Process(name, [self.stub, *options], ready=r"listening (\S+)")).ready[1]

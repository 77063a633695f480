"""Gateways behind HAProxy, with one Redis, over one server: all on the loopback interface."""

import contextlib
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from fleet import sign_in
from fleet.server import Server
from interop.process import Process
from ports import free_port

HAPROXY_CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / "config" / "haproxy.cfg"
LIMIT_CALLS = 1000
LIMIT = f'calls = {LIMIT_CALLS}\nperiod = "1h"'
NAMES = ("one", "two", "three")
DEADLINE_S = 20

CONFIGURATION = """
workers = 1

[listener]
address = "127.0.0.1:{port}"

[admin]
address = "127.0.0.1:{admin_port}"

[drain]
max = "10s"

[session]
key = {{ file = "{directory}/session.key" }}

[shared]
redis = "redis://127.0.0.1:{redis_port}/0"
replicas = {replicas}

[[limit]]
name = "together"
by = ["endpoint"]
{limit}
shared = true
endpoints = ["/limited"]

[[endpoint]]
path = "/mcp"
upstreams = ["sessions"]
auth = []

[[endpoint]]
path = "/modern"
upstreams = ["modern"]
auth = []

[[endpoint]]
path = "/limited"
upstreams = ["modern"]
auth = []

[[endpoint]]
path = "/pinned"
upstreams = ["pinned"]
auth = []

[upstream.sessions]
url = "http://{server}/mcp"
eras = ["legacy"]

[upstream.modern]
url = "http://{server}/mcp"
eras = ["modern"]

[upstream.pinned]
url = "http://{server}/mcp"
eras = ["modern"]
pins = "quarantine"
pins_age_max = "1s"
{more}
"""


class Gateway:
    """One of them; it can be started again where it was."""

    def __init__(self, name, binary, directory, **values):
        self.name = name
        self.port, self.admin_port = free_port(), free_port()
        self._binary = binary
        self._configuration = directory / f"{name}.toml"
        values |= {"port": self.port, "admin_port": self.admin_port, "directory": directory}
        self._configuration.write_text(CONFIGURATION.format(**values))
        self.process = None

    def start(self):
        command = [self._binary, "run", "--config", self._configuration]
        self.process = Process(self.name, command, ready=r" ready ").__enter__()
        self.await_shared()

    def stop(self):
        if self.process:
            self.process.stop()

    def await_shared(self):
        wait_for(f"{self.name} shares", lambda: self.metric("trunkline_shared_connected") == 1)

    def metric(self, name):
        """The value of a series, written as in `/metrics`."""
        lines = self.metrics().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))

    def metrics(self):
        return get(f"http://127.0.0.1:{self.admin_port}/metrics")


class Redis:
    """A server that can be stopped and started again where it was: without data, unless it keeps a log."""

    def __init__(self, directory, keeps=False):
        self.port = free_port()
        self._directory = directory
        self._log = "yes" if keeps else "no"
        self._child = None

    def start(self):
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", self._log, "--dir", self._directory]
        command = ["redis-server", "--port", str(self.port), *options]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for("redis-server answers", lambda: self._answer("PING") == b"+PONG\r\n")

    def has_pins(self):
        return self._answer("KEYS trunkline:pins:*") == b"*1\r\n"

    def empty(self):
        assert self._answer("FLUSHALL") == b"+OK\r\n"

    def _answer(self, command):
        """The first line of it."""
        with socket.create_connection(("127.0.0.1", self.port)) as stream, stream.makefile("rwb") as lines:
            lines.write(f"{command}\r\n".encode())
            lines.flush()
            return lines.readline()

    def stop(self):
        if self._child:
            self._child.kill()
            self._child.wait()
            self._child = None


class Site:
    """`with Site(binary) as site:` – everything runs, and HAProxy gives calls to all gateways."""

    def __init__(self, binary, replicas=2, limit=LIMIT, provider=None, reuse="2s"):
        self._binary = binary
        self._names = NAMES[:replicas]
        self._limit = limit
        self._provider = provider
        self._reuse = reuse
        self.port = free_port()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            key = directory / "session.key"
            key.touch(mode=0o600)
            key.write_text("7" * 64)
            self.server = stack.enter_context(Server())
            self.redis = Redis(directory, keeps=bool(self._provider))
            stack.callback(self.redis.stop)
            self.redis.start()
            values = {"redis_port": self.redis.port, "server": self.server.address}
            more = stack.enter_context(sign_in.section(self._provider, directory, self.port, self._reuse)) if self._provider else ""
            values |= {"replicas": len(self._names), "limit": self._limit, "more": more}
            self.gateways = [Gateway(name, self._binary, directory, **values) for name in self._names]
            for gateway in self.gateways:
                stack.callback(gateway.stop)
                gateway.start()
            stack.enter_context(self._haproxy(directory))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def await_shared(self):
        for gateway in self.gateways:
            gateway.await_shared()

    def logs(self):
        return "\n".join(gateway.process.log() for gateway in self.gateways if gateway.process)

    @contextlib.contextmanager
    def _haproxy(self, directory):
        text = HAPROXY_CONFIGURATION.read_text()
        one, *others = [f"server {each.name} 127.0.0.1:{each.port} port {each.admin_port}" for each in self.gateways]
        for written, meant in {
            "bind 10.0.0.10:8080": f"bind 127.0.0.1:{self.port}",
            "server one 10.0.0.1:8080 port 9090": one,
            "server two 10.0.0.2:8080 port 9090": "\n  ".join(others),
        }.items():
            assert text.count(written) == 1, f"{written!r} is not in haproxy.cfg"
            text = text.replace(written, meant)
        configuration = directory / "haproxy.cfg"
        configuration.write_text(text)
        program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        log = directory / "haproxy.log"
        with log.open("wb") as output:
            command = [program, "-db", "-f", configuration]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            wait_for("HAProxy serves or ends", lambda: listens(self.port) or child.poll() is not None)
            assert child.poll() is None, log.read_text()
            yield
        finally:
            child.kill()
            child.wait()


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def get(url):
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read().decode()


def wait_for(what, condition):
    """Waits until the condition holds; a gateway that does not answer yet is one where it does not."""
    end = time.monotonic() + DEADLINE_S
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, StopIteration):
            if condition():
                return
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {DEADLINE_S} s: {what}")
        time.sleep(0.02)

"""One measurement: start a peer, load it in closed and in open loop, look at its processes, stop it."""

import contextlib
import dataclasses
import http.client
import itertools
import json
import os
import pathlib
import socket
import ssl
import sys
import threading
import time

from peers import free_address
from processes import Child, machine_busy_s

READY_TIMEOUT_S = 10
# The first id that the generator gives.
FIRST_ID = 1_000_000_000
# Beside warm-up and window: the generator's own patience and some room.
GENERATOR_TIMEOUT_S = 15
# What every modern request of ours says of itself.
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "loadtest", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Failed(Exception):
    """The peer cannot be measured; the message says why."""


class Stubs:
    """What stands behind the peers of a run: stubs and a Redis, each started when it is first wanted."""

    def __init__(self, program, directory):
        self.program = program
        self.directory = directory
        self._running = {}  # what was wanted → process, HOST:PORT

    def address(self, tools, number=1, options=()):
        """HOST:PORT of the stub of that `number` among those with so many `tools` and these `options`."""
        wanted = (tools, number, options)
        if wanted not in self._running:
            log = self.directory / f"stub-{len(self._running)}.log"
            stub = Child([self.program, "--tools", tools, *options], log)
            words = stub.process.stdout.readline().split()
            if len(words) != 2:
                raise Failed(f"the stub did not start: {stub.last_words()}")
            self._running[wanted] = stub, words[1]
        return self._running[wanted][1]

    def talker(self, program):
        """HOST:PORT of the server that this Python program is."""
        if "talker" not in self._running:
            talker = Child([sys.executable, program], self.directory / "talker.log")
            words = talker.process.stdout.readline().split()
            if len(words) != 2:
                raise Failed(f"{program} did not start: {talker.last_words()}")
            self._running["talker"] = talker, words[1]
        return self._running["talker"][1]

    def redis(self, program):
        """HOST:PORT of a Redis that keeps nothing."""
        if "redis" not in self._running:
            address = free_address()
            host, port = address.rsplit(":", 1)
            command = [program, "--bind", host, "--port", port, "--save", "", "--appendonly", "no"]
            redis = Child([*command, "--dir", self.directory, "--logfile", "redis.log"], self.directory / "redis.err")
            _wait_for_listener(redis, (host, int(port)))
            self._running["redis"] = redis, address
        return self._running["redis"][1]

    def pids(self):
        """Their processes."""
        return [process.process.pid for process, _address in self._running.values()]

    def cpu_s(self):
        """CPU time of all of them so far in seconds."""
        return sum(process.cpu_s() for process, _address in self._running.values())


@dataclasses.dataclass
class Bench:
    """What all measurements have in common."""

    directory: pathlib.Path
    generator: pathlib.Path
    stubs: Stubs
    connections: int
    seconds: float
    warmup_seconds: float
    body_bytes: int


def measure(bench, peer, rate=None):
    """Measures `peer` once. With a `rate`, in open loop too. Returns what was found, as plain data."""
    with started(bench, peer) as (child, ready_ms):
        if peer.verifies:
            _require_refusal(peer)
        if peer.headers:
            _require_credentials(peer)
        found = {"peer": peer.name, "ready_ms": ready_ms}
        with peer.meanwhile(found) if peer.meanwhile else contextlib.nullcontext():
            found["closed"] = closed(bench, peer, child)
            if rate:
                found["open"] = load(bench, peer, child, rate)
        if peer.redis and ask_redis(peer.redis, "DBSIZE") == ":0":
            raise Failed(f"{peer.name} counted nothing in Redis")
        if child:
            found["resident_mib"] = round(child.resident_mib(), 1)
        return found


def capacity(bench, peer):
    """Calls a second that this machine has room for with `peer`."""
    with started(bench, peer) as (child, _ready_ms):
        reached = closed(bench, peer, child)["requests_per_s"]
        return room(reached, lambda rate: load(bench, peer, child, rate)["cores"])


def room(reached, cores_at):
    """Calls a second that the machine has room for, where a closed loop `reached` so many.

    A closed loop says too much: its calls come together, so that each costs less than one that comes by itself. What
    calls cost that come by themselves is measured at half of that, and the machine is full when they use all cores.
    """
    rate = round(reached / 2)
    return min(reached, rate * os.cpu_count() / cores_at(rate))


@contextlib.contextmanager
def started(bench, peer):
    """`peer` while it runs, from when it can do what it is measured at: its process, and how long it took to the first
    answer in ms."""
    child, ready_ms = start(bench.directory, peer)
    try:
        if peer.tools_listed:
            fetch_tools(peer)
        if peer.holds_sessions:
            wait_for_sessions(peer)
        yield child, ready_ms
    finally:
        if child:
            child.stop()


def start(directory, peer):
    """Starts `peer`, whose log goes to `directory`; returns it and how long it took to the first answer in ms."""
    if peer.command is None:
        return None, None
    begin = time.monotonic()
    child = Child(peer.command, directory / f"{peer.name}.log")
    while time.monotonic() < begin + READY_TIMEOUT_S and child.alive:
        if _answers(peer):
            return child, round((time.monotonic() - begin) * 1000, 1)
        time.sleep(0.001)
    child.stop()
    raise Failed(f"{peer.name} did not become ready: {child.last_words()}")


def fetch_tools(peer):
    """The body of the peer's `tools/list`, asked for with the first id of a load; waits until it has all tools."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    for attempt in itertools.count(1):
        status, body = _request(peer, "tools/list", {}, request_id=FIRST_ID)
        found = body.count(b'"inputSchema"')
        if status == 200 and found == peer.tools_listed:
            return body
        if time.monotonic() > deadline:
            raise Failed(f"{peer.name} lists {found} of {peer.tools_listed} tools after {attempt} attempts: "
                         f"{status} {body[:200]!r}")
        time.sleep(0.05)


def wait_for_sessions(peer):
    """A gateway may serve an era only once it has seen that its upstreams speak it."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "loadtest", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        status, body = _post(peer, message, {})
        if status == 200 and b'"result"' in body:
            return
        if time.monotonic() > deadline:
            raise Failed(f"{peer.name} opens no session: {status} {body[:200]!r}")
        time.sleep(0.05)


def closed(bench, peer, child, **load_of):
    """A load in closed loop, of which some was answered."""
    found = load(bench, peer, child, 0, **load_of)
    if not found["requests"]:
        raise Failed(f"{peer.name} answered no call: {found['errors_by_kind']}")
    return found


def load(bench, peer, child, rate, tools=None, connections=None):
    """Runs the generator and takes the clocks of all processes when its window begins and when it ends."""
    arguments = ["--tool", ",".join(tools or peer.tools)]
    generator = generate(bench, peer, rate, arguments, connections or peer.connections or bench.connections)
    seconds_max = bench.warmup_seconds + bench.seconds + GENERATOR_TIMEOUT_S
    watchdog = threading.Timer(seconds_max, generator.process.kill)
    watchdog.start()
    try:
        expect(generator, "measuring")
        begin = clocks(bench, child, [generator])
        expect(generator, "measured")
        end = clocks(bench, child, [generator])
        result = result_of(generator, peer)
    finally:
        watchdog.cancel()
        generator.stop()
    return {**result, **_costs(begin, end, result)}


def generate(bench, peer, rate, arguments, connections, name="generator"):
    """Starts a generator, whose log is called `name`."""
    command = [
        *(bench.generator, "--url", peer.url, "--json"),
        *("--connections", connections, "--rate", rate, "--body-bytes", bench.body_bytes),
        *("--duration", bench.seconds, "--warmup", bench.warmup_seconds),
        *(("--ca", peer.ca) if peer.ca else ()),
        *arguments,
        *peer.load,
    ]
    for header in peer.headers:
        command += ["--header", header]
    return Child(command, bench.directory / f"{name}.log")


def expect(generator, line):
    """Waits until a generator says so."""
    if generator.process.stdout.readline().strip() != line:
        raise Failed(f"the generator did not say {line!r}: {generator.last_words()}")


def result_of(generator, peer):
    """What a generator found."""
    result = json.loads(generator.process.stdout.readline() or "null")
    if result is None:
        raise Failed(f"the generator gave no result for {peer.name}: {generator.last_words()}")
    return result


def clocks(bench, child, generators):
    """What time it is, and how much CPU time the peer, all processes of the run, and the machine have used."""
    own = sum(os.times()[:2])
    peer = child.cpu_s() if child else 0.0
    known = own + peer + sum(generator.cpu_s() for generator in generators) + bench.stubs.cpu_s()
    return {"wall": time.monotonic(), "peer": peer, "known": known, "machine": machine_busy_s()}


def ask_redis(address, command):
    """The first line that the Redis there answers to a command without arguments."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=READY_TIMEOUT_S) as connection:
        connection.sendall(f"{command}\r\n".encode())
        return connection.makefile().readline().strip()


def _answers(peer):
    try:
        return _call(peer, peer.tools[0], peer.tools[0])[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _require_refusal(peer):
    status, body = _call(peer, peer.tools[0], "something_else")
    if status != 400 or b"-32020" not in body or b"stub:" in body:
        raise Failed(f"{peer.name} let a call pass whose headers and body disagree: {status} {body!r}")


def _require_credentials(peer):
    status, body = _call(dataclasses.replace(peer, headers=[]), peer.tools[0], peer.tools[0])
    if status != 401:
        raise Failed(f"{peer.name} let a call pass without credentials: {status} {body!r}")


def _call(peer, header_name, body_name):
    return _request(peer, "tools/call", {"name": body_name, "arguments": {"query": ""}}, {"Mcp-Name": header_name})


def _request(peer, method, params, more_headers=None, request_id=1):
    """One modern request; returns status and body."""
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **(more_headers or {})}
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": META}}
    return _post(peer, message, headers)


def call_and_stay(peer):
    """A connection that one modern call has been answered on, and that stays open; `None` where the call failed."""
    tool = peer.tools[0]
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}, "_meta": META}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    connection = _connection(peer)
    status, body = _exchange(connection, peer, message, headers)
    if status == 200 and b'"result"' in body:
        return connection
    connection.close()
    return None


def _post(peer, message, headers):
    """Sends `message` with its own connection; returns status and body."""
    connection = _connection(peer)
    try:
        return _exchange(connection, peer, message, headers)
    finally:
        connection.close()


def _exchange(connection, peer, message, headers):
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **headers,
        **dict(header.split(": ", 1) for header in peer.headers),
    }
    connection.request("POST", "/mcp", json.dumps(message), headers)
    response = connection.getresponse()
    return response.status, response.read()


def _connection(peer):
    host, port = peer.address.rsplit(":", 1)
    if peer.ca:
        context = ssl.create_default_context(cafile=peer.ca)
        return http.client.HTTPSConnection(host, int(port), timeout=READY_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, int(port), timeout=READY_TIMEOUT_S)


def _wait_for_listener(child, place):
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and child.alive:
        try:
            return socket.create_connection(place, timeout=READY_TIMEOUT_S).close()
        except OSError:
            time.sleep(0.01)
    raise Failed(f"{child.process.args[0]} does not listen: {child.last_words()}")


def _costs(begin, end, result):
    spent = {clock: end[clock] - begin[clock] for clock in begin}
    in_window = result["requests"] - result["requests_late"]
    return {
        "cpu_us": round(spent["peer"] / in_window * 1e6, 2) if in_window and spent["peer"] else None,
        # What load, peer and stubs used.
        "cores": round(spent["known"] / spent["wall"], 3),
        # What others did on this machine meanwhile, in cores: much of it spoils the figures.
        "foreign_cores": round(max(0.0, spent["machine"] - spent["known"]) / spent["wall"], 3),
    }

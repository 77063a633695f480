"""One measurement: start a peer, load it in closed and in open loop, look at its processes, stop it."""

import dataclasses
import http.client
import json
import os
import pathlib
import threading
import time

from processes import Child, machine_busy_s

READY_TIMEOUT_S = 10
# Beside warm-up and window: the generator's own patience and some room.
GENERATOR_TIMEOUT_S = 15


class Failed(Exception):
    """The peer cannot be measured; the message says why."""


@dataclasses.dataclass
class Bench:
    """What all measurements have in common."""

    directory: pathlib.Path
    generator: pathlib.Path
    stubs: list
    connections: int
    seconds: float
    warmup_seconds: float
    body_bytes: int


def measure(bench, peer, rate=None):
    """Measures `peer` once. With a `rate`, in open loop too. Returns what was found, as plain data."""
    child, ready_ms = _start(bench, peer)
    try:
        if peer.verifies:
            _require_refusal(peer)
        found = {"peer": peer.name, "ready_ms": ready_ms, "closed": _load(bench, peer, child, 0)}
        if rate:
            found["open"] = _load(bench, peer, child, rate)
        if child:
            found["resident_mib"] = round(child.resident_mib(), 1)
        return found
    finally:
        if child:
            child.stop()


def _start(bench, peer):
    if peer.command is None:
        return None, None
    begin = time.monotonic()
    child = Child(peer.command, bench.directory / f"{peer.name}.log")
    while time.monotonic() < begin + READY_TIMEOUT_S and child.alive:
        if _answers(peer):
            return child, round((time.monotonic() - begin) * 1000, 1)
        time.sleep(0.001)
    child.stop()
    raise Failed(f"{peer.name} did not become ready: {child.last_words()}")


def _answers(peer):
    try:
        return _call(peer, peer.tools[0], peer.tools[0])[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _require_refusal(peer):
    status, body = _call(peer, peer.tools[0], "something_else")
    if status != 400 or b"-32020" not in body or b"stub:" in body:
        raise Failed(f"{peer.name} let a call pass whose headers and body disagree: {status} {body!r}")


def _call(peer, header_name, body_name):
    """One call with its own connection; returns status and body."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "loadtest", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": body_name, "arguments": {}, "_meta": meta}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": header_name,
        **dict(header.split(": ", 1) for header in peer.headers),
    }
    host, port = peer.address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=READY_TIMEOUT_S)
    try:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _load(bench, peer, child, rate):
    """Runs the generator and takes the clocks of all processes when its window begins and when it ends."""
    command = [
        *(bench.generator, "--url", f"http://{peer.address}/mcp", "--json"),
        *("--connections", bench.connections, "--rate", rate, "--body-bytes", bench.body_bytes),
        *("--duration", bench.seconds, "--warmup", bench.warmup_seconds),
        *("--tool", ",".join(peer.tools)),
    ]
    for header in peer.headers:
        command += ["--header", header]
    generator = Child(command, bench.directory / "generator.log")
    seconds_max = bench.warmup_seconds + bench.seconds + GENERATOR_TIMEOUT_S
    watchdog = threading.Timer(seconds_max, generator.process.kill)
    watchdog.start()
    try:
        _expect(generator, "measuring")
        begin = _clocks(bench, child, generator)
        _expect(generator, "measured")
        end = _clocks(bench, child, generator)
        result = json.loads(generator.process.stdout.readline() or "null")
    finally:
        watchdog.cancel()
        generator.stop()
    if result is None:
        raise Failed(f"the generator gave no result for {peer.name}: {generator.last_words()}")
    return {**result, **_costs(begin, end, result)}


def _expect(generator, line):
    if generator.process.stdout.readline().strip() != line:
        raise Failed(f"the generator did not say {line!r}: {generator.last_words()}")


def _clocks(bench, child, generator):
    own = sum(os.times()[:2])
    peer = child.cpu_s() if child else 0.0
    known = own + peer + generator.cpu_s() + sum(stub.cpu_s() for stub in bench.stubs)
    return {"wall": time.monotonic(), "peer": peer, "known": known, "machine": machine_busy_s()}


def _costs(begin, end, result):
    spent = {clock: end[clock] - begin[clock] for clock in begin}
    in_window = result["requests"] - result["requests_late"]
    return {
        "cpu_us": round(spent["peer"] / in_window * 1e6, 2) if in_window and spent["peer"] else None,
        # What others did on this machine meanwhile, in cores: much of it spoils the figures.
        "foreign_cores": round(max(0.0, spent["machine"] - spent["known"]) / spent["wall"], 3),
    }

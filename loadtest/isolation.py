"""Ten upstreams of which one fails: what the clients of the nine others notice, and whoever asks for the list of all.

The nine's clients, the one's clients and those who ask for the list are generators of their own, so that none waits for
a connection that another's calls keep busy.
"""

import contextlib
import threading

from faults import DELAY_MS, FAULTS, Upstream
from measure import GENERATOR_TIMEOUT_S, clocks, closed, expect, generate, result_of, room, started
from peers import TOOLS, nginx_ten
from trunkline import LIMITS, gateway

UPSTREAMS = [f"u{number}" for number in range(10)]
# Time for a connection, for a reply, and for a whole list.
TIMEOUT_MS = 1000
# Of lists, so that one is fetched anew while an upstream fails.
LIST_TTL_MS = 500
LISTS_PER_S = 20
# So many that no call waits for one: what is measured is the proxy, not the queue of a generator.
CONNECTIONS = {"nine": 256, "one": 64, "lists": 64}


def trunkline_with(fault):
    """Trunkline before ten upstreams, prefixed names, of which the last fails in this way."""

    def make(site):
        failing = _failing(site)
        nine = site.stubs.address(len(TOOLS), options=_stub_options())
        stubs = {name: failing.address if name == UPSTREAMS[-1] else nine for name in UPSTREAMS}
        bounded = ("connect_timeout", "response_timeout", "list_timeout")
        timeouts = "\n".join(f'{key} = "{TIMEOUT_MS}ms"' for key in bounded)
        peer = gateway(site, f"trunkline-{fault}", UPSTREAMS, stubs=stubs, limits=LIMITS, upstream=timeouts)
        own = UPSTREAMS[-1] + "__"
        peer.tools_of_failing = [name for name in peer.tools if name.startswith(own)]
        peer.tools = [name for name in peer.tools if not name.startswith(own)]
        peer.tools_listed = len(UPSTREAMS) * len(TOOLS)
        peer.failing, peer.fault = failing, fault
        return peer

    return make


def nginx_with(fault):
    """nginx, routing by `Mcp-Name` over ten upstreams, of which the last fails in this way."""

    def make(site):
        failing = _failing(site)
        nine = site.stubs.address(len(TOOLS), options=_stub_options())
        peer = nginx_ten(site, f"nginx-{fault}", [nine] * (len(UPSTREAMS) - 1) + [failing.address], TIMEOUT_MS)
        peer.tools, peer.tools_of_failing = TOOLS[:-1], TOOLS[-1:]
        peer.failing, peer.fault = failing, fault
        return peer

    return make


def capacity(bench, peer):
    """Calls a second of all ten that this machine has room for while all are well."""
    with peer.failing.running(), started(bench, peer) as (child, _ready_ms):
        tools = [*peer.tools, *peer.tools_of_failing]
        found = closed(bench, peer, child, tools=tools, connections=CONNECTIONS["nine"])
        well = contextlib.nullcontext
        return room(found["requests_per_s"], lambda rate: _window(bench, peer, child, rate, well())["cores"])


def measure(bench, peer, rate):
    """Measures once, at `rate` calls a second in all: while all are well, then while one fails."""
    with peer.failing.running(), started(bench, peer) as (child, _ready_ms):
        before = _window(bench, peer, child, rate, contextlib.nullcontext())
        during = _window(bench, peer, child, rate, FAULTS[peer.fault](peer.failing))
        resident_mib = round(child.resident_mib(), 1)
    found = {"peer": peer.name, "before": before, "during": during, "resident_mib": resident_mib}
    return {**found, "deadline_ms": TIMEOUT_MS}


def _replies(found):
    """Calls that were answered, be it with a refusal: that is work as well."""
    by_kind = found["errors_by_kind"]
    refused = sum(count for kind, count in by_kind.items() if kind.startswith(("status_", "json_rpc")))
    return found["requests"] + refused


def _stub_options():
    return ("--delay-ms", DELAY_MS, "--ttl-ms", LIST_TTL_MS)


def _failing(site):
    return Upstream(site.stubs.program, site.directory, ["--tools", len(TOOLS), *_stub_options()])


def _window(bench, peer, child, rate, fault):
    """One window of load; `fault` begins when it does."""
    share = rate / len(UPSTREAMS)
    loads = {
        "nine": (round(rate - share), ["--tool", ",".join(peer.tools)]),
        "one": (max(1, round(share)), ["--tool", ",".join(peer.tools_of_failing)]),
    }
    if peer.tools_listed:
        loads["lists"] = (LISTS_PER_S, ["--method", "tools/list"])
    running = {}
    try:
        for name, (rate_per_s, arguments) in loads.items():
            running[name] = generate(bench, peer, rate_per_s, arguments, CONNECTIONS[name], name)
        with _watched(bench, running.values()):
            for generator in running.values():
                expect(generator, "measuring")
            begin = _clocks(bench, peer, child, running)
            with fault:
                for generator in running.values():
                    expect(generator, "measured")
                end = _clocks(bench, peer, child, running)
                found = {name: result_of(running[name], peer) for name in running if name != "one"}
            found["one"] = result_of(running["one"], peer)
    finally:
        for generator in running.values():
            generator.stop()
    spent = {clock: end[clock] - begin[clock] for clock in begin}
    calls = sum(_replies(found[name]) for name in ("nine", "one"))
    return {
        **found,
        "cores": round(spent["known"] / spent["wall"], 3),
        "cpu_us": round(spent["peer"] / calls * 1e6, 2) if calls else None,
        "foreign_cores": round(max(0.0, spent["machine"] - spent["known"]) / spent["wall"], 3),
    }


def _clocks(bench, peer, child, running):
    found = clocks(bench, child, running.values())
    found["known"] += peer.failing.cpu_s()
    return found


@contextlib.contextmanager
def _watched(bench, generators):
    """Ends generators that take far too long."""
    seconds_max = bench.warmup_seconds + bench.seconds + GENERATOR_TIMEOUT_S

    def kill():
        for generator in generators:
            generator.process.kill()

    watchdog = threading.Timer(seconds_max, kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()

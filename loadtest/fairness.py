"""What a client notices while others take all that they can get: one of them, then a hundred.

Each row is a resource of the table in `docs/security/fairness.md`. The one who notices calls at a fixed rate, first beside a process
that only computes, then while the attackers hold what they got and go on trying. Either has a tenth of the CPU, the
attackers for what they cause, too: both share the cores with the gateway, and what differs is what the gateway does. Every
measurement has a gateway of its own, and all of them have the same configuration: bounds small enough to be reached within
seconds, shares as they are by default.

Who notices is somebody else in each window, so that he has nothing yet: what is promised is a place for one more, and a
session outlives the load that opened it.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import threading
import urllib.request

import edge
import openssl
from measure import GENERATOR_TIMEOUT_S, Failed, clocks, expect, generate, result_of, start
from peers import TOOLS, Missing, Peer, free_address, nginx
from processes import Child

ATTACKERS = {"one": 1, "hundred": 100}
# Numbers of those who are no attackers: who waits until the gateway is ready, the load's, and who takes one of the same.
READY, WARM, BEFORE, DURING, OTHER = range(101, 106)
KEY = "tl_" + 40 * "5" + "_{}"
# Of the machine's CPU, for what the attackers do and cause.
CPU_SHARE = 0.1
WINDOW_S, WARMUP_S, IDLE_S = 1.5, 0.3, 0.5
GREEDY = pathlib.Path(__file__).with_name("greedy.py")
TALKER = pathlib.Path(__file__).with_name("talker.py")
# What fits beside a client in Python, and beside a server in Python.
RATE, TALKER_RATE = 1000, 300
LEGACY = ["--era", "legacy"]


@dataclasses.dataclass
class Row:
    """How the one who notices works, and where it shows what the attackers hold."""

    metric: str
    path: str = "/mcp"
    tool: str = TOOLS[0]
    load: tuple = ()
    rate: int = RATE
    # Nobody is promised more than one of what others have nearly taken; and one at once of a large one.
    connections: int = 1


TALK = {"tool": "quick", "rate": TALKER_RATE}
ROWS = {
    "connections": Row("trunkline_connections_open"),
    "unfinished-handshakes": Row("trunkline_connections_open", load=("--handshakes",), rate=100),
    "handshakes": Row("trunkline_connections_open", load=("--handshakes",), rate=100),
    "bodies": Row("trunkline_buffered_bytes"),
    "bodies-http2": Row("trunkline_buffered_bytes"),
    "slow-readers": Row('trunkline_upstream_connections{upstream="large"}', "/large", **TALK),
    "slow-readers-http2": Row('trunkline_upstream_connections{upstream="large"}', "/large", **TALK),
    "sessions": Row("trunkline_sessions", load=LEGACY),
    "upstream-sessions": Row("trunkline_upstream_sessions", load=LEGACY),
    "get-streams": Row("trunkline_session_streams", load=LEGACY),
    "stream-queues": Row("trunkline_session_messages_dropped_total", load=LEGACY),
    "subscriptions": Row("trunkline_subscriptions"),
    "suspended-calls": Row("trunkline_bridge_suspended_calls", "/legacy", **TALK),
    "bridge-sessions": Row("trunkline_bridge_sessions", "/bridged", **TALK),
    "tasks": Row("trunkline_tasks"),
    # So few that those which wait for others' to end do not wait for each other, too.
    "calls": Row("trunkline_upstream_calls_waiting", "/busy", "quick", rate=50, connections=16),
    "limiter-keys": Row("trunkline_connections_open", "/limited", **TALK),
    "list-sessions": Row("trunkline_list_sessions_refused_total", "/legacy", **TALK),
    "sse-sessions": Row("trunkline_connections_open"),
    "children": Row("trunkline_children", "/local", load=LEGACY),
}
OVER_TLS = ("handshakes", "unfinished-handshakes")

CONFIGURATION = """
workers = {workers}

[listener]
address = "{address}"
{tls}

[admin]
address = "{admin}"

[drain]
quiet = "10ms"
max = "100ms"

[limits]
connections_max = 2048
buffered_bytes_max = "64MiB"
subscriptions_max = 1024
limiter_keys_max = 2000
children_max = 16

[session]
sessions_max = 1024
upstream_sessions_max = 1024
upstream_sessions_per_principal_max = 1024
streams_max = 512
streams_per_principal_max = 512
stream_queue_bytes_max = "64KiB"
tasks_max = 1024

[[limit]]
name = "own"
by = ["principal"]
calls = 5000
period = "1s"

[[limit]]
name = "city"
by = ["argument:city"]
missing_arguments = "allow"
calls = 5000
period = "1m"
endpoints = ["/limited"]

[upstream.large]
url = "http://{talker}/mcp"
eras = ["modern"]
connections_max = 64

[upstream.busy]
url = "http://{talker}/mcp"
eras = ["modern"]
calls_max = 16
calls_waiting_max = 64

[upstream.queued]
url = "http://{talker}/mcp"
eras = ["legacy"]

[upstream.legacy]
url = "http://{talker}/mcp"
eras = ["legacy"]

[upstream.legacy.bridge]
suspended_calls_max = 256

[upstream.bridged]
url = "http://{talker}/mcp"
eras = ["legacy"]

[upstream.bridged.bridge]
sessions_max = 128
suspended_calls_max = 64
suspended_calls_per_principal_max = 64

[upstream.local]
command = {child}
eras = ["legacy"]
"""


def attacked(row):
    """Trunkline, attacked in this way."""

    def make(site):
        if not site.trunkline.exists():
            raise Missing(f"{site.trunkline} does not exist")
        address, admin = free_address(), free_address()
        name = f"trunkline-{row}-attacked"
        configuration = site.directory / f"{name}.toml"
        tls = edge.trunkline_tls_lines(site) if row in OVER_TLS else ""
        configuration.write_text(_configuration(site, address, admin, tls))
        command = [site.trunkline, "run", "--config", configuration]
        peer = Peer(name, command, address, [ROWS[row].tool], _headers(READY), admin=admin)
        return _prepared(peer, site, row)

    return make


def nginx_attacked(row):
    """nginx, attacked in this way, one over TLS."""
    return lambda site: _prepared(nginx(site, f"nginx-{row}-attacked", edge.nginx_tls_lines(site)), site, row)


def _prepared(peer, site, row):
    peer.row, peer.path, peer.load = row, ROWS[row].path, list(ROWS[row].load)
    if row in OVER_TLS:
        peer.ca = openssl.certificate(site.directory)[0]
    return peer


def _configuration(site, address, admin, tls):
    keys = [
        f'[[api_key]]\nname = "p{number}"\nsha256 = "{hashlib.sha256(KEY.format(number).encode()).hexdigest()}"'
        for number in range(OTHER + 1)
    ]
    endpoints = {"/mcp": ["a"], "/four": list("abcd"), "/sse": ["a"], "/talk": ["talk"], "/limited": ["talk"]}
    endpoints |= {"/queued": ["queued"]}
    endpoints |= {f"/{name}": [name] for name in ("large", "busy", "legacy", "bridged", "local")}
    sections = [
        f'[[endpoint]]\npath = "{path}"\nupstreams = {json.dumps(upstreams)}\nsse = {str(path == "/sse").lower()}'
        for path, upstreams in endpoints.items()
    ]
    talker = site.stubs.talker(TALKER)
    urls = dict.fromkeys("abcd", site.upstream) | {"talk": talker}
    sections += [f'[upstream.{name}]\nurl = "http://{each}/mcp"' for name, each in urls.items()]
    child = json.dumps([str(site.stubs.program), "--stdio", "--tools", str(len(TOOLS))])
    values = {"workers": site.workers, "address": address, "admin": admin, "tls": tls, "talker": talker, "child": child}
    return "\n\n".join([CONFIGURATION.format(**values), *keys, *sections]) + "\n"


def measure(bench, peer):
    """Measures once with each number of attackers."""
    bench = dataclasses.replace(bench, seconds=WINDOW_S, warmup_seconds=WARMUP_S)
    return {"peer": peer.name, **{who: _measure(bench, peer, count) for who, count in ATTACKERS.items()}}


def _measure(bench, peer, attackers):
    child, _ready_ms = start(bench.directory, peer)
    try:
        # What is learnt and opened with the first calls is not what attackers cost.
        idle = _window(dataclasses.replace(bench, seconds=IDLE_S), peer, child, WARM)["serving_cores"]
        with _attack(bench, peer, child, "nothing", attackers, idle) as company:
            before = _window(bench, peer, child, BEFORE, company["process"])
        with _attack(bench, peer, child, peer.row, attackers, before["serving_cores"]) as attack:
            during = _window(bench, peer, child, DURING, attack["process"])
            during["metric"] = _metric(peer)
        return {"before": before, "during": during, "company": company["found"], "attack": attack["found"]}
    finally:
        child.stop()


@contextlib.contextmanager
def _attack(bench, peer, child, way, attackers, idle_cores):
    """From when the attackers have what they get: their process, and afterwards what they found."""
    pids = ",".join(map(str, [child.process.pid, *bench.stubs.pids()]))
    command = [
        *(sys.executable, GREEDY, way, "--address", peer.address, "--attackers", attackers),
        *("--key", KEY, "--other", OTHER, "--pid", pids),
        *("--cores", CPU_SHARE * len(os.sched_getaffinity(0)), "--idle-cores", idle_cores),
    ]
    process = Child(command, bench.directory / f"{peer.name}-greedy.log", takes_input=True)
    attack = {"process": process}
    try:
        with _watched(process):
            expect(process, "full")
            yield attack
            process.process.stdin.close()
            attack["found"] = json.loads(process.process.stdout.readline() or "null")
        if not attack["found"]:
            raise Failed(f"the attackers of {peer.name} failed: {process.last_words()}")
    finally:
        process.stop()


def _headers(number):
    return [f"Authorization: Bearer {KEY.format(number)}"]


def _window(bench, peer, child, number, *company):
    """The load of the principal of this number, for a while."""
    row = ROWS[peer.row]
    peer = dataclasses.replace(peer, headers=_headers(number))
    generator = generate(bench, peer, row.rate, ["--tool", row.tool], row.connections)
    try:
        with _watched(generator):
            expect(generator, "measuring")
            begin, behind = clocks(bench, child, [generator, *company]), bench.stubs.cpu_s()
            expect(generator, "measured")
            end, behind = clocks(bench, child, [generator, *company]), bench.stubs.cpu_s() - behind
            found = result_of(generator, peer)
    finally:
        generator.stop()
    spent = {clock: end[clock] - begin[clock] for clock in begin}
    return {
        **found,
        "gateway_cores": round(spent["peer"] / spent["wall"], 4),
        "serving_cores": round((spent["peer"] + behind) / spent["wall"], 4),
        "foreign_cores": round(max(0.0, spent["machine"] - spent["known"]) / spent["wall"], 3),
    }


@contextlib.contextmanager
def _watched(process):
    """Ends a process that takes far too long."""
    watchdog = threading.Timer(WARMUP_S + WINDOW_S + 2 * GENERATOR_TIMEOUT_S, process.process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _metric(peer):
    """What is held, as the gateway says; all series together."""
    if not peer.admin:
        return None
    name = ROWS[peer.row].metric
    with urllib.request.urlopen(f"http://{peer.admin}/metrics", timeout=GENERATOR_TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    own = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in own)

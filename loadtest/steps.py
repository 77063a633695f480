"""The steps of a run: which peers are measured beside each other, and against which of them the others count."""

import dataclasses

import bridged
import crowds
import edge
import fairness
import isolation
import lists
import operated
import peers
import trunkline
from faults import FAULTS

# The open loop runs at this share of what the slowest of a step's references sustains in closed loop.
OPEN_LOOP_SHARE = 0.6
# Streams of the step `listen`, opened in this order.
STREAM_COUNTS = (500, 5000)


@dataclasses.dataclass
class Step:
    """Peers whose rounds are interleaved."""

    title: str
    peers: dict  # name → function from Site to Peer
    reference: str  # the peer that ratios of the table are to
    # The open loop runs at a share of what the slowest of these sustains in closed loop.
    rate_references: tuple = ()
    rate_share: float = OPEN_LOOP_SHARE
    holds_streams: bool = False
    isolates: bool = False  # one of several upstreams fails
    is_attacked: bool = False  # others take all that they can get
    rounds_by_default: int | None = None  # of one that has many peers

    def beside(self, name=None, program=None):
        """The same with another build of Trunkline after each of its peers, if there is one."""
        both = {}
        for peer, make in self.peers.items():
            both[peer] = make
            if name and peer.startswith("trunkline"):
                both[f"{peer}@{name}"] = _built(make, f"{peer}@{name}", program)
        return dataclasses.replace(self, peers=both)


def _built(make, name, program):
    return lambda site: dataclasses.replace(make(dataclasses.replace(site, trunkline=program)), name=name)


STEPS = {
    "calls": Step(
        "tools/call",
        {
            "direct": peers.direct,
            "nginx": peers.nginx,
            "haproxy": peers.haproxy,
            "envoy": peers.envoy,
            "trunkline": trunkline.transparent,
            "trunkline-key": trunkline.keyed,
            "trunkline-prefixed": trunkline.prefixed,
            "trunkline-1": trunkline.one,
            "trunkline-500": trunkline.wide,
            "trunkline-500-one": trunkline.wide_one,
            "nginx-500": peers.nginx_500,
        },
        "nginx",
        ("nginx", "trunkline"),
    ),
    "crowds": Step(
        "tools/call by 1 to 512 connections at once",
        crowds.PEERS,
        f"nginx-by-{crowds.COMPARED_WITH}",
        ("nginx-by-1", "trunkline-plain-by-1"),
        rounds_by_default=2,
    ),
    "lists": Step(
        "tools/list from the cache, 10 upstreams of 50 tools",
        {
            "nginx-file": lists.sent_from_cache,
            "nginx-file-copied": lists.copied,
            "trunkline-list": trunkline.listing,
        },
        "nginx-file",
        ("nginx-file", "trunkline-list"),
    ),
    "legacy": Step(
        "tools/call in legacy sessions",
        {
            "trunkline-modern": trunkline.modern,
            "trunkline-legacy": trunkline.legacy,
            "trunkline-legacy-mirrored": trunkline.legacy_mirrored,
        },
        "trunkline-modern",
        ("trunkline-modern", "trunkline-legacy"),
    ),
    "tools": Step(
        "tools/call with few and many tools",
        {f"trunkline-{count}-tools": trunkline.with_tools(count) for count in (10, 1000, 50000)},
        "trunkline-10-tools",
        ("trunkline-10-tools", "trunkline-50000-tools"),
    ),
    "initialize": Step(
        "opening legacy sessions",
        {"trunkline-initialize-call": trunkline.legacy_call, "trunkline-initialize": trunkline.initialize},
        "trunkline-initialize-call",
        ("trunkline-initialize",),
    ),
    "events": Step(
        f"replies streamed as {peers.EVENTS} events, in legacy sessions",
        {
            "nginx-events": peers.nginx_events,
            "trunkline-events": trunkline.events,
            "trunkline-events-mapped": trunkline.events_mapped,
        },
        "nginx-events",
        ("trunkline-events-mapped",),
    ),
    "stdio": Step(
        "tools/call, the upstream a child on standard streams",
        {"trunkline-http": trunkline.over_http, "trunkline-stdio": trunkline.over_stdio},
        "trunkline-http",
        ("trunkline-http", "trunkline-stdio"),
    ),
    "edge": Step(
        "tools/call with credentials, rules and limits",
        {
            "nginx-edge": edge.nginx_blind,
            "trunkline-edge": edge.plain,
            "trunkline-edge-key": edge.keyed,
            "trunkline-edge-jwt": edge.by_token,
            "trunkline-edge-shared": edge.shared,
        },
        "trunkline-edge",
        ("trunkline-edge", "trunkline-edge-key"),
    ),
    "tls": Step(
        "tools/call in clear and over TLS 1.3, connections kept",
        {
            "nginx-clear": edge.nginx_clear,
            "nginx-tls": edge.nginx_tls,
            "trunkline-clear": edge.trunkline_clear,
            "trunkline-tls": edge.trunkline_tls,
        },
        "nginx-clear",
        ("nginx-tls", "trunkline-tls"),
    ),
    "handshakes": Step(
        "TLS 1.3 handshakes, nothing resumed, each with its connection",
        {"nginx-handshakes": edge.nginx_handshakes, "trunkline-handshakes": edge.trunkline_handshakes},
        "nginx-handshakes",
        ("nginx-handshakes", "trunkline-handshakes"),
    ),
    "observed": Step(
        "tools/call, measured, logged and traced",
        {
            "trunkline-unobserved": operated.unobserved,
            "trunkline-metered": operated.metered,
            "trunkline-observed": operated.observed,
        },
        "trunkline-unobserved",
        ("trunkline-unobserved", "trunkline-observed"),
    ),
    "scrape": Step(
        "tools/call while metrics and status are read, 500 upstreams and 1000 tools",
        {"trunkline-unscraped": operated.unscraped, "trunkline-scraped": operated.scraped},
        "trunkline-unscraped",
        ("trunkline-unscraped", "trunkline-scraped"),
    ),
    "bridge": Step(
        "tools/call, clients of one era, servers of the other",
        {
            "trunkline-modern-native": bridged.modern,
            "trunkline-modern-bridged": bridged.modern_crossed,
            "trunkline-modern-askable": bridged.modern_askable,
            "trunkline-legacy-native": bridged.legacy,
            "trunkline-legacy-bridged": bridged.legacy_crossed,
            "trunkline-parked": bridged.parked,
        },
        "trunkline-modern-native",
        ("trunkline-modern-bridged", "trunkline-legacy-bridged"),
    ),
    "isolation": Step(
        "one of ten upstreams fails",
        {
            f"{proxy}-{fault}": make(fault)
            for fault in FAULTS
            for proxy, make in (("nginx", isolation.nginx_with), ("trunkline", isolation.trunkline_with))
        },
        "nginx-hangs",
        ("nginx-hangs", "trunkline-hangs"),
        rate_share=0.5,
        isolates=True,
    ),
    "fairness": Step(
        "one client, then a hundred, take all that they can get, while another works",
        {f"trunkline-{row}-attacked": fairness.attacked(row) for row in fairness.ROWS}
        | {f"nginx-{row}-attacked": fairness.nginx_attacked(row) for row in fairness.OVER_TLS},
        "nginx-handshakes-attacked",
        is_attacked=True,
        rounds_by_default=2,
    ),
    "connections": Step(
        "idle HTTP/1.1 connections, each after a call",
        {"nginx-connections": peers.nginx_connections, "trunkline-connections": trunkline.connections},
        "nginx-connections",
        holds_streams=True,
    ),
    "listen": Step(
        "idle subscriptions/listen streams",
        {"nginx-streams": peers.nginx_streams, "trunkline-streams": trunkline.streams},
        "nginx-streams",
        holds_streams=True,
    ),
    "streams": Step(
        "idle legacy sessions, each with an open GET",
        {
            "nginx-sessions": peers.nginx_sessions,
            "trunkline-sessions": trunkline.sessions,
            "trunkline-sessions-upstream": trunkline.sessions_upstream,
        },
        "nginx-sessions",
        holds_streams=True,
    ),
}
PEERS = {name: peer for step in STEPS.values() for name, peer in step.peers.items()}


def selected(names):
    """The steps with only those peers that `names` has, by their own names or by their steps'."""
    for name, step in STEPS.items():
        wanted = {peer: make for peer, make in step.peers.items() if name in names or peer in names}
        if wanted:
            yield name, dataclasses.replace(step, peers=wanted)

"""The same call from one client and from hundreds at once: what each costs must not depend on how many there are.

A peer is called by a kind and by its number of connections: `trunkline-prefixed-by-512`, and nginx beside it. The bound is on
the cost of a call, × nginx's with as many connections, against the same of 64.
"""

import dataclasses

import bridged
import edge
import peers
import trunkline

CONNECTIONS = (1, 16, 64, 256, 512)
COMPARED_WITH = 64
GROWTH_MAX = 1.15
# More than the load opens; all come from one address.
LIMITS = f"{edge.HANDSHAKE_LIMITS}\nconnections_per_address_max = 4096"


def plain(site):
    """One upstream, names as they are."""
    return trunkline.gateway(site, "trunkline-plain", ["a"], limits=LIMITS)


def prefixed(site):
    """Two upstreams, names prefixed."""
    return trunkline.gateway(site, "trunkline-prefixed", ["a", "b"], limits=LIMITS)


def legacy(site):
    """A session of 2025-11-25 for each connection."""
    peer = trunkline.gateway(site, "trunkline-legacy", ["a"], more=trunkline.SESSIONS, limits=LIMITS)
    peer.load, peer.holds_sessions = ["--era", "legacy"], True
    return peer


def crossed(site):
    """Modern clients, a legacy server."""
    return bridged.modern_crossed(site)


def over_tls(site):
    """As plain, over TLS 1.3."""
    return edge.trunkline_tls(site)


# Kind → what makes it, and the nginx that it is compared with.
KINDS = {
    "plain": (plain, "nginx"),
    "prefixed": (prefixed, "nginx"),
    "legacy": (legacy, "nginx"),
    "bridged": (crossed, "nginx"),
    "tls": (over_tls, "nginx-tls"),
}
REFERENCES = {"nginx": peers.nginx, "nginx-tls": edge.nginx_tls}


def by(make, name, count):
    """This peer under a name of its own, loaded by so many connections."""

    def made(site):
        return dataclasses.replace(make(site), name=name, connections=count)

    return made


PEERS = {}
BOUNDS = []
for _count in CONNECTIONS:
    PEERS |= {f"{name}-by-{_count}": by(make, f"{name}-by-{_count}", _count) for name, make in REFERENCES.items()}
    PEERS |= {
        f"trunkline-{kind}-by-{_count}": by(make, f"trunkline-{kind}-by-{_count}", _count)
        for kind, (make, _) in KINDS.items()
    }
for _kind, (_, _reference) in KINDS.items():
    for _count in CONNECTIONS:
        if _count != COMPARED_WITH:
            _references = (
                f"{_reference}-by-{_count}",
                f"trunkline-{_kind}-by-{COMPARED_WITH}",
                f"{_reference}-by-{COMPARED_WITH}",
            )
            BOUNDS.append((f"{_kind}, {_count} connections: CPU per call, × nginx, against {COMPARED_WITH}",
                           f"trunkline-{_kind}-by-{_count}", _references, "cpu_us", "≤", GROWTH_MAX, None))

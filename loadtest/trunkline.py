"""Trunkline's variants: the same program in the configurations whose costs are compared.

Metrics are on in all of them. Everything else that matters to a call is as shipped.
"""

import hashlib
import json

from peers import EVENT_LOAD, EVENTS, TOOLS, WIDE_UPSTREAMS, Missing, Peer, free_address

API_KEY = "tl_" + 64 * "7"
LISTED_UPSTREAMS = 10
LISTED_TOOLS = 50  # of each
# So many names of a large catalog are called in turn, evenly spread over it.
CALLED_TOOLS_MAX = 1000
# More than the streams that are opened; all come from one address.
STREAMS_LIMITS = """connections_max = 6000
connections_per_address_max = 6000
subscriptions_per_principal_max = 6000"""
# More than the load opens; all come from one address.
SESSIONS = "[session]\ninitialize_rate_max = 1000000"
# The default is more than some machines' limit of open files allows.
LIMITS = "connections_max = 4096"


def transparent(site):
    """Trunkline, one upstream, names as they are."""
    return gateway(site, "trunkline", ["a"])


def prefixed(site):
    """Trunkline, calls spread over two upstreams, names prefixed."""
    return gateway(site, "trunkline-prefixed", ["a", "b"])


def one(site):
    """Trunkline, one upstream, names prefixed."""
    return gateway(site, "trunkline-1", ["a"], 'names = "prefixed"')


def wide(site):
    """Trunkline, calls spread over 500 upstreams, names prefixed."""
    return gateway(site, "trunkline-500", _wide_names(), tools=["tool_0"])


def wide_one(site):
    """Trunkline, 500 upstreams configured, all calls to one of them."""
    peer = gateway(site, "trunkline-500-one", _wide_names())
    peer.tools = [f"u250__{tool}" for tool in TOOLS]
    return peer


def keyed(site):
    """Trunkline, one upstream, names as they are, an API key checked with every call."""
    digest = hashlib.sha256(API_KEY.encode()).hexdigest()
    peer = gateway(site, "trunkline-key", ["a"], more=f'[[api_key]]\nname = "load"\nsha256 = "{digest}"')
    peer.headers = [f"Authorization: Bearer {API_KEY}"]
    return peer


def listing(site):
    """Trunkline, ten upstreams, asked for the list of all their tools."""
    upstreams = [f"u{number}" for number in range(LISTED_UPSTREAMS)]
    stubs = dict.fromkeys(upstreams, site.stubs.address(LISTED_TOOLS))
    peer = gateway(site, "trunkline-list", upstreams, tools=["tool_0"], stubs=stubs)
    peer.load = ["--method", "tools/list"]
    peer.tools_listed = LISTED_UPSTREAMS * LISTED_TOOLS
    return peer


def modern(site):
    """What `transparent` is, measured beside the next two."""
    return gateway(site, "trunkline-modern", ["a"])


def legacy(site):
    """Calls in sessions of 2025-11-25, one for each connection."""
    return _in_sessions(gateway(site, "trunkline-legacy", ["a"]), "legacy")


def legacy_mirrored(site):
    """The same with `Mcp-Method` and `Mcp-Name`."""
    return _in_sessions(gateway(site, "trunkline-legacy-mirrored", ["a"]), "legacy-mirrored")


def _in_sessions(peer, era):
    peer.load = ["--era", era]
    peer.holds_sessions = True
    return peer


def with_tools(count):
    """Trunkline, two upstreams with `count` tools together, names prefixed."""

    def make(site):
        of_each = count // 2
        stubs = {"a": site.stubs.address(of_each), "b": site.stubs.address(of_each, 2)}
        every = max(1, count // CALLED_TOOLS_MAX)
        tools = [f"tool_{number}" for number in range(0, of_each, every)]
        peer = gateway(site, f"trunkline-{count}-tools", ["a", "b"], tools=tools, stubs=stubs)
        peer.tools_listed = count
        return peer

    return make


def streams(site):
    """Trunkline, two upstreams, names prefixed, room for all streams."""
    peer = gateway(site, "trunkline-streams", ["a", "b"], limits=STREAMS_LIMITS)
    peer.tools_listed = 2 * len(TOOLS)
    peer.notice_url = f"http://{site.upstream}/notice"
    return peer


def connections(site):
    """Trunkline, connections of clients that are idle after a call."""
    peer = gateway(site, "trunkline-connections", ["a"], limits=f'{STREAMS_LIMITS}\nidle_timeout = "10m"')
    peer.holds_connections, peer.watches_idle = True, True
    return peer


def sessions(site, name="trunkline-sessions"):
    """Trunkline, one upstream, sessions whose streams are held by clients only."""
    peer = gateway(site, name, ["a"], more=SESSIONS, limits=STREAMS_LIMITS)
    peer.load, peer.holds_sessions, peer.watches_idle = ["--era", "legacy"], True, True
    return peer


def sessions_upstream(site):
    """The same, each with a session and a stream at the upstream, too."""
    peer = sessions(site, "trunkline-sessions-upstream")
    peer.load = [*peer.load, "--call-first"]
    return peer


def initialize(site):
    """A session opened with every call."""
    peer = gateway(site, "trunkline-initialize", ["a"], more=SESSIONS)
    peer.load, peer.holds_sessions = ["--method", "initialize", "--era", "legacy"], True
    return peer


def legacy_call(site):
    """What `legacy` is, measured beside `initialize`."""
    return _in_sessions(gateway(site, "trunkline-initialize-call", ["a"], more=SESSIONS), "legacy")


def events(site):
    """Streamed replies, nothing in them to map."""
    stubs = {"a": site.stubs.address(len(TOOLS), options=("--sse", EVENTS))}
    peer = gateway(site, "trunkline-events", ["a"], stubs=stubs)
    peer.load, peer.holds_sessions = EVENT_LOAD, True
    return peer


def events_mapped(site):
    """Streamed replies of two upstreams whose events have ids, which are mapped."""
    options = ("--sse", EVENTS, "--event-ids")
    stubs = {name: site.stubs.address(len(TOOLS), number, options) for number, name in enumerate("ab", 1)}
    peer = gateway(site, "trunkline-events-mapped", ["a", "b"], stubs=stubs)
    peer.load, peer.holds_sessions = EVENT_LOAD, True
    return peer


def over_stdio(site):
    """Trunkline, the upstream one child on standard streams."""
    commands = {"a": [str(site.stubs.program), "--stdio", "--tools", str(len(TOOLS))]}
    return gateway(site, "trunkline-stdio", ["a"], commands=commands)


def over_http(site):
    """What `transparent` is, measured beside `over_stdio`."""
    return gateway(site, "trunkline-http", ["a"])


def gateway(site, name, upstreams, naming="", more="", tools=TOOLS, stubs=None, limits=LIMITS, commands=None,
            listener="", endpoint="", upstream=""):
    """Trunkline in the configuration that these make. `stubs` says where each upstream is, if not at the stubs with
    TOOLS; `commands` what each is as a child; `listener`, `endpoint` and `upstream` are further lines of these."""
    if not site.trunkline.exists():
        raise Missing(f"{site.trunkline} does not exist")
    address, admin = free_address(), free_address()
    configuration = site.directory / f"{name}.toml"
    sections = [
        f"workers = {site.workers}",
        f'[listener]\naddress = "{address}"\n{listener}',
        f'[admin]\naddress = "{admin}"',
        f"[limits]\n{limits}",
        # Nobody is left to wait for when the load has ended.
        '[drain]\nquiet = "10ms"',
        f'[[endpoint]]\npath = "/mcp"\nupstreams = {upstreams}\n{naming}\n{endpoint}',
        more,
    ]
    for each in upstreams:
        if commands:
            sections.append(f"[upstream.{each}]\ncommand = {json.dumps(commands[each])}")
            continue
        stub = stubs[each] if stubs else site.upstream_second if each == "b" else site.upstream
        sections.append(f'[upstream.{each}]\nurl = "http://{stub}/mcp"\n{upstream}')
    configuration.write_text("\n\n".join(sections) + "\n")
    is_prefixed = bool(naming) or len(upstreams) > 1
    public = [f"{each}__{tool}" for tool in tools for each in upstreams] if is_prefixed else tools
    command = [site.trunkline, "run", "--config", configuration]
    return Peer(name, command, address, public, verifies=True, admin=admin)


def _wide_names():
    return [f"u{number}" for number in range(WIDE_UPSTREAMS)]

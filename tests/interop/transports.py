"""Every transport on either side of a gateway: what the everything servers speak, and what the clients do.

Upstreams are servers over Streamable HTTP, children on standard streams, and servers of HTTP+SSE, of which one is
named as such and one is found out. Of the children, one is asked what it speaks, which takes a while where a child
is slow to start; for the other it is configured. Clients use Streamable HTTP, HTTP+SSE, or `trunkline connect`.
"""

import contextlib

from interop.topology import Route, Topology, everything_command, everything_server, gateway_address, gateway_with

TABLES = """
[[endpoint]]
path = "/http"
upstreams = ["http-a", "http-b"]
sse = true
auth = []

[[endpoint]]
path = "/http-one"
upstreams = ["http-a"]
sse = true
auth = []

[[endpoint]]
path = "/stdio"
upstreams = ["stdio-a", "stdio-b"]
auth = []

[[endpoint]]
path = "/stdio-one"
upstreams = ["stdio-b"]
auth = []

[[endpoint]]
path = "/sse"
upstreams = ["sse-a", "sse-b"]
auth = []

[[endpoint]]
path = "/sse-one"
upstreams = ["sse-b"]
auth = []

[[endpoint]]
path = "/mixed"
upstreams = ["sse-a", "stdio-b"]
sse = true
auth = []

[upstream.http-a]
url = "{http_a}"

[upstream.http-b]
url = "{http_b}"

[upstream.stdio-a]
command = {stdio_a}
list_timeout = "20s"

[upstream.stdio-b]
command = {stdio_b}
eras = ["modern", "legacy"]
list_timeout = "20s"

[upstream.sse-a]
url = "{sse_a}"
transport = "sse"

[upstream.sse-b]
url = "{sse_b}"
"""
#: Endpoints with two upstreams, and the names of those.
PAIRS = {
    "http": ("http-a", "http-b"),
    "stdio": ("stdio-a", "stdio-b"),
    "sse": ("sse-a", "sse-b"),
    "mixed": ("sse-a", "stdio-b"),
}
#: How clients reach which endpoints.
WAYS = {
    "http": ("stdio", "stdio-one", "sse", "sse-one", "mixed"),
    "sse": ("http", "http-one", "mixed"),
    "connect": ("http", "http-one", "mixed"),
}


@contextlib.contextmanager
def running(binary, known):
    """Starts everything, yields a `Topology`, stops everything; `known` is the one with the HTTP servers."""
    with contextlib.ExitStack() as stack:
        sse_a = stack.enter_context(everything_server("alpha", "--sse"))
        sse_b = stack.enter_context(everything_server("beta", "--sse"))
        urls = {"http_a": known.route("direct").url, "http_b": known.beta_url}
        urls |= {"sse_a": sse_a.ready[1], "sse_b": sse_b.ready[1]}
        children = {"stdio_a": everything_command("alpha"), "stdio_b": everything_command("beta")}
        process = stack.enter_context(gateway_with(binary, TABLES.format(**urls, **children)))
        direct = Route("direct-sse", sse_a.ready[1], transport="sse", for_sessions=True)
        routes = (direct, *gateway_routes(f"http://{gateway_address(process)}"))
        yield Topology(routes, (sse_a, sse_b, process), str(binary.resolve()))


def gateway_routes(base):
    for transport, endpoints in WAYS.items():
        for endpoint in endpoints:
            name = f"{transport}-to-{endpoint}"
            names = ()
            if endpoint in PAIRS:
                names = [f"{upstream}{mark}{{}}" for upstream in PAIRS[endpoint] for mark in ("__", "+")]
            yield Route(name, f"{base}/{endpoint}", *names, transport=transport, for_sessions=True)

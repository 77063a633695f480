"""The first thing that people try: `trunkline demo`, reached directly, through `trunkline connect` and through `mcp-remote`.

`mcp-remote` is the proxy that hosts of children only are given to reach a gateway. It mirrors no argument in a header,
so that it is tried before the everything servers of the other tests, too.
"""

import contextlib
import dataclasses
import tempfile

from interop.process import Process
from interop.topology import Route, Topology

ENTRY = "node_modules/mcp-remote/dist/proxy.js"
#: Routes of the everything servers that are also reached through `mcp-remote`.
BEHIND_MCP_REMOTE = ("transparent", "prefixed")


@contextlib.contextmanager
def running(binary, npm, known):
    """Starts the demo, yields a `Topology`, stops the demo; `known` is the one with the everything servers."""
    command = [binary, "demo", "--address", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with (
        Process("demo", command, ready=r"^Trunkline runs at (http://[^\s,]+)") as process,
        tempfile.TemporaryDirectory(prefix="trunkline-interop-") as directory,
    ):
        start = ("env", f"MCP_REMOTE_CONFIG_DIR={directory}", "node", str(npm.resolve() / ENTRY))
        demo = Route("demo", process.ready[1], is_demo=True, for_first_calls=True)
        routes = [demo, dataclasses.replace(demo, name="connect-to-demo", transport="connect")]
        for route in (demo, *(known.route(name) for name in BEHIND_MCP_REMOTE)):
            routes.append(through(route, start))
        yield Topology(tuple(routes), (process,), str(binary.resolve()))


def through(route, start):
    name = f"mcp-remote-to-{route.name}"
    command = (*start, route.url, "--silent")
    return dataclasses.replace(
        route, name=name, transport="mcp-remote", command=command, for_sessions=False, for_first_calls=True
    )

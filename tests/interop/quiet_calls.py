"""Calls of which nothing is heard for a while, from clients that take a quiet reply for lost.

The gateway keeps such a reply alive: JSON by blanks, after a head that comes before the server answers, and a stream
of events by comments. An SDK takes part through its `Session`; see `open_impatient` of `python_client` and
`python1_client`.
"""

import asyncio
import contextlib

from interop.cases import AnswerError, BoundedCase
from interop.topology import Route, Topology, everything_command, everything_server, gateway_address, gateway_with

#: Each call takes longer than a client waits, and a client waits longer than the gateway does.
TABLES = """
[session]
keep_alive_interval = "1s"

[[endpoint]]
path = "/json"
upstreams = ["json"]
auth = []

[[endpoint]]
path = "/stream"
upstreams = ["stream"]
auth = []

[[endpoint]]
path = "/child"
upstreams = ["child"]
auth = []

[[endpoint]]
path = "/events"
upstreams = ["events"]
auth = []

[upstream.json]
url = "{json}"

[upstream.stream]
url = "{stream}"

# The start of a process of one's own is no part of the call, and may last longer than clients wait.
[upstream.child]
command = {child}
isolation = "shared"

[upstream.events]
url = "{events}"
transport = "sse"
"""
NAMES = ("json", "stream", "child", "events")
ANSWERED_AFTER_S = 3
QUIET_S_MAX = 2.5
FAILED = 4711


@contextlib.contextmanager
def running(binary, known):
    """Starts what answers whole, yields a `Topology`, stops it; `known` has the server that answers in streams."""
    with everything_server("alpha", "--json-replies") as server, everything_server("alpha", "--sse") as events:
        urls = {"json": server.ready[1], "stream": known.route("direct").url, "events": events.ready[1]}
        with gateway_with(binary, TABLES.format(child=everything_command("alpha"), **urls)) as process:
            for name in NAMES:  # an SDK that is impatient does not wait for a child to start
                process.wait_for(f'upstream speaks .*upstream="{name}"')
            base = f"http://{gateway_address(process)}"
            routes = (Route(name, f"{base}/{name}", for_quiet_calls=True) for name in NAMES)
            yield Topology(tuple(routes), (server, events, process), str(binary.resolve()))


class QuietCalls(BoundedCase):
    """`open_impatient(url, quiet_s_max, mode)` opens a `Session`."""

    def __init__(self, method, sdk, open_impatient, modes, topology):
        super().__init__(method, sdk)
        self.open_impatient, self.modes, self.topology = open_impatient, modes, topology

    async def test_a_reply_that_is_quiet_for_long_arrives(self):
        async with asyncio.TaskGroup() as all_at_once:
            for route in self.topology.quiet_call_routes():
                for mode in self.modes:
                    all_at_once.create_task(self.call(route, mode))

    async def call(self, route, mode):
        slowly = {"seconds": ANSWERED_AFTER_S}
        async with self.open_impatient(route.url, QUIET_S_MAX, mode) as session:
            called = (
                session.call("be_quiet", slowly),
                session.call("be_quiet", slowly, progress=lambda done, total: None),
                session.call("be_quiet", slowly | {"code": FAILED}),
            )
            *answered, failed = await asyncio.gather(*called, return_exceptions=True)
        for result in answered:
            self.assertIsInstance(result, dict, (route.name, mode))
            self.assertEqual(result["structuredContent"], slowly, (route.name, mode))
        self.assertIsInstance(failed, AnswerError, (route.name, mode))
        self.assertEqual(failed.error.code, FAILED, (route.name, mode))

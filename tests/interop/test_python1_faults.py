"""A session outlives what goes wrong behind it: slow and lost upstreams, and the end of the gateway itself.

Version 1 of the SDK gives up a whole session for one HTTP status that is not a success, so these tests would
notice one. Each has a gateway of its own, which it may kill.
"""

import asyncio
import contextlib
import pathlib
import re
import tempfile

from interop.cases import AnswerError, BoundedCase
from interop.python1_client import open_client, post
from interop.topology import everything_server, gateway, gateway_address

CONFIGURATION = """
state_directory = "{directory}"

[listener]
address = "{address}"

[drain]
quiet = "10ms"
max = "2s"

[[endpoint]]
path = "/mcp"
upstreams = ["alpha", "beta", "hasty"]
auth = []

[upstream.alpha]
url = "{alpha}"

[upstream.beta]
url = "{beta}"

[upstream.hasty]
url = "{hasty}"
response_timeout = "300ms"
stream_idle_timeout = "300ms"
"""
#: Codes of the SDK's own: no answer in time, and the session is gone.
OWN_CODES = (408, 32600)
#: Nothing is on its way to the disk any more when nothing was written for so long.
SETTLED_S = 0.2


class Faults(BoundedCase):
    def __init__(self, method, topology):
        super().__init__(method, "python 1, own gateway")
        self.topology = topology

    async def test_a_call_that_takes_too_long_leaves_the_session_usable(self):
        with self.everything_server("hasty", "--json-replies") as hasty:
            await self.is_usable_after_a_timeout(hasty.ready[1])

    async def test_a_stream_that_falls_silent_leaves_the_session_usable(self):
        await self.is_usable_after_a_timeout(self.topology.route("direct").url)

    async def is_usable_after_a_timeout(self, hasty_url):
        with self.own_gateway(hasty=hasty_url) as running:
            async with open_client(running.url) as client:
                with self.refused_by_the_gateway():
                    await client.call_tool("hasty__hold", {"key": "too long"})
                self.assertFalse((await client.call_tool("hasty__whoami")).isError)
                self.assertEqual(await answering(client, "alpha__whoami"), "alpha")
                await self.assert_answered_with_an_error(running, client, "hasty__hold", {"key": "again"})

    async def test_a_lost_upstream_leaves_the_session_usable(self):
        with self.everything_server("beta") as beta, self.own_gateway(beta=beta.ready[1]) as running:
            async with open_client(running.url) as client:
                self.assertEqual(await answering(client, "beta__whoami"), "beta")
                beta.kill()
                for _ in range(2):
                    with self.refused_by_the_gateway():
                        await client.call_tool("beta__whoami")
                    self.assertEqual(await answering(client, "alpha__whoami"), "alpha")
                await self.assert_answered_with_an_error(running, client, "beta__whoami", {})
                self.assertIn("alpha__whoami", [tool.name for tool in (await client.list_tools()).tools])

    async def test_an_upstream_that_forgot_the_session_is_opened_anew(self):
        with contextlib.ExitStack() as stack:
            beta = stack.enter_context(self.everything_server("beta"))
            running = stack.enter_context(self.own_gateway(beta=beta.ready[1]))
            async with open_client(running.url) as client:
                before = await upstream_session(client, "beta__headers")
                beta.kill()
                port = re.search(r":(\d+)/", beta.ready[1])[1]
                stack.enter_context(self.everything_server("beta", "--port", port))
                self.assertNotEqual(await upstream_session(client, "beta__headers"), before)

    async def test_a_session_outlives_the_gateway(self):
        with self.own_gateway() as running:
            async with open_client(running.url) as client:
                before = [await upstream_session(client, name) for name in ("alpha__headers", "beta__headers")]
                await running.kill_and_restart()
                after = [await upstream_session(client, name) for name in ("alpha__headers", "beta__headers")]
                self.assertEqual(after, before)
                self.assertEqual(await answering(client, "beta__whoami"), "beta")

    async def test_a_session_that_ended_stays_ended_when_the_gateway_restarts(self):
        with self.own_gateway() as running:
            async with open_client(running.url) as client:
                self.assertEqual(await answering(client, "alpha__whoami"), "alpha")
            await running.kill_and_restart()
            status, _ = await asyncio.to_thread(post, running.url, client.session_id, "ping", {})
            self.assertEqual(status, 404)

    def everything_server(self, name, *options):
        return everything_server(name, *options, python=self.topology.server_python)

    def own_gateway(self, **urls):
        alpha = self.topology.route("direct").url
        return OwnGateway(
            self.topology.binary, {"alpha": alpha, "beta": self.topology.beta_url, "hasty": alpha, **urls}
        )

    @contextlib.contextmanager
    def refused_by_the_gateway(self):
        """An error that came as an answer; the SDK makes two others itself, when it gives up."""
        with self.assertRaises(AnswerError) as caught:
            yield
        self.assertNotIn(caught.exception.error.code, OWN_CODES, caught.exception)

    async def assert_answered_with_an_error(self, running, client, tool, arguments):
        call = {"name": tool, "arguments": arguments}
        status, answer = await asyncio.to_thread(post, running.url, client.session_id, "tools/call", call)
        self.assertEqual((status, answer["id"], "error" in answer), (200, 7, True), answer)


class OwnGateway:
    """`with OwnGateway(binary, urls) as running:` – a gateway that keeps its address and its state when restarted."""

    def __init__(self, binary, urls):
        self.binary, self.urls = binary, urls

    def __enter__(self):
        self._resources = contextlib.ExitStack()
        self._directory = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-interop-"))
        try:
            self._start("127.0.0.1:0")
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, failed, *_):
        self._process.stop()
        if failed:
            print(self._process.log())
        self._resources.close()

    @property
    def url(self):
        return f"http://{self.address}/mcp"

    async def kill_and_restart(self):
        """Sessions are written behind the calls that change them, so this waits until nothing more is written."""
        written = None
        while written != (written := self._written()):
            await asyncio.sleep(SETTLED_S)
        self._process.kill()
        self._start(self.address)

    def _written(self):
        return sorted((path.name, path.stat().st_size) for path in pathlib.Path(self._directory).rglob("*"))

    def _start(self, address):
        configuration = pathlib.Path(self._directory, "trunkline.toml")
        configuration.write_text(CONFIGURATION.format(directory=self._directory, address=address, **self.urls))
        self._process = gateway(self.binary, configuration)
        self._process.__enter__()
        self.address = gateway_address(self._process)


async def answering(client, tool):
    """The name of the upstream that answers."""
    result = await client.call_tool(tool)
    return result.structuredContent["name"]


async def upstream_session(client, tool):
    """The session the gateway has at an upstream for this client."""
    result = await client.call_tool(tool)
    return result.structuredContent["headers"]["mcp-session-id"]

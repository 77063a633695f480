"""The Python SDK's client as the tests use it: a test case bound to one route and one way of opening."""

import asyncio
import contextlib
import functools
import inspect
import unittest
import warnings

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

REVISION = "2026-07-28"
#: Ways to open: ask the server what it speaks first, or take the revision for granted.
MODES = ("auto", REVISION)
ANSWER_TIMEOUT_S = 10
TEST_TIMEOUT_S = 30


class BoundedCase(unittest.IsolatedAsyncioTestCase):
    """A test method that ends in time, and says in its name what it ran against."""

    def __init__(self, method, against):
        super().__init__(method)
        self.against = against
        test = getattr(self, method)
        if inspect.iscoroutinefunction(test):
            setattr(self, method, bounded(test))

    def __str__(self):
        return f"{self.against}: {type(self).__name__}.{self._testMethodName}"

    id = __str__

    @contextlib.contextmanager
    def assert_error(self, code):
        with self.assertRaises(MCPError) as caught:
            yield caught
        self.assertEqual(caught.exception.code, code, caught.exception.error)


def bounded(test):
    @functools.wraps(test)
    async def in_time():
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await test()

    return in_time


class RouteCase(BoundedCase):
    """A test method on one route in one mode; the runner multiplies them."""

    def __init__(self, method, topology, route, mode):
        super().__init__(method, f"python, {route.name}, {mode}")
        self.topology, self.route, self.mode = topology, route, mode

    def connect(self, **options):
        """A client of this route that can answer nothing, unless the options say how."""
        return open_client(self.route.url, self.mode, **options)


def open_client(target, mode, **options):
    """A client without a cache of its own, so that every list is asked for."""
    warnings.filterwarnings("ignore", module="mcp")  # deprecations of features that are tested here
    return Client(target, mode=mode, read_timeout_seconds=ANSWER_TIMEOUT_S, cache=None, **options)


@contextlib.asynccontextmanager
async def client_with_headers(url, headers):
    async with create_mcp_http_client(headers=headers) as http:
        async with open_client(streamable_http_client(url, http_client=http), "auto") as client:
            yield client


class Person:
    """Answers whatever a server asks of the client, and remembers what was asked."""

    FORM = {"name": "Ada", "color": "green", "ok": True, "context": "a test", "confirmed": True}

    def __init__(self):
        self.asked = []

    def options(self):
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
        }

    async def elicit(self, context, params):
        self.asked.append(params.message)
        wanted = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content={field: self.FORM[field] for field in wanted})

    async def sample(self, context, params):
        self.asked.append(params.messages[0].content.text)
        answer = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=answer, model="none")

    async def list_roots(self, context):
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv/project", name="project")])

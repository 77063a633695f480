"""The Python SDK's client as the tests use it: a test case bound to one route and one way of opening."""

import contextlib
import warnings

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from interop.cases import BoundedCase

REVISION = "2026-07-28"
LEGACY_REVISION = "2025-11-25"
#: Ways to open: ask the server what it speaks first, or take the revision for granted.
MODERN_MODES = ("auto", REVISION)
#: The ways of a client that speaks both eras; `legacy` opens a session of the newest older revision.
MODES = (*MODERN_MODES, "legacy")
ANSWER_TIMEOUT_S = 10


class RouteCase(BoundedCase):
    """A test method on one route in one mode; the runner multiplies them."""

    def __init__(self, method, topology, route, mode):
        super().__init__(method, f"python, {route.name}, {mode}")
        self.topology, self.route, self.mode = topology, route, mode
        self.is_modern = mode in MODERN_MODES
        self.revision = REVISION if self.is_modern else LEGACY_REVISION

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
        fields = params.requested_schema["properties"].items()
        content = {field: kind["default"] if "default" in kind else self.FORM[field] for field, kind in fields}
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context, params):
        self.asked.append(params.messages[0].content.text)
        answer = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=answer, model="none")

    async def list_roots(self, context):
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv/project", name="project")])

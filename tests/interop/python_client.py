"""The Python SDK's client as the tests use it: a test case bound to one route and one way of opening."""

import asyncio
import contextlib
import warnings

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPDeprecationWarning

from interop import session_cases
from interop.cases import BoundedCase

REVISION = "2026-07-28"
LEGACY_REVISION = "2025-11-25"
#: Ways to open: ask the server what it speaks first, or take the revision for granted.
MODERN_MODES = ("auto", REVISION)
#: The ways of a client that speaks both eras; `legacy` opens a session of the newest older revision.
MODES = (*MODERN_MODES, "legacy")
ANSWER_TIMEOUT_S = 10
#: For an answer that a child has to be started for, by a busy machine.
CHILD_TIMEOUT_S = 60


class RouteCase(BoundedCase):
    """A test method on one route in one mode; the runner multiplies them."""

    def __init__(self, method, topology, route, mode):
        super().__init__(method, f"python, {route.name}, {mode}")
        self.topology, self.route, self.mode = topology, route, mode
        self.is_modern = mode in MODERN_MODES
        self.revision = REVISION if self.is_modern else LEGACY_REVISION

    def crosses(self, revision):
        """Whether an upstream that speaks this revision speaks another era than the client."""
        return bool(revision) and (revision == REVISION) != self.is_modern

    def connect(self, **options):
        """A client of this route that can answer nothing, unless the options say how."""
        patience = {"answer_timeout_s": CHILD_TIMEOUT_S} if self.route.has_children else {}
        return open_client(self.route.url, self.mode, **patience, **options)


def open_client(target, mode, answer_timeout_s=ANSWER_TIMEOUT_S, **options):
    """A client without a cache of its own, so that every list is asked for."""
    warnings.filterwarnings("ignore", category=MCPDeprecationWarning)  # features that are tested here
    return Client(target, mode=mode, read_timeout_seconds=answer_timeout_s, cache=None, **options)


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


# ---- sessions of the older revisions ---------------------------------------------------------------


class LegacySession(session_cases.Session):
    client = None

    async def call(self, tool, arguments, progress=None):
        async def report(done, total, message):
            progress(done, total)

        result = await self.client.call_tool(tool, arguments, progress_callback=report if progress else None)
        return dumped(result)

    async def call_and_cancel(self, tool, arguments):
        holding = asyncio.Event()

        async def report(done, total, message):
            holding.set()

        call = asyncio.create_task(self.client.call_tool(tool, arguments, progress_callback=report))
        await holding.wait()
        call.cancel()
        await asyncio.wait([call])

    async def subscribe(self, uri):
        await self.client.subscribe_resource(uri)

    async def unsubscribe(self, uri):
        await self.client.unsubscribe_resource(uri)

    async def set_level(self, level):
        await self.client.set_logging_level(level)

    async def ping(self):
        await self.client.send_ping()


@contextlib.asynccontextmanager
async def open_impatient(url, quiet_s_max, mode):
    """A session, or a client of the newest revision, that gives up when it hears nothing for so long."""
    session = LegacySession(None)
    async with create_mcp_http_client(timeout=httpx2.Timeout(10, read=quiet_s_max)) as http:
        async with open_client(streamable_http_client(url, http_client=http), mode) as session.client:
            yield session


@contextlib.asynccontextmanager
async def open_session(topology, route, person, mode="legacy"):
    session = LegacySession(person)

    def answering(method, result_type):
        async def answer(context, params=None):
            async def report(done, total):
                token = (context.meta or {}).get("progress_token")
                if token is not None:
                    await context.session.send_progress_notification(token, done, total)

            return result_type.model_validate(await person.answer(method, dumped(params) if params else {}, report))

        return answer

    async def hear(message):
        if not isinstance(message, Exception):
            await session.hears(message.method, dumped(message.params) if message.params else {})

    options = {
        "answer_timeout_s": CHILD_TIMEOUT_S,
        "elicitation_callback": answering("elicitation/create", types.ElicitResult),
        "sampling_callback": answering("sampling/createMessage", types.CreateMessageResult),
        "list_roots_callback": answering("roots/list", types.ListRootsResult),
        "message_handler": hear,
    }
    async with open_client(target(topology, route), mode, **options) as session.client:
        yield session


def target(topology, route):
    """What the SDK connects to in order to reach a route by its own transport."""
    if route.transport == "sse":
        return sse_client(route.url)
    if route.command:
        return StdioServerParameters(command=route.command[0], args=list(route.command[1:]))
    if route.transport == "connect":
        return StdioServerParameters(command=topology.binary, args=["connect", route.url])
    return route.url


def dumped(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)

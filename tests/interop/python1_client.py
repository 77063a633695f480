"""The Python SDK's version 1 as the tests use it, which most hosts still ship: a client of the older revisions only."""

import asyncio
import contextlib
import datetime
import http.client
import json
import logging
import re
import urllib.parse

import httpx
from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

from interop import session_cases
from interop.cases import BoundedCase

REVISION = "2025-11-25"
ANSWER_TIMEOUT = datetime.timedelta(seconds=10)
#: For an answer that a child has to be started for, by a busy machine.
CHILD_TIMEOUT = datetime.timedelta(seconds=60)


class RouteCase(BoundedCase):
    """A test method on one route; the runner multiplies them."""

    def __init__(self, method, topology, route):
        super().__init__(method, f"python 1, {route.name}")
        self.topology, self.route = topology, route

    def connect(self, **options):
        return open_client(self.route.url, **options)


@contextlib.asynccontextmanager
async def open_client(url, quiet_s_max=30, **options):
    """An initialized session; `client.opened` is the answer to `initialize`, `client.session_id` what it was given."""
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(10, read=quiet_s_max)) as web,
        streamable_http_client(url, http_client=web) as (read, write, session_id),
        ClientSession(read, write, read_timeout_seconds=ANSWER_TIMEOUT, **options) as client,
    ):
        client.opened = await client.initialize()
        client.session_id = session_id()
        yield client


def post(url, session_id, method, params):
    """One request of a session on a connection of its own: the status and the answer."""
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    return exchange(url, session_id, "POST", body)


def end_session(url, session_id):
    """The status of the answer."""
    return exchange(url, session_id, "DELETE")[0]


def exchange(url, session_id, method, body=None):
    parts = urllib.parse.urlsplit(url)
    fields = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": REVISION,
        "Mcp-Session-Id": session_id,
    }
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        connection.request(method, parts.path, body, fields)
        response = connection.getresponse()
        answer = response.read().decode()
        if (response.headers["Content-Type"] or "").startswith("text/event-stream"):
            answer = re.findall(r"^data: *(\S.*)$", answer, re.M)[-1]
        return response.status, json.loads(answer) if answer else None
    finally:
        connection.close()


def quieten():
    """The SDK reports the errors that the tests provoke."""
    for chatty in ("asyncio", "mcp", "httpx"):
        logging.getLogger(chatty).setLevel(logging.CRITICAL)


# ---- sessions with everything in them --------------------------------------------------------------


class LegacySession(session_cases.Session):
    client = None
    is_concurrent = False

    async def call(self, tool, arguments, progress=None):
        async def report(done, total, message):
            progress(done, total)

        return dumped(await self.client.call_tool(tool, arguments, progress_callback=report if progress else None))

    async def call_and_cancel(self, tool, arguments):
        holding = asyncio.Event()

        async def report(done, total, message):
            holding.set()

        request_id = self.client._request_id  # the SDK itself sends no notification when a call is given up
        call = asyncio.create_task(self.client.call_tool(tool, arguments, progress_callback=report))
        await holding.wait()
        await self.client.send_notification(cancelled(request_id))
        await asyncio.wait([call], timeout=0)
        call.cancel()
        await asyncio.wait([call])

    async def subscribe(self, uri):
        await self.client.subscribe_resource(AnyUrl(uri))

    async def unsubscribe(self, uri):
        await self.client.unsubscribe_resource(AnyUrl(uri))

    async def set_level(self, level):
        await self.client.set_logging_level(level)

    async def ping(self):
        await self.client.send_ping()


@contextlib.asynccontextmanager
async def open_impatient(url, quiet_s_max, mode):
    """A session that ends when it hears nothing for so long."""
    session = LegacySession(None)
    async with open_client(url, quiet_s_max=quiet_s_max) as session.client:
        yield session


@contextlib.asynccontextmanager
async def open_session(topology, route, person):
    session = LegacySession(person)

    def answering(method, result_type):
        async def answer(context, params=None):
            async def report(done, total):
                if context.meta and context.meta.progressToken is not None:
                    await context.session.send_progress_notification(context.meta.progressToken, done, total)

            return result_type.model_validate(await person.answer(method, dumped(params) if params else {}, report))

        return answer

    async def hear(message):
        if isinstance(message, types.ServerNotification):
            await session.hears(message.root.method, dumped(message.root.params) if message.root.params else {})

    options = {
        "elicitation_callback": answering("elicitation/create", types.ElicitResult),
        "sampling_callback": answering("sampling/createMessage", types.CreateMessageResult),
        "list_roots_callback": answering("roots/list", types.ListRootsResult),
        "message_handler": hear,
    }
    async with (
        transport(topology, route) as (read, write, *_),
        ClientSession(read, write, read_timeout_seconds=CHILD_TIMEOUT, **options) as session.client,
    ):
        await session.client.initialize()
        yield session


def transport(topology, route):
    if route.transport == "sse":
        return sse_client(route.url)
    if route.command:
        return child(*route.command)
    if route.transport == "connect":
        return child(topology.binary, "connect", route.url)
    return streamable_http_client(route.url)


@contextlib.asynccontextmanager
async def child(command, *arguments):
    """Read from until it has ended: the SDK fails where a notification arrives while it closes, and nobody reads."""
    async with stdio_client(StdioServerParameters(command=command, args=list(arguments))) as (read, write):
        further = read.clone()
        try:
            yield read, write
        finally:
            reading = asyncio.create_task(read_to_the_end(further))
    await reading


async def read_to_the_end(stream):
    async with stream:
        async for _ in stream:
            pass


def cancelled(request_id):
    params = types.CancelledNotificationParams(requestId=request_id, reason="a test")
    return types.ClientNotification(types.CancelledNotification(params=params))


def dumped(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)

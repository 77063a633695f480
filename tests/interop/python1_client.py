"""The Python SDK's version 1 as the tests use it, which most hosts still ship: a client of the older revisions only."""

import contextlib
import datetime
import http.client
import json
import logging
import re
import urllib.parse

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from interop.cases import BoundedCase

REVISION = "2025-11-25"
ANSWER_TIMEOUT = datetime.timedelta(seconds=10)


class RouteCase(BoundedCase):
    """A test method on one route; the runner multiplies them."""

    def __init__(self, method, topology, route):
        super().__init__(method, f"python 1, {route.name}")
        self.topology, self.route = topology, route

    def connect(self, **options):
        return open_client(self.route.url, **options)


@contextlib.asynccontextmanager
async def open_client(url, **options):
    """An initialized session; `client.opened` is the answer to `initialize`, `client.session_id` what it was given."""
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(10, read=30)) as web,
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

"""What the gate counts: each scenario is a configuration of the daemon and the request that is sent again and again.

A new one is a row here and its bounds in `bounds.toml`. Where a request needs something that the daemon gives (a
session), `open` fetches it once on the same connection.
"""

import collections.abc
import dataclasses
import json

from gate.caller import Connection, Request

REVISION = "2026-07-28"
#: What the messages of clients are filled up to.
BODY_BYTES = 543


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    #: What follows the listener in the configuration; `{stub}` stands for the URL of the upstream.
    config: str
    request: Request
    #: What the reply must hold.
    expected: bytes
    #: Makes the request that is counted out of the one above.
    open: collections.abc.Callable[[Connection, Request], Request] = lambda _connection, request: request
    stub_options: tuple = ()


def modern_call(tool):
    """A `tools/call` with the headers that a client of today sends."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "gate", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"Mcp-Method": "tools/call", "Mcp-Name": tool, "MCP-Protocol-Version": REVISION}
    return Request(headers, filled("tools/call", {"name": tool, "arguments": {"query": ""}, "_meta": meta}))


def filled(method, params):
    """The message, its argument `query` as long as it takes to be of `BODY_BYTES`."""

    def message(query):
        arguments = params["arguments"] | {"query": query}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"arguments": arguments}}
        return json.dumps(body, separators=(",", ":")).encode()

    return message("q" * (BODY_BYTES - len(message(""))))


PLAIN = Scenario(
    "plain",
    """
    [[endpoint]]
    path = "/mcp"
    upstreams = ["a"]

    [upstream.a]
    url = "{stub}"
    """,
    modern_call("tool_0"),
    b'"result":',
)

ALL = {scenario.name: scenario for scenario in (PLAIN,)}

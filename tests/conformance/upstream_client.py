"""The client under test when the suite plays the upstream: `python -m conformance.upstream_client URL`.

Drives the Python SDK's client so that every request a scenario waits for is made, either straight at the suite
(`ROUTE=direct`) or through a gateway in front of it, so that the suite judges what the gateway sends; on a
`crossed` route the client speaks the other era. The scenario and its data come in the environment, set by the
suite; `GATEWAY` is the gateway's binary.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import sys
import tempfile

from mcp.shared.exceptions import MCPError

from interop.python_client import REVISION, Person, open_client
from interop.topology import gateway, gateway_address

CONFIGURATION = """
[listener]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
max = "2s"

[[endpoint]]
path = "/mcp"
upstreams = ["suite"]
names = "{names}"

[upstream.suite]
url = "{url}"
eras = ["{era}"]
"""
PREFIX = "suite__"
DUMMY = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "object": {}, "array": []}


def main():
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    is_modern = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == REVISION
    crossed, names = re.fullmatch(r"(crossed-)?(\w+)", os.environ["ROUTE"]).groups()
    mode = "auto" if is_modern != bool(crossed) else "legacy"
    with reached_by(names, sys.argv[1], "modern" if is_modern else "legacy") as url:
        asyncio.run(drive(url, mode, scenario, context))


@contextlib.contextmanager
def reached_by(names, upstream, era):
    """The URL at which the client calls, with whatever stands in between running.

    Which era the suite speaks is configured, because it counts every request that asks.
    """
    if names == "direct":
        yield upstream
        return
    with tempfile.TemporaryDirectory(prefix="trunkline-conformance-") as directory:
        configuration = pathlib.Path(directory, "trunkline.toml")
        configuration.write_text(CONFIGURATION.format(names=names, url=upstream, era=era))
        with gateway(os.environ["GATEWAY"], configuration) as process:
            try:
                yield f"http://{gateway_address(process)}/mcp"
            finally:
                print(process.log(), file=sys.stderr)


async def drive(url, mode, scenario, context):
    async with open_client(url, mode, **Person().options()) as client:
        tools = {tool.name.removeprefix(PREFIX): tool for tool in (await client.list_tools()).tools}
        if scenario == "http-custom-headers":
            calls = [(call["name"], call.get("arguments") or {}) for call in context["toolCalls"]]
        elif scenario == "json-schema-2020-12-preservation":
            schema = tools.pop("json_schema_2020_12_tool").input_schema
            calls = [(name, {"schema": schema}) for name in tools]
        elif scenario == "json-schema-ref-no-deref":
            calls = []
        else:
            calls = [(name, dummy_arguments(tool.input_schema)) for name, tool in tools.items()]
        for name, arguments in calls:
            if name in tools:
                await outcome(client.call_tool(tools[name].name, arguments))
        if scenario == "http-standard-headers":
            await read_everything(client)


async def read_everything(client):
    for resource in (await client.list_resources()).resources:
        await outcome(client.read_resource(str(resource.uri)))
    for prompt in (await client.list_prompts()).prompts:
        await outcome(client.get_prompt(prompt.name))


async def outcome(request):
    """Some scenarios answer with errors on purpose; what was sent is judged all the same."""
    try:
        await request
    except MCPError as error:
        print(f"answered with {error.error}", file=sys.stderr)


def dummy_arguments(schema):
    types = {name: described.get("type") for name, described in schema.get("properties", {}).items()}
    return {name: DUMMY.get(types.get(name), "text") for name in schema.get("required", [])}


if __name__ == "__main__":
    main()

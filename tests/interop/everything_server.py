#!/usr/bin/env python3
"""An upstream for the tests: an MCP server with every kind of feature, of revision 2026-07-28 and the older ones.

Built on the Python SDK, so that what a proxy in front of it does is judged by code nobody here wrote. It
listens on a free port of the loopback interface and prints `listening URL` once it accepts connections; with
`--stdio` it is a child that speaks on its standard streams, with `--sse` it speaks the transport of 2024-11-05, with
`--only` it speaks one era. Whatever a fixture asks of the client, it asks in the era of the call. `whoami` tells
which revision a call arrived in, so that a proxy that changes it is noticed.
"""

import argparse
import asyncio
import logging
import warnings

import everything_eras as eras
import everything_fixtures as fixtures
import everything_results as results
import everything_sessions as sessions
import everything_single_era as single_era
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from serving import serve
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

#: The code of older revisions for what newer ones call invalid parameters.
RESOURCE_NOT_FOUND = -32002
CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
CACHEABLE = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


def main():
    options = parse_options()
    warnings.filterwarnings("ignore")  # the SDK deprecates logging and sampling, which are tested here
    logging.basicConfig(level=logging.WARNING)
    server = build(options)
    if options.stdio:
        return asyncio.run(over_stdio(server, options.only))
    if options.sse:
        return serve(over_sse(server, options.only), options.port, "/sse")
    streams = {"json_response": True} if options.json_replies else {"event_store": eras.Events(), "retry_interval": 100}
    app = server.streamable_http_app(**streams)
    serve(single_era.over_http(app, options.only) if options.only else app, options.port)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="everything", help="what `whoami` and `only_NAME` answer")
    parser.add_argument("--page-size", type=int, default=1000, help="entries on a page of a list")
    parser.add_argument("--port", type=int, default=0, help="where to listen; default: any free port")
    parser.add_argument("--json-replies", action="store_true", help="answer whole, never in a stream")
    parser.add_argument("--only", choices=("legacy", "modern"), help="speak the revisions of one era only")
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output")
    parser.add_argument("--sse", action="store_true", help="speak HTTP+SSE instead of Streamable HTTP")
    return parser.parse_args()


async def over_stdio(server, era):
    async with stdio_server() as (read, write):
        await single_era.over_streams(server, read, write, server.create_initialization_options(CHANGES), era)


def over_sse(server, era):
    transport = SseServerTransport("/messages/")

    async def connected(request):
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await single_era.over_streams(server, read, write, server.create_initialization_options(CHANGES), era)
        return Response()

    return Starlette(routes=[Route("/sse", connected), Mount("/messages/", transport.handle_post_message)])


def build(options):
    """The server with all fixtures; `whoami`, also under a name no other server has, depends on the options."""

    async def whoami(context, arguments):
        known = {"name": options.name, "version": context.protocol_version}
        return results.complete(results.text(options.name), structuredContent=known)

    own = {name: (fixtures.NO_ARGUMENTS, whoami) for name in ("whoami", f"only_{options.name}")}
    tools = {**own, **fixtures.TOOLS}

    def page(key, entries, params):
        first = cursor_position(params, len(entries))
        following = first + options.page_size
        result = {"resultType": "complete", key: entries[first:following]}
        if following < len(entries):
            result["nextCursor"] = f"from-{following}"
        return result

    async def list_tools(context, params):
        sessions.remember(context)
        entries = [described(name, inputSchema=schema) for name, (schema, _) in tools.items()]
        return page("tools", entries, params)

    async def call_tool(context, params):
        sessions.remember(context)
        if params.name not in tools:
            raise results.invalid(f"unknown tool: {params.name}")
        handler, arguments = tools[params.name][1], params.arguments or {}
        return await eras.answered(context, lambda asked: handler(asked, arguments))

    async def list_prompts(context, params):
        sessions.remember(context)
        entries = [described(name, arguments=required(names)) for name, (names, _) in fixtures.PROMPTS.items()]
        return page("prompts", entries, params)

    async def list_resources(context, params):
        entries = [
            described(uri.partition("://")[2], uri=uri, mimeType=mime_type)
            for uri, (mime_type, _) in fixtures.RESOURCES.items()
        ]
        return page("resources", entries, params)

    async def list_templates(context, params):
        template = described("template", uriTemplate=fixtures.TEMPLATE, mimeType="application/json")
        return page("resourceTemplates", [template], params)

    return Server(
        options.name,
        version="1.0.0",
        instructions=f"Fixtures of {options.name}.",
        cache_hints={method: CacheHint(ttl_ms=1000, scope="public") for method in CACHEABLE},
        get_tool_input_schema=lambda name: tools[name][0] if name in tools else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=sessions.subscribe,
        on_unsubscribe_resource=sessions.unsubscribe,
        on_set_logging_level=sessions.set_level,
        on_completion=complete_argument,
        on_subscriptions_listen=ListenHandler(fixtures.BUS),
    )


def cursor_position(params, length):
    cursor = params.cursor if params else None
    if cursor is None:
        return 0
    position = cursor.removeprefix("from-")
    if not position.isdecimal() or int(position) >= length:
        raise results.invalid("unknown cursor")
    return int(position)


def described(name, **fields):
    return {"name": name, "description": f"the fixture {name}", **fields}


def required(names):
    return [{"name": name, "required": True} for name in names]


async def get_prompt(context, params):
    if params.name not in fixtures.PROMPTS:
        raise results.invalid(f"unknown prompt: {params.name}")
    handler, arguments = fixtures.PROMPTS[params.name][1], params.arguments or {}
    return await eras.answered(context, lambda asked: handler(asked, arguments))


async def read_resource(context, params):
    uri = str(params.uri)
    made = fixtures.template_contents(uri)
    if made is not None:
        contents = {"mimeType": "application/json", "text": made}
    elif uri in fixtures.RESOURCES:
        mime_type, body = fixtures.RESOURCES[uri]
        contents = {"mimeType": mime_type, **body}
    else:
        code = types.INVALID_PARAMS if sessions.is_modern(context) else RESOURCE_NOT_FOUND
        raise MCPError(code, "resource not found", {"uri": uri})
    return {"resultType": "complete", "contents": [{"uri": uri, **contents}]}


async def complete_argument(context, params):
    values = [value for value in fixtures.COMPLETIONS if value.startswith(params.argument.value)]
    return {"resultType": "complete", "completion": {"values": values, "total": len(values), "hasMore": False}}


if __name__ == "__main__":
    main()

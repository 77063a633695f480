"""Makes the everything server speak the older revisions only, or the newest only, on every transport.

A server that knows one era refuses the other as one that never heard of it: in words of its own era. Each filter
looks at what says which era a request belongs to, and passes everything else unread.
"""

import contextlib
import json

import anyio
import mcp_types as types
from mcp.server.runner import serve_loop
from mcp.shared.message import SessionMessage

REVISION = "2026-07-28"
#: What a server of the older revisions answers to a version that it does not know.
BAD_VERSION = {"code": -32000, "message": "Bad Request: Unsupported protocol version"}
#: What a server of the newest revision answers to one that it does not speak.
UNSUPPORTED = {
    "code": -32022,
    "message": f"only {REVISION} is spoken here",
    "data": {"supported": [REVISION], "requested": "2025-11-25"},
}


# ---- Streamable HTTP -------------------------------------------------------------------------------


def over_http(app, era):
    """Refuses the requests of the other era with 400, and where there are no sessions also GET and DELETE with 405."""

    async def guarded(scope, receive, send):
        if scope["type"] != "http":
            return await app(scope, receive, send)
        is_modern = version(scope) >= REVISION
        if era == "modern" and scope["method"] != "POST":
            return await refuse(send, 405, None)
        if era == "modern" and not is_modern:
            return await refuse(send, 400, UNSUPPORTED)
        if era == "legacy" and is_modern:
            return await refuse(send, 400, BAD_VERSION)
        return await app(scope, receive, send)

    return guarded


def version(scope):
    """What the request names; one of the older revisions may name none."""
    return dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode("latin-1")


async def refuse(send, status, error):
    body = b"" if error is None else json.dumps({"jsonrpc": "2.0", "error": error}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        head.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


# ---- standard streams and HTTP+SSE -----------------------------------------------------------------


async def over_streams(server, read, write, options, era):
    """Serves one connection; `era` may be None for both."""
    if era == "legacy":
        async with server.lifespan(server) as state:
            await serve_loop(server, read, write, lifespan_state=state, init_options=options)
    elif era == "modern":
        async with without_initialize(read, write) as modern_only:
            await server.run(modern_only, write, options)
    else:
        await server.run(read, write, options)


@contextlib.asynccontextmanager
async def without_initialize(read, write):
    """What arrives on `read`, less attempts to open a session, which are answered with an error."""
    into, out = anyio.create_memory_object_stream(0)

    async def pass_on():
        async with into:
            async for item in read:
                message = getattr(item, "message", None)
                if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
                    error = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=types.ErrorData(**UNSUPPORTED))
                    await write.send(SessionMessage(error))
                else:
                    await into.send(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_on)
        yield out
        tasks.cancel_scope.cancel()

"""What the everything server does in a session of an older revision, beside answering its calls.

It remembers the level of the log lines that a session asked for and the resources it watches, and it sends
requests and notifications that belong to no call, on the session's own stream.
"""

import asyncio
import contextlib
import logging
import uuid

import mcp_types as types
from everything_results import complete, text
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp.shared.message import ServerMessageMetadata

PAGE_URL = "https://example.com/sign-in"
GIVE_UP_S = 0.3
SEND_TIMEOUT_S = 2

#: The least level of the log lines that each session asked for.
_level_by_session = {}
#: URI → who watches it, by session.
_watchers = {}


def session_id(context):
    """Over stdio there is one session, and it has no id."""
    if context.request is None:
        return None
    return context.request.headers.get("mcp-session-id") or context.request.query_params.get("session_id")


# ---- what a session sets -------------------------------------------------------------------------


async def set_level(context, params):
    _level_by_session[session_id(context)] = params.level
    return {}


def level(context):
    return _level_by_session.get(session_id(context), "debug")


async def subscribe(context, params):
    _watchers.setdefault(str(params.uri), {})[session_id(context)] = context.session
    return {}


async def unsubscribe(context, params):
    _watchers.get(str(params.uri), {}).pop(session_id(context), None)
    return {}


async def tell_watchers(uri):
    """Whoever cannot be told is gone."""
    for watcher, session in list(_watchers.get(uri, {}).items()):
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await session.send_resource_updated(uri)
        except Exception:
            logging.exception("a watcher of %s is gone", uri)
            _watchers[uri].pop(watcher, None)


# ---- tools: notifications of no call ---------------------------------------------------------------


async def change_lists(context, arguments):
    """Says that every list has changed."""
    await context.session.send_tool_list_changed()
    await context.session.send_prompt_list_changed()
    await context.session.send_resource_list_changed()
    return complete(text("changed"))


async def log_apart(context, arguments):
    await context.session.send_log_message("info", arguments["message"], "everything")
    return complete(text("logged"))


# ---- tools: questions ------------------------------------------------------------------------------


def _elicitation(message):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(message):
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=message))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=10))


_REQUESTS = {
    "elicitation": (_elicitation, types.ElicitResult),
    "sampling": (_sampling, types.CreateMessageResult),
    "roots": (lambda _: types.ListRootsRequest(), types.ListRootsResult),
    "ping": (lambda _: types.PingRequest(), types.EmptyResult),
}


async def ask_apart(context, arguments):
    """Asks on the session's own stream; the answer is the result."""
    return await _ask(context, arguments, None)


async def ask_here(context, arguments):
    """Asks on the stream of the call; the answer is the result."""
    return await _ask(context, arguments, ServerMessageMetadata(related_request_id=context.request_id))


async def _ask(context, arguments, where):
    request, result_type = _REQUESTS[arguments["kind"]]
    answer = await context.session.send_request(request(arguments.get("message", "")), result_type, metadata=where)
    result = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return complete(text("answered"), structuredContent=result)


async def ask_with_progress(context, arguments):
    """What the client reported while it answered."""
    seen = []

    async def report(done, total, message):
        seen.append([done, total])

    here = ServerMessageMetadata(related_request_id=context.request_id)
    asked = _sampling(arguments["message"])
    await context.session.send_request(asked, types.CreateMessageResult, metadata=here, progress_callback=report)
    return complete(text("answered"), structuredContent={"seen": seen})


async def ask_and_give_up(context, arguments):
    """Cancels its question when there is no answer in time."""
    here = ServerMessageMetadata(related_request_id=context.request_id)
    asked = _sampling(arguments["message"])
    try:
        await context.session.send_request(asked, types.CreateMessageResult, GIVE_UP_S, here)
    except MCPError:
        return complete(text("gave up"))
    return complete(text("answered"))


async def ask_url(context, arguments):
    """Sends the person to a page, and says afterwards that what was to be done there is done."""
    elicitation_id = uuid.uuid4().hex
    answer = await context.session.elicit_url(arguments["message"], PAGE_URL, elicitation_id, context.request_id)
    with contextlib.suppress(MCPError):
        params = types.ElicitCompleteNotificationParams(elicitation_id=elicitation_id)
        await context.session.send_notification(types.ElicitCompleteNotification(params=params), context.request_id)
    return complete(text(answer.action), structuredContent={"id": elicitation_id})


async def need_url(context, arguments):
    """Refuses until the person has been to a page."""
    asked = types.ElicitRequestURLParams(message="Sign in", url=PAGE_URL, elicitation_id=uuid.uuid4().hex)
    raise UrlElicitationRequiredError([asked])

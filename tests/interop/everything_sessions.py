"""What the everything server does in a session of an older revision, beside answering its calls.

It remembers the level of the log lines that a session asked for and the resources it watches, and it sends
requests and notifications that belong to no call, on the session's own stream. The newest revision has neither
sessions nor such a stream: there a fixture asks in its result and logs on the stream of its call.
"""

import asyncio
import contextlib
import logging
import uuid

import everything_questions as questions
import mcp_types as types
from everything_results import complete, text
from everything_single_era import REVISION
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp.shared.message import ServerMessageMetadata

PAGE_URL = "https://example.com/sign-in"
GIVE_UP_S = 0.3
SEND_TIMEOUT_S = 2
SESSIONS_MAX = 256

#: The sessions that were heard of last, to be told of what concerns everybody.
_known = {}
#: The least level of the log lines that each session asked for.
_level_by_session = {}
#: The keys of those who were sent to a page because they needed it.
_sent_to_page = set()
#: URI → who watches it, by session.
_watchers = {}


def session_id(context):
    """Over stdio there is one session, and it has no id."""
    if context.request is None:
        return None
    return context.request.headers.get("mcp-session-id") or context.request.query_params.get("session_id")


def is_modern(context):
    return context.protocol_version >= REVISION


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


def remember(context):
    """From now on, the session is told of lists that change."""
    if not is_modern(context):
        _known.pop(session_id(context), None)
        _known[session_id(context)] = context.session
        while len(_known) > SESSIONS_MAX:
            del _known[next(iter(_known))]


async def tell_watchers(uri):
    await tell(_watchers.get(uri, {}), lambda session: session.send_resource_updated(uri))


async def tell_everybody(kind):
    """That a list has changed: `tool`, `prompt` or `resource`."""
    await tell(_known, lambda session: getattr(session, f"send_{kind}_list_changed")())


async def tell(told, send):
    """Whoever cannot be told is gone."""

    async def tell_one(key, session):
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await send(session)
        except Exception:
            logging.exception("a session is gone")
            told.pop(key, None)

    await asyncio.gather(*(tell_one(*each) for each in list(told.items())))


# ---- tools: notifications of no call ---------------------------------------------------------------


async def change_lists(context, arguments):
    """Says that every list has changed."""
    await context.session.send_tool_list_changed()
    await context.session.send_prompt_list_changed()
    await context.session.send_resource_list_changed()
    return complete(text("changed"))


async def log_apart(context, arguments):
    """In the newest revision every line belongs to a call; it gets the level that no threshold holds back."""
    level = "emergency" if is_modern(context) else "info"
    await context.session.send_log_message(level, arguments["message"], "everything")
    return complete(text("logged"))


# ---- tools: questions ------------------------------------------------------------------------------


def _elicitation(message):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(message):
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=message))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=10))


def _page(message):
    """As the newest revision has it, without an id."""
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=PAGE_URL))


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
    if is_modern(context) and arguments["kind"] == "ping":
        return complete(text("answered"))
    if is_modern(context):
        return _ask_in_the_result(context, request(arguments.get("message", "")))
    answer = await context.session.send_request(request(arguments.get("message", "")), result_type, metadata=where)
    result = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return complete(text("answered"), structuredContent=result)


def _ask_in_the_result(context, request):
    answer = questions.responses(context).get("asked")
    if answer is None:
        asked = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        return questions.input_required({"asked": asked})
    return complete(text(answer.get("action", "answered")), structuredContent=answer)


async def ask_with_progress(context, arguments):
    """What the client reported while it answered; in the newest revision it cannot."""
    if is_modern(context):
        return _ask_in_the_result(context, _sampling(arguments["message"]))
    seen = []

    async def report(done, total, message):
        seen.append([done, total])

    here = ServerMessageMetadata(related_request_id=context.request_id)
    asked = _sampling(arguments["message"])
    await context.session.send_request(asked, types.CreateMessageResult, metadata=here, progress_callback=report)
    return complete(text("answered"), structuredContent={"seen": seen})


async def ask_and_give_up(context, arguments):
    """Cancels its question when there is no answer in time; in the newest revision that cannot be, so it asks nothing."""
    if is_modern(context):
        return complete(text("gave up"))
    here = ServerMessageMetadata(related_request_id=context.request_id)
    asked = _sampling(arguments["message"])
    try:
        await context.session.send_request(asked, types.CreateMessageResult, GIVE_UP_S, here)
    except MCPError:
        return complete(text("gave up"))
    return complete(text("answered"))


async def ask_url(context, arguments):
    """Sends the person to a page, and says afterwards that what was to be done there is done."""
    if is_modern(context):
        return _ask_in_the_result(context, _page(arguments["message"]))
    elicitation_id = uuid.uuid4().hex
    answer = await context.session.elicit_url(arguments["message"], PAGE_URL, elicitation_id, context.request_id)
    with contextlib.suppress(MCPError):
        params = types.ElicitCompleteNotificationParams(elicitation_id=elicitation_id)
        await context.session.send_notification(types.ElicitCompleteNotification(params=params), context.request_id)
    return complete(text(answer.action), structuredContent={"id": elicitation_id})


async def need_url(context, arguments):
    """Refuses until the person has been to a page, which under a `key` is taken for granted at the second try."""
    key = arguments.get("key")
    if is_modern(context):
        return _ask_in_the_result(context, _page("Sign in"))
    if key in _sent_to_page:
        return complete(text("accept"))
    if key is not None:
        _sent_to_page.add(key)
    asked = types.ElicitRequestURLParams(message="Sign in", url=PAGE_URL, elicitation_id=uuid.uuid4().hex)
    raise UrlElicitationRequiredError([asked])

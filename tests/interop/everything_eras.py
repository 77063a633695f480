"""What the everything server does differently for clients of an older revision.

They ask for log lines once per session, not per request; they are asked in requests of the server's own, not
in results; and a stream that broke off can be taken up again.
"""

import asyncio
import dataclasses

import everything_sessions as sessions
import mcp_types as types
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.message import ServerMessageMetadata

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ROUNDS_MAX = 8


# ---- log lines -----------------------------------------------------------------------------------


async def log(context, level, line):
    """Sends a line on the stream of this call, unless its session asked for graver ones only."""
    least = "debug" if sessions.is_modern(context) else sessions.level(context)
    if LOG_LEVELS.index(level) >= LOG_LEVELS.index(least):
        await context.session.send_log_message(level, line, "everything", related_request_id=context.request_id)


# ---- questions -----------------------------------------------------------------------------------

_QUESTIONS = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


async def answered(context, handle):
    """What `handle(context)` returns; in older revisions, once the client has answered all that it asks."""
    result = await handle(context)
    for _ in range(ROUNDS_MAX):
        if sessions.is_modern(context) or result.get("resultType") != "input_required":
            break
        asked = result["inputRequests"]
        answers = await asyncio.gather(*(ask(context, question) for question in asked.values()))
        given = {"inputResponses": dict(zip(asked, answers, strict=True))}
        if "requestState" in result:
            given["requestState"] = result["requestState"]
        result = await handle(dataclasses.replace(context, params={**(context.params or {}), **given}))
    return result


async def ask(context, question):
    """One request to the client, on the stream of the call being served."""
    request_type, result_type = _QUESTIONS[question["method"]]
    on_this_stream = ServerMessageMetadata(related_request_id=context.request_id)
    request = request_type.model_validate(question)
    answer = await context.session.send_request(request, result_type, metadata=on_this_stream)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


# ---- broken streams ------------------------------------------------------------------------------


class Events(EventStore):
    """Every event of every stream, kept in memory; its id is its position."""

    def __init__(self):
        self.kept = []

    async def store_event(self, stream_id, message):
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        if not 0 < last <= len(self.kept):
            return None
        resumed = self.kept[last - 1][0]
        for position, (stream_id, message) in enumerate(self.kept[last:], last + 1):
            if stream_id == resumed and message is not None:
                await send_callback(EventMessage(message, str(position)))
        return resumed

"""What the everything server offers: tools, prompts, resources and templates, each a row of a table.

A name that starts with `test_` is what the conformance suite asks of a server under test; the others show
what a proxy does to a call. A handler takes the request's context and its arguments and returns a result as
it stands on the wire. Nothing here knows about transports or about the server's own options.
"""

import asyncio
import json

import everything_eras as eras
import everything_questions as questions
import everything_sessions as sessions
import mcp_types as types
from everything_results import (
    PICTURE,
    PIXEL_PNG,
    SOUND,
    STRING,
    complete,
    embedded,
    link,
    messages,
    object_schema,
    text,
)
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

#: Changes that open `subscriptions/listen` streams are told about.
BUS = InMemorySubscriptionBus()
#: What clients of older revisions are told about.
LISTS = {ToolsListChanged: "tool", PromptsListChanged: "prompt", ResourcesListChanged: "resource"}

# ---- tools the suite calls -----------------------------------------------------------------------


def always(*content, **fields):
    async def handler(context, arguments):
        return complete(*content, **fields)

    return handler


async def report_progress(context, arguments):
    for step in (0, 50, 100):
        await context.session.report_progress(step, 100, f"{step} of 100")
    return complete(text("reported three times"))


async def write_log(context, arguments):
    for line in ("started", "working", "finished"):
        await eras.log(context, "info", line)
    return complete(text("logged three lines"))


async def break_off(context, arguments):
    """Ends the stream of this call before its answer, which the client then comes back for."""
    if context.close_sse_stream:
        await context.close_sse_stream()
    await asyncio.sleep(0.2)
    return complete(text("answered after the stream ended"))


async def require_sampling(context, arguments):
    if "sampling" in questions.capabilities(context):
        return complete(text("the client can sample"))
    needed = {"requiredCapabilities": {"sampling": {}}}
    raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs a client that can sample", needed)


def announce(change):
    async def handler(context, arguments):
        await BUS.publish(change)
        if isinstance(change, ResourceUpdated):
            await sessions.tell_watchers(change.uri)
        else:
            await sessions.tell_everybody(LISTS[type(change)])
        return complete(text("announced"))

    return handler


async def change_lists(context, arguments):
    """Says that every list has changed; in older revisions to this session alone."""
    if not sessions.is_modern(context):
        return await sessions.change_lists(context, arguments)
    for change in LISTS:
        await BUS.publish(change())
    return complete(text("changed"))


# ---- tools that show what a proxy does -----------------------------------------------------------


async def echo(context, arguments):
    return complete(text(json.dumps(arguments)), structuredContent={"arguments": arguments})


async def headers(context, arguments):
    """The HTTP headers the call arrived with, names in lower case; over stdio there are none."""
    arrived = dict(context.request.headers) if context.request else {}
    return complete(text("see the structured content"), structuredContent={"headers": arrived})


async def be_quiet(context, arguments):
    """Says nothing for so many seconds, and then fails with the code, if there is one."""
    await asyncio.sleep(arguments["seconds"])
    if "code" in arguments:
        raise MCPError(arguments["code"], "failed as told")
    return complete(text("I was quiet"), structuredContent=arguments)


async def links(context, arguments):
    """Resources named in every place where a tool's result can name them, and one in plain text."""
    return complete(
        link("test://static-text", "static text"),
        embedded("test://embedded-resource", "text/plain", "embedded"),
        text("test://static-text"),
        structuredContent={"uri": "test://static-text"},
    )


#: How each held call ended, by the key it was given: a future of "cancelled" or "finished".
_held = {}


def _outcome(key):
    return _held.setdefault(key, asyncio.get_running_loop().create_future())


async def hold(context, arguments):
    """Reports progress once, then keeps the call open until it is cancelled, for ten seconds at most."""
    outcome = _outcome(arguments["key"])
    await context.session.report_progress(1, None, "holding")
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        outcome.set_result("cancelled")
        raise
    outcome.set_result("finished")
    return complete(text("held to the end"))


async def hold_outcome(context, arguments):
    """Waits up to five seconds for the end of the call held under this key."""
    try:
        outcome = await asyncio.wait_for(asyncio.shield(_outcome(arguments["key"])), 5)
    except TimeoutError:
        outcome = "still held"
    return complete(text(outcome), structuredContent={"outcome": outcome})


# ---- the tables ----------------------------------------------------------------------------------

NO_ARGUMENTS = object_schema()
KEY = object_schema(["key"], key=STRING)
MESSAGE = object_schema(["message"], message=STRING)
QUESTION = object_schema(["kind"], kind=STRING, message=STRING)
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}},
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

#: name → (input schema, handler), in the order of the list.
TOOLS = {
    "test_simple_text": (NO_ARGUMENTS, always(text("This is a simple text response for testing."))),
    "test_image_content": (NO_ARGUMENTS, always(PICTURE)),
    "test_audio_content": (NO_ARGUMENTS, always(SOUND)),
    "test_embedded_resource": (
        NO_ARGUMENTS,
        always(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    "test_multiple_content_types": (
        NO_ARGUMENTS,
        always(
            text("Multiple content types test:"),
            PICTURE,
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    "test_error_handling": (
        NO_ARGUMENTS,
        always(text("This tool intentionally returns an error for testing"), isError=True),
    ),
    "test_tool_with_progress": (NO_ARGUMENTS, report_progress),
    "test_logging_tool": (NO_ARGUMENTS, write_log),
    "test_tool_with_logging": (NO_ARGUMENTS, write_log),
    "test_sampling": (object_schema(["prompt"], prompt=STRING), questions.ask_model),
    "test_elicitation": (object_schema(["message"], message=STRING), questions.ask_person),
    "test_elicitation_sep1034_defaults": (NO_ARGUMENTS, questions.ask_with_defaults),
    "test_elicitation_sep1330_enums": (NO_ARGUMENTS, questions.ask_to_choose),
    "test_reconnection": (NO_ARGUMENTS, break_off),
    "test_missing_capability": (NO_ARGUMENTS, require_sampling),
    "test_streaming_elicitation": (NO_ARGUMENTS, questions.ask_name),
    "test_trigger_tool_change": (NO_ARGUMENTS, announce(ToolsListChanged())),
    "test_trigger_prompt_change": (NO_ARGUMENTS, announce(PromptsListChanged())),
    "test_x_mcp_header": (object_schema(region={"type": "string", "x-mcp-header": "Region"}), headers),
    "test_input_required_result_elicitation": (NO_ARGUMENTS, questions.ask_name),
    "test_input_required_result_sampling": (NO_ARGUMENTS, questions.ask_capital),
    "test_input_required_result_list_roots": (NO_ARGUMENTS, questions.ask_roots),
    "test_input_required_result_request_state": (NO_ARGUMENTS, questions.ask_confirmation),
    "test_input_required_result_multiple_inputs": (NO_ARGUMENTS, questions.ask_everything),
    "test_input_required_result_multi_round": (NO_ARGUMENTS, questions.ask_twice),
    "test_input_required_result_tampered_state": (NO_ARGUMENTS, questions.ask_confirmation),
    "test_input_required_result_capabilities": (NO_ARGUMENTS, questions.ask_what_the_client_can),
    "json_schema_2020_12_tool": (SCHEMA_2020_12, echo),
    "echo": ({"type": "object"}, echo),
    "headers": (NO_ARGUMENTS, headers),
    "links": (NO_ARGUMENTS, links),
    "be_quiet": (object_schema(["seconds"], seconds={"type": "number"}, code={"type": "integer"}), be_quiet),
    "hold": (KEY, hold),
    "hold_outcome": (KEY, hold_outcome),
    "announce_watched": (NO_ARGUMENTS, announce(ResourceUpdated("test://watched-resource"))),
    "change_lists": (NO_ARGUMENTS, change_lists),
    "log_apart": (MESSAGE, sessions.log_apart),
    "ask_apart": (QUESTION, sessions.ask_apart),
    "ask_here": (QUESTION, sessions.ask_here),
    "ask_with_progress": (MESSAGE, sessions.ask_with_progress),
    "ask_and_give_up": (MESSAGE, sessions.ask_and_give_up),
    "ask_url": (MESSAGE, sessions.ask_url),
    "need_url": (object_schema(key=STRING), sessions.need_url),
}


async def simple_prompt(context, arguments):
    return messages(text("This is a simple prompt for testing."))


async def prompt_with_arguments(context, arguments):
    return messages(text(f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"))


async def prompt_with_resource(context, arguments):
    named = embedded(arguments.get("resourceUri"), "text/plain", "Embedded resource content for testing.")
    return messages(named, text("Please process the embedded resource above."))


async def prompt_with_image(context, arguments):
    return messages(PICTURE, text("Please analyze the image above."))


#: name → (names of the required arguments, handler).
PROMPTS = {
    "test_simple_prompt": ([], simple_prompt),
    "test_prompt_with_arguments": (["arg1", "arg2"], prompt_with_arguments),
    "test_prompt_with_embedded_resource": (["resourceUri"], prompt_with_resource),
    "test_prompt_with_image": ([], prompt_with_image),
    "test_input_required_result_prompt": ([], questions.prompt_that_asks),
}

#: URI → (media type, contents as they stand in the result).
RESOURCES = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": PIXEL_PNG}),
    "test://watched-resource": ("text/plain", {"text": "Watched resource content"}),
}

TEMPLATE = "test://template/{id}/data"


def template_contents(uri):
    """The contents of a URI made from `TEMPLATE`, or None for any other."""
    before, after = TEMPLATE.split("{id}")
    if not (uri.startswith(before) and uri.endswith(after)):
        return None
    given = uri[len(before) : -len(after)]
    return json.dumps({"id": given, "templateTest": True, "data": f"Data for ID: {given}"})


#: What `completion/complete` offers, whichever argument is completed.
COMPLETIONS = ("paris", "park", "party")

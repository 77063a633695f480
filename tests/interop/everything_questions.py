"""The everything server's fixtures that need something from the client before they answer.

Each asks by an input-required result and answers once the retried request brings what was asked for; how
clients of older revisions are asked is not decided here. State that travels through the client is signed, so
that a changed one is noticed.
"""

import base64
import hashlib
import hmac
import json
import secrets

from everything_results import STRING, complete, invalid, messages, object_schema, text

# ---- questions and answers -----------------------------------------------------------------------


def elicitation(message, **properties):
    schema = object_schema(properties, **properties)
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def sampling(prompt, max_tokens):
    asked = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": asked, "maxTokens": max_tokens}}


ASK_NAME = elicitation("What is your name?", name=STRING)
ASK_COLOUR = elicitation("What is your favourite colour?", color=STRING)
ASK_CONFIRMATION = elicitation("Please confirm", ok={"type": "boolean"})
ASK_ROOTS = {"method": "roots/list", "params": {}}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def titled(kind, *titles):
    return [{"const": f"value{number}", "title": f"{title} {kind}"} for number, title in enumerate(titles, 1)]


PLAIN_OPTIONS = {"type": "string", "enum": ["option1", "option2", "option3"]}
CHOICES = {
    "untitledSingle": PLAIN_OPTIONS,
    "titledSingle": {"type": "string", "oneOf": titled("Option", "First", "Second", "Third")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": PLAIN_OPTIONS},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice", "First", "Second", "Third")}},
}


def responses(context):
    """The client's answers to the questions of the round before; what is no object answers nothing."""
    given = (context.params or {}).get("inputResponses")
    if not isinstance(given, dict):
        return {}
    return {key: answer for key, answer in given.items() if isinstance(answer, dict)}


def elicited(context, key, field):
    """One field of an accepted elicitation, or None."""
    return (responses(context).get(key, {}).get("content") or {}).get(field)


def capabilities(context):
    declared = context.session.client_capabilities
    return declared.model_dump(by_alias=True, exclude_none=True) if declared else {}


def input_required(requests, state=None):
    result = {"resultType": "input_required", "inputRequests": requests}
    if state is not None:
        result["requestState"] = sign(state)
    return result


# ---- state ---------------------------------------------------------------------------------------

_STATE_KEY = secrets.token_bytes(32)


def _signature(payload):
    return hmac.new(_STATE_KEY, payload.encode(), hashlib.sha256).hexdigest()


def sign(state):
    payload = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
    return f"{payload}.{_signature(payload)}"


def returned_state(context):
    """The state of the round before; None in the first round. Raises when it is not one of ours."""
    returned = (context.params or {}).get("requestState")
    if returned is None:
        return None
    payload, _, signature = str(returned).partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(payload).encode()):
        raise invalid("requestState was not made by this server")
    return json.loads(base64.urlsafe_b64decode(payload))


# ---- fixtures ------------------------------------------------------------------------------------


async def ask_name(context, arguments):
    name = elicited(context, "user_name", "name")
    if not isinstance(name, str):
        return input_required({"user_name": ASK_NAME})
    return complete(text(f"Hello, {name}!"))


async def ask_capital(context, arguments):
    answer = responses(context).get("capital_question")
    if answer is None:
        return input_required({"capital_question": sampling("What is the capital of France?", 100)})
    return complete(text(str((answer.get("content") or {}).get("text"))))


async def ask_model(context, arguments):
    answer = responses(context).get("sampled")
    if answer is None:
        return input_required({"sampled": sampling(arguments["prompt"], 100)})
    return complete(text(f"the model answered: {answer['content'].get('text')}"))


def ask_form(message, properties):
    async def handler(context, arguments):
        answer = responses(context).get("form")
        if answer is None:
            return input_required({"form": elicitation(message or arguments["message"], **properties)})
        return complete(text(f"action={answer.get('action')}, content={json.dumps(answer.get('content'))}"))

    return handler


ask_person = ask_form(None, {"username": STRING, "email": STRING})
ask_with_defaults = ask_form("Please check the defaults", DEFAULTS)
ask_to_choose = ask_form("Please choose", CHOICES)


async def ask_roots(context, arguments):
    answer = responses(context).get("client_roots")
    if answer is None:
        return input_required({"client_roots": ASK_ROOTS})
    return complete(text(json.dumps(answer.get("roots"))))


async def ask_confirmation(context, arguments):
    state = returned_state(context)
    if state != {"waiting_for": "confirm"} or "confirm" not in responses(context):
        return input_required({"confirm": ASK_CONFIRMATION}, {"waiting_for": "confirm"})
    return complete(text("state-ok"))


async def ask_everything(context, arguments):
    state = returned_state(context)
    asked = {"user_name": ASK_NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": ASK_ROOTS}
    if state is None or not asked.keys() <= responses(context).keys():
        return input_required(asked, {"waiting_for": sorted(asked)})
    return complete(text("all three answers arrived"))


async def ask_twice(context, arguments):
    state = returned_state(context) or {"round": 0}
    name, colour = elicited(context, "step1", "name"), elicited(context, "step2", "color")
    if state["round"] == 1 and name is not None:
        return input_required({"step2": ASK_COLOUR}, {"round": 2, "name": name})
    if state["round"] == 2 and colour is not None:
        return complete(text(f"{state['name']} likes {colour}"))
    return input_required({"step1": ASK_NAME}, {"round": 1})


async def ask_what_the_client_can(context, arguments):
    by_capability = {"elicitation": ASK_NAME, "sampling": sampling("Say hello", 20), "roots": ASK_ROOTS}
    asked = {key: request for key, request in by_capability.items() if key in capabilities(context)}
    if asked.keys() <= responses(context).keys() and returned_state(context) is not None:
        return complete(text("asked for " + ", ".join(asked)))
    return input_required(asked, {"waiting_for": sorted(asked)})


async def prompt_that_asks(context, arguments):
    answer = elicited(context, "user_context", "context")
    if answer is None:
        asked = elicitation("What context should the prompt use?", context=STRING)
        return input_required({"user_context": asked})
    return messages(text(f"Context: {answer}"))

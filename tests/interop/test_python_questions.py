"""Questions of a server reach the client whose call they belong to, and the answers reach their question.

Several clients of one route, of both eras, call at once; who is asked says so in every answer.
"""

import asyncio
import uuid

import mcp_types as types

from interop.cases import BoundedCase
from interop.python_client import CHILD_TIMEOUT_S, RouteCase, open_client

CLIENTS = 3
CALLS = 2
KINDS = ("elicitation", "sampling", "roots")


class Somebody:
    """Answers with its own name, after all clients have been asked something, and remembers what it was asked."""

    def __init__(self, name, together):
        self.name, self.together, self.asked = name, together, []

    def options(self):
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.list_roots,
        }

    async def elicit(self, context, params):
        await self.hear(params.message)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": f"{self.name}: {params.message}"})

    async def sample(self, context, params):
        message = params.messages[0].content.text
        await self.hear(message)
        answer = types.TextContent(type="text", text=f"{self.name}: {message}")
        return types.CreateMessageResult(role="assistant", content=answer, model="none")

    async def list_roots(self, context):
        await self.together.wait()
        return types.ListRootsResult(roots=[types.Root(uri=f"file:///{self.name}")])

    async def hear(self, message):
        self.asked.append(message)
        await self.together.wait()


class Together:
    """Lets everybody go on once so many have come."""

    def __init__(self, count):
        self.missing, self.complete = count, asyncio.Event()

    async def wait(self):
        self.missing -= 1
        if self.missing <= 0:
            self.complete.set()
        await self.complete.wait()


async def ask_everything(case, route, mode, somebody):
    """Several calls of one client at once, of every upstream and of every kind, each with the answer it should get."""
    tools = [route.tool] + ([lambda inner: route.beta_name.replace("{}", inner)] if route.beta_name else [])
    patience = {"answer_timeout_s": CHILD_TIMEOUT_S} if route.has_children else {}
    async with open_client(route.url, mode, **patience, **somebody.options()) as client:

        async def ask(tool, kind, message):
            result = await client.call_tool(tool("ask_here"), {"kind": kind, "message": message})
            answer = result.structured_content
            if kind == "roots":
                case.assertEqual([root["uri"] for root in answer["roots"]], [f"file:///{somebody.name}"])
            else:
                content = answer["content"]
                given = content["name"] if kind == "elicitation" else content["text"]
                case.assertEqual(given, f"{somebody.name}: {message}")

        calls = [(tool, kind) for tool in tools for kind in KINDS for _ in range(CALLS)]
        messages = [f"{somebody.name} {number}" for number in range(len(calls))]
        asking = [ask(*call, message) for call, message in zip(calls, messages, strict=True)]
        if route.has_legacy_children:  # of which each call that is under way may need one of its own
            for one in asking:
                await one
        else:
            await asyncio.gather(*asking)
    expected = [message for (_, kind), message in zip(calls, messages, strict=True) if kind != "roots"]
    case.assertEqual(sorted(somebody.asked), sorted(expected))


class Questions(RouteCase):
    timeout_s = 90

    async def test_clients_at_once_answer_their_own_questions(self):
        together = Together(CLIENTS)
        people = [Somebody(f"client-{number}-{uuid.uuid4().hex}", together) for number in range(CLIENTS)]
        await asyncio.gather(*(ask_everything(self, self.route, self.mode, person) for person in people))

    async def test_a_page_that_is_needed_first(self):
        # A session of the older revisions with an upstream of its own era gets an error, which ends the call.
        if not self.is_modern and not self.crosses(self.route.alpha_revision):
            return
        person = Somebody("client", Together(1))
        async with self.connect(**person.options()) as client:
            result = await client.call_tool(self.route.tool("need_url"), {"key": uuid.uuid4().hex})
        self.assertEqual(result.content[0].text, "accept")
        self.assertEqual(person.asked, ["Sign in"])

    async def test_a_page_where_something_is_to_be_done(self):
        person = Somebody("client", Together(1))
        async with self.connect(**person.options()) as client:
            result = await client.call_tool(self.route.tool("ask_url"), {"message": "sign in"})
        self.assertEqual((result.content[0].text, person.asked), ("accept", ["sign in"]))


class BothEras(BoundedCase):
    """Clients of both eras at once on one route."""

    timeout_s = 90

    def __init__(self, method, topology, route):
        super().__init__(method, f"python, {route.name}, both eras")
        self.route = route

    async def test_clients_of_both_eras_answer_their_own_questions(self):
        modes = ("legacy", "auto", "legacy", "auto")
        together = Together(len(modes))
        people = [Somebody(f"{mode}-{uuid.uuid4().hex}", together) for mode in modes]
        asking = (ask_everything(self, self.route, mode, person) for mode, person in zip(modes, people, strict=True))
        await asyncio.gather(*asking)

    async def test_both_see_one_catalog(self):
        seen = []
        for mode in ("legacy", "auto"):
            async with open_client(self.route.url, mode) as client:
                tools = await client.list_tools()
                prompts, resources = await client.list_prompts(), await client.list_resources()
                templates = await client.list_resource_templates()
                listed = (tools.tools, prompts.prompts, resources.resources, templates.resource_templates)
                seen.append([[entry.model_dump(by_alias=True, mode="json") for entry in part] for part in listed])
        self.assertEqual(*seen)

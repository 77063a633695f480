"""What a client of the older revisions sees and does: lists, calls, prompts, resources, completion."""

import asyncio
import json
import uuid

from mcp.types import PromptReference, ResourceTemplateReference
from pydantic import AnyUrl

from interop.python1_client import REVISION, RouteCase, cancelled

INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002
TEMPLATE = "test://template/{id}/data"


#: A tool and a prompt that both upstreams have.
NAMES = ("test_simple_text", "test_simple_prompt")


class Lists(RouteCase):
    async def test_opening_tells_what_is_offered(self):
        async with self.connect() as client:
            self.assertEqual(client.opened.protocolVersion, REVISION)
            offered = client.opened.capabilities.model_dump(exclude_none=True)
            self.assertLessEqual({"tools", "prompts", "resources", "completions", "logging"}, offered.keys())
            self.assertIn("Fixtures of alpha.", client.opened.instructions)

    async def test_two_clients_see_the_same(self):
        async with self.connect() as client, self.connect() as other:
            for kind in ("tools", "prompts", "resources", "resource_templates"):
                self.assertEqual(await every_entry(client, kind), await every_entry(other, kind))

    async def test_every_upstream_is_listed_under_its_own_names(self):
        tools, prompts = (self.both(self.route.alpha_name, self.route.beta_name, name) for name in NAMES)
        uris = self.both(self.route.alpha_uri, self.route.beta_uri, "test://static-text")
        templates = self.both(self.route.alpha_uri, self.route.beta_uri, TEMPLATE)
        async with self.connect() as client:
            self.assertEqual([tool.name for tool in await every_entry(client, "tools") if tool.name in tools], tools)
            listed = [prompt.name for prompt in await every_entry(client, "prompts")]
            self.assertEqual([name for name in listed if name in prompts], prompts)
            listed = [str(resource.uri) for resource in await every_entry(client, "resources")]
            self.assertEqual([uri for uri in listed if uri in uris], uris)
            listed = [template.uriTemplate for template in await every_entry(client, "resource_templates")]
            self.assertEqual(listed, templates)

    def both(self, alpha, beta, inner):
        """How something that both upstreams have is listed; without names of its own, beta's is hidden."""
        return [spelled.replace("{}", inner) for spelled in (alpha, beta) if spelled]


class Calls(RouteCase):
    async def test_every_upstream_answers_under_its_own_name(self):
        expected = {self.route.tool("whoami"): "alpha"}
        if self.route.merges:
            expected |= {self.route.beta_tool("whoami"): "beta", "only_alpha": "alpha", "only_beta": "beta"}
        async with self.connect() as client:
            spoken = {"alpha": self.route.alpha_revision, "beta": self.route.beta_revision}
            for name, upstream in expected.items():
                result = await client.call_tool(name)
                version = spoken[upstream] or REVISION
                self.assertEqual(result.structuredContent, {"name": upstream, "version": version})

    async def test_arguments_arrive_whole(self):
        arguments = {"name": self.route.tool("echo"), "text": 'quotes " and \\ and Zürich 🜁', "long": "x" * 65536}
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("echo"), arguments)
        self.assertEqual(result.structuredContent, {"arguments": arguments})
        self.assertEqual(json.loads(result.content[0].text), arguments)

    async def test_a_declared_argument_need_not_be_mirrored(self):
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("test_x_mcp_header"), {"region": "Zürich"})
        received = result.structuredContent["headers"]
        if self.route.alpha_revision not in ("", REVISION) and not self.route.has_children:
            self.assertEqual(received["mcp-param-region"], "=?base64?WsO8cmljaA==?=")

    async def test_an_error_of_the_tool_is_a_result(self):
        async with self.connect() as client:
            self.assertTrue((await client.call_tool(self.route.tool("test_error_handling"))).isError)

    async def test_progress_reaches_its_own_call(self):
        async def one_call(client):
            seen = []

            async def progress(done, total, message):
                seen.append((done, total, message))

            await client.call_tool(self.route.tool("test_tool_with_progress"), progress_callback=progress)
            return seen

        expected = [(step, 100, f"{step} of 100") for step in (0, 50, 100)]
        async with self.connect() as client:
            for seen in await asyncio.gather(*(one_call(client) for _ in range(8))):
                self.assertEqual(seen, expected)

    async def test_log_lines_arrive_from_the_level_that_was_set(self):
        lines = []

        async def keep(params):
            lines.append(params.data)

        async with self.connect(logging_callback=keep) as client:
            await client.set_logging_level("error")
            await client.call_tool(self.route.tool("test_logging_tool"))
            self.assertEqual(lines, [])
            await client.set_logging_level("info")
            await client.call_tool(self.route.tool("test_logging_tool"))
        self.assertEqual(lines, ["started", "working", "finished"])

    async def test_cancelling_cancels_upstream(self):
        key = uuid.uuid4().hex
        holding = asyncio.Event()

        async def progress(done, total, message):
            holding.set()

        async with self.connect() as client:
            request_id = client._request_id  # the SDK itself sends no notification when a call is given up
            held = client.call_tool(self.route.tool("hold"), {"key": key}, progress_callback=progress)
            call = asyncio.create_task(held)
            await asyncio.wait_for(holding.wait(), 5)
            await client.send_notification(cancelled(request_id))
            await asyncio.gather(call, return_exceptions=True)
            result = await client.call_tool(self.route.tool("hold_outcome"), {"key": key})
        self.assertEqual(result.structuredContent, {"outcome": "cancelled"})

    async def test_unknown_names_are_refused(self):
        async with self.connect() as client:
            with self.assert_error(INVALID_PARAMS):
                await client.call_tool(self.route.tool("no_such_tool"))
            with self.assert_error(INVALID_PARAMS):
                await client.get_prompt(self.route.prompt("no_such_prompt"))
            # Which parameter is invalid, an upstream of the newest revision does not say.
            newest = self.route.alpha_revision not in ("", REVISION)
            with self.assert_error(INVALID_PARAMS if newest else RESOURCE_NOT_FOUND):
                await client.read_resource(AnyUrl(self.route.uri("test://no-such-resource")))
            await client.send_ping()

    async def test_prompts(self):
        async with self.connect() as client:
            name = self.route.prompt("test_prompt_with_arguments")
            result = await client.get_prompt(name, {"arg1": "one", "arg2": "two"})
        self.assertIn("arg1='one', arg2='two'", result.messages[0].content.text)

    async def test_every_listed_resource_can_be_read(self):
        async with self.connect() as client:
            for resource in await every_entry(client, "resources"):
                contents = (await client.read_resource(resource.uri)).contents
                self.assertEqual([part.uri for part in contents], [resource.uri])

    async def test_every_listed_template_can_be_read(self):
        async with self.connect() as client:
            for template in await every_entry(client, "resource_templates"):
                uri = template.uriTemplate.replace("{id}", "42")
                contents = (await client.read_resource(AnyUrl(uri))).contents
                self.assertEqual(str(contents[0].uri), uri)
                self.assertEqual(json.loads(contents[0].text)["id"], "42")

    async def test_links_in_results_can_be_read(self):
        async with self.connect() as client:
            link, embedded, _ = (await client.call_tool(self.route.tool("links"))).content
            self.assertEqual(str(embedded.resource.uri), self.route.uri("test://embedded-resource"))
            self.assertEqual((await client.read_resource(link.uri)).contents[0].uri, link.uri)

    async def test_completion(self):
        prompt = PromptReference(type="ref/prompt", name=self.route.prompt("test_prompt_with_arguments"))
        template = ResourceTemplateReference(type="ref/resource", uri=self.route.uri(TEMPLATE))
        async with self.connect() as client:
            for reference, argument in ((prompt, "arg1"), (template, "id")):
                result = await client.complete(reference, {"name": argument, "value": "park"})
                self.assertEqual(result.completion.values, ["park"])


#: Where each list stands in its answer.
KEYS = {"resource_templates": "resourceTemplates"}


async def every_entry(client, kind):
    """All pages of a list."""
    entries, cursor = [], None
    while True:
        page = await getattr(client, f"list_{kind}")(cursor)
        entries += getattr(page, KEYS.get(kind, kind))
        cursor = page.nextCursor
        if cursor is None:
            return entries

"""Tool calls, prompts and completion: arguments and results arrive whole, notifications reach their own call."""

import asyncio
import json
import uuid

import mcp_types as types

from interop.python_client import RouteCase

INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021


class Calls(RouteCase):
    async def test_every_upstream_answers_under_its_own_name(self):
        expected = {self.route.tool("whoami"): "alpha", self.route.tool("only_alpha"): "alpha"}
        if self.route.merges:
            expected |= {
                self.route.beta_tool("whoami"): "beta",
                "only_alpha": "alpha",
                "only_beta": "beta",
            }  # bare where only one has it
        spoken = {"alpha": self.route.alpha_revision, "beta": self.route.beta_revision}
        async with self.connect() as client:
            for name, upstream in expected.items():
                result = await client.call_tool(name)
                version = spoken[upstream] or self.revision
                self.assertEqual(result.structured_content, {"name": upstream, "version": version})

    async def test_arguments_arrive_whole(self):
        arguments = {
            "name": self.route.tool("echo"),
            "text": 'quotes " and \\ and \u2028 and Zürich 🜁',
            "numbers": [0, -1, 2**53, 1.5e-7],
            "nested": {"": {"null": None, "list": [[], {}]}},
            "long": "x" * 65536,
        }
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("echo"), arguments)
        self.assertEqual(result.structured_content, {"arguments": arguments})
        self.assertEqual(json.loads(result.content[0].text), arguments)

    async def test_content_of_every_type(self):
        async with self.connect() as client:
            for name, kinds in {
                "test_simple_text": ["text"],
                "test_image_content": ["image"],
                "test_audio_content": ["audio"],
                "test_multiple_content_types": ["text", "image", "resource"],
            }.items():
                result = await client.call_tool(self.route.tool(name))
                self.assertEqual([part.type for part in result.content], kinds)

    async def test_an_error_of_the_tool_is_a_result(self):
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("test_error_handling"))
        self.assertTrue(result.is_error)

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

    async def test_closing_the_stream_cancels_upstream(self):
        key = uuid.uuid4().hex
        holding = asyncio.Event()

        async def progress(done, total, message):
            holding.set()

        async with self.connect() as client:
            held = client.call_tool(self.route.tool("hold"), {"key": key}, progress_callback=progress)
            call = asyncio.create_task(held)
            await asyncio.wait_for(holding.wait(), 5)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            result = await client.call_tool(self.route.tool("hold_outcome"), {"key": key})
        self.assertEqual(result.structured_content, {"outcome": "cancelled"})

    async def test_unknown_names_are_invalid_parameters(self):
        unknown = [self.route.tool("no_such_tool"), "nobody__echo"]
        if self.route.beta_name:
            unknown.append("echo")  # which both upstreams have
        async with self.connect() as client:
            for name in unknown:
                with self.assert_error(INVALID_PARAMS):
                    await client.call_tool(name)
            with self.assert_error(INVALID_PARAMS):
                await client.get_prompt(self.route.prompt("no_such_prompt"))

    async def test_prompts(self):
        async with self.connect() as client:
            name = self.route.prompt("test_prompt_with_arguments")
            result = await client.get_prompt(name, {"arg1": "one", "arg2": "two"})
            self.assertIn("arg1='one', arg2='two'", result.messages[0].content.text)
            result = await client.get_prompt(self.route.prompt("test_prompt_with_image"))
            self.assertEqual(result.messages[0].content.type, "image")

    async def test_completion(self):
        prompt = types.PromptReference(name=self.route.prompt("test_prompt_with_arguments"))
        template = types.ResourceTemplateReference(uri=self.route.uri("test://template/{id}/data"))
        async with self.connect() as client:
            for reference, argument in ((prompt, "arg1"), (template, "id")):
                result = await client.complete(reference, {"name": argument, "value": "park"})
                self.assertEqual(result.completion.values, ["park"])

    async def test_two_clients_at_once_do_not_cross(self):
        async def one_client(key):
            async with self.connect() as client:
                for number in range(8):
                    arguments = {"client": key, "number": number}
                    result = await client.call_tool(self.route.tool("echo"), arguments)
                    self.assertEqual(result.structured_content, {"arguments": arguments})

        await asyncio.gather(one_client("one"), one_client("two"))


class ModernCalls(RouteCase):
    """What every request of the modern era carries by itself."""

    async def test_log_lines_arrive_when_asked_for(self):
        lines = []

        async def keep(params):
            lines.append(params.data)

        async with self.connect(logging_callback=keep, log_level="info") as client:
            await client.call_tool(self.route.tool("test_logging_tool"))
        self.assertEqual(lines, ["started", "working", "finished"])

    async def test_a_declared_argument_is_mirrored_to_the_upstream(self):
        async with self.connect() as client:
            await client.list_tools()
            result = await client.call_tool(self.route.tool("test_x_mcp_header"), {"region": "Zürich"})
        if self.crosses(self.route.alpha_revision) or self.route.has_children:
            return  # which has no such headers, but takes the argument
        received = result.structured_content["headers"]
        self.assertEqual(received["mcp-param-region"], "=?base64?WsO8cmljaA==?=")
        self.assertEqual(received["mcp-name"], "test_x_mcp_header")

    async def test_the_clients_own_capabilities_count(self):
        async with self.connect() as client:
            with self.assert_error(MISSING_CAPABILITY):
                await client.call_tool(self.route.tool("test_missing_capability"))


class LegacyCalls(RouteCase):
    """What the older revisions say once per session."""

    async def test_ping(self):
        async with self.connect() as client:
            await client.send_ping()

    async def test_log_lines_arrive_from_the_level_that_was_set(self):
        lines = []

        async def keep(params):
            lines.append(params.data)

        async with self.connect(logging_callback=keep) as client:
            if self.crosses(self.route.alpha_revision):
                await client.set_logging_level("info")  # until then, such an upstream sends none
            await client.call_tool(self.route.tool("test_logging_tool"))
            await client.set_logging_level("error")
            await client.call_tool(self.route.tool("test_logging_tool"))
            self.assertEqual(lines, ["started", "working", "finished"])
            await client.set_logging_level("info")
            await client.call_tool(self.route.tool("test_logging_tool"))
        self.assertEqual(lines, ["started", "working", "finished"] * 2)

    async def test_a_declared_argument_is_mirrored_to_an_upstream_that_wants_it(self):
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("test_x_mcp_header"), {"region": "Zürich"})
        received = result.structured_content["headers"]
        if self.crosses(self.route.alpha_revision) and not self.route.has_children:
            self.assertEqual(received["mcp-param-region"], "=?base64?WsO8cmljaA==?=")
            self.assertEqual(received["mcp-name"], "test_x_mcp_header")

    async def test_a_level_concerns_its_own_session(self):
        lines = []

        async def keep(params):
            lines.append(params.data)

        async with self.connect() as other, self.connect(logging_callback=keep) as client:
            await client.set_logging_level("info")
            await other.set_logging_level("error")
            await client.call_tool(self.route.tool("test_logging_tool"))
        self.assertEqual(lines, ["started", "working", "finished"])

"""Calls that need something from the client first: the questions, the answers and the state between pass whole."""

import mcp_types as types

from interop.python_client import Person, RouteCase

INVALID_PARAMS = -32602


class InputRequired(RouteCase):
    async def test_tools_that_ask(self):
        expected = {
            "elicitation": (["What is your name?"], "Hello, Ada!"),
            "sampling": (["What is the capital of France?"], "Paris"),
            "list_roots": (["roots"], '[{"uri": "file:///srv/project", "name": "project"}]'),
            "request_state": (["Please confirm"], "state-ok"),
            "multi_round": (["What is your name?", "What is your favourite colour?"], "Ada likes green"),
        }
        for kind, (questions, answer) in expected.items():
            with self.subTest(kind):
                person = Person()
                async with self.connect(**person.options()) as client:
                    result = await client.call_tool(self.route.tool(f"test_input_required_result_{kind}"))
                self.assertEqual((person.asked, result.content[0].text), (questions, answer))

    async def test_several_questions_at_once(self):
        person = Person()
        async with self.connect(**person.options()) as client:
            name = self.route.tool("test_input_required_result_multiple_inputs")
            result = await client.call_tool(name)
        self.assertEqual(result.content[0].text, "all three answers arrived")
        self.assertEqual(sorted(person.asked), ["Generate a greeting", "What is your name?", "roots"])

    async def test_a_prompt_that_asks(self):
        person = Person()
        async with self.connect(**person.options()) as client:
            result = await client.get_prompt(self.route.prompt("test_input_required_result_prompt"))
        self.assertEqual(result.messages[0].content.text, "Context: a test")

    async def test_changed_state_is_refused_by_the_upstream(self):
        person = Person()
        name = self.route.tool("test_input_required_result_tampered_state")
        confirmed = {"confirm": types.ElicitResult(action="accept", content={"ok": True})}
        async with self.connect(**person.options()) as client:
            first = await client.session.call_tool(name, {}, allow_input_required=True)
            self.assertIsInstance(first, types.InputRequiredResult)
            with self.assert_error(INVALID_PARAMS):
                await client.session.call_tool(
                    name,
                    {},
                    input_responses=confirmed,
                    request_state=first.request_state + "x",
                    allow_input_required=True,
                )

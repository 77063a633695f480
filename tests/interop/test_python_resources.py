"""Resources: every URI a client is given can be read back, wherever it was given; changes are announced."""

import json

from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from interop.python_client import RouteCase

INVALID_PARAMS = -32602
TEXT = "This is the content of the static text resource."


class Resources(RouteCase):
    async def test_read(self):
        async with self.connect() as client:
            for inner, field in (("test://static-text", "text"), ("test://static-binary", "blob")):
                uri = self.route.uri(inner)
                contents = (await client.read_resource(uri)).contents
                self.assertEqual([str(part.uri) for part in contents], [uri])
                self.assertTrue(getattr(contents[0], field))

    async def test_read_by_template(self):
        async with self.connect() as client:
            listed = await client.list_resource_templates()
            uri = listed.resource_templates[0].uri_template.replace("{id}", "42")
            contents = (await client.read_resource(uri)).contents
        self.assertEqual(str(contents[0].uri), self.route.uri("test://template/42/data"))
        self.assertEqual(json.loads(contents[0].text)["id"], "42")

    async def test_an_unknown_uri_is_an_invalid_parameter(self):
        async with self.connect() as client:
            with self.assert_error(INVALID_PARAMS):
                await client.read_resource(self.route.uri("test://no-such-resource"))

    async def test_links_in_results_can_be_read(self):
        async with self.connect() as client:
            result = await client.call_tool(self.route.tool("links"))
            link, embedded, text = result.content
            self.assertEqual(str(link.uri), self.route.uri("test://static-text"))
            self.assertEqual(str(embedded.resource.uri), self.route.uri("test://embedded-resource"))
            self.assertEqual((await client.read_resource(str(link.uri))).contents[0].text, TEXT)
        self.assertEqual(text.text, "test://static-text", "free text is nobody's to change")
        self.assertEqual(result.structured_content, {"uri": "test://static-text"}, "nor is structured content")

    async def test_links_in_prompts(self):
        async with self.connect() as client:
            name = self.route.prompt("test_prompt_with_embedded_resource")
            result = await client.get_prompt(name, {"resourceUri": "test://example-resource"})
        self.assertEqual(str(result.messages[0].content.resource.uri), self.route.uri("test://example-resource"))


class Subscriptions(RouteCase):
    """Where one upstream's stream is the client's own; changes of several upstreams are not joined yet."""

    async def test_changes_are_announced(self):
        watched = self.route.uri("test://watched-resource")
        async with self.connect() as client:
            async with client.listen(tools_list_changed=True, resource_subscriptions=[watched]) as changes:
                self.assertEqual(changes.honored.resource_subscriptions, [watched])
                await client.call_tool(self.route.tool("announce_watched"))
                self.assertEqual(await anext(changes), ResourceUpdated(watched))
                await client.call_tool(self.route.tool("test_trigger_tool_change"))
                self.assertEqual(await anext(changes), ToolsListChanged())

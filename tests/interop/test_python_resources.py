"""Resources: every URI a client is given can be read back, wherever it was given; changes are announced."""

import json

from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

from interop.python_client import RouteCase, open_client

INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002
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

    async def test_an_unknown_uri_is_refused(self):
        async with self.connect() as client:
            has_own_code = not self.is_modern and not self.crosses(self.route.alpha_revision)
            with self.assert_error(RESOURCE_NOT_FOUND if has_own_code else INVALID_PARAMS):
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
    """Changes are announced to those who listen, under the names that the lists show them."""

    async def test_what_can_be_listened_to_is_promised(self):
        async with open_client(self.route.url, "auto") as client:
            promised = client.server_capabilities
            self.assertTrue(promised.resources.subscribe)
            for kind in (promised.tools, promised.prompts, promised.resources):
                self.assertTrue(kind.list_changed)

    async def test_changes_are_announced(self):
        watched = self.route.uri("test://watched-resource")
        async with self.connect() as client:
            async with client.listen(tools_list_changed=True, resource_subscriptions=[watched]) as changes:
                self.assertEqual(changes.honored.resource_subscriptions, [watched])
                await client.call_tool(self.route.tool("announce_watched"))
                self.assertEqual(await anext(changes), ResourceUpdated(watched))
                await client.call_tool(self.route.tool("test_trigger_tool_change"))
                self.assertEqual(await anext(changes), ToolsListChanged())

    async def test_only_what_was_asked_for_is_announced(self):
        watched = self.route.uri("test://watched-resource")
        async with self.connect() as client, self.connect() as other:
            async with (
                client.listen(prompts_list_changed=True) as prompts,
                other.listen(resource_subscriptions=[watched]) as resources,
            ):
                for tool in ("test_trigger_tool_change", "announce_watched", "test_trigger_prompt_change"):
                    await client.call_tool(self.route.tool(tool))
                self.assertEqual(await anext(prompts), PromptsListChanged())
                self.assertEqual(await anext(resources), ResourceUpdated(watched))


class MergedSubscriptions(RouteCase):
    async def test_changes_of_every_upstream_arrive_on_one_stream(self):
        announce_beta = self.route.beta_tool("announce_watched")
        change_beta = self.route.beta_tool("test_trigger_tool_change")
        watched = [uri.replace("{}", "test://watched-resource") for uri in (self.route.alpha_uri, self.route.beta_uri)]
        async with self.connect() as client:
            async with client.listen(tools_list_changed=True, resource_subscriptions=watched) as changes:
                self.assertEqual(changes.honored.resource_subscriptions, watched)
                for announce, uri in zip((self.route.tool("announce_watched"), announce_beta), watched, strict=True):
                    await client.call_tool(announce)
                    self.assertEqual(await anext(changes), ResourceUpdated(uri))
                await client.call_tool(change_beta)
                self.assertEqual(await anext(changes), ToolsListChanged())

"""What a client sees in the lists: everything the upstreams offer, in one order, under names that work."""

import everything_fixtures as fixtures

from interop.python_client import RouteCase
from interop.topology import ALIASED


class Lists(RouteCase):
    async def test_discovery_tells_what_is_offered(self):
        async with self.connect() as client:
            self.assertEqual(client.protocol_version, self.revision)
            if self.mode != self.revision:  # else nothing was asked
                offered = client.server_capabilities.model_dump(exclude_none=True)
                self.assertLessEqual({"tools", "prompts", "resources", "completions"}, offered.keys())
                self.assertIn("Fixtures of alpha.", client.instructions)

    async def test_tools_in_configured_order(self):
        for _ in range(2):
            async with self.connect() as client:
                self.assertEqual(await every_name(client.list_tools, "tools"), self.public_tools())

    async def test_prompts_in_configured_order(self):
        async with self.connect() as client:
            self.assertEqual(await every_name(client.list_prompts, "prompts"), self.public_prompts())

    async def test_resources_in_configured_order(self):
        async with self.connect() as client:
            listed = await every_entry(client.list_resources, "resources")
        self.assertEqual([str(entry.uri) for entry in listed], self.public_uris(fixtures.RESOURCES))

    async def test_templates_in_configured_order(self):
        async with self.connect() as client:
            listed = await every_entry(client.list_resource_templates, "resource_templates")
        self.assertEqual([entry.uri_template for entry in listed], self.public_uris([fixtures.TEMPLATE]))

    async def test_a_tool_is_described_in_its_servers_words(self):
        async with self.connect() as client:
            listed = await every_entry(client.list_tools, "tools")
        name = self.route.tool("json_schema_2020_12_tool")
        tool = next(entry for entry in listed if entry.name == name)
        self.assertEqual(tool.input_schema, fixtures.SCHEMA_2020_12)
        self.assertEqual(tool.description, "the fixture json_schema_2020_12_tool")

    def public_tools(self):
        """Where names stay bare, the first upstream takes one that both have, and an alias brings it back."""
        names = [self.route.tool(name) for name in ("whoami", "only_alpha", *fixtures.TOOLS)]
        beta = ("whoami", "only_beta", *fixtures.TOOLS)
        if self.route.beta_name:
            names += [self.route.beta_tool(name) for name in beta]
        elif self.route.merges:
            own = {"only_beta": "only_beta", **{name: self.route.beta_tool(name) for name in ALIASED}}
            names += [own[name] for name in beta if name in own]
        return names

    def public_prompts(self):
        names = [self.route.prompt(name) for name in fixtures.PROMPTS]
        if self.route.beta_name:
            names += [self.route.beta_name.replace("{}", name) for name in fixtures.PROMPTS]
        return names

    def public_uris(self, inner_uris):
        uris = [self.route.uri(uri) for uri in inner_uris]
        if self.route.merges:
            uris += [self.route.beta_uri.replace("{}", uri) for uri in inner_uris]
        return uris


async def every_entry(fetch, key):
    """All pages of a list."""
    page = await fetch()
    entries = list(getattr(page, key))
    while page.next_cursor is not None:
        page = await fetch(cursor=page.next_cursor)
        entries += getattr(page, key)
    return entries


async def every_name(fetch, key):
    return [entry.name for entry in await every_entry(fetch, key)]

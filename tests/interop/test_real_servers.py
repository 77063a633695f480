"""Servers that people use, several behind one endpoint: what they list and what they answer is what a client gets."""

import asyncio
import contextlib
import pathlib

from interop.cases import AnswerError, BoundedCase
from interop.python_client import CHILD_TIMEOUT_S, REVISION, open_client
from interop.real_servers import TEXT, repository
from interop.test_python_lists import every_entry

METHOD_NOT_FOUND = -32601
EVERY_REVISION = ("time", "fetch", "git")
ALL = (*EVERY_REVISION, "everything", "memory", "files")
#: Ways to reach the servers: each by itself, or several at an endpoint of the gateway; in which mode; which servers.
DIRECT_WAYS = (("direct", "legacy", ALL), ("direct", "auto", ALL))
GATEWAY_WAYS = (
    ("older-revisions", "legacy", ALL),
    ("older-revisions", "auto", ALL),
    ("older-revisions", REVISION, ALL),
    ("every-revision", "legacy", EVERY_REVISION),
    ("every-revision", "auto", EVERY_REVISION),
    ("every-revision", REVISION, EVERY_REVISION),
    ("children-of-older-revisions", "legacy", ALL),
    ("children-of-older-revisions", REVISION, ALL),
    ("children-of-every-revision", "legacy", EVERY_REVISION),
    ("children-of-every-revision", "auto", EVERY_REVISION),
)


class RealCase(BoundedCase):
    timeout_s = 90

    def __init__(self, method, servers, way):
        self.endpoint, self.mode, self.names = way
        super().__init__(method, f"real servers, {self.endpoint}, {self.mode}")
        self.servers = servers
        self.has_children = self.endpoint.startswith("children")
        self.prefix = "c-" if self.has_children else ""

    @contextlib.asynccontextmanager
    async def clients(self, endpoint=None):
        """A client for each server: its own, or the one that has them all."""
        async with contextlib.AsyncExitStack() as stack:
            if (endpoint or self.endpoint) == "direct":
                mode = "auto" if self.mode == REVISION else self.mode  # which some of them do not speak
                opened = [(name, open_client(self.servers.urls[name], mode)) for name in self.names]
                yield {name: await stack.enter_async_context(client) for name, client in opened}
            else:
                url = f"{self.servers.gateway_url}/{self.endpoint}"
                patience = {"answer_timeout_s": CHILD_TIMEOUT_S} if self.has_children else {}
                client = await stack.enter_async_context(open_client(url, self.mode, **patience))
                yield dict.fromkeys(self.names, client)

    def tool(self, server, inner):
        return inner if self.endpoint == "direct" else f"{self.prefix}{server}__{inner}"

    def uri(self, server, inner):
        return inner if self.endpoint == "direct" else f"{self.prefix}{server}+{inner}"


class Calls(RealCase):
    async def test_every_server_answers(self):
        note = pathlib.Path(self.servers.directory, "note.txt")
        person = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
        noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        calls = {
            "time": ("convert_time", noon, "21:00:00+09:00"),
            "fetch": ("fetch", {"url": self.servers.page_url}, TEXT),
            "git": ("git_log", {"repo_path": str(repository(self.servers.directory))}, TEXT),
            "everything": ("get-sum", {"a": 2, "b": 40}, "42"),
            "memory": ("create_entities", {"entities": [person]}, ""),
            "files": ("read_text_file", {"path": str(note)}, TEXT),
        }
        async with self.clients() as clients:

            async def call(server):
                name, arguments, expected = calls[server]
                result = await clients[server].call_tool(self.tool(server, name), arguments)
                self.assertFalse(result.is_error, result)
                self.assertIn(expected, result.content[0].text)

            await asyncio.gather(*(call(server) for server in self.names))
            if "memory" in self.names:
                graph = await clients["memory"].call_tool(self.tool("memory", "read_graph"))
                self.assertIn(person, graph.structured_content["entities"])

    async def test_errors_are_the_servers_own(self):
        async with self.clients() as clients:
            arguments = {"source_timezone": "Nowhere", "time": "12:00", "target_timezone": "UTC"}
            result = await clients["time"].call_tool(self.tool("time", "convert_time"), arguments)
        self.assertTrue(result.is_error)
        self.assertIn("Nowhere", result.content[0].text)


class Everything(RealCase):
    """What only the reference server has."""

    async def test_progress(self):
        seen = []

        async def progress(done, total, message):
            seen.append((done, total))

        async with self.clients() as clients:
            tool = self.tool("everything", "trigger-long-running-operation")
            arguments = {"duration": 0.2, "steps": 2}
            await clients["everything"].call_tool(tool, arguments, progress_callback=progress)
        self.assertEqual(seen, [(1, 2), (2, 2)])

    async def test_prompts(self):
        async with self.clients() as clients:
            prompt = self.tool("everything", "args-prompt")
            result = await clients["everything"].get_prompt(prompt, {"city": "Zürich"})
        self.assertIn("Zürich", result.messages[0].content.text)

    async def test_links_can_be_read(self):
        async with self.clients() as clients:
            client = clients["everything"]
            result = await client.call_tool(self.tool("everything", "get-resource-links"), {"count": 2})
            links = [part for part in result.content if part.type == "resource_link"]
            self.assertEqual(len(links), 2)
            for link in links:
                self.assertEqual([part.uri for part in (await client.read_resource(link.uri)).contents], [link.uri])


class Lists(RealCase):
    """Entry by entry what the servers list themselves, in the configured order."""

    async def test_tools(self):
        await self.compare("tools", lambda server, entry: {**entry, "name": self.tool(server, entry["name"])})

    async def test_prompts(self):
        await self.compare("prompts", lambda server, entry: {**entry, "name": self.tool(server, entry["name"])})

    async def test_resources(self):
        await self.compare("resources", lambda server, entry: {**entry, "uri": self.uri(server, entry["uri"])})

    async def test_every_listed_resource_can_be_read(self):
        async with self.clients() as clients:
            client = clients["time"]
            for resource in await every_entry(client.list_resources, "resources"):
                contents = (await client.read_resource(resource.uri)).contents
                self.assertEqual([part.uri for part in contents], [resource.uri])

    async def compare(self, kind, public):
        expected = []
        async with self.clients("direct") as clients:
            for server, client in clients.items():
                with contextlib.suppress(NotOffered):
                    expected += [public(server, entry) for entry in await entries(client, kind)]
        async with self.clients() as clients:
            self.assertEqual(await entries(clients["time"], kind), expected)


class NotOffered(Exception):
    """A server has no such list."""


async def entries(client, kind):
    try:
        listed = await every_entry(getattr(client, f"list_{kind}"), kind)
    except AnswerError as refused:
        if refused.error.code != METHOD_NOT_FOUND:
            raise
        raise NotOffered from refused
    return [entry.model_dump(by_alias=True, mode="json", exclude_none=True) for entry in listed]

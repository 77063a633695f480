"""MCP Inspector's command line, which prints results as they came, on every route and in every era it can be told."""

import asyncio
import json
import os
import tempfile

from interop.cases import BoundedCase

#: `--transport` of the Inspector, for ours.
TRANSPORTS = {"http": "http", "sse": "sse", "connect": "stdio"}


class Inspector(BoundedCase):
    def __init__(self, method, npm, topology, route, era):
        super().__init__(method, f"inspector, {route.name}, {era}")
        self.npm, self.topology, self.route, self.era = npm, topology, route, era

    async def test_what_is_offered_can_be_used(self):
        uri, prompt = self.route.uri("test://static-text"), self.route.prompt("test_prompt_with_arguments")
        listed, called, read, got = await asyncio.gather(
            self.inspect("tools/list"),
            self.inspect("tools/call", "--tool-name", self.route.tool("echo"), "--tool-arg", "city=Zürich"),
            self.inspect("resources/read", "--uri", uri),
            self.inspect("prompts/get", "--prompt-name", prompt, "--prompt-args", "arg1=one", "arg2=two"),
        )
        self.assertIn(self.route.tool("echo"), [tool["name"] for tool in listed["tools"]])
        self.assertEqual(called["structuredContent"], {"arguments": {"city": "Zürich"}})
        self.assertEqual([part["uri"] for part in read["contents"]], [uri])
        self.assertIn("arg1='one', arg2='two'", got["messages"][0]["content"]["text"])

    async def inspect(self, method, *arguments):
        """The result of one request, each in a session of its own."""
        connect = self.route.transport == "connect"
        target = [self.topology.binary, "connect", self.route.url] if connect else [self.route.url]
        entry = self.npm / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        command = ["node", str(entry), "--cli", *target, "--transport", TRANSPORTS[self.route.transport]]
        command += ["--protocol-era", self.era, "--quiet", "--format", "json", "--method", method, *arguments]
        with tempfile.TemporaryDirectory(prefix="trunkline-interop-") as home:  # where it would leave files
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env={**os.environ, "HOME": home}
            )
            try:
                printed, complaints = await child.communicate()
            except BaseException:
                child.kill()
                await child.wait()
                raise
        self.assertEqual(child.returncode, 0, complaints.decode(errors="replace"))
        return json.loads(printed)["result"]

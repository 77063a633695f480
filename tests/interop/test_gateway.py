"""What only the gateway does: keys, policy, and refusals that never reach an upstream."""

import asyncio
import http.client
import json
import time
import urllib.parse
import urllib.request

import everything_fixtures as fixtures
import mcp_types as types

from interop.cases import BoundedCase
from interop.python_client import LEGACY_REVISION, REVISION, client_with_headers, open_client
from interop.topology import gateway_address

INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022


class GatewayCase(BoundedCase):
    def __init__(self, method, topology):
        super().__init__(method, "gateway")
        self.topology = topology


class Keys(GatewayCase):
    def test_without_a_valid_key(self):
        url = self.topology.route("keyed").url
        key = self.topology.api_key
        for credentials in (None, "Bearer wrong", f"Basic {key}", f"Bearer {key}x", f"Bearer {key[:-1]}"):
            with self.subTest(credentials):
                headers = {} if credentials is None else {"Authorization": credentials}
                response, _ = post(url, "tools/list", headers=headers)
                self.assertEqual(response.status, 401)
                self.assertIn("Bearer", response.headers["WWW-Authenticate"])

    async def test_with_the_key_which_stays_at_the_gateway(self):
        url = self.topology.route("keyed").url
        headers = {"Authorization": f"Bearer {self.topology.api_key}", "Cookie": "session=1"}
        async with client_with_headers(url, headers) as client:
            result = await client.call_tool("headers")
        received = result.structured_content["headers"]
        self.assertFalse({"authorization", "cookie", "origin"} & received.keys(), received)


class Policy(GatewayCase):
    """On an endpoint that merges and on one that relays, in every era, policy is the same."""

    ROUTES = ("narrow", "narrow-transparent")

    def __init__(self, method, topology, mode):
        super().__init__(method, topology)
        self.against, self.mode = f"gateway, {mode}", mode

    async def test_lists_show_what_may_be_used(self):
        tools = [name for name in ("whoami", "only_alpha", *fixtures.TOOLS) if not name.startswith("hold")]
        resources = ["test://static-text", "test://static-binary"]
        prompts = [name for name in fixtures.PROMPTS if name != "test_prompt_with_image"]
        for route in map(self.topology.route, self.ROUTES):
            async with open_client(route.url, self.mode) as client:
                listed = [tool.name for tool in (await client.list_tools()).tools]
                self.assertEqual(listed, [route.tool(name) for name in tools])
                listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
                self.assertEqual(listed, [route.uri(uri) for uri in resources])
                listed = [prompt.name for prompt in (await client.list_prompts()).prompts]
                self.assertEqual(listed, [route.prompt(name) for name in prompts])

    async def test_a_hidden_tool_answers_as_an_unknown_one(self):
        refusals = set()
        async with open_client(self.topology.route("narrow").url, self.mode) as client:
            for name in ("nobody__whoami", "a__hold", "beta__whoami", "only_beta"):
                with self.assert_error(INVALID_PARAMS) as caught:
                    await client.call_tool(name, {"key": "never held"})
                refusals.add(caught.exception.message.replace(name, "NAME"))
        self.assertEqual(len(refusals), 1, refusals)

    async def test_what_is_hidden_cannot_be_used(self):
        for route in map(self.topology.route, self.ROUTES):
            async with open_client(route.url, self.mode) as client:
                with self.assert_error(INVALID_PARAMS):
                    await client.call_tool(route.tool("hold"), {"key": "never held"})
                with self.assert_error(INVALID_PARAMS):
                    await client.get_prompt(route.prompt("test_prompt_with_image"))
                with self.assert_error(INVALID_PARAMS):
                    await client.read_resource(route.uri("test://watched-resource"))

    async def test_what_is_hidden_is_not_completed(self):
        for route in map(self.topology.route, self.ROUTES):
            prompt = types.PromptReference(name=route.prompt("test_prompt_with_image"))
            template = types.ResourceTemplateReference(uri=route.uri("test://watched-resource"))
            async with open_client(route.url, self.mode) as client:
                for hidden in (prompt, template):
                    with self.assert_error(INVALID_PARAMS):
                        await client.complete(hidden, {"name": "any", "value": "p"})


class Lists(GatewayCase):
    def test_one_list_is_the_same_bytes_every_time(self):
        for name in ("transparent", "prefixed", "bare", *Policy.ROUTES):
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                with self.subTest(f"{name} {method}"):
                    lists = {without_lifetime(post(self.topology.route(name).url, method)[1]) for _ in range(3)}
                    self.assertEqual(len(lists), 1)


class Discovery(GatewayCase):
    async def test_what_is_hidden_is_not_watched(self):
        async with open_client(self.topology.route("narrow-transparent").url, "auto") as client:
            async with client.listen(resource_subscriptions=["test://watched-resource"]) as changes:
                self.assertFalse(changes.honored.resource_subscriptions)

    async def test_changes_are_promised_only_where_they_can_be_listened_to(self):
        for route in self.topology.routes:
            if route.name != "keyed":
                with self.subTest(route.name):
                    async with open_client(route.url, "auto") as client:
                        promised = client.server_capabilities.model_dump(by_alias=True, exclude_none=True)
                        if any(kind.get("listChanged") or kind.get("subscribe") for kind in promised.values()):
                            async with client.listen(tools_list_changed=True) as changes:
                                self.assertTrue(changes.honored.tools_list_changed)

    async def test_instructions_name_no_prefix_where_names_have_none(self):
        async with open_client(self.topology.route("bare").url, "auto") as client:
            self.assertIn("Fixtures of beta.", client.instructions)
            self.assertNotIn("__", client.instructions)


class Refusals(GatewayCase):
    def test_without_a_bridge_an_endpoint_speaks_what_all_its_upstreams_speak(self):
        url = self.topology.route("mixed").url
        response, body = post(url, "initialize", revision=LEGACY_REVISION, params={})
        error = json.loads(body)["error"]
        self.assertEqual((response.status, error["code"]), (400, UNSUPPORTED_VERSION))
        self.assertEqual(error["data"]["supported"], [REVISION])


class Afterwards(GatewayCase):
    """Runs last: it stops the gateway."""

    patience_s = 10

    async def test_nothing_is_held_and_the_gateway_stops_cleanly(self):
        gateway = self.topology.processes[-1]
        names = ("trunkline_connections_open", "trunkline_buffered_bytes", "trunkline_panics_total")
        names += self.kept_for_a_while(gateway)
        idle = set(dict.fromkeys(names, "0").items())
        deadline = time.monotonic() + self.patience_s
        while (held := set(metrics(gateway, names).items())) != idle and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.assertEqual(held - idle, set())
        self.assertEqual(held, idle)
        self.assertEqual(gateway.stop(), 0)

    def kept_for_a_while(self, gateway):
        return ()


class AfterwardsOfPairs(Afterwards):
    """What is kept for modern clients at legacy servers is given back, too, once it has not been used for a while.

    What is kept for legacy clients lasts as long as their sessions, which some of them do not end.
    """

    patience_s = 20

    def kept_for_a_while(self, gateway):
        kept = ("trunkline_bridge_sessions", "trunkline_bridge_suspended_calls")
        found = (name for name in metrics(gateway) if name.partition("{")[0] in kept)
        names = tuple(name for name in found if 'client_era="legacy"' not in name)
        self.assertTrue(names)
        return names


def metrics(gateway, names=None):
    """The current values of these metrics, or of all, as the operator's page shows them."""
    address = gateway_address(gateway, "admin listening")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
        lines = (line.split(" ") for line in page.read().decode().splitlines())
        return {line[0]: line[1] for line in lines if names is None or line[0] in names}


def post(url, method, headers=None, revision=REVISION, params=None):
    """One request on a connection of its own: the response and its body."""
    parts = urllib.parse.urlsplit(url)
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"_meta": meta} if params is None else params}
    fields = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Method": method,
        **(headers or {}),
    }
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    try:
        connection.request("POST", parts.path, json.dumps(body), fields)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def without_lifetime(body):
    """The bytes of a list, less the time it stays fresh, which counts down."""
    parsed = json.loads(body)
    lifetime = parsed["result"]["ttlMs"]
    return body.replace(f'"ttlMs":{lifetime}'.encode(), b"")

"""What the gate counts: each scenario is a configuration of the daemon and the request that is sent again and again.

A new one is a row here and its bounds in `bounds.toml`. Where a request needs something that the daemon gives (a
session), `open` fetches it once on the same connection.
"""

import collections.abc
import dataclasses
import hashlib
import json
import pathlib

from gate import sign_in, token
from gate.caller import Connection, Request

REVISION = "2026-07-28"
LEGACY_REVISION = "2025-11-25"
CLIENT = {"name": "gate", "version": "1.0.0"}
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
#: What the messages of clients are filled up to.
BODY_BYTES = 543
#: Each comes by itself, so that it is read by itself in every run.
EVENTS = 2
API_KEY = "tl_" + 64 * "7"
#: Half of them allow; the last of these is the one that counts.
ALLOWED = ("get_*", "list_*", "search*", "read_*", "*_info", "describe_*", "find_*", "count_*", "show_*", "tool_*")
DENIED = ("delete_*", "drop_*", "*_admin", "exec*", "write_*", "update_*", "reset_*", "grant_*", "*_secret", "wipe*")


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    #: What follows the listener in the configuration; `{stub}` stands for the URL of the upstream, `{program}` for the
    #: file of the same server, `{folder}` for an empty folder, `{provider}` for the issuer of a provider.
    config: str
    request: Request
    #: What the reply must hold.
    expected: bytes
    #: Makes the request that is counted out of the one above.
    open: collections.abc.Callable[[Connection, Request], Request] = lambda _connection, request: request
    stub_options: tuple = ()
    #: So many are counted at once, and twice as many.
    round_calls: int = 500
    #: Rounds of twice as many calls may differ by this part.
    difference_max: float = 0.005
    #: Files that are there before the daemon starts, by name in the folder. They may be secret.
    files: dict = dataclasses.field(default_factory=dict)
    #: Keys that stand before the first section.
    settings: str = ""
    #: Another one, of whose instructions a call takes so many times as many.
    compared_with: str | None = None

    def write(self, **places):
        """Makes the files; returns the keys before the first section, and the configuration."""
        for name, content in self.files.items():
            path = pathlib.Path(places["folder"]) / name
            path.write_text(content)
            path.chmod(0o600)
        written = [self.settings, self.config]
        for name, place in places.items():
            written = [text.replace(f"{{{name}}}", str(place)) for text in written]
        return written


def modern_call(tool):
    """A `tools/call` with the headers that a client of today sends."""
    headers = {"Mcp-Method": "tools/call", "Mcp-Name": tool, "MCP-Protocol-Version": REVISION}
    return Request(headers, filled("tools/call", {"name": tool, "arguments": {"query": ""}, "_meta": META}))


def askable(request):
    """The call, of a client that can be asked, and with as many bytes."""
    params = json.loads(request.body)["params"]
    capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    return Request(request.headers, filled("tools/call", params | {"_meta": META | capabilities}))


def with_arguments(request, arguments):
    """The call, with these among its arguments and as many bytes."""
    params = json.loads(request.body)["params"]
    params["arguments"] = arguments | {"query": ""}
    return Request(request.headers, filled("tools/call", params))


def modern_list():
    headers = {"Mcp-Method": "tools/list", "MCP-Protocol-Version": REVISION}
    return Request(headers, encoded({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}))


def legacy_call(tool):
    """A `tools/call` of a session that is still to be opened."""
    headers = {"MCP-Protocol-Version": LEGACY_REVISION}
    return Request(headers, filled("tools/call", {"name": tool, "arguments": {"query": ""}}))


def in_session(connection, request):
    """Opens a session for the request."""
    params = {"protocolVersion": LEGACY_REVISION, "capabilities": {}, "clientInfo": CLIENT}
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    opened = connection.call(Request({}, encoded(initialize)))
    headers = request.headers | {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    connection.call(Request(headers, encoded({"jsonrpc": "2.0", "method": "notifications/initialized"})))
    return Request(headers, request.body)


def with_headers(request, headers):
    return Request(request.headers | headers, request.body)


def filled(method, params):
    """The message, its argument `query` as long as it takes to be of `BODY_BYTES`."""

    def message(query):
        arguments = params["arguments"] | {"query": query}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"arguments": arguments}}
        return encoded(body)

    return message("q" * (BODY_BYTES - len(message(""))))


def encoded(message):
    return json.dumps(message, separators=(",", ":")).encode()


def rule(effect, pattern):
    name = f"{effect} {pattern}".replace("*", "x").replace(" ", "-")
    return f"""
    [[rule]]
    name = "{name}"
    effect = "{effect}"
    groups = ["gate"]
    tools = ["{pattern}"]
    """


def rules():
    return "".join([rule("allow", pattern) for pattern in ALLOWED] + [rule("deny", pattern) for pattern in DENIED])


RESULT = b'"result":'
ENDPOINT = """
    [[endpoint]]
    path = "/mcp"
    upstreams = ["a"]
"""
UPSTREAM = """
    [upstream.a]
    url = "{stub}"
"""
CHILD = """
    [upstream.a]
    command = ["{program}", "--stdio"]
"""
KEY = f"""
    [[api_key]]
    name = "gate"
    sha256 = "{hashlib.sha256(API_KEY.encode()).hexdigest()}"
    groups = ["gate"]
"""
#: More than is called, so that nothing is refused.
LIMIT = """
    [[limit]]
    name = "own"
    by = ["principal"]
    calls = 200000
    period = "1s"
"""
BY_ARGUMENTS = """
    [[rule]]
    name = "staging"
    effect = "allow"
    tools = ["tool_*"]
    arguments = { environment = ["staging", "test"], target = { region = "eu" } }

    [[limit]]
    name = "customer"
    by = ["argument:customer.id"]
    calls = 200000
    period = "1s"
"""
ARGUMENTS = {"environment": "staging", "target": {"region": "eu"}, "customer": {"id": 4711}}
ACCESS_LOG = """
    [log.access]
    file = "{folder}/access.log"
    format = "json"
    success_ratio = 0.01
"""
ISSUER = f"""
    [[jwt]]
    name = "issuer"
    issuer = "{token.ISSUER}"
    jwks_file = "{{folder}}/jwks.json"
    algorithms = ["ES256"]
    audiences = ["{token.AUDIENCE}"]
"""
#: People sign in at the provider, and keys are taken as well.
SIGN_IN_HERE = f"""
    auth = ["sign_in", "api_key"]

    [upstream.a]
    url = "{{stub}}"

    [[jwt]]
    name = "login"
    issuer = "{{provider}}"

    [sign_in]
    url = "{sign_in.URL}"
    provider = "login"
    client_id = "{sign_in.CLIENT}"
    client_secret = {{ file = "{{folder}}/secret" }}
    redirects = ["https://client.example"]

    [[sign_in.client]]
    id = "{sign_in.CLIENT}"
    name = "gate"
    redirects = ["{sign_in.REDIRECT}"]
    consent = "none"
"""
PREFIXED = """
    [[endpoint]]
    path = "/mcp"
    upstreams = ["a", "b"]

    [upstream.b]
    url = "{stub}"
"""
#: The two ends of an endpoint that needs to know who it is for.
PUBLIC_URL = """
    public_url = "http://localhost/mcp"
    hosts = ["localhost", "127.0.0.1"]
"""
LEGACY_SERVER = """
    eras = ["legacy"]
"""
MODERN_SERVER = """
    eras = ["modern"]
"""

#: Nothing but what every call needs.
PLAIN = Scenario("plain", ENDPOINT + UPSTREAM, modern_call("tool_0"), RESULT, difference_max=0.004)
#: What an operator switches on: a key, twenty rules, a limit, one answered call in a hundred in the access log.
EDGE = Scenario(
    "edge",
    ENDPOINT + UPSTREAM + KEY + rules() + LIMIT + ACCESS_LOG,
    with_headers(modern_call("tool_0"), {"Authorization": f"Bearer {API_KEY}"}),
    RESULT,
    round_calls=1500,  # chance says which calls are logged, and a line takes as much as half a call
)
#: A rule and a limit that go by what stands in the body.
ARGUED = Scenario(
    "arguments",
    ENDPOINT + UPSTREAM + KEY + BY_ARGUMENTS + LIMIT,
    with_headers(with_arguments(modern_call("tool_0"), ARGUMENTS), {"Authorization": f"Bearer {API_KEY}"}),
    RESULT,
)
#: The same token with every call.
JWT = Scenario(
    "jwt",
    ENDPOINT + PUBLIC_URL + UPSTREAM + ISSUER,
    with_headers(modern_call("tool_0"), {"Authorization": f"Bearer {token.SIGNED}"}),
    RESULT,
    files={"jwks.json": token.KEYS},
)
#: The same key with every call, where people sign in as well.
SIGN_IN_KEY = Scenario(
    "sign_in_key",
    ENDPOINT + PUBLIC_URL + SIGN_IN_HERE + KEY,
    with_headers(modern_call("tool_0"), {"Authorization": f"Bearer {API_KEY}"}),
    RESULT,
    files={"secret": sign_in.SECRET},
    settings='state_directory = "{folder}"',
)
#: The same token of a sign-in with every call.
SIGN_IN = dataclasses.replace(
    SIGN_IN_KEY,
    name="sign_in",
    request=modern_call("tool_0"),
    open=sign_in.with_token,
    compared_with="sign_in_key",
)
#: Names are replaced on the way there.
PREFIX = Scenario("prefixed", PREFIXED + UPSTREAM, modern_call("a__tool_0"), RESULT)
SESSION = Scenario("session", ENDPOINT + UPSTREAM, legacy_call("tool_0"), RESULT, open=in_session)
#: The server is a child process, which answers sooner or later than the thread that reads it sleeps.
STDIO = Scenario("stdio", ENDPOINT + CHILD, modern_call("tool_0"), RESULT, difference_max=0.06)
#: A modern client and a legacy server.
BRIDGED = Scenario("bridged", ENDPOINT + UPSTREAM + LEGACY_SERVER, modern_call("tool_0"), RESULT)
#: Likewise, and the server might ask the client, but does not.
ASKABLE = Scenario("askable", ENDPOINT + UPSTREAM + LEGACY_SERVER, askable(modern_call("tool_0")), RESULT)
#: A legacy client, in its session, and a modern server.
CROSSED = Scenario("crossed", ENDPOINT + UPSTREAM + MODERN_SERVER, legacy_call("tool_0"), RESULT, open=in_session)
#: A reply of several events, the last of them the result.
EVENT_STREAM = Scenario(
    "events",
    ENDPOINT + UPSTREAM,
    modern_call("tool_0"),
    RESULT,
    stub_options=("--sse", str(EVENTS), "--delay-ms", "1"),
    difference_max=0.03,
)
#: The tools of two servers, from the cache.
CACHED_LIST = Scenario("list", PREFIXED + UPSTREAM, modern_list(), b'"a__tool_0"')

SCENARIOS = (
    PLAIN,
    EDGE,
    ARGUED,
    JWT,
    SIGN_IN_KEY,
    SIGN_IN,
    PREFIX,
    SESSION,
    STDIO,
    BRIDGED,
    ASKABLE,
    CROSSED,
    EVENT_STREAM,
    CACHED_LIST,
)
ALL = {scenario.name: scenario for scenario in SCENARIOS}

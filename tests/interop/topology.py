"""What the interop tests run against: everything servers and one gateway in front of them.

The servers are `alpha` (public prefix `a`), `beta`, whose lists come in small pages, and `modern`, which speaks
no older revision. A `Route` is one way to reach the first two – `alpha` itself, or an endpoint of the gateway –
and knows what their names are called there, so that one set of tests serves all of them, and a test that fails
only behind the gateway blames the gateway.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from interop.process import Process

SERVER = pathlib.Path(__file__).with_name("everything_server.py")

#: What the configuration of a gateway begins with.
START = """workers = 2

[listener]
address = "127.0.0.1:0"

[admin]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
max = "2s"
"""
TABLES = """
{api_key}

[[endpoint]]
path = "/transparent"
upstreams = ["alpha"]
auth = []

[[endpoint]]
path = "/prefixed"
upstreams = ["alpha", "beta"]
auth = []

[[endpoint]]
path = "/bare"
upstreams = ["alpha", "beta"]
names = "bare"
aliases = {{ {aliases} }}
auth = []

[[endpoint]]
path = "/narrow"
upstreams = ["alpha", "beta"]
allow = ["a__*", "a+*"]
deny = ["a__hold*", "a__test_prompt_with_image", "a+test://watched*"]
auth = []

[[endpoint]]
path = "/narrow-transparent"
upstreams = ["alpha"]
deny = ["hold*", "test_prompt_with_image", "test://watched*"]
auth = []

[[endpoint]]
path = "/prefixed-single"
upstreams = ["beta"]
names = "prefixed"
auth = []

[[endpoint]]
path = "/keyed"
upstreams = ["alpha"]

[[endpoint]]
path = "/mixed"
upstreams = ["alpha", "modern"]
auth = []

[upstream.alpha]
url = "{alpha}"
prefix = "a"

[upstream.beta]
url = "{beta}"

[upstream.modern]
url = "{modern}"
bridge = {{ enabled = false }}
"""
#: Tools of beta that can be called where names stay bare.
ALIASED = ("whoami", "announce_watched", "test_trigger_tool_change")
@dataclasses.dataclass(frozen=True)
class Route:
    """One URL, and how the names and URIs of the upstreams read there (`{}` stands for the upstream's own)."""

    name: str
    url: str
    alpha_name: str = "{}"
    alpha_uri: str = "{}"
    beta_name: str = ""
    beta_uri: str = ""
    transport: str = "http"
    """The way of clients to it: `http` (Streamable HTTP), `sse` (HTTP+SSE), or a child (`connect`, `mcp-remote`)."""
    command: tuple = ()
    """The command of that child, where it is not the gateway's own."""
    for_sessions: bool = False
    """Whether everything that a session carries is tried there; where names stay bare, too little can be called."""
    for_first_calls: bool = False
    """True where the calls are tried that people make first."""
    for_quiet_calls: bool = False
    """True where calls are tried of which nothing is heard for a while."""
    is_demo: bool = False
    """True where the demo's servers are, and no others."""

    alpha_revision: str = ""
    """The one that the upstream speaks whoever calls; without it, the one of the client."""
    beta_revision: str = ""
    has_children: bool = False

    @property
    def has_legacy_children(self):
        """Each of which knows one session only, and nothing of what happens in another."""
        return self.has_children and any(
            spoken and spoken < "2026" for spoken in (self.alpha_revision, self.beta_revision)
        )

    @property
    def merges(self):
        return bool(self.beta_uri)

    def tool(self, inner):
        return self.alpha_name.replace("{}", inner)

    prompt = tool

    def beta_tool(self, inner):
        """Where names stay bare, beta's tools have aliases, because alpha has the names, too."""
        return self.beta_name.replace("{}", inner) or f"beta_{inner}"

    def uri(self, inner):
        return self.alpha_uri.replace("{}", inner)


@dataclasses.dataclass(frozen=True)
class Topology:
    routes: tuple
    processes: tuple = ()
    binary: str = ""
    server_python: str = sys.executable
    """What an everything server runs on."""
    beta_url: str = ""
    api_key: str = ""

    def route(self, name):
        return next(route for route in self.routes if route.name == name)

    def session_routes(self):
        return [route for route in self.routes if route.for_sessions]

    def first_call_routes(self):
        return [route for route in self.routes if route.for_first_calls]

    def quiet_call_routes(self):
        return [route for route in self.routes if route.for_quiet_calls]

    def as_json(self):
        """For tests in another process."""
        known = dataclasses.asdict(dataclasses.replace(self, processes=()))
        return json.dumps(known)

    @classmethod
    def from_json(cls, text):
        known = json.loads(text)
        return cls(**{**known, "routes": tuple(Route(**route) for route in known["routes"])})

    def logs(self):
        return "\n".join(process.log() for process in self.processes)


def everything_server(name, *options, python=sys.executable):
    """A `Process`; its URL is `process.ready[1]`."""
    return Process(name, [python, "-B", SERVER, "--name", name, *options], ready=r"^listening (\S+)")


def everything_command(name, *options, python=sys.executable):
    """An everything server as a child on standard streams, as it stands in a configuration."""
    return json.dumps([str(part) for part in (python, "-B", SERVER, "--stdio", "--name", name, *options)])


def gateway(binary, configuration):
    """A `Process`; see `gateway_address`. The file it reads must outlive it."""
    return Process("gateway", [binary, "run", "--config", configuration], ready=r"INFO \S+ ready\b")


@contextlib.contextmanager
def gateway_with(binary, tables):
    """A gateway with two workers, an admin listener and these tables; yields its `Process`."""
    with tempfile.TemporaryDirectory(prefix="trunkline-interop-") as directory:
        configuration = pathlib.Path(directory, "trunkline.toml")
        configuration.write_text(START + tables)
        with gateway(binary, configuration) as process:
            yield process


def gateway_address(process, listener="listening"):
    """Where a running gateway listens, for clients or (`admin listening`) for operators."""
    return re.search(rf": {listener} address=(\S+)", process.announced)[1]


def new_api_key(binary):
    """A key from the gateway's own command: the key and its entry in the configuration."""
    command = [binary, "key", "tests"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return re.search(r"Authorization: Bearer (\S+)", printed.stderr)[1], printed.stdout


@contextlib.contextmanager
def running(binary):
    """Starts everything, yields the `Topology`, stops everything. Without a binary only the direct route exists."""
    with contextlib.ExitStack() as stack:
        alpha = stack.enter_context(everything_server("alpha"))
        direct = Route("direct", alpha.ready[1], for_sessions=True)
        if binary is None:
            yield Topology((direct,), (alpha,))
            return
        beta = stack.enter_context(everything_server("beta", "--page-size", "5"))
        modern = stack.enter_context(everything_server("modern", "--only", "modern"))
        key, entry = new_api_key(binary)
        urls = {server.name: server.ready[1] for server in (alpha, beta, modern)}
        aliases = ", ".join(f'beta_{tool} = "beta__{tool}"' for tool in ALIASED)
        tables = TABLES.format(api_key=entry, aliases=aliases, **urls)
        process = stack.enter_context(gateway_with(binary, tables))
        routes = (direct, *gateway_routes(gateway_address(process)))
        known = {"binary": str(binary.resolve()), "beta_url": beta.ready[1], "api_key": key}
        yield Topology(routes, (alpha, beta, modern, process), **known)


def gateway_routes(address):
    base = f"http://{address}"
    uris = {"alpha_uri": "a+{}", "beta_uri": "beta+{}"}
    prefixed = {"alpha_name": "a__{}", "beta_name": "beta__{}", **uris}
    return (
        Route("transparent", f"{base}/transparent", for_sessions=True),
        Route("prefixed", f"{base}/prefixed", **prefixed, for_sessions=True),
        Route("bare", f"{base}/bare", **uris),
        Route("narrow", f"{base}/narrow", alpha_name="a__{}", alpha_uri="a+{}"),
        Route("narrow-transparent", f"{base}/narrow-transparent"),
        Route("prefixed-single", f"{base}/prefixed-single", "beta__{}", "beta+{}"),
        Route("mixed", f"{base}/mixed", alpha_name="a__{}", alpha_uri="a+{}"),
        Route("keyed", f"{base}/keyed"),
    )

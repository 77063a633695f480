"""Runs the official conformance suite: `python -m conformance [--binary PATH] --npm DIRECTORY`, from `tests/`.

Direct runs must be perfect; runs through the gateway must be as good, check by check, except where
`expected-failures.yml` says otherwise, whatever era and transport the upstream speaks. The last line is
`N passed, N failed`, in scenarios per run.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import pathlib
import re
import sys
import tempfile
import urllib.request

from conformance import expectations
from conformance.suite import Suite
from interop.process import Process
from interop.topology import everything_command, everything_server, gateway, gateway_address

REVISIONS = ("2025-11-25", "2026-07-28")
CONFIGURATION = """
[listener]
address = "127.0.0.1:0"

[drain]
quiet = "10ms"
max = "2s"
"""
ENDPOINT = """
[[endpoint]]
path = "/{path}"
upstreams = {upstreams}

"""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One way in which an upstream can speak: its transport, and the era if it is only one."""

    upstream: str
    transport: str = "http"
    era: str = ""
    beside: str = "second"
    """The upstream that shares its prefixed endpoint."""

    def options(self):
        return [f"--{self.transport}"] * (self.transport == "sse") + ["--only", self.era] * bool(self.era)

#: The kinds, by what the names of their routes start with.
KINDS = {
    "": Kind("everything"),
    "stdio-": Kind("child", "stdio", beside="second-child"),
    "legacy-": Kind("legacy", "http", "legacy"),
    "modern-": Kind("modern", "http", "modern"),
    "sse-": Kind("sse", "sse", "legacy"),
    "stdio-legacy-": Kind("legacy-child", "stdio", "legacy"),
    "stdio-modern-": Kind("modern-child", "stdio", "modern"),
}
ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}
#: What the suite calls itself.
SUITE_CLIENT = {"name": "conformance-client", "version": "1.0.0"}
#: A child starts within this.
START_TIMEOUT_S = 30
#: Two at once: each keeps about one core busy.
PARALLEL_JOBS = 2
CLIENT_ROUTES = ("transparent", "prefixed", "crossed-transparent", "crossed-prefixed")
#: How the suite, as the upstream, finds the client it is to judge; a shell runs it.
CLIENT_COMMAND = 'exec "$CLIENT_PYTHON" -B -m conformance.upstream_client'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway; without it, only the direct runs are made")
    parser.add_argument("--all", action="store_true", help="also over upstreams that speak the suite's era only")
    parser.add_argument("--routes", help="a pattern for the names of the runs through the gateway; default: all")
    parser.add_argument("--revision", choices=REVISIONS, help="only the suite of that revision; default: all")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    options = parser.parse_args()
    expected = expectations.read(expectations.FILE.read_text())
    suites = [Suite(options.npm.resolve(), revision) for revision in REVISIONS if options.revision in (None, revision)]
    passed = failed = 0
    for run, complaints in runs(suites, options, expected):
        wrong = {name: lines for name, lines in complaints.items() if lines}
        for line in (line for lines in wrong.values() for line in lines):
            print(f"FAILED {run}: {line}")
        print(f"{run}: {len(complaints) - len(wrong)} of {len(complaints)} scenarios as expected", flush=True)
        passed, failed = passed + len(complaints) - len(wrong), failed + len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def runs(suites, options, expected):
    """The name of each run – the revision and the route – with its complaints by scenario; in order, some at once."""
    jobs = [(judge, suite, options, expected) for judge in (judge_servers, judge_clients) for suite in suites]
    with concurrent.futures.ThreadPoolExecutor(PARALLEL_JOBS) as pool:
        for found in pool.map(lambda job: list(job[0](*job[1:])), jobs):
            yield from found


@dataclasses.dataclass(frozen=True)
class Route:
    name: str
    url: str
    process: Process
    prefixes: dict = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def servers(era, options):
    """Starts the everything server, alone or behind the gateway, and yields the routes to it, the direct one first."""
    with contextlib.ExitStack() as stack:
        everything = stack.enter_context(everything_server("everything"))
        routes = [Route("direct", everything.ready[1], everything)]
        if options.binary is not None:
            # What speaks the suite's era and nothing else has little to show beside what speaks both.
            kinds = {name: kind for name, kind in KINDS.items() if options.all or kind.era != era}
            upstreams = {"everything": url_of(everything.ready[1])}
            upstreams["second"] = url_of(stack.enter_context(everything_server("second")).ready[1])
            upstreams["second-child"] = child("second")
            for kind in kinds.values():
                if kind.transport == "stdio":
                    upstreams[kind.upstream] = child("everything", *kind.options(), eras=kind.era)
                elif kind.upstream not in upstreams:
                    server = stack.enter_context(everything_server("everything", *kind.options()))
                    upstreams[kind.upstream] = url_of(server.ready[1])
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-conformance-"))
            configuration = pathlib.Path(directory, "trunkline.toml")
            configuration.write_text(configured(kinds, upstreams))
            process = stack.enter_context(gateway(options.binary, configuration))
            routes += routes_through(process, kinds)
        yield [route for route in routes if is_wanted(options, route.name)]


def url_of(url):
    return f'url = "{url}"\n'


def child(name, *options, eras=""):
    listed = json.dumps([eras] if eras else ["modern", "legacy"])
    return f'command = {everything_command(name, *options)}\neras = {listed}\nlist_timeout = "20s"\n'


def configured(kinds, upstreams):
    parts = [CONFIGURATION]
    for name, kind in kinds.items():
        for path, behind in (("transparent", [kind.upstream]), ("prefixed", [kind.upstream, kind.beside])):
            parts.append(ENDPOINT.format(path=name + path, upstreams=json.dumps(behind)))
    parts += [f"[upstream.{name}]\n{described}\n" for name, described in upstreams.items()]
    return "".join(parts)


def routes_through(process, kinds):
    base = f"http://{gateway_address(process)}"
    for name, kind in kinds.items():
        prefixes = {"name_prefix": f"{kind.upstream}__", "uri_prefix": f"{kind.upstream}+"}
        yield Route(f"{name}transparent", f"{base}/{name}transparent", process)
        yield Route(f"{name}prefixed", f"{base}/{name}prefixed", process, prefixes)


def is_wanted(options, name):
    return name == "direct" or options.routes is None or re.fullmatch(options.routes, name) is not None


def judge_servers(suite, options, expected):
    with servers(ERAS[suite.revision], options) as (direct, *through_gateway):
        reference = suite.judge_server(direct.url)
        complaints = expectations.verdicts(expectations.imperfections(reference), {})
        yield f"{suite.revision} direct", show_log(complaints, direct.process.log())
        for route in through_gateway:
            run = f"{suite.revision} {route.name}"
            if route.name.startswith("stdio-legacy-"):
                ask_once(route)
            found = expectations.shortfalls(suite.judge_server(route.url, **route.prefixes), reference)
            yield run, show_log(expectations.verdicts(found, expected[run]), route.process.log())


def ask_once(route):
    """A call as the suite's client makes it when it can be asked. Such a client has a process of its own, and the suite
    does not wait until one has started (2025-11-25, basic/transports: "The client launches the MCP server as a subprocess")."""
    tool = f"{route.prefixes.get('name_prefix', '')}test_simple_text"
    meta = {"protocolVersion": "2026-07-28", "clientInfo": SUITE_CLIENT, "clientCapabilities": {"elicitation": {}}}
    params = {"name": tool, "arguments": {}, "_meta": {f"io.modelcontextprotocol/{key}": meta[key] for key in meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    # Spelled as the suite does: a client that introduces itself in other bytes is another.
    body = json.dumps(message, separators=(",", ":")).encode()
    with urllib.request.urlopen(urllib.request.Request(route.url, body, headers), timeout=START_TIMEOUT_S) as answer:
        if b'"result"' not in answer.read():
            raise RuntimeError(f"{route.name} does not answer the suite's client")


def judge_clients(suite, options, expected):
    """The suite is the upstream; the client speaks its era or, where the route is crossed, the other."""
    if options.routes is not None and not any(is_wanted(options, f"client-{name}") for name in CLIENT_ROUTES):
        return
    reference, printed = judge_client_route(suite, "direct", options.binary)
    complaints = expectations.verdicts(expectations.imperfections(reference), {})
    yield f"{suite.revision} client-direct", show_each(complaints, printed)
    for route in CLIENT_ROUTES if options.binary else ():
        if not is_wanted(options, f"client-{route}"):
            continue
        run = f"{suite.revision} client-{route}"
        outcome, printed = judge_client_route(suite, route, options.binary)
        complaints = expectations.verdicts(expectations.shortfalls(outcome, reference), expected[run])
        yield run, show_each(complaints, printed)


def judge_client_route(suite, route, binary):
    environment = {"CLIENT_PYTHON": sys.executable, "ROUTE": route, "GATEWAY": str(binary or "")}
    outcome, printed = {}, {}
    for scenario in suite.client_scenarios():
        outcome[scenario], printed[scenario] = suite.judge_client(scenario, CLIENT_COMMAND, environment)
    return outcome, printed


def show_log(complaints, log):
    """The complaints, after printing what may explain them."""
    if any(complaints.values()):
        print(log)
    return complaints


def show_each(complaints, printed):
    """The complaints, after printing what the suite said about each scenario that has some."""
    for scenario, lines in complaints.items():
        if lines:
            print(f"--- {scenario}\n{printed.get(scenario, '')}")
    return complaints


if __name__ == "__main__":
    sys.exit(main())

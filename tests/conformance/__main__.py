"""Runs the official conformance suite: `python -m conformance [--binary PATH] --npm DIRECTORY`, from `tests/`.

Direct runs must be perfect; runs through the gateway must be as good, check by check, except where
`expected-failures.yml` says otherwise. The last line is `N passed, N failed`, in scenarios per run.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import sys
import tempfile

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

[[endpoint]]
path = "/transparent"
upstreams = ["everything"]

[[endpoint]]
path = "/prefixed"
upstreams = ["everything", "second"]

[[endpoint]]
path = "/stdio-transparent"
upstreams = ["child"]

[[endpoint]]
path = "/stdio-prefixed"
upstreams = ["child", "second-child"]

[upstream.everything]
url = "{everything}"

[upstream.second]
url = "{second}"

[upstream.child]
command = {child}
eras = ["modern", "legacy"]
list_timeout = "20s"

[upstream.second-child]
command = {second_child}
eras = ["modern", "legacy"]
list_timeout = "20s"
"""
#: Two at once: each keeps about one core busy.
PARALLEL_JOBS = 2
#: How the suite, as the upstream, finds the client it is to judge; a shell runs it.
CLIENT_COMMAND = 'exec "$CLIENT_PYTHON" -B -m conformance.upstream_client'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway; without it, only the direct runs are made")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    options = parser.parse_args()
    expected = expectations.read(expectations.FILE.read_text())
    suites = [Suite(options.npm.resolve(), revision) for revision in REVISIONS]
    passed = failed = 0
    for run, complaints in runs(suites, options.binary, expected):
        wrong = {name: lines for name, lines in complaints.items() if lines}
        for line in (line for lines in wrong.values() for line in lines):
            print(f"FAILED {run}: {line}")
        print(f"{run}: {len(complaints) - len(wrong)} of {len(complaints)} scenarios as expected", flush=True)
        passed, failed = passed + len(complaints) - len(wrong), failed + len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def runs(suites, binary, expected):
    """The name of each run – the revision and the route – with its complaints by scenario; in order, some at once."""
    jobs = [(judge, suite, binary, expected) for judge in (judge_servers, judge_clients) for suite in suites]
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
def servers(binary):
    """Starts the everything server, alone or behind the gateway, and yields the routes to it, the direct one first."""
    with contextlib.ExitStack() as stack:
        everything = stack.enter_context(everything_server("everything"))
        routes = [Route("direct", everything.ready[1], everything)]
        if binary is not None:
            second = stack.enter_context(everything_server("second"))
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-conformance-"))
            configuration = pathlib.Path(directory, "trunkline.toml")
            urls = {"everything": everything.ready[1], "second": second.ready[1]}
            children = {"child": everything_command("everything"), "second_child": everything_command("second")}
            configuration.write_text(CONFIGURATION.format(**urls, **children))
            process = stack.enter_context(gateway(binary, configuration))
            base = f"http://{gateway_address(process)}"
            for over, upstream in (("", "everything"), ("stdio-", "child")):
                prefixes = {"name_prefix": f"{upstream}__", "uri_prefix": f"{upstream}+"}
                routes.append(Route(f"{over}transparent", f"{base}/{over}transparent", process))
                routes.append(Route(f"{over}prefixed", f"{base}/{over}prefixed", process, prefixes))
        yield routes


def judge_servers(suite, binary, expected):
    with servers(binary) as (direct, *through_gateway):
        reference = suite.judge_server(direct.url)
        complaints = expectations.verdicts(expectations.imperfections(reference), {})
        yield f"{suite.revision} direct", show_log(complaints, direct.process.log())
        for route in through_gateway:
            run = f"{suite.revision} {route.name}"
            found = expectations.shortfalls(suite.judge_server(route.url, **route.prefixes), reference)
            yield run, show_log(expectations.verdicts(found, expected[run]), route.process.log())


def judge_clients(suite, binary, expected):
    """The suite is the upstream."""
    reference, printed = judge_client_route(suite, "direct", binary)
    complaints = expectations.verdicts(expectations.imperfections(reference), {})
    yield f"{suite.revision} client-direct", show_each(complaints, printed)
    for names in ("transparent", "prefixed") if binary else ():
        run = f"{suite.revision} client-{names}"
        outcome, printed = judge_client_route(suite, names, binary)
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

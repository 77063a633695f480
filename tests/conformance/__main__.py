"""Runs the official conformance suite: `python -m conformance [--binary PATH] --npm DIRECTORY`, from `tests/`.

Direct runs must be perfect; runs through the gateway must be as good, check by check, except where
`expected-failures.yml` says otherwise. The last line is `N passed, N failed`, in scenarios per route.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile

from conformance import expectations
from conformance.suite import Suite
from interop.topology import everything_server, gateway, gateway_address

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

[upstream.everything]
url = "{everything}"

[upstream.second]
url = "{second}"
"""
#: How the suite, as the upstream, finds the client it is to judge; a shell runs it.
CLIENT_COMMAND = 'exec "$CLIENT_PYTHON" -B -m conformance.upstream_client'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway; without it, only the direct runs are made")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    options = parser.parse_args()
    suite = Suite(options.npm.resolve())
    expected = expectations.read(expectations.FILE.read_text())
    passed = failed = 0
    for judge in (judge_servers, judge_clients):
        for route, complaints in judge(suite, options.binary, expected):
            wrong = {name: lines for name, lines in complaints.items() if lines}
            for line in (line for lines in wrong.values() for line in lines):
                print(f"FAILED {route} {line}")
            print(f"{route}: {len(complaints) - len(wrong)} of {len(complaints)} scenarios as expected", flush=True)
            passed, failed = passed + len(complaints) - len(wrong), failed + len(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def judge_servers(suite, binary, expected):
    """Yields each route to the everything server with its complaints by scenario."""
    with contextlib.ExitStack() as stack:
        everything = stack.enter_context(everything_server("everything"))
        reference = suite.judge_server(everything.ready[1])
        yield "direct", expectations.verdicts(expectations.imperfections(reference), {})
        if binary is None:
            return
        second = stack.enter_context(everything_server("second"))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-conformance-"))
        configuration = pathlib.Path(directory, "trunkline.toml")
        configuration.write_text(CONFIGURATION.format(everything=everything.ready[1], second=second.ready[1]))
        process = stack.enter_context(gateway(binary, configuration))
        prefixes = {"transparent": {}, "prefixed": {"name_prefix": "everything__", "uri_prefix": "everything+"}}
        for route, options in prefixes.items():
            outcome = suite.judge_server(f"http://{gateway_address(process)}/{route}", **options)
            found = expectations.shortfalls(outcome, reference)
            yield route, show_log(expectations.verdicts(found, expected[route]), process.log())


def judge_clients(suite, binary, expected):
    """Yields each route to the suite as upstream with its complaints by scenario."""
    reference, printed = judge_client_route(suite, "direct", binary)
    complaints = expectations.verdicts(expectations.imperfections(reference), {})
    yield "client-direct", show_each(complaints, printed)
    for names in ("transparent", "prefixed") if binary else ():
        outcome, printed = judge_client_route(suite, names, binary)
        found = expectations.shortfalls(outcome, reference)
        complaints = expectations.verdicts(found, expected[f"client-{names}"])
        yield f"client-{names}", show_each(complaints, printed)


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

"""Runs the interop tests: `python -m interop [--binary PATH] --npm DIRECTORY --python1 PATH`, from `tests/`.

The real SDK clients call the everything servers, directly and through the gateway. The last line is
`N passed, N failed`; the logs of the processes are shown when a test fails.
"""

import argparse
import logging
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))  # the everything server's fixtures, under the names it uses itself

from interop import (  # noqa: E402
    other_clients,
    real_servers,
    test_gateway,
    test_python_calls,
    test_python_input_required,
    test_python_lists,
    test_python_resources,
    test_real_servers,
    topology,
)
from interop.cases import add, run  # noqa: E402
from interop.python_client import MODERN_MODES, MODES  # noqa: E402

ROUTE_CASES = (
    test_python_lists.Lists,
    test_python_calls.Calls,
    test_python_resources.Resources,
)
MODERN_CASES = (
    test_python_calls.ModernCalls,
    test_python_input_required.InputRequired,
    test_python_resources.Subscriptions,
)
MERGED_CASES = (test_python_resources.MergedSubscriptions,)
LEGACY_CASES = (test_python_calls.LegacyCalls,)
GATEWAY_CASES = (
    test_gateway.Keys,
    test_gateway.Lists,
    test_gateway.Discovery,
    test_gateway.Refusals,
)
#: Routes that offer every fixture to everyone.
OPEN_ROUTES = ("direct", "transparent", "prefixed", "bare")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway; without it, only the direct tests run")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    parser.add_argument("--python1", type=pathlib.Path, required=True, help="an interpreter with the SDK's version 1")
    options = parser.parse_args()
    for chatty in ("asyncio", "mcp", "client"):  # unittest turns on asyncio's debug mode
        logging.getLogger(chatty).setLevel(logging.ERROR)
    with topology.running(options.binary) as running:
        counts = [
            run(python_tests(running)),
            other_clients.run_python1(running, options.python1, OPEN_ROUTES),
            other_clients.run_typescript(running, options.npm, OPEN_ROUTES),
            run(last_tests(running)),
        ]
        if any(failed for _, failed in counts):
            print(running.logs())
    with real_servers.running(options.binary, options.npm, options.python1) as running:
        counts.append(run(real_server_tests(running)))
        if counts[-1][1]:
            print(running.logs())
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def python_tests(running):
    suite = unittest.TestSuite()
    for route in running.routes:
        for mode in MODES if route.name in OPEN_ROUTES else ():
            for case in cases_for(route, mode):
                add(suite, case, running, route, mode)
    if len(running.routes) > 1:
        for case in GATEWAY_CASES:
            add(suite, case, running)
        for mode in ("auto", "legacy"):
            add(suite, test_gateway.Policy, running, mode)
    return suite


def cases_for(route, mode):
    if mode not in MODERN_MODES:
        return (*ROUTE_CASES, *LEGACY_CASES)
    return (*ROUTE_CASES, *MODERN_CASES, *(MERGED_CASES if route.merges else ()))


def real_server_tests(running):
    suite = unittest.TestSuite()
    for way in test_real_servers.DIRECT_WAYS:
        add(suite, test_real_servers.Calls, running, way)
        add(suite, test_real_servers.Everything, running, way)
    for way in test_real_servers.GATEWAY_WAYS if running.gateway_url else ():
        add(suite, test_real_servers.Lists, running, way)
        add(suite, test_real_servers.Calls, running, way)
        if "everything" in way[-1]:
            add(suite, test_real_servers.Everything, running, way)
    return suite


def last_tests(running):
    suite = unittest.TestSuite()
    if len(running.routes) > 1:
        add(suite, test_gateway.Afterwards, running)
    return suite


if __name__ == "__main__":
    sys.exit(main())

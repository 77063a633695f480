"""Runs the interop tests: `python -m interop [--binary PATH] --npm DIRECTORY`, with `tests/` as module path.

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
    test_gateway,
    test_python_calls,
    test_python_input_required,
    test_python_lists,
    test_python_resources,
    topology,
    typescript_client,
)
from interop.python_client import MODES  # noqa: E402

ROUTE_CASES = (
    test_python_lists.Lists,
    test_python_calls.Calls,
    test_python_resources.Resources,
    test_python_input_required.InputRequired,
)
SINGLE_UPSTREAM_CASES = (test_python_resources.Subscriptions,)
GATEWAY_CASES = (
    test_gateway.Keys,
    test_gateway.Policy,
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
    options = parser.parse_args()
    for chatty in ("asyncio", "mcp", "client"):  # unittest turns on asyncio's debug mode
        logging.getLogger(chatty).setLevel(logging.ERROR)
    with topology.running(options.binary) as running:
        counts = [
            run(python_tests(running)),
            typescript_client.run(running, options.npm, OPEN_ROUTES),
            run(last_tests(running)),
        ]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    if failed:
        print(running.logs())
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def run(tests):
    """How many passed and how many failed."""
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    failed = len({failing_test(test) for test, _ in result.failures + result.errors})
    return result.testsRun - failed, failed


def failing_test(test):
    """The test method, also where only some of its sub-tests failed."""
    return getattr(test, "test_case", test).id()


def python_tests(running):
    suite = unittest.TestSuite()
    for route in running.routes:
        for mode in MODES if route.name in OPEN_ROUTES else ():
            for case in ROUTE_CASES if route.merges else (*ROUTE_CASES, *SINGLE_UPSTREAM_CASES):
                add(suite, case, running, route, mode)
    if len(running.routes) > 1:
        for case in GATEWAY_CASES:
            add(suite, case, running)
    return suite


def last_tests(running):
    suite = unittest.TestSuite()
    if len(running.routes) > 1:
        add(suite, test_gateway.Afterwards, running)
    return suite


def add(suite, case, *arguments):
    suite.addTests(case(name, *arguments) for name in unittest.defaultTestLoader.getTestCaseNames(case))


if __name__ == "__main__":
    sys.exit(main())

"""Runs the tests of the Python SDK's version 1, in an interpreter that has it: `python -m interop.python1`.

What is running comes in the environment. The last line is `N passed, N failed`.
"""

import os
import sys
import unittest

from interop import (
    first_calls,
    python1_client,
    quiet_calls,
    session_cases,
    test_python1_calls,
    test_python1_faults,
    test_python1_sessions,
)
from interop.cases import add, run
from interop.topology import Topology

ROUTE_CASES = (
    test_python1_calls.Lists,
    test_python1_calls.Calls,
    test_python1_sessions.Sessions,
)


def main():
    python1_client.quieten()
    topology = Topology.from_json(os.environ["TOPOLOGY"])
    suite = unittest.TestSuite()
    for route in os.environ["OPEN_ROUTES"].split(","):
        if route in {known.name for known in topology.routes}:
            for case in ROUTE_CASES:
                add(suite, case, topology, topology.route(route))
    for route in topology.session_routes():
        add(suite, session_cases.Sessions, "python 1", python1_client.open_session, topology, route)
    for route in topology.first_call_routes():
        for case in first_calls.cases_for(route):
            add(suite, case, "python 1", python1_client.open_session, topology, route)
    if topology.quiet_call_routes():
        add(suite, quiet_calls.QuietCalls, "python 1", python1_client.open_impatient, ("legacy",), topology)
    if topology.binary and "direct" in os.environ["OPEN_ROUTES"].split(","):
        add(suite, test_python1_faults.Faults, topology)
    passed, failed = run(suite)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the tests of the Python SDK's version 1, in an interpreter that has it: `python -m interop.python1`.

What is running comes in the environment. The last line is `N passed, N failed`.
"""

import os
import sys
import unittest

from interop import python1_client, test_python1_calls, test_python1_faults, test_python1_sessions
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
    if topology.binary:
        add(suite, test_python1_faults.Faults, topology)
    passed, failed = run(suite)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs the interop tests: `python -m interop [--binary PATH] --npm DIRECTORY --python1 PATH`, from `tests/`.

The real SDK clients call the everything servers, directly and through the gateway. The last line is
`N passed, N failed`; the logs of the processes are shown when a test fails.
"""

import argparse
import functools
import logging
import pathlib
import signal
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))  # the everything server's fixtures, under the names it uses itself

from interop import (  # noqa: E402
    demo,
    first_calls,
    other_clients,
    pairs,
    python_client,
    quiet_calls,
    real_servers,
    session_cases,
    test_gateway,
    test_inspector,
    test_launchers,
    test_npx,
    test_python_calls,
    test_python_input_required,
    test_python_lists,
    test_python_questions,
    test_python_resources,
    test_real_servers,
    topology,
    transports,
)
from interop.cases import add, run  # noqa: E402
from interop.python_client import MODERN_MODES, MODES  # noqa: E402

ROUTE_CASES = (
    test_python_lists.Lists,
    test_python_calls.Calls,
    test_python_resources.Resources,
    test_python_questions.Questions,
)
MODERN_CASES = (
    test_python_calls.ModernCalls,
    test_python_input_required.InputRequired,
    test_python_resources.Subscriptions,
)
SUBSCRIPTION_CASES = (test_python_resources.Subscriptions, test_python_resources.MergedSubscriptions)
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
#: Route → the eras the Inspector is told to speak there.
INSPECTED_ROUTES = {"direct": ("legacy",), "transparent": ("auto",), "prefixed": ("legacy", "modern")}
INSPECTED_FURTHER_ROUTES = {
    "http-to-stdio": ("legacy",),
    "http-to-stdio-one": ("modern",),
    "connect-to-http": ("legacy", "modern"),
    "http-to-sse": ("legacy",),
    "sse-to-http": ("legacy",),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, help="the gateway; without it, only the direct tests run")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    parser.add_argument("--python1", type=pathlib.Path, required=True, help="an interpreter with the SDK's version 1")
    parser.add_argument("--part", choices=PARTS, action="append", help="only that part; they run side by side")
    parser.add_argument("--every-pair", action="store_true", help="also on the routes that show little new")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    for chatty in ("asyncio", "mcp", "client"):  # unittest turns on asyncio's debug mode
        logging.getLogger(chatty).setLevel(logging.ERROR)
    if options.part:
        counts = [count for part in options.part for count in PARTS[part](options)]
    else:
        same = [sys.executable, "-B", "-m", "interop", *sys.argv[1:]]
        with other_clients.side_by_side([*same, "--part", "servers", "--part", "pairs"]) as further:
            counts = [*judge_clients(options), further()]
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def judge_clients(options):
    """Every SDK on every route, on every transport: how many passed and failed, by group."""
    with topology.running(options.binary) as running:
        counts = [
            run(python_tests(running)),
            run(inspector_tests(running, options.npm, INSPECTED_ROUTES)),
            other_clients.run_python1(running, options.python1, OPEN_ROUTES),
            other_clients.run_typescript(running, options.npm, OPEN_ROUTES),
        ]
        if options.binary:
            counts += [*judge_transports(options, running), *judge_first_calls(options, running)]
            counts += judge_quiet_calls(options, running)
        counts.append(run(last_tests(running)))
        if any(failed for _, failed in counts):
            print(running.logs())
    return counts


def judge_transports(options, known):
    with transports.running(options.binary, known) as running:
        counts = [
            run(session_tests(running)),
            run(inspector_tests(running, options.npm, INSPECTED_FURTHER_ROUTES)),
            other_clients.run_python1(running, options.python1, ()),
            other_clients.run_typescript(running, options.npm, ()),
        ]
        if any(failed for _, failed in counts):
            print(running.logs())
    return counts


def judge_first_calls(options, known):
    with demo.running(options.binary, options.npm, known) as running:
        counts = [
            run(first_call_tests(running)),
            other_clients.run_python1(running, options.python1, ()),
            other_clients.run_typescript(running, options.npm, ()),
        ]
        if any(failed for _, failed in counts):
            print(running.logs())
    return counts


def judge_quiet_calls(options, known):
    """Side by side, as they wait for most of their time."""
    with quiet_calls.running(options.binary, known) as running, ThreadPoolExecutor() as threads:
        others = [
            threads.submit(other_clients.run_python1, running, options.python1, ()),
            threads.submit(other_clients.run_typescript, running, options.npm, ()),
        ]
        counts = [run(quiet_call_tests(running)), *(other.result() for other in others)]
        if any(failed for _, failed in counts):
            print(running.logs())
    return counts


def judge_pairs(options):
    """Every SDK against servers of the other era."""
    if options.binary is None:
        return []
    with pairs.running(options.binary, options.every_pair) as running:
        names = [route.name for route in running.routes]
        crossed = [route.name for route in running.routes if "legacy" in pairs.eras_of_clients(route)]
        counts = [
            run(pair_tests(running)),
            run(inspector_tests(running, options.npm, dict.fromkeys(names[:2], ("legacy", "modern")))),
            other_clients.run_python1(running, options.python1, crossed),
            other_clients.run_typescript(running, options.npm, names),
            run(last_pair_tests(running)),
        ]
        if any(failed for _, failed in counts):
            print(running.logs())
    return counts


def judge_real_servers(options):
    with real_servers.running(options.binary, options.npm, options.python1) as running:
        counts = [run(real_server_tests(running))]
        if counts[-1][1]:
            print(running.logs())
    if options.binary:
        counts.append(run(launcher_tests(options)))
    return counts


def python_tests(running):
    suite = session_tests(running)
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


def pair_tests(running):
    """Clients that need the gateway to translate; the others have nothing new to show."""
    suite = session_tests(running)
    for route in running.routes:
        for mode in MODES:
            era = "modern" if mode in MODERN_MODES else "legacy"
            if era not in pairs.eras_of_clients(route):
                continue
            for case in cases_for(route, mode):
                # What changes in one process is not known to the one that is listened to.
                if not (route.has_legacy_children and case in SUBSCRIPTION_CASES):
                    add(suite, case, running, route, mode)
        add(suite, test_python_questions.BothEras, running, route)
    return suite


def last_pair_tests(running):
    suite = unittest.TestSuite()
    add(suite, test_gateway.AfterwardsOfPairs, running)
    return suite


def session_tests(running):
    suite = unittest.TestSuite()
    for route in running.session_routes():
        add(suite, session_cases.Sessions, "python", python_client.open_session, running, route)
    return suite


def first_call_tests(running):
    suite = unittest.TestSuite()
    for route in running.first_call_routes():
        is_mcp_remote = route.transport == "mcp-remote"
        for mode in ("legacy",) if is_mcp_remote else MODES:
            open_session = functools.partial(python_client.open_session, mode=mode)
            for case in first_calls.cases_for(route):
                add(suite, case, f"python, {mode}", open_session, running, route)
        if is_mcp_remote and route.is_demo:
            open_session = functools.partial(python_client.open_session, mode=python_client.REVISION)
            add(suite, first_calls.Unmirrored, "python", open_session, running, route)
    return suite


def quiet_call_tests(running):
    suite = unittest.TestSuite()
    add(suite, quiet_calls.QuietCalls, "python", python_client.open_impatient, ("auto", "legacy"), running)
    return suite


def inspector_tests(running, npm, eras_by_route):
    suite = unittest.TestSuite()
    for route in running.routes:
        for era in eras_by_route.get(route.name, ()):
            add(suite, test_inspector.Inspector, npm.resolve(), running, route, era)
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


def launcher_tests(options):
    suite = unittest.TestSuite()
    add(suite, test_launchers.Launchers, options.binary, options.npm)
    add(suite, test_npx.Npx, options.binary)
    return suite


def last_tests(running):
    suite = unittest.TestSuite()
    if len(running.routes) > 1:
        add(suite, test_gateway.Afterwards, running)
    return suite


PARTS = {"clients": judge_clients, "servers": judge_real_servers, "pairs": judge_pairs}


if __name__ == "__main__":
    sys.exit(main())

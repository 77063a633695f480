"""Runs tests that need an interpreter of their own, and counts what they report.

Clients reach what is running through the `Topology`, which they get in the environment.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
TIMEOUT_S = 600
TYPESCRIPT_TESTS = ("client", "sessions", "first_calls", "quiet_calls")


def run_python1(topology, python, routes):
    """The tests of the Python SDK's version 1: how many passed and how many failed."""
    command = [str(python), "-B", "-m", "interop.python1"]
    return reported(*run(command, topology, routes, {"PYTHONPATH": str(HERE.parent)}))


def run_typescript(topology, npm, routes):
    """The tests of the TypeScript SDKs, which are written in their own language."""
    tests = [str(HERE / f"typescript_{name}.test.mjs") for name in TYPESCRIPT_TESTS]
    session_routes = ",".join(route.name for route in topology.session_routes())
    environment = {"NPM_DIRECTORY": str(npm.resolve()), "NO_COLOR": "1", "SESSION_ROUTES": session_routes}
    command = ["node", "--test", "--test-force-exit", "--test-reporter=spec", *tests]
    status, printed = run(command, topology, routes, environment)
    counts = {kind: int(count) for kind, count in re.findall(r"^\S (pass|fail|cancelled) (\d+)$", printed, re.M)}
    failed = counts.get("fail", 0) + counts.get("cancelled", 0)
    return counts.get("pass", 0), at_least_one(failed, status != 0 or "pass" not in counts)


def run(command, topology, routes, environment):
    """The exit status and everything that was printed, which is shown as well."""
    given = {"TOPOLOGY": topology.as_json(), "OPEN_ROUTES": ",".join(routes), **environment}
    try:
        ended = subprocess.run(
            command,
            env={**os.environ, **given},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{command[0]} did not end: {error}\n{getattr(error, 'output', None) or ''}")
        return 1, ""
    print(ended.stdout)
    sys.stdout.flush()
    return ended.returncode, ended.stdout


@contextlib.contextmanager
def side_by_side(command):
    """Runs a command that reports its own tests; yields what waits for it, shows what it printed, and counts."""
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    ) as child:

        def ended():
            try:
                status = child.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                status = error
            output.seek(0)
            printed = output.read()
            print(printed, flush=True)
            return reported(status, printed)

        try:
            yield ended
        finally:
            if child.poll() is None:
                child.terminate()


def reported(status, printed):
    """How many passed and how many failed, by the last line that says so."""
    found = re.findall(r"^(\d+) passed, (\d+) failed$", printed, re.M)
    passed, failed = (int(count) for count in found[-1]) if found else (0, 0)
    return passed, at_least_one(failed, status != 0 or not found)


def at_least_one(failed, wrong):
    return max(failed, 1) if wrong else failed

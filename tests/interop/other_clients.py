"""Runs the tests of the clients that need an interpreter of their own, and counts what they report.

They reach what is running through the `Topology`, which they get in the environment.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
TIMEOUT_S = 180


def run_python1(topology, python, routes):
    """The tests of the Python SDK's version 1: how many passed and how many failed."""
    command = [str(python), "-B", "-m", "interop.python1"]
    status, printed = run(command, topology, routes, {"PYTHONPATH": str(HERE.parent)})
    reported = re.findall(r"^(\d+) passed, (\d+) failed$", printed, re.M)
    passed, failed = (int(count) for count in reported[-1]) if reported else (0, 0)
    return passed, at_least_one(failed, status != 0 or not reported)


def run_typescript(topology, npm, routes):
    """The tests of the TypeScript SDKs, which are written in their own language."""
    command = ["node", "--test-reporter=spec", str(HERE / "typescript_client.test.mjs")]
    environment = {"NPM_DIRECTORY": str(npm.resolve()), "NO_COLOR": "1"}
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


def at_least_one(failed, wrong):
    return max(failed, 1) if wrong else failed

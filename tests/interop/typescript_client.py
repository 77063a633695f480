"""Runs the tests of the TypeScript SDK's client, which are written in its own language."""

import os
import pathlib
import re
import subprocess

TESTS = pathlib.Path(__file__).with_name("typescript_client.test.mjs")
TIMEOUT_S = 180


def run(topology, npm, routes):
    """Prints what the tests print and returns how many passed and how many failed."""
    environment = {
        **os.environ,
        "TOPOLOGY": topology.as_json(),
        "OPEN_ROUTES": ",".join(routes),
        "NPM_DIRECTORY": str(npm.resolve()),
        "NO_COLOR": "1",
    }
    command = ["node", "--test-reporter=spec", str(TESTS)]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"the TypeScript client's tests did not end: {error}")
        return 0, 1
    print(ended.stdout + ended.stderr)
    counts = {kind: int(count) for kind, count in re.findall(r"^\S (pass|fail|cancelled) (\d+)$", ended.stdout, re.M)}
    failed = counts.get("fail", 0) + counts.get("cancelled", 0)
    if ended.returncode != 0 or "pass" not in counts:
        failed = max(failed, 1)
    return counts.get("pass", 0), failed

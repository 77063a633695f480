"""Runs the tests of the status page in headless Chromium: `python -m page --binary PATH --npm DIRECTORY`, from `tests/`.

Some put the page before an admin listener that tells whatever they want, some before a real gateway. Screens of tests that
fail are kept in `--failures`. The last line is `N passed, N failed`.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 400


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    parser.add_argument("--failures", type=pathlib.Path, help="where pictures of what failed go")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    status, printed = run(options)
    counts = {kind: int(count) for kind, count in re.findall(r"^\S (pass|fail|cancelled) (\d+)$", printed, re.M)}
    failed = counts.get("fail", 0) + counts.get("cancelled", 0)
    if status != 0 and failed == 0:
        failed = 1
    print(f"{counts.get('pass', 0)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def run(options):
    """The exit status and everything that was printed, which is shown as well."""
    environment = {
        "BINARY": str(options.binary.resolve()),
        "NPM_DIRECTORY": str(options.npm.resolve()),
        "CHROMIUM": shutil.which("chromium") or "chromium",
        "FAILURES": str(options.failures.resolve()) if options.failures else "",
        "NO_COLOR": "1",
    }
    tests = sorted(str(path) for path in HERE.glob("*.test.mjs"))
    # Two browsers at once are too much for the clocks of some machines.
    command = ["node", "--test", "--test-concurrency=1", "--test-force-exit", "--test-reporter=spec", *tests]
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        watchdog = threading.Timer(TIMEOUT_S, child.terminate)
        watchdog.start()
        try:
            lines = [shown(line) for line in child.stdout]
        finally:
            watchdog.cancel()
            child.terminate()
        return child.wait(), "".join(lines)


def shown(line):
    print(line, end="", flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())

"""Licences, sources and doubled versions of the crates, by `deny.toml`: `python3 -m dependencies --cargo-deny PATH`, from
`tests/`.

Published advisories are checked as well, where their database can be reached. The last line is `N passed, N failed`.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deny.toml"
#: Manifest of a workspace → what is checked of it. The fuzzers are shipped to nobody.
CHECKED = {"Cargo.toml": ("bans", "licenses", "sources"), "tests/fuzz/Cargo.toml": ("sources",)}
#: For the download of a few MB.
FETCH_TIMEOUT_S = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cargo-deny", type=pathlib.Path, required=True, help="the program")
    options = parser.parse_args()
    passed = [
        is_clean(options.cargo_deny, manifest, check) for manifest, checks in CHECKED.items() for check in checks
    ]
    if has_advisories(options.cargo_deny):
        passed += [is_clean(options.cargo_deny, "Cargo.toml", "advisories", "--disable-fetch")]
    else:
        print("without advisories: their database cannot be reached")
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


def is_clean(cargo_deny, manifest, check, *options):
    command = [cargo_deny, "--locked", "--workspace", "--manifest-path", ROOT / manifest, "--config", CONFIG, "check"]
    print(f"{manifest}: ", end="", flush=True)
    return subprocess.run([*command, *options, check], cwd=ROOT, check=False).returncode == 0


def has_advisories(cargo_deny):
    """Fetches the database. Whatever git has begun by the end of the time is stopped with it."""
    fetch = [cargo_deny, "--config", CONFIG, "fetch", "db"]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(fetch, cwd=ROOT, env=environment, start_new_session=True, **quiet)
    try:
        return process.wait(FETCH_TIMEOUT_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

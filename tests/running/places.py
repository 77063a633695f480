"""The places of the repository, of its builds, and of the packages that run beside it with Python."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
INTEROP = ROOT / "tests" / "interop"
LAPTOP = ROOT / "tests" / "laptop"
#: The environment of the modules of `tests`.
PYTHON = {"PYTHONPATH": str(ROOT / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}


def cargo(subcommand, *arguments):
    return ["cargo", subcommand, "--locked", *arguments]


def target_directory():
    """The directory in which cargo builds; the packages of the tests go below it."""
    command = cargo("metadata", "--no-deps", "--format-version", "1")
    try:
        described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ROOT / "target"
    return pathlib.Path(json.loads(described)["target_directory"])


def seconds_file(target):
    """The file that has the seconds of the steps, for the bounds."""
    return target / "tests" / "seconds.json"

"""Builds of this repository: with lints, and with what the registry's crates compiled to before.

Lints are found while the tests are built, and not by a check of everything beside it: clippy is the compiler of this
repository's crates, with the same code in the end. Warnings do not break the build, so that the tests run as well; the step
`lints` asks cargo for those of everything that was built, and fails if there are any.
"""

import json
import pathlib
import subprocess

from running import objects
from running.places import ROOT, cargo
from running.process import CURRENT, run_bounded
from running.step import Failure

#: All that lints judge: libraries, programs, tests, examples and benchmarks.
EVERYTHING = ("test", "--no-run", "--all-targets")
LINTS_TIMEOUT_S = 1200


def linting():
    """The environment of every debug build and of every test of it: with another one all would be built once more."""
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    return {"RUSTC_WORKSPACE_WRAPPER": str(pathlib.Path(found.stdout.strip()) / "bin" / "clippy-driver")}


def check_lints(environment, root=ROOT):
    """Fails where a lint or the compiler warns of something in what was built. Cargo repeats what it was told then."""
    command = [*cargo(*EVERYTHING), "--message-format", "json"]
    status, output, complaint = run_bounded(command, LINTS_TIMEOUT_S, environment, root, is_shown=False)
    found = warnings(output)
    for warning in found:
        CURRENT.show(warning)
    if status != 0 or complaint:
        raise Failure(f"it does not compile {complaint}".rstrip())
    if found:
        raise Failure(f"warnings: {len(found)}")


def warnings(output):
    """The warnings among cargo's messages, as they would be printed; each once, however often its file was compiled."""
    messages = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    messages = (each["message"] for each in messages if each["reason"] == "compiler-message")
    # The last line of each crate only counts.
    warned = (each for each in messages if each["level"] in ("warning", "error") and each["spans"])
    return list(dict.fromkeys(each["rendered"] for each in warned))


def bring_objects_back(cache, target):
    """Before the first build."""
    if cache.directory is None:
        return "not with --cold"
    with cache.changing():
        kept = cache.entry("objects", objects.key())
        count = objects.bring_back(kept, target) if kept.is_dir() else 0
    return f"{count} units"


def keep_objects(cache, target):
    """After the last build."""
    if cache.directory is None:
        return "not with --cold"
    with cache.changing():
        count = objects.keep(target, cache.entry("objects", objects.key()), objects.registry_packages())
    return f"{count} units"

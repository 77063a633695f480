#!/usr/bin/env python3
"""The layers of the source: which crate may use which, and which floor of the gateway may use which.

    tests/layers.py            every import that the tables do not allow, with its line
    tests/layers.py --count    how many there are

This is the only place where layers are written. Tests may import whatever they need; what is not a test may not.
"""

import argparse
import pathlib
import re
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bounds import rust, sources  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

#: Crate → the crates of this repository that it may use. The binary may use all.
CRATES = {
    "protocol": "",
    "tokens": "protocol",
    "http1": "",
    "status": "",
    "config": "protocol",
    "net": "protocol config",
    "client": "protocol config net",
    "gateway": "protocol tokens http1 status config net",
    "tools": "protocol status config net client",
    "demo": "",
}

#: Floor of the gateway → the floors that it may use. Each may use only what stands above it in this table, so there is
#: no circle.
FLOORS = {
    "clock": "",
    "buffers": "",
    "directory": "",
    "identity": "",
    "telemetry": "clock identity",
    "redis": "clock telemetry",
    "access": "clock identity telemetry redis",
    "upstream": "clock buffers directory telemetry access",
    "bridge": "clock telemetry access upstream",
    "session": "clock directory telemetry redis access upstream",
    "snapshot": "identity telemetry access upstream bridge",
    "tables": "clock identity access upstream session snapshot",
    "context": "clock identity telemetry redis access upstream session snapshot tables",
    "mapper": "access upstream session snapshot",
    "catalog": "clock directory telemetry access upstream session snapshot tables context mapper",
    "line": "clock identity telemetry redis access upstream session snapshot tables context mapper catalog",
    "edge": "clock buffers access context line",
    "admin": "clock telemetry access upstream snapshot tables context",
    "runtime": "clock telemetry redis access upstream session snapshot context catalog line edge admin",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", action="store_true", help="print only how many there are")
    options = parser.parse_args()
    faults = [*faults_of_tables(), *faults_of_crates(), *faults_of_floors()]
    if options.count:
        print(len(faults))
        return 0
    for fault in faults:
        print(fault)
    print(f"{len(FLOORS) + len(CRATES)} passed, {len(faults)} failed")
    return 1 if faults else 0


def faults_of_tables():
    """What would make a circle possible."""
    for table in (CRATES, FLOORS):
        above = set()
        for name, allowed in table.items():
            for other in set(allowed.split()) - above:
                yield f"tests/layers.py: {name} may use {other}, which does not stand above it"
            above.add(name)


def faults_of_crates():
    for name, allowed in CRATES.items():
        manifest = tomllib.loads((SRC / name / "Cargo.toml").read_text())
        for other in manifest["dependencies"]:
            if other in CRATES and other not in allowed.split():
                yield f"src/{name}/Cargo.toml: {name} may not use {other}"


def faults_of_floors():
    gateway = pathlib.PurePath("gateway")
    for file in sources.read(SRC):
        if gateway not in file.path.parents or file.path.name == "lib.rs":
            continue
        floor = file.path.parts[1].removesuffix(".rs")
        if floor not in FLOORS:
            yield f"src/{file.path}: {floor} is no floor that tests/layers.py knows"
            continue
        allowed = {floor, *FLOORS[floor].split()}
        for number, line in code(SRC / file.path):
            for other in imports(file.path, line) - allowed:
                yield f"src/{file.path}:{number}: {floor} may not use {other}: {line.strip()}"


def imports(path, line):
    """The floors that a line names: from the root of the crate, or by as many `super` as lead there."""
    depth = len(path.parts) - (2 if path.name == "mod.rs" else 1)
    from_root = re.findall(r"\bcrate::(\w+)", line)
    upwards = re.findall(r"(?<!\w)(?:super::){%d}(?!super)(\w+)" % depth, line)
    return {*from_root, *upwards}


def code(path):
    """The lines that are neither comments nor tests, with their numbers."""
    text = path.read_text()
    tests = {line for module in rust.items(text).test_modules for line in range(module.first, module.last + 1)}
    for number, line in enumerate(text.splitlines(), 1):
        if number not in tests and not line.lstrip().startswith("//"):
            yield number, line


if __name__ == "__main__":
    sys.exit(main())

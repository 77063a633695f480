#!/usr/bin/env python3
"""The layers of the source: which crate may use which, which floor of the gateway may use which, and which room of a floor.

    tests/layers.py            every import that the tables do not allow, with its line
    tests/layers.py --circles  the files of the gateway that import each other in circles

This is the only place where layers are written. Tests may import whatever they need; what is not a test may not.
"""

import argparse
import pathlib
import re
import sys
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bounds import imports, sources  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

#: Crate → the crates of this repository that it may use. The binary may use all.
CRATES = {
    "protocol": "",
    "tokens": "protocol",
    "identity": "protocol tokens",
    "store": "",
    "http1": "",
    "status": "",
    "config": "protocol identity",
    "net": "protocol config",
    "client": "protocol config net",
    "gateway": "protocol tokens identity store http1 status config net",
    "tools": "protocol identity status config net client",
    "demo": "",
}

#: Floor of the gateway → the floors that it may use. Each may use only what stands above it in this table, so there is
#: no circle.
FLOORS = {
    "clock": "",
    "buffers": "",
    "directory": "",
    "key_file": "directory",
    "state_files": "",
    "flight": "",
    "identity": "",
    "telemetry": "clock identity",
    "redis": "clock telemetry",
    "grants": "clock state_files telemetry redis",
    "access": "clock key_file flight identity telemetry redis grants",
    "upstream": "clock buffers directory flight telemetry access",
    "bridge": "clock telemetry access upstream",
    "session": "clock directory key_file state_files telemetry redis access upstream",
    "snapshot": "clock identity telemetry grants access upstream bridge",
    "tables": "clock state_files flight identity access upstream session snapshot",
    "context": "clock key_file identity telemetry redis grants access upstream session snapshot tables",
    "sign_in": "clock identity telemetry grants access",
    "mapper": "access upstream session snapshot",
    "catalog": "clock directory state_files flight telemetry redis access upstream session snapshot tables context mapper",
    "line": "clock identity telemetry redis access upstream session snapshot tables context sign_in mapper catalog",
    "edge": "clock buffers access context line",
    "admin": "clock state_files telemetry grants access upstream snapshot tables context",
    "runtime": "clock key_file telemetry redis grants access upstream session snapshot context catalog line edge admin",
}


#: Crate, or floor of the gateway → its rooms: the files and folders directly in it, from the bottom up. A room imports earlier
#: ones only. A floor stands here once it is in order; of the others `tests/bounds.toml` counts the files that are in circles.
ROOMS = {
    "protocol": """
        event_id fields header json key_scan level media member_scan progress proxy_header route sse_endpoint text version words
        ambiguity answer_id answer_number arguments canonical foreign_id forwarded head hints initialize list_entry method
        server_request splice
        envelope error mapping param_headers sse
        agreement subscription task translation trace_meta lib
    """,
    "tokens": "fields grant jwt sealing request_state session_token task_id lib",
    "identity": """
        pages parameters presented uri
        oauth_error pkce redirect_uri resource scope
        browser_cookies public_address sealed server_metadata client client_auth registration client_document authorize token_request revocation provider
        lib
    """,
    "status": "callers calls object words query history seen servers standing faults programs state problem tools grants sign_in gateway problems lib",
    "store": """
        error limits name record room
        answer change fault file table ledger
        batch open shared
        writer reader store cases lib
    """,
    "net": """
        chunks dns drain framing guardian jitter lines regular_file secret socket stream tasks
        dial tls proxy http_client outbound fetch lib
    """,
    "tools": "client_config terminal admin_client call connect doctor provider top lib",
    "gateway/identity": "principal refusal mod",
    "gateway/access": "limit policy caller auth tls mod",
    "gateway/tables": "lists sse_sessions subscriptions mod",
    "gateway/context": "audit in_session peer reloads call state child_room worker mod",
    "gateway/mapper": "cache_scope completion mod",
    "gateway/catalog": "own_session lists probe pin_watch subscriptions mod",
}
GATEWAY = pathlib.PurePath("gateway")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circles", action="store_true", help="show which files import each other in circles")
    options = parser.parse_args()
    files = sources.read(SRC)
    arrows = all_arrows(files)
    if options.circles:
        show_circles(circles(arrows, [GATEWAY]))
        return 0
    faults = [*faults_upward(files), *faults_of_rooms(arrows)]
    for fault in faults:
        print(fault)
    print(f"{len(FLOORS) + len(CRATES) + len(ROOMS)} passed, {len(faults)} failed")
    return 1 if faults else 0


def show_circles(found):
    print(f"{len(found)} circles, {sum(map(len, found))} files, the largest {max(map(len, found), default=0)}")
    for circle in found:
        print(f"{len(circle):3}  {' '.join(str(path.relative_to(GATEWAY)) for path in circle)}")


def faults_upward(files):
    return [*faults_of_tables(), *faults_of_crates(), *faults_of_floors(files)]


def faults_of_tables():
    """Rows that would make a circle possible."""
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


def faults_of_floors(files):
    for file in files:
        if GATEWAY not in file.path.parents or file.path.name == "lib.rs":
            continue
        floor = file.path.parts[1].removesuffix(".rs")
        if floor not in FLOORS:
            yield f"src/{file.path}: {floor} is no floor that tests/layers.py knows"
            continue
        allowed = {floor, *FLOORS[floor].split()}
        for number, line in code(file):
            for other in named_floors(file.path, line) - allowed:
                yield f"src/{file.path}:{number}: {floor} may not use {other}: {line.strip()}"


def named_floors(path, line):
    """The floors that a line names: from the root of the crate, or by as many `super` as lead there."""
    depth = len(path.parts) - (2 if path.name == "mod.rs" else 1)
    from_root = re.findall(r"\bcrate::(\w+)", line)
    upwards = re.findall(r"(?<!\w)(?:super::){%d}(?!super)(\w+)" % depth, line)
    return {*from_root, *upwards}


def code(file):
    """The lines that are neither comments nor tests, with their numbers."""
    lines = (SRC / file.path).read_text().splitlines()
    return ((number, lines[number - 1]) for number in file.code)


def faults_of_rooms(arrows):
    for folder, listed in ROOMS.items():
        rooms = listed.split()
        here = pathlib.PurePath(folder)
        for path in sorted(path for path in arrows if here in path.parents):
            if room(path, here) not in rooms:
                yield f"src/{path}: {room(path, here)} is no room of {folder}; give it its place in ROOMS of tests/layers.py"
                continue
            for other, line in arrows[path].items():
                if here in other.parents and is_later(rooms, room(other, here), room(path, here)):
                    yield f"src/{path}:{line}: in {folder}, {room(path, here)} may not use {room(other, here)}, a later room"


def is_later(rooms, one, other):
    return one in rooms and rooms.index(one) > rooms.index(other)


def room(path, folder):
    return path.relative_to(folder).parts[0].removesuffix(".rs")


def all_arrows(files):
    """File → the files of its crate that it imports, but for what the gateway's `lib.rs` has, which is no floor."""
    arrows = {}
    for crate in CRATES:
        arrows |= imports.of_crate(files, crate)
    outside = GATEWAY / "lib.rs"
    return {path: {to: line for to, line in found.items() if to != outside} for path, found in arrows.items() if path != outside}


def circles(arrows, folders):
    """The files below these folders that import each other in circles, the largest first."""
    return imports.circles({path: found for path, found in arrows.items() if not set(folders).isdisjoint(path.parents)})


def reached(arrows):
    """File of the gateway → how many floors it imports besides its own."""
    floors = {}
    for path, found in arrows.items():
        if GATEWAY in path.parents:
            floors[path] = len({room(to, GATEWAY) for to in found} - {room(path, GATEWAY)})
    return floors


if __name__ == "__main__":
    sys.exit(main())

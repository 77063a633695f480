"""Keeps, between runs, the objects of the registry's crates, and none of this repository's own.

A unit of cargo is a package compiled in one way; the last 16 digits of its folder's name say which, and stand in the name of
each of its files. A unit is kept once it is whole, and cargo itself judges one that is brought back: it compares compiler,
flags, features and sources, as with any that it finds in its target directory.
"""

import collections
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import tomllib

from running.places import ROOT

UNIT = re.compile(r"(?P<package>.+)-(?P<hash>[0-9a-f]{16})")
OF_UNIT = re.compile(r"-([0-9a-f]{16})(?:\.|$)")
LOCKS = ("Cargo.lock", "tests/fuzz/Cargo.lock")
SETTINGS = (*LOCKS, ".cargo/config.toml")
MANIFESTS = ("Cargo.toml", "tests/fuzz/Cargo.toml")
FLAGS = ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CC", "CFLAGS", "CXX", "CXXFLAGS")
#: Folders with the units of one profile, below the target directory: `debug`, or `TRIPLE/debug`.
PROFILES = ("*/.fingerprint", "*/*/.fingerprint")


def key(root=ROOT):
    """Names all that the units of one folder of the cache have in common: versions, compilers, flags and profiles."""
    hashed = hashlib.sha256()
    for command in (["rustc", "-vV"], [os.environ.get("CC", "cc"), "--version"]):
        hashed.update(subprocess.run(command, capture_output=True, check=True).stdout)
    for name in FLAGS:
        hashed.update(f"{name}={os.environ.get(name, '')}\0".encode())
    for path in SETTINGS:
        hashed.update((root / path).read_bytes() if (root / path).is_file() else b"\0")
    for path in MANIFESTS:
        if (root / path).is_file():
            hashed.update(repr(tomllib.loads((root / path).read_text()).get("profile")).encode())
    return hashed.hexdigest()[:16]


def registry_packages(root=ROOT):
    """Names of packages that only the registry has, with the versions that are wanted."""
    wanted, own = {}, set()
    for path in LOCKS:
        if (root / path).is_file():
            for package in tomllib.loads((root / path).read_text())["package"]:
                if package.get("source", "").startswith("registry+"):
                    wanted.setdefault(package["name"], set()).add(package["version"])
                else:
                    own.add(package["name"])
    return {name: versions for name, versions in wanted.items() if name not in own}


def bring_back(kept, target):
    """Copies units that the target directory does not have. Returns how many."""
    def is_missing(unit, _, there):
        return unit.name not in there

    return sum(copy_units(profile, target / profile.relative_to(kept), is_missing) for profile in profiles(kept))


def keep(target, kept, packages):
    """Copies whole units of these packages that are not kept yet, or were built anew. Returns how many are kept."""
    def is_new(unit, files, there):
        return there.get(unit.name, 0) < unit.stat().st_mtime and is_of(unit, files, packages)

    for profile in profiles(target):
        copy_units(profile, kept / profile.relative_to(target), is_new)
    return sum(len(list((profile / ".fingerprint").iterdir())) for profile in profiles(kept))


def profiles(directory):
    return sorted({path.parent for pattern in PROFILES for path in directory.glob(pattern)})


def is_of(unit, files, packages):
    """True for a unit of one of these packages, of a version that is wanted, if it is whole."""
    package = UNIT.fullmatch(unit.name)["package"]
    # Cargo writes the hash of a unit, a file without a suffix, when it has compiled it.
    is_whole = any("." not in file.name and not file.name.startswith("dep-") for file in unit.iterdir())
    if package not in packages or not is_whole:
        return False
    folders = [f"/{package}-{version}/" for version in packages[package]]
    listed = [path for path in files if path.suffix == ".d"] + [found for path in files for found in path.glob("*.d")]
    return all(any(folder in sources.read_text() for folder in folders) for sources in listed)


def copy_units(profile, to, is_wanted):
    """A unit's folder comes last: without it cargo takes what else is there for nothing. `is_wanted` is given a unit, its
    files, and the times of the units that are there."""
    files = files_of_units(profile)
    there = {path.name: path.stat().st_mtime for path in (to / ".fingerprint").glob("*")}
    units = [unit for unit in (profile / ".fingerprint").iterdir() if UNIT.fullmatch(unit.name)]
    units = [unit for unit in units if is_wanted(unit, files[hash_of(unit)], there)]
    for unit in units:
        for path in (*files[hash_of(unit)], unit):
            copy(path, to / path.relative_to(profile))
    return len(units)


def files_of_units(profile):
    """Hash of a unit → its files, and folders of its build script."""
    files = collections.defaultdict(list)
    for path in itertools.chain((profile / "deps").glob("*"), (profile / "build").glob("*")):
        if found := OF_UNIT.search(path.name):
            files[found[1]].append(path)
    return files


def hash_of(unit):
    return UNIT.fullmatch(unit.name)["hash"]


def copy(path, to):
    """With its times, by which cargo knows what is older than what."""
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(path, to)

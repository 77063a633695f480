"""The software bill of materials of the binary: every crate that is linked in, as CycloneDX 1.5.

Build scripts, procedural macros and what only they or the tests use are no part of the binary, and not of the list.
"""

import hashlib
import json
import pathlib
import subprocess
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def bill_of_materials(platform):
    """The document, as a dictionary; the same input gives the same bytes."""
    metadata = cargo_metadata(platform)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    packages = built_packages(metadata, platform)
    linked = reachable(root, packages, nodes)
    checksums = locked_checksums()
    components = [component(packages[crate], checksums) for crate in linked if crate != root]
    dependencies = [
        {
            "ref": reference(packages[crate]),
            "dependsOn": sorted({reference(packages[one]) for one in below(crate, packages, nodes)}),
        }
        for crate in linked
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[root], checksums, kind="application")},
        "components": sorted(components, key=lambda one: one["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda one: one["ref"]),
    }
    content = json.dumps(document, sort_keys=True).encode()
    document["serialNumber"] = uuid.UUID(bytes=hashlib.sha256(content).digest()[:16], version=4).urn
    return document


def linked_crates(metadata, platform):
    """What cargo says of each crate that is linked in."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = built_packages(metadata, platform)
    return [packages[crate] for crate in reachable(metadata["resolve"]["root"], packages, nodes)]


def built_packages(metadata, platform):
    built = crates_of_the_tree(platform)
    return {one["id"]: one for one in metadata["packages"] if (one["name"], one["version"]) in built}


def cargo_metadata(platform):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", platform]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def crates_of_the_tree(platform):
    """Name and version of what is linked. Unlike the metadata it leaves out what only the tests' features turn on."""
    command = ["cargo", "tree", "--locked", "--target", platform, "--edges", "normal,no-proc-macro"]
    command += ["--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(name, version.removeprefix("v")) for name, version in (line.split()[:2] for line in lines if line)}


def reachable(root, packages, nodes):
    """The crates that are linked, from the root down."""
    found, waiting = set(), [root]
    while waiting:
        crate = waiting.pop()
        if crate not in found:
            found.add(crate)
            waiting += below(crate, packages, nodes)
    return sorted(found)


def below(crate, packages, nodes):
    """The crates that a crate is linked with."""
    for dependency in nodes[crate]["deps"]:
        is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
        if is_linked and dependency["pkg"] in packages:
            yield dependency["pkg"]


def component(package, checksums, kind="library"):
    described = {
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package.get("description"):
        described["description"] = " ".join(package["description"].split())
    if package.get("license"):
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def locked_checksums():
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {(one["name"], one["version"]): one.get("checksum") for one in locked}

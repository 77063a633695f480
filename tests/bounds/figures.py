"""Today's figures, each under the name that it has in `bounds.toml`.

Figures of the source are counted here. What a run measures (the gate's counts, the seconds of the steps) is read from
the files that it left, and absent where it left none.
"""

import collections
import json
import pathlib
import subprocess
import sys

from bounds import sources

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
#: What the author of the gateway works on.
GATEWAY_CRATES = {"gateway", "http1", "protocol", "tokens"}
#: Steps that only `tests/run --all` has: who asks for them has time.
ONLY_WITH_ALL = "thin build"


def of_sources(files, tables):
    """`tables`: files, below `src`, that may be long because they are read one row at a time."""
    lengths = [file.lines for file in files if str(file.path) not in tables]
    functions = [function.lines for file in files for function in file.functions]
    return {
        "lines.all": sum(file.lines for file in files),
        "lines.gateway": sum(file.lines for file in files if file.crate in GATEWAY_CRATES),
        "files.long": sum(lines > FILE_LINES_MAX for lines in lengths),
        "files.longest": max(lengths),
        "functions.long": sum(lines > FUNCTION_LINES_MAX for lines in functions),
        "functions.longest": max(functions),
        "names.homonyms": len(homonyms(files, lambda file: None)),
        "names.homonyms_in_crate": len(homonyms(files, lambda file: file.crate)),
    }


def homonyms(files, scope):
    """Names that two or more modules of a scope give to types, with the places of each."""
    places = collections.defaultdict(set)
    for file in files:
        for each in file.types:
            places[scope(file), each.name].add((file.path, each.modules))
    return {key: found for key, found in places.items() if len(found) > 1}


def of_repository():
    counted = {
        "readme.lines": len((ROOT / "README.md").read_text().splitlines()),
        "dependencies.crates": crates(),
    }
    layers = ROOT / "tests" / "layers.py"
    if layers.is_file():
        counted["arrows.upward"] = int(output([sys.executable, layers, "--count"]).split()[-1])
    return counted


def crates():
    """Packages that the binary is built of on this machine, this repository's own left out."""
    command = ["cargo", "tree", "--locked", "--package", "trunkline", "--edges", "normal", "--prefix", "none"]
    listed = output([*command, "--format", "{p}"]).splitlines()
    return len({line.removesuffix(" (*)") for line in listed if line and f"({ROOT}" not in line})


def output(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def of_steps(seconds):
    """From what `tests/run` wrote: for how long each step kept a processor busy, and how long all took."""
    taken = json.loads(seconds.read_text())
    busy = {f"busy.{step}": each for step, each in taken["busy"].items() if ONLY_WITH_ALL not in step}
    return busy | ({"seconds.total": taken["total"]} if len(busy) == len(taken["busy"]) else {})


def count(tables, seconds=None, binary=None):
    figures = of_sources(sources.read(ROOT / "src"), tables) | of_repository()
    if binary and binary.is_file():
        figures["binary.mebibytes"] = round(binary.stat().st_size / 2**20, 1)
    if seconds and seconds.is_file():
        figures |= of_steps(seconds)
    return figures

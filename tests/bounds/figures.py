"""Today's figures of the source, each under the name that it has in `bounds.toml`.

What a run measures (the seconds of its steps, the size of the binary) is read from the files that it left, and absent where
it left none. The gate counts and judges its own.
"""

import collections
import json
import pathlib
import subprocess

import layers
from bounds import once, widths

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
GATEWAY = layers.GATEWAY
#: Files longer than this are not read in one go.
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 100
#: Functions up to this length are read without scrolling back.
FILE_LINES_LONG = 450
FUNCTION_LINES_LONG = 60
#: A file that reaches over more floors belongs to none.
FLOORS_REACHED_MAX = 6
LONGEST_SHOWN = 10
#: Steps that only `tests/run --all` has: who asks for them has time.
ONLY_WITH_ALL = "thin build"


def count(files, tables, seconds=None, binary=None):
    """`tables`: structs that are read one row at a time."""
    figures = of_arrows(files) | of_widths(files, tables) | of_shapes(files) | of_sizes(files) | of_repository()
    figures["once.strays"] = len(once.strays(once.load(), files))
    figures["words.twice"] = len(twice(files))
    if binary and binary.is_file():
        figures["binary.mebibytes"] = round(binary.stat().st_size / 2**20, 1)
    if seconds and seconds.is_file():
        figures |= of_steps(seconds)
    return figures


def of_arrows(files):
    arrows = layers.all_arrows(files)
    inside = layers.circles(arrows, [GATEWAY])
    beside = layers.circles(arrows, [pathlib.PurePath(crate) for crate in layers.ROOMS if "/" not in crate])
    return {
        "arrows.up": len(layers.faults_upward(files)),
        "arrows.rooms": len(list(layers.faults_of_rooms(arrows))),
        "arrows.circle_files": sum(map(len, inside)),
        "arrows.circle_largest": max(map(len, inside), default=0),
        "arrows.circle_files_beside": sum(map(len, beside)),
        "reach.floors": sum(floors > FLOORS_REACHED_MAX for floors in layers.reached(arrows).values()),
    }


def of_widths(files, tables):
    fields = [public for file in files for name, _, public in widths.fields(file.tokens) if name not in tables]
    return {
        "width.fields": max(fields, default=0),
        "width.tuples": sum(1 for file in files for _ in widths.tuple_functions(file.tokens)),
    }


def of_shapes(files):
    functions = [function.lines for file in files for function in file.functions]
    return {
        "shape.files": sum(file.lines > FILE_LINES_MAX for file in files),
        "shape.functions": sum(lines > FUNCTION_LINES_MAX for lines in functions),
        "shape.long_files": sum(file.lines > FILE_LINES_LONG for file in files),
        "shape.long_functions": sum(lines > FUNCTION_LINES_LONG for lines in functions),
        "comments.wide": sum(file.wide_comments for file in files),
    }


def twice(files):
    """Names that two or more modules of a floor give to types, with the places of each."""
    places = collections.defaultdict(set)
    for file in files:
        for each in file.types:
            places[floor(file), each.name].add((file.path, each.modules))
    return {key: found for key, found in places.items() if len(found) > 1}


def of_sizes(files):
    sizes = collections.Counter()
    for file in files:
        sizes[f"size.{floor(file)}"] += len(file.code)
    return dict(sizes)


def floor(file):
    """A floor of the gateway, or another crate, or what is of the binary alone."""
    if GATEWAY in file.path.parents and file.path.name != "lib.rs":
        return layers.room(file.path, GATEWAY)
    return "commands" if file.crate == "." else file.crate


def of_repository():
    return {"readme.lines": len((ROOT / "README.md").read_text().splitlines()), "dependencies.crates": crates()}


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


def longest(files):
    """Lines that name the longest files and functions."""
    functions = [(each.lines, f"{each.name}, src/{file.path}:{each.first}") for file in files for each in file.functions]
    for what, found in (("files", [(file.lines, f"src/{file.path}") for file in files]), ("functions", functions)):
        yield f"the longest {what}:"
        yield from (f"{lines:6}  {name}" for lines, name in sorted(found, reverse=True)[:LONGEST_SHOWN])

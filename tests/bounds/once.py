"""Reads `tests/once.toml`: what there is one of, the tokens that betray a second one, and the files where they may stand.

A pattern is looked for line by line, in code that is no test.
"""

import dataclasses
import pathlib
import re
import tomllib

FILE = pathlib.Path(__file__).resolve().parents[1] / "once.toml"
SRC = FILE.parents[1] / "src"


@dataclasses.dataclass(frozen=True)
class Row:
    mechanism: str
    pattern: re.Pattern
    #: The folder, below `src`, in which it is looked for.
    below: str
    #: File, below `src`, → why the pattern may stand there.
    files: dict


def load(path=FILE):
    rows = tomllib.loads(path.read_text())["row"]
    return [Row(each["mechanism"], re.compile(each["pattern"]), each.get("below", ""), each["files"]) for each in rows]


def hits(row, files, src=SRC):
    """Path, line and text of each place."""
    for file in files:
        if not file.path.is_relative_to(row.below):
            continue
        lines = (src / file.path).read_text().splitlines()
        for number in file.code:
            if row.pattern.search(lines[number - 1]):
                yield str(file.path), number, lines[number - 1].strip()


def strays(rows, files, src=SRC):
    """A line for each place where a pattern may not stand."""
    return [
        f"src/{path}:{number}: {row.mechanism} is there once; use it, or say in tests/once.toml why not: {text}"
        for row in rows
        for path, number, text in hits(row, files, src)
        if path not in row.files
    ]


def idle(rows, files, src=SRC):
    """A line for each file where a pattern may stand and does not."""
    for row in rows:
        found = {path for path, _, _ in hits(row, files, src)}
        yield from (f"tests/once.toml: {row.mechanism} does not stand in {path} any more" for path in row.files.keys() - found)

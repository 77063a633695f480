"""The Rust files below `src`: which crate each belongs to, and which of its lines are tests."""

import dataclasses
import functools
import pathlib

from bounds import rust

#: Files that stand for the folder they lie in.
FOLDER_FILES = ("mod.rs", "lib.rs", "main.rs")
COMMENT_COLUMNS_MAX = 110


@dataclasses.dataclass(frozen=True)
class File:
    #: Below `src`.
    path: pathlib.PurePath
    #: The folder of the crate it belongs to; "." is the one of the root.
    crate: str
    lines: int
    functions: tuple
    types: tuple
    #: Words and marks; no comments.
    tokens: tuple
    #: The lines that hold more than a comment.
    code: tuple
    #: Lines of comments that are wider than what is read in one go.
    wide_comments: int


def read(src):
    """All files that are not tests, each without the test modules in it."""
    found = {path.relative_to(src): path.read_text() for path in sorted(src.rglob("*.rs"))}
    crates = {path.parent for path in found if path.name == "lib.rs"}
    parsed = {path: items(text) for path, text in found.items()}
    modules = [(path, module.name) for path, each in parsed.items() for module in each.test_modules]
    tests = {place for path, name in modules for place in places(path, name)}
    return [
        without_tests(path, text, parsed[path], crate_of(path, crates))
        for path, text in found.items()
        if tests.isdisjoint([path, *path.parents])
    ]


@functools.cache
def tokens(text):
    return tuple(rust.tokens(text))


@functools.cache
def items(text):
    return rust.items(tokens(text))


def places(path, module):
    """The file and the folder that a module has, which is named in the file at `path`."""
    folder = path.parent if path.name in FOLDER_FILES else path.with_suffix("")
    return folder / f"{module}.rs", folder / module


def crate_of(path, crates):
    return str(next((parent for parent in path.parents if parent in crates), "."))


def without_tests(path, text, found, crate):
    lines = text.splitlines()
    tests = {line for module in found.test_modules for line in range(with_gap(lines, module.first), module.last + 1)}
    kept = tuple(each for each in tokens(text) if each.line not in tests)
    return File(
        path,
        crate,
        len(lines) - len(tests),
        tuple(each for each in found.functions if each.first not in tests),
        tuple(each for each in found.types if each.line not in tests),
        kept,
        tuple(sorted({line for each in kept for line in range(each.line, each.line + each.text.count("\n") + 1)})),
        sum(is_wide_comment(line) for number, line in enumerate(lines, 1) if number not in tests),
    )


def is_wide_comment(line):
    return len(line) > COMMENT_COLUMNS_MAX and line.lstrip().startswith("//")


def with_gap(lines, first):
    """The first of the empty lines directly above a line: they are there for what follows."""
    while first > 1 and not lines[first - 2].strip():
        first -= 1
    return first

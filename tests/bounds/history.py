"""Figures that only the history of the repository has: commits that moved bounds alone, and those that made a floor grow.
Nothing fails by them, since a clone may have no history."""

import collections
import re
import subprocess

from bounds import figures, sources

ROOT = figures.ROOT
BOUNDS = "tests/bounds.toml"
#: By which part a floor has grown when its commits are named.
GROWN = 0.05
COMMITS_SHOWN = 10


def told(known):
    """Lines."""
    alone = commits_of_bounds_alone()
    yield f"{len(alone)} commits change {BOUNDS} and nothing else; a rise belongs into the commit that causes it"
    yield from (f"    {commit}" for commit in alone[:COMMITS_SHOWN])
    sizes = figures.of_sizes(sources.read(figures.SRC))
    for name, bound in known.of.items():
        today = sizes.get(name, 0)
        if name.startswith("size.") and today > bound.bound * (1 + GROWN):
            yield f"{name} has grown by {today / bound.bound - 1:.0%}, from {bound.bound} to {today} lines of code:"
            yield from (f"    {lines:+6} {commit}" for commit, lines in growth(name.removeprefix("size.")))


def commits_of_bounds_alone():
    """Hash and subject of each, the newest first."""
    return [commit for commit, paths in changes(git("log", "--format=%x00%h %s", "--name-only", "--", ":/")) if paths == [BOUNDS]]


def growth(floor):
    """The commits since the size of the floor was recorded that added most lines to it."""
    recorded = git("log", "-1", "--format=%H", f"-G^{floor} = ", "--", BOUNDS).strip()
    folder = folder_of(floor)
    log = git("log", "--format=%x00%h %s", "--numstat", f"{recorded}..HEAD" if recorded else "HEAD", "--", *folder)
    found = [(commit, sum(map(net_lines, rows))) for commit, rows in changes(log)]
    return sorted((each for each in found if each[1] > 0), key=lambda each: -each[1])[:COMMITS_SHOWN]


def folder_of(floor):
    """The places of the files of a floor, or of a crate."""
    if floor == "commands":
        return ["src/main.rs", "src/commands"]
    crate = ROOT / "src" / floor
    return [f"src/{floor}"] if (crate / "Cargo.toml").is_file() else [f"src/gateway/{floor}", f"src/gateway/{floor}.rs"]


def net_lines(row):
    """Added minus removed lines of one file; none for a binary one."""
    counted = re.match(r"(\d+)\t(\d+)\t", row)
    return int(counted[1]) - int(counted[2]) if counted else 0


def changes(log):
    """Each commit of a log whose commits begin with a zero byte, and the lines below it."""
    for entry in log.split("\0")[1:]:
        commit, *rows = (line for line in entry.splitlines() if line)
        yield commit, rows


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout

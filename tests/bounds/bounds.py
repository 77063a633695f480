"""Reads `bounds.toml` and says of each figure whether it is within its bound."""

import dataclasses
import pathlib
import tomllib

FILE = pathlib.Path(__file__).resolve().parents[1] / "bounds.toml"


@dataclasses.dataclass(frozen=True)
class Bound:
    bound: float
    measure: str
    reason: str
    #: Whether the figure wanders by itself, so that a low one means nothing.
    noisy: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    name: str
    today: float | None
    bound: float | None
    measure: str
    note: str
    failed: bool


def load(path=FILE):
    """All bounds by their names, and the files that are tables."""
    document = tomllib.loads(path.read_text())
    tables = set(document["files"].pop("tables"))
    return dict(leaves(document)), tables


def leaves(table, prefix=""):
    for key, value in table.items():
        if "reason" in value:
            yield prefix + key, Bound(**value)
        else:
            yield from leaves(value, f"{prefix}{key}.")


def judge(bounds, figures):
    """One verdict for each bound and for each figure that has none."""
    verdicts = [verdict(name, bound, figures.get(name)) for name, bound in bounds.items()]
    return verdicts + [unbounded(name, today) for name, today in figures.items() if name not in bounds]


def verdict(name, bound, today):
    if today is None:
        note, failed = "not measured", False
    elif today > bound.bound:
        note, failed = f"OVER: {bound.reason}", True
    elif today < bound.bound and not bound.noisy:
        note, failed = "may be lowered", False
    else:
        note, failed = "", False
    return Verdict(name, today, bound.bound, bound.measure, note, failed)


def unbounded(name, today):
    return Verdict(name, today, None, "", "has no bound in tests/bounds.toml", True)

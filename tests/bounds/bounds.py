"""Reads `bounds.toml` and says of each figure whether it is within its bound."""

import dataclasses
import pathlib
import tomllib

FILE = pathlib.Path(__file__).resolve().parents[1] / "bounds.toml"
#: How much more a call may take where the compiler or the machine is not the one that was recorded.
WIDER = 0.02


@dataclasses.dataclass(frozen=True)
class Bound:
    bound: float
    measure: str
    reason: str
    #: Whether the figure wanders by itself, so that a low one means nothing.
    noisy: bool = False
    #: By which part a figure may be over its bound, and by which it must be below to have to be recorded anew.
    rise: float = 0.0
    fall: float | None = None

    def passes(self, today, rise):
        return today <= self.bound * (1 + rise)

    def is_stale(self, today):
        return self.fall is not None and today < self.bound * (1 - self.fall)


@dataclasses.dataclass(frozen=True)
class Bounds:
    of: dict
    #: Files that may be long because they are read one row at a time.
    tables: frozenset = frozenset()
    #: The compiler and the machine that a call was counted with.
    recorded_with: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Verdict:
    name: str
    today: float | None
    bound: float | None
    measure: str
    note: str
    failed: bool


def load(path=FILE):
    document = tomllib.loads(path.read_text())
    tables = frozenset(document["files"].pop("tables"))
    recorded_with = document["gate"].pop("recorded_with")
    return Bounds(dict(leaves(document)), tables, recorded_with)


def leaves(table, prefix=""):
    for key, value in table.items():
        if "reason" in value:
            yield prefix + key, Bound(**value)
        else:
            yield from leaves(value, f"{prefix}{key}.")


def judge(known, figures, wider=False):
    """One verdict for each bound and for each figure that has none; `wider`: the figures of the gate have room."""
    verdicts = []
    for name, bound in known.of.items():
        rise = max(bound.rise, WIDER) if wider and name.startswith("gate.") else bound.rise
        verdicts.append(verdict(name, bound, figures.get(name), rise))
    return verdicts + [unbounded(name, today) for name, today in figures.items() if name not in known.of]


def verdict(name, bound, today, rise):
    if today is None:
        note, failed = "not measured", False
    elif not bound.passes(today, rise):
        note, failed = f"OVER: {bound.reason}", True
    elif bound.is_stale(today):
        note, failed = f"BELOW by over {bound.fall:.0%}: record it anew, so that it stays", True
    elif today < bound.bound and not bound.noisy and bound.fall is None:
        note, failed = "may be lowered", False
    else:
        note, failed = "", False
    return Verdict(name, today, bound.bound, bound.measure, note, failed)


def unbounded(name, today):
    return Verdict(name, today, None, "", "has no bound in tests/bounds.toml", True)


def show(verdicts):
    print(f"{'figure':32} {'today':>12} {'bound':>12} {'slack':>10}  measure")
    for verdict in verdicts:
        slack = None if None in (verdict.today, verdict.bound) else verdict.bound - verdict.today
        columns = f"{number(verdict.today):>12} {number(verdict.bound):>12} {number(slack):>10}"
        print(f"{verdict.name:32} {columns}  {verdict.measure:28} {verdict.note}".rstrip())


def number(value):
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}"

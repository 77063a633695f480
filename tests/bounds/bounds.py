"""Reads `bounds.toml` and says of each figure whether it is within its bound. Nothing else decides that a figure fails."""

import dataclasses
import math
import pathlib
import re
import tomllib

FILE = pathlib.Path(__file__).resolve().parents[1] / "bounds.toml"
#: How much more a call may take where the compiler or the machine is not the one that was recorded.
WIDER = 0.02


@dataclasses.dataclass(frozen=True)
class Bound:
    bound: float
    measure: str
    reason: str
    #: By which part a figure may be over its bound before it fails.
    rise: float = 0.0
    #: By which part it may be over its bound before that is reported.
    report_rise: float | None = None
    #: By which part it must be below for that to be reported.
    fall: float = 0.0
    #: True if it is only reported, at any value.
    report: bool = False
    #: Why it was raised last.
    note_rise: str = ""


@dataclasses.dataclass(frozen=True)
class Bounds:
    of: dict
    #: Structs that may have many fields because they are read one row at a time.
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
    tables = frozenset(document["width"].pop("tables"))
    recorded_with = document["gate"].pop("recorded_with")
    return Bounds(dict(leaves(document)), tables, recorded_with)


def leaves(table, prefix=""):
    for key, value in table.items():
        if "reason" in value:
            yield prefix + key, Bound(**value)
        else:
            yield from leaves(value, f"{prefix}{key}.")


def judge(known, figures, wider=False):
    """One verdict for each figure, in the order of `bounds.toml`; `wider`: the figures of the gate have room."""
    verdicts = []
    for name, bound in known.of.items():
        if name in figures:
            verdicts.append(verdict(name, bound, figures[name], WIDER if wider and name.startswith("gate.") else 0.0))
    return verdicts + [unbounded(name, figures[name], known) for name in figures if name not in known.of]


def verdict(name, bound, today, room):
    rise = max(bound.rise, room)
    failed = not bound.report and today > bound.bound * (1 + rise)
    if failed:
        note = f"OVER: {bound.reason}"
    elif today > bound.bound * (1 + (rise if bound.report_rise is None else bound.report_rise)):
        note = f"over, which is reported only: {bound.reason}"
    elif math.ceil(today) < bound.bound * (1 - bound.fall) and not bound.report:
        note = "may be lowered"
    else:
        note = ""
    return Verdict(name, today, bound.bound, bound.measure, note, failed)


def unbounded(name, today, known):
    """A figure that nobody has bounded fails, unless its whole table is only reported."""
    table = name.rpartition(".")[0] + "."
    beside = [bound.report for other, bound in known.of.items() if other.startswith(table)]
    failed = not beside or not all(beside)
    return Verdict(name, today, None, "", "FAILED: it has no bound in tests/bounds.toml" if failed else "is new", failed)


def show(verdicts):
    print(f"{'figure':34} {'today':>12} {'bound':>12} {'slack':>10}  measure")
    for verdict in verdicts:
        slack = None if verdict.bound is None else verdict.bound - verdict.today
        columns = f"{number(verdict.today):>12} {number(verdict.bound):>12} {number(slack):>10}"
        print(f"{verdict.name:34} {columns}  {verdict.measure:28} {verdict.note}".rstrip())


def number(value):
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}"


def recorded(text, figures, recorded_with):
    """`bounds.toml` with these figures as its bounds; each row stays as it is otherwise."""
    table, lines = "", []
    for line in text.splitlines(keepends=True):
        if heading := re.match(r"\[([\w.]+)\]", line):
            table = heading[1]
        row = re.match(r'"?([^"]+?)"? = \{ bound = ', line)
        name = f"{table}.{row[1]}" if row else None
        if name in figures:
            line = re.sub(r"bound = [\d.]+", f"bound = {spelled(name, figures[name])}", line, count=1)
        elif line.startswith("recorded_with = "):
            members = ", ".join(f'{what} = "{value}"' for what, value in recorded_with.items())
            line = f"recorded_with = {{ {members} }}\n"
        lines.append(line)
    return "".join(lines)


def spelled(name, figure):
    """A ratio as it is. A number of something per call is a whole one, though not every call has the last of them."""
    return f"{figure:g}" if name.endswith(".times_nginx") else str(math.ceil(figure))

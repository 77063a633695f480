"""The functions that took most when the bounds were recorded, a file for each scenario, to tell which have grown.

Functions are named without their modules, so that one that has moved is still the same.
"""

import collections
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / "reference"
FUNCTIONS = 150
SHOWN = 10
#: The modules before a type, and before the last module of a function.
MODULES = re.compile(r"\b(?:[a-z_]\w*::)+(?=[A-Z]|[a-z_]\w*::[a-z_])")


def write(scenario, functions):
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{round(own):6} {name}\n" for name, own in without_modules(functions).most_common(FUNCTIONS)]
    file(scenario).write_text("".join(lines))


def read(scenario):
    if not file(scenario).is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in file(scenario).read_text().splitlines())
    return {name: int(own) for own, name in lines}


def file(scenario):
    return FOLDER / f"{scenario}.txt"


def without_modules(functions):
    """Those that have the same name then are one."""
    summed = collections.Counter()
    for name, own in functions.items():
        summed[MODULES.sub("", name)] += own
    return summed


def explain(scenario, functions):
    """Lines for who has to find out why a figure is what it is."""
    lines = ["instructions per call of the functions that take most:"]
    lines += [f"{own:8.0f} {name}" for name, own in functions.most_common(SHOWN)]
    if before := read(scenario):
        changes = differences(before, without_modules(functions))
        lines.append("that have grown most since the bounds were recorded, as far as these functions are known:")
        lines += [f"{more:+8.0f} {name}" for more, name in changes[:SHOWN] if more >= 1]
        lines.append("that have shrunk most, or have another name now:")
        lines += [f"{more:+8.0f} {name}" for more, name in reversed(changes[-SHOWN:]) if more <= -1]
    return lines


def differences(before, now):
    """The most that has grown first. What was not among the recorded ones may have taken as much as the last."""
    least = min(before.values())
    changes = [(now.get(name, 0) - own, name) for name, own in before.items()]
    changes += [(max(0, own - least), name) for name, own in now.items() if name not in before]
    return sorted(changes, reverse=True)

"""The functions that took most when the bounds were recorded, a file for each scenario, to tell which have grown."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "reference"
FUNCTIONS = 150
SHOWN = 10


def write(scenario, functions):
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{round(own):6} {name}\n" for name, own in functions.most_common(FUNCTIONS)]
    file(scenario).write_text("".join(lines))


def read(scenario):
    if not file(scenario).is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in file(scenario).read_text().splitlines())
    return {name: int(own) for own, name in lines}


def file(scenario):
    return FOLDER / f"{scenario}.txt"


def explain(scenario, functions):
    """Lines for who has to find out why a figure is what it is."""
    lines = ["instructions per call of the functions that take most:"]
    lines += [f"{own:8.0f} {name}" for name, own in functions.most_common(SHOWN)]
    if before := read(scenario):
        # What was not among the recorded ones took less than the last of them.
        least = min(before.values())
        grown = sorted(((own - before.get(name, least), name) for name, own in functions.items()), reverse=True)
        lines.append("of those that have grown most since the bound was recorded (at least):")
        lines += [f"{more:+8.0f} {name}" for more, name in grown[:SHOWN] if more >= 1]
    return lines

"""Counts every figure of the source that must not drift and compares it with its bound in `tests/bounds.toml`.

    cd tests && python3 -m bounds              what can be counted here, and the longest files and functions
    cd tests && python3 -m bounds --history    what only the history of the repository tells; it fails nothing

`tests/run` also hands over what it has measured. The exit status is 1 when a figure is over its bound, or has none.
"""

import argparse
import pathlib
import sys

from bounds import bounds, figures, history, once, sources


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the optimised binary")
    parser.add_argument("--seconds", type=pathlib.Path, help="what each step of tests/run took, as JSON")
    parser.add_argument("--history", action="store_true", help="only what is in the history")
    options = parser.parse_args()
    known = bounds.load()
    if options.history:
        print("\n".join(history.told(known)))
        return 0
    files = sources.read(figures.SRC)
    verdicts = bounds.judge(known, figures.count(files, known.tables, options.seconds, options.binary))
    print("\n".join(figures.longest(files)))
    bounds.show(verdicts)
    for line in explained(files, {verdict.name for verdict in verdicts if verdict.failed}):
        print(line)
    failed = sum(verdict.failed for verdict in verdicts)
    print(f"{len(verdicts) - failed} passed, {failed} failed")
    return 1 if failed else 0


def explained(files, failed):
    """Prints the places to look at for figures that have failed."""
    if not failed.isdisjoint(("arrows.up", "arrows.rooms", "arrows.circle_files", "arrows.circle_largest")):
        yield "tests/layers.py and tests/layers.py --circles tell which imports"
    if "once.strays" in failed:
        yield from once.strays(once.load(), files)
    if "words.twice" in failed:
        yield from (f"{name} stands twice in {floor}: {places}" for (floor, name), places in figures.twice(files).items())


if __name__ == "__main__":
    sys.exit(main())

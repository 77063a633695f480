"""Counts every figure that must not drift and compares it with its bound in `tests/bounds.toml`.

    cd tests && python3 -m bounds

shows what can be counted in the source. `tests/run` also hands over what it has measured. The exit status is 1 when a
figure is over its bound, or has none.
"""

import argparse
import pathlib
import sys

from bounds import bounds, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the optimised binary")
    parser.add_argument("--seconds", type=pathlib.Path, help="what each step of tests/run took, as JSON")
    options = parser.parse_args()
    known, tables = bounds.load()
    verdicts = bounds.judge(known, figures.count(tables, options.seconds, options.binary))
    show(verdicts)
    failed = sum(verdict.failed for verdict in verdicts)
    measured = sum(verdict.today is not None for verdict in verdicts)
    print(f"{measured - failed} passed, {failed} failed")
    return 1 if failed else 0


def show(verdicts):
    print(f"{'figure':32} {'today':>12} {'bound':>12} {'slack':>10}  measure")
    for verdict in verdicts:
        slack = None if None in (verdict.today, verdict.bound) else verdict.bound - verdict.today
        columns = f"{number(verdict.today):>12} {number(verdict.bound):>12} {number(slack):>10}"
        print(f"{verdict.name:32} {columns}  {verdict.measure:28} {verdict.note}".rstrip())


def number(value):
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    sys.exit(main())

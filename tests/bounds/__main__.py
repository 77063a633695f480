"""Counts every figure that must not drift and compares it with its bound in `tests/bounds.toml`.

    cd tests && python3 -m bounds

shows what can be counted in the source. `tests/run` also hands over what it has measured. The exit status is 1 when a
figure is over its bound, or has none.
"""

import argparse
import json
import pathlib
import sys

from bounds import bounds, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the optimised binary")
    parser.add_argument("--gate", type=pathlib.Path, help="what the gate has counted, as JSON")
    parser.add_argument("--seconds", type=pathlib.Path, help="what each step of tests/run took, as JSON")
    options = parser.parse_args()
    known = bounds.load()
    gate = {"figures": {}, "differences": []}
    if options.gate and options.gate.is_file():
        gate = json.loads(options.gate.read_text())
    counted = figures.count(known.tables, options.seconds, options.binary) | gate["figures"]
    verdicts = bounds.judge(known, counted, wider=bool(gate["differences"]))
    bounds.show(verdicts)
    failed = sum(verdict.failed for verdict in verdicts)
    measured = sum(verdict.today is not None for verdict in verdicts)
    print(f"{measured - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

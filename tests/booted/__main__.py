"""Tests of the units on a systemd that is really booted: `python -m booted --binary PATH`, from `tests/`.

Where this machine lets none boot, all are skipped. Each drill prints its figure. The last line is
`N passed, N failed`, and `, N skipped (why)` behind it.
"""

import argparse
import pathlib
import signal
import sys

import suite
from booted.configuration import Configuration
from booted.machine import CannotBoot, Machine
from booted.own_sockets import OwnSockets
from booted.slow_boot import SlowBoot
from booted.under_load import UnderLoad
from booted.units import Units
from booted.upgrade import Upgrade

CASES = (Configuration, OwnSockets, SlowBoot, UnderLoad, Upgrade)
#: With `--all`.
WRONG_FOR_S = 60


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--packages", type=pathlib.Path, help="a folder that tests/packages has filled, for the upgrade")
    parser.add_argument("--all", action="store_true", help="a wrong configuration stays for a minute")
    parser.add_argument("names", nargs="*", help="only tests whose name has one of these in it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is booted is stopped, too
    Upgrade.packages = options.packages
    if options.all:
        Configuration.wrong_for_s = WRONG_FOR_S
    try:
        with Machine(options.binary) as machine:
            Units.machine = machine
            return suite.run(*CASES, names=options.names)
    except CannotBoot as why:
        count = suite.load(*CASES, names=options.names).countTestCases()
        print(suite.report(0, 0, [f"no systemd can be booted here: {why}"] * count))
        return 0


if __name__ == "__main__":
    sys.exit(main())

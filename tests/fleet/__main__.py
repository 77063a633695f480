"""Runs gateways behind HAProxy with a shared Redis: `python -m fleet --binary PATH`, from `tests/`.

It holds what is promised of several gateways: a session goes on when its gateway is killed, a drain loses no call, limits hold for
all together, what one finds out of date the others fetch again, and people stay signed in whatever is killed. Only the standard library, HAProxy and redis-server are
needed. Each drill prints its figure; the longer ones are for `--all`. The last line is `N passed, N failed`.
"""

import argparse
import pathlib
import signal
import sys

import suite
from fleet.case import Case
from fleet.limits import Limits, Small
from fleet.people import LongPeople, People, SignedIn
from fleet.three import Long, Rolling
from fleet.two import Two

CASES = (Two, Rolling, People)
LONG_CASES = (Long, Limits, Small, LongPeople)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--provider", type=pathlib.Path, help="the demo's provider; default: among the examples beside the gateway")
    parser.add_argument("--all", action="store_true", help="the longer drills as well")
    parser.add_argument("names", nargs="*", help="only tests whose name has one of these in it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    Case.binary = options.binary
    SignedIn.provider = options.provider or options.binary.parent / "examples" / "provider"
    return suite.run(*CASES, *(LONG_CASES if options.all else ()), names=options.names)


if __name__ == "__main__":
    sys.exit(main())

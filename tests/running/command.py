"""The command `tests/run`: its arguments, the steps that they ask for, and the summary."""

import argparse
import signal
import sys
import time

from running import long
from running.cache import Cache, usual_directory
from running.places import target_directory
from running.plan import quick_steps, steps
from running.summary import note_seconds, summarise


def main(description):
    options = parse(description)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running step is stopped, too
    cache = Cache(None if options.cold else usual_directory())
    target = target_directory()
    with cache.used():
        if options.long:
            return run_long(long.parts(cache, target, options.only, options.minutes))
        return run(quick_steps(cache, target) if options.quick else steps(cache, target, options.all), target)


def parse(description, arguments=None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="only what needs neither Python packages nor Node")
    extent.add_argument("--all", action="store_true", help="also build with optimisation and test that build")
    extent.add_argument("--long", action="store_true", help="only what finds more the longer it runs")
    help_only = f"of --long these parts: {', '.join(long.PARTS)}; may be given again; default: all"
    parser.add_argument("--only", type=part_names, action="extend", metavar="PART,PART", help=help_only)
    help_minutes = "how long each part of --long goes on; default: %(default)s"
    parser.add_argument("--minutes", type=float, default=long.MINUTES, help=help_minutes)
    parser.add_argument("--cold", action="store_true", help="take nothing that earlier runs kept, and keep nothing")
    options = parser.parse_args(arguments)
    if options.only and not options.long:
        parser.error("--only is for --long")
    options.only = options.only or list(long.PARTS)
    return options


def part_names(text):
    names = text.split(",")
    for name in names:
        if name not in long.PARTS:
            raise argparse.ArgumentTypeError(f"no such part: {name!r}")
    return names


def run(listed, target):
    results, started = {}, time.monotonic()
    for step in listed:
        step.run(results)
        note_seconds(target, results, time.monotonic() - started)
    return summarise(results, time.monotonic() - started)


def run_long(parts):
    """Each step that a part needs runs once."""
    results, started, rows = {}, time.monotonic(), []
    for part in parts:
        for step in part.needed:
            if step.name not in results:
                step.run(results)
        part.step.run(results)
        rows.append(part.row(results, long.commit()))
        print(rows[-1], flush=True)
    print("\n| part | commit | date | seconds | executions | findings |\n|---|---|---|---|---|---|")
    print("\n".join(rows))
    return summarise(results, time.monotonic() - started)

"""Counts the instructions, allocations, copies and task polls of a call in the optimised binary, under callgrind.

    cd tests && python3 -m gate --binary ../target/gate/trunkline --stub ../target/debug/examples/stub

The bounds are in `bounds.toml`. Where a figure leaves them, the functions that take most are shown, and those that have
grown most. `--record` writes all figures down as the bounds, and the functions as those to compare with.
"""

import argparse
import concurrent.futures
import pathlib
import sys

from bounds import bounds
from gate import counting, machine, reference, scenarios
from gate.daemon import Failure

#: Counts do not depend on what else runs.
AT_ONCE = 2
#: A figure of scenarios that are compared with another one.
TIMES_OTHER = "times_other"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the daemon")
    parser.add_argument("--stub", type=pathlib.Path, required=True, help="the example of that name")
    parser.add_argument("--provider", type=pathlib.Path, help="the example of that name; beside the other unless given")
    parser.add_argument("--scenario", choices=scenarios.ALL, action="append", help="one of them; all unless given")
    parser.add_argument("--record", action="store_true", help="write down figures and functions as those to compare with")
    options = parser.parse_args()
    known = bounds.load()
    differences = machine.differences(known.recorded_with)
    for difference in differences:
        print(f"note: {difference}, so the bounds are wider")
    chosen = [scenarios.ALL[name] for name in options.scenario or scenarios.ALL]
    provider = options.provider or options.stub.with_name("provider")
    figures, instructions, failed, uncounted = {}, {}, 0, 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        nginx = pool.submit(counting.count_nginx, scenarios.PLAIN, options.stub)
        counts = [(each, pool.submit(counting.count, each, options.binary, options.stub, provider)) for each in chosen]
        for scenario, count in counts:
            name = scenario.name
            try:
                best, peer = count.result(), nginx.result()
            except (Failure, OSError) as failure:
                print(f"{name}: {failure}")
                uncounted += 1
                continue
            found = {f"gate.{name}.{what}": figure for what, figure in best.figures().items()}
            found[f"gate.{name}.times_nginx"] = round(best.instructions / peer.instructions, 2)
            instructions[name] = best.instructions
            if (other := instructions.get(scenario.compared_with)) is not None:
                found[f"gate.{name}.{TIMES_OTHER}"] = round(best.instructions / other, 3)
            figures |= found
            failed += judge(known, found, differences, name, best.functions())
            if options.record:
                reference.write(name, best.functions())
    if options.record and not uncounted:
        # How much more one kind may take than another is settled, however much less it takes now.
        anew = {name: figure for name, figure in figures.items() if not name.endswith(TIMES_OTHER)}
        bounds.FILE.write_text(bounds.recorded(bounds.FILE.read_text(), anew, machine.described()))
    print(f"{len(figures) - failed} passed, {failed + uncounted} failed")
    return 1 if failed or uncounted else 0


def judge(known, found, differences, scenario, functions):
    """Shows the figures of a scenario and returns how many leave their bounds."""
    verdicts = bounds.judge(known, found, wider=bool(differences))
    bounds.show(verdicts)
    failed = sum(verdict.failed for verdict in verdicts)
    if failed:
        print("\n".join(reference.explain(scenario, functions)))
    return failed


if __name__ == "__main__":
    sys.exit(main())

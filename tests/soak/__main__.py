"""Loads a gateway for long, with everything at once: `python -m soak --binary PATH --stub PATH`, from `tests/`.

Both eras, all transports, sessions and connections that come and go, a reload each minute, and one upstream that always
fails; beside that a generator at a share of what it reaches at most. Afterwards memory and open files must be what they
were after the warm-up, and every error one that the soak itself made. Only the standard library is needed. The last
line is `N passed, N failed`.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

from soak import evaluation
from soak.clients import FAILING, KEYS, Crowd
from soak.evaluation import Sample, Soak
from soak.site import IDLE_TIMEOUT_S, Site

LOAD_SHARE = 0.6
CAPACITY_S = 5
#: A generator runs for so long, and then another with connections of its own.
TURN_S = 20
RELOAD_EVERY_S = 60
#: In the shortest soak that says anything.
SAMPLES_MIN = 60
#: For connections and children to be given up after the last client; sessions have a time of their own.
SETTLE_S = 3 * IDLE_TIMEOUT_S
ERAS = {"modern": 0.7, "legacy": 0.3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--stub", type=pathlib.Path, required=True,
                        help="the stub of the load test; its generator is beside it")
    parser.add_argument("--seconds", type=float, default=3600, help="how long it takes; default: %(default)s")
    parser.add_argument("--load", type=float, default=LOAD_SHARE, help="share of the capacity; default: %(default)s")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    with Site(options.binary.resolve(), options.stub.resolve(), options.seconds * evaluation.WARM_UP_SHARE / 3) as site:
        try:
            found = evaluation.checks(soaked(site, options))
        except BaseException:
            print(site.process.log(), flush=True)
            raise
        for check in found:
            print(f"{'ok' if check.passed else 'FAILED':6} {check.name}: {check.found}", flush=True)
        failed = sum(not check.passed for check in found)
        if failed:
            print(site.process.log(), flush=True)
    print(f"{len(found) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def soaked(site, options):
    """Runs the load, and returns what was found."""
    generator = options.stub.resolve().with_name("generator")
    files_before = open_files(site.pid)
    rate = options.load * capacity(generator, site)
    print(f"{rate:.0f} calls a second for {options.seconds:.0f} s", flush=True)
    turn_s = min(TURN_S, options.seconds / 30)
    samples, reloads_before, wanted, told = [], site.reloads(), 0, 0
    with Crowd(site.port) as crowd, bulk_load(generator, site, rate, crowd, turn_s):
        period_s = min(options.seconds / SAMPLES_MIN, 5)
        next_reload = RELOAD_EVERY_S
        while (at := time.monotonic() - crowd.begun) < options.seconds:
            samples.append(Sample(at, resident_kib(site.pid), open_files(site.pid)))
            if at >= next_reload:
                site.reload()
                wanted, next_reload = wanted + 1, next_reload + RELOAD_EVERY_S
                for error in crowd.unexplained[told:]:
                    print(f"unexplained: {error}", flush=True)
                told = len(crowd.unexplained)
                print(f"{at:5.0f} s: {samples[-1].resident_kib / 1024:.1f} MiB, {samples[-1].files} files, "
                      f"{len(crowd.unexplained)} unexplained errors", flush=True)
            time.sleep(period_s)
    end = time.monotonic() + SETTLE_S + 2 * site.session_idle_s
    while time.monotonic() < end and open_files(site.pid) > files_before:
        time.sleep(0.5)
    return Soak(
        seconds=options.seconds,
        samples=samples,
        done=crowd.done,
        unexplained=crowd.unexplained,
        explained=crowd.explained,
        expected=(FAILING,),
        reloads=site.reloads() - reloads_before,
        reloads_wanted=wanted,
        files_before=files_before,
        files_after=open_files(site.pid),
    )


@contextlib.contextmanager
def bulk_load(generator, site, rate, crowd, turn_s):
    """Generators of both eras, one after the other, until the end of the block; what they find goes to the crowd's."""
    ends = threading.Event()
    crowd.done["generator"] = []
    answered = 0

    def run():
        nonlocal answered
        while not ends.is_set():
            running = [start(generator, site, era, share * rate, turn_s) for era, share in ERAS.items()]
            for era, process in zip(ERAS, running, strict=True):
                found = finished(process)
                answered += found["requests"]
                if found["errors"]:
                    crowd.unexplained += [f"generator, {era}: {found['errors']} calls: {found['errors_by_kind']}"]
            crowd.done["generator"].append(time.monotonic() - crowd.begun)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(3 * turn_s + TURN_S)
        print(f"{answered + sum(map(len, crowd.done.values())):,} calls in all", flush=True)


def start(generator, site, era, rate, seconds):
    """A generator; with a rate of nought, as fast as it can."""
    command = [
        *(generator, "--url", f"http://127.0.0.1:{site.port}/stub", "--era", era, "--json", "--connections", "16"),
        *("--rate", str(round(rate)), "--duration", str(seconds), "--warmup", "0"),
        *("--header", f"Authorization: Bearer {KEYS[0]}"),
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def finished(process):
    return json.loads(process.communicate()[0].splitlines()[-1])


def capacity(generator, site):
    """Calls a second that are answered at most."""
    found = finished(start(generator, site, "modern", 0, CAPACITY_S))
    if found["errors"]:
        raise RuntimeError(f"the gateway fails before there is any load: {found['errors_by_kind']}")
    return found["requests_per_s"]


def resident_kib(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def open_files(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


if __name__ == "__main__":
    sys.exit(main())

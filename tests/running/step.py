"""A step of a run, and lanes of steps that run beside each other."""

import dataclasses
import itertools
import threading
import time

from running.counts import count_skipped, failures_told
from running.process import CURRENT, RUNNING, STOPPING, kill_group, print_now, run_bounded


class Failure(Exception):
    """Why a step failed, for the reader of the summary."""


@dataclasses.dataclass
class Result:
    passed: int
    failed: int
    skipped: int = 0
    seconds: float = 0.0
    busy_seconds: float = 0.0
    note: str = ""
    #: The part of its output that tells of failures.
    told: str = ""


@dataclasses.dataclass
class Step:
    """A command, or a function that prints, returns a note or nothing and raises `Failure`."""

    name: str
    action: object
    timeout_s: int = 0
    count: object = None
    environment: dict = dataclasses.field(default_factory=dict)
    needs: tuple = ()
    #: It may find that this machine does not allow what it tests, and says why.
    may_be_impossible: bool = False

    def run(self, results):
        print(f"\n==> {self.name}", flush=True)
        self.result(results, print_now)

    def result(self, results, show):
        """Runs it and notes what came of it; each line of its output is given to `show`."""
        started = time.monotonic()
        CURRENT.show, CURRENT.busy_seconds = show, 0.0
        missing = [name for name in self.needs if results[name].failed]
        if missing:
            result = Result(0, 1, note=f"not run: {' and '.join(missing)} failed")
        elif callable(self.action):
            result = self.call()
        else:
            result = self.spawn()
        result.seconds, result.busy_seconds = time.monotonic() - started, CURRENT.busy_seconds
        verdict = "FAILED" if result.failed else "ok"
        show(f"<== {self.name}: {verdict} in {result.seconds:.1f} s {result.note}".rstrip() + "\n")
        results[self.name] = result

    def call(self):
        begun = time.thread_time()
        try:
            note = self.action()
        except (Failure, OSError) as failure:
            CURRENT.show(f"{failure}\n")
            return Result(0, 1, note=str(failure).splitlines()[0])
        finally:
            CURRENT.busy_seconds += time.thread_time() - begun
        return Result(1, 0, note=note or "")

    def spawn(self):
        try:
            status, output, note = run_bounded(self.action, self.timeout_s, self.environment)
        except OSError as error:
            CURRENT.show(f"{error}\n")
            return Result(0, 1, note=str(error))
        passed, failed = self.count(output) if self.count else (int(status == 0), 0)
        is_nothing = passed == 0 and not self.may_be_impossible
        if (status != 0 or note or is_nothing) and failed == 0:
            failed = 1
        skipped, why = count_skipped(output) if self.count else (0, "")
        notes = [note, f"{skipped} skipped ({why})" if skipped else ""]
        note = ", ".join(each for each in notes if each)
        return Result(passed, failed, skipped, note=note, told=failures_told(output) if failed else "")


class Lanes:
    """Steps that wait more than they work: the lanes run beside each other, the steps of each one after another. The
    output of a step is shown when it has ended."""

    def __init__(self, *lanes):
        self.lanes = lanes

    def run(self, results):
        threads = [threading.Thread(target=self.run_lane, args=(lane, results)) for lane in self.lanes]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            STOPPING.set()
            while any(thread.is_alive() for thread in threads):
                for leader in list(RUNNING):
                    kill_group(leader)
                time.sleep(0.05)
            raise
        for step in itertools.chain(*self.lanes):
            results.setdefault(step.name, Result(0, 1, note="did not end"))

    def run_lane(self, lane, results):
        for step in lane:
            if STOPPING.is_set():
                return
            lines = []
            step.result(results, lines.append)
            print_now(f"\n==> {step.name}\n{''.join(lines)}")

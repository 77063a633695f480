"""The order of a run: step by step, and in each the rate of its open loop, then all rounds, interleaved."""

import functools

import fairness
import isolation
import listening
from measure import Failed, capacity, measure
from peers import Missing
from progress import Progress


class Rounds:
    """What was found so far, and what is still to do."""

    def __init__(self, options, steps, site, bench):
        """`steps` are those to measure, by name."""
        self.options, self.steps, self.site, self.bench = options, steps, site, bench
        rounds = sum(self._count(step) * len(step.peers) for step in steps.values())
        self.progress = Progress(rounds + sum(len(self._references(step)) for step in steps.values()))
        self.left_out = {}  # peer → reason
        self.rates = {}  # step → calls a second of its open loop
        self.runs = []
        self.streams = []
        self.isolation = []
        self.fairness = []

    def measure_all(self):
        """All rounds of all steps; returns what was found, as plain data."""
        for name, step in self.steps.items():
            if step.holds_streams:
                self.streams += self._rounds(name, step, self._measure_streams)
                continue
            if step.is_attacked:
                self.fairness += self._rounds(name, step, functools.partial(fairness.measure, self.bench))
                continue
            rate = self.rates[name] = self.options.rate or self._find_rate(step)
            found, measured = (self.isolation, isolation.measure) if step.isolates else (self.runs, measure)
            found += self._rounds(name, step, functools.partial(measured, self.bench, rate=rate))
        found = {"runs": self.runs, "streams": self.streams, "isolation": self.isolation, "fairness": self.fairness}
        return {"left_out": self.left_out, "rates": self.rates, **found}

    def _rounds(self, step_name, step, measured):
        runs = []
        for number in range(1, self._count(step) + 1):
            for name, make in step.peers.items():
                run = self._attempt(name, make, f"round {number}", measured)
                if run:
                    runs.append({"step": step_name, "round": number, **run})
        return runs

    def _count(self, step):
        return step.rounds_by_default if step.rounds_by_default and not self.options.is_rounds_given else self.options.rounds

    def _measure_streams(self, peer):
        return listening.measure(self.bench, peer, self.options.streams, self.options.idle)

    def _find_rate(self, step):
        trial = isolation.capacity if step.isolates else capacity
        capacities = [
            self._attempt(name, step.peers[name], "looking for the rate", lambda peer: trial(self.bench, peer))
            for name in self._references(step)
        ]
        slowest = min((found for found in capacities if found), default=0)
        return int(step.rate_share * slowest) // 100 * 100 or 100

    def _references(self, step):
        """The peers to find the rate of an open loop with; none where there is nothing to find."""
        if self.options.rate or step.holds_streams or step.is_attacked:
            return []
        return [name for name in step.rate_references if name in step.peers] or list(step.peers)

    def _attempt(self, name, make, what, measured):
        """What was measured, `None` where that does not work; then the peer is left out from now on."""
        if name in self.left_out:
            self.progress.drop(1)
            return None
        self.progress.step(f"{what}: {name}")
        try:
            run = measured(make(self.site))
        except (Missing, Failed) as problem:
            self.left_out[name] = str(problem)
            self.progress.drop(1)
            self.progress.note(f"left out: {name}: {problem}")
            return None
        self.progress.finish()
        return run

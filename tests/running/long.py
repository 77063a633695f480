"""Tests that find more the longer they run: each part goes on for so many minutes, and says in one line what it did.

The line is a row of the table in `docs/project/testing.md`.
"""

import dataclasses
import datetime
import itertools
import re
import subprocess
import sys
import time

from running.building import bring_objects_back, linting
from running.counts import count_cargo_tests, count_reported
from running.installation import RUST_TEST_TOOLS, install_tools
from running.places import PYTHON, ROOT, cargo
from running.plan import FUZZ_BUILD_TIMEOUT_S, fuzz_command, rust_steps, rust_tests_at_once, simulation
from running.process import CURRENT, run_bounded
from running.step import Failure, Step

PARTS = ("soak", "simulation", "fuzz", "properties", "bridge", "crowded")
MINUTES = 45
#: As many as make the machine late for everything: a test that takes a delay for a failure is found.
CROWDED_RUST_TESTS_PER_CORE = 16
#: Random cases that each property is tried with in a round; 256 otherwise.
PROPERTY_CASES = 2_000
ROUND_TIMEOUT_S = 1800
#: Targets that are searched at once, as `tests/fuzz` does.
FUZZ_AT_ONCE = 2
#: Seconds that a soak takes before and after.
SOAK_AROUND_S = 300
#: Of each target that was searched.
INPUTS = r" ([\d,]+) inputs, "
#: Each round of the bridge's model takes the seeds of so many numbers.
BRIDGE_SEEDS = 4


@dataclasses.dataclass
class Part:
    """A step of its own, after those that it needs; `executions` is what it has done so far, in words."""

    name: str
    needed: list
    step: Step = None
    executions: str = "none"

    def said(self, output, count, pattern, words):
        """Counts passed and failed checks, and notes what the output tells of executions."""
        found = re.findall(pattern, output, re.M)
        self.executions = f"{sum(int(number.replace(',', '')) for number in found):,} {words}"
        return count(output)

    def played(self, output):
        """The same of the simulation."""
        found = re.search(r"^seeds (\d+) to (\d+) in", output, re.M)
        self.executions = f"{int(found[2]) - int(found[1]) + 1:,} seeds from {found[1]}" if found else "none"
        return count_cargo_tests(output)

    def row(self, results, commit):
        """Part, commit, date, seconds, executions, findings."""
        result = results[self.step.name]
        day = datetime.date.today().isoformat()
        lines = (result.told or result.note or "failed").strip().splitlines()
        findings = f"{lines[0]} ({len(lines)} lines)" if result.failed else "nothing"
        return f"| {self.name} | {commit} | {day} | {result.seconds:.0f} | {self.executions} | {findings} |"


def commit():
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def parts(cache, target, names, minutes):
    """The parts of these names, in the order of `PARTS`; each goes on for these minutes."""
    makers = {
        "soak": soak,
        "simulation": simulated,
        "fuzz": fuzzing,
        "properties": properties,
        "bridge": bridge,
        "crowded": crowded,
    }
    return [makers[name](cache, target, minutes) for name in PARTS if name in names]


def rust(cache, target):
    built = rust_steps(cache, target)
    return [Step("tools", lambda: install_tools(RUST_TEST_TOOLS)), built["kept objects"], built["test build"]]


def soak(cache, target, minutes):
    optimised, seconds = target / "release", round(minutes * 60)
    command = [sys.executable, "-m", "soak", "--binary", optimised / "trunkline"]
    command += ["--stub", optimised / "examples" / "stub", "--seconds", seconds]
    build = Step("release build", cargo("build", "--release", "--bins", "--examples"), 1800)
    tools = Step("tools", lambda: install_tools(RUST_TEST_TOOLS))
    brought = Step("kept objects", lambda: bring_objects_back(cache, target))
    part = Part("soak", [tools, brought, build])
    count = lambda output: part.said(output, count_reported, r"^([\d,]+) calls in all", "calls")
    part.step = Step("soak", command, seconds + SOAK_AROUND_S, count, PYTHON, ("tools", "release build"))
    return part


def simulated(cache, target, minutes):
    part = Part("simulation", rust(cache, target))
    part.step = simulation(round(minutes * 60), part.played)
    return part


def fuzzing(cache, _, minutes):
    """Two targets at once, so that all of them together take these minutes."""
    targets = re.findall(r'^    \("(\w+)", ', (ROOT / "tests" / "fuzz" / "targets" / "mod.rs").read_text(), re.M)
    turns = -(-len(targets) // FUZZ_AT_ONCE)
    seconds = max(1, round(minutes * 60 / turns))
    part = Part("fuzz", [Step("tools", lambda: install_tools(RUST_TEST_TOOLS))])
    count = lambda output: part.said(output, count_reported, INPUTS, f"inputs of {len(targets)} targets")
    timeout_s = turns * (seconds + 60) + FUZZ_BUILD_TIMEOUT_S
    part.step = Step("fuzzing", fuzz_command(cache, seconds), timeout_s, count, PYTHON, ("tools",))
    return part


def properties(cache, target, minutes):
    part = Part("properties", rust(cache, target))
    environment = {"PROPTEST_CASES": str(PROPERTY_CASES)}
    words = f"tests, those of properties with {PROPERTY_CASES:,} cases each"
    return repeated(part, minutes, cargo("test", "--lib", "--bins"), lambda _: environment, words)


def bridge(cache, target, minutes):
    part = Part("bridge", rust(cache, target))
    first = int(time.time())
    seeds = lambda number: {"BRIDGE_MODEL_SEED": str(first + BRIDGE_SEEDS * number)}
    words = f"tests, in each round with {BRIDGE_SEEDS} seeds from {first} on"
    return repeated(part, minutes, [*cargo("test", "--test", "daemon"), "bridge::model"], seeds, words)


def crowded(cache, target, minutes):
    part = Part("crowded", rust(cache, target))
    many = rust_tests_at_once(CROWDED_RUST_TESTS_PER_CORE)
    return repeated(part, minutes, cargo("test", "--test", "daemon"), lambda _: many, "tests")


def repeated(part, minutes, command, environment_of, words):
    part.step = Step(part.name, lambda: repeat(part, minutes, command, environment_of, words), needs=("test build",))
    return part


def repeat(part, minutes, command, environment_of, words):
    """Runs a command once, and again for as long as a round is likely to end in time. Returns how often it ran."""
    end = time.monotonic() + 60 * minutes
    longest = passed = 0
    lints = linting()
    for number in itertools.count():
        started, environment = time.monotonic(), environment_of(number)
        status, output, complaint = run_bounded(command, ROUND_TIMEOUT_S, environment | lints, is_shown=False)
        said = " ".join(f"{name}={value}" for name, value in environment.items())
        passed += count_cargo_tests(output)[0]
        part.executions = f"{number + 1} rounds, {passed:,} {words}"
        if status != 0 or complaint:
            CURRENT.show(output)
            raise Failure(f"failed {complaint}: {said} {' '.join(command)}")
        seconds = time.monotonic() - started
        CURRENT.show(f"{said}: {count_cargo_tests(output)[0]} passed in {seconds:.0f} s\n")
        longest = max(longest, seconds)
        if time.monotonic() + longest > end:
            return f"{number + 1} rounds"

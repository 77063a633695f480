"""Counts one scenario: calls one after the other, in rounds, in several starts of the daemon, of which the middle one is the
figure.

A start has its own keys of hash tables, addresses and ports. Within a start the count of a call hardly differs from round to
round, however busy the machine is, once what is done by the clock is taken off. Rounds of twice as many calls must come to
the same: else something is counted that is no part of a call.
"""

import contextlib
import dataclasses
import time

from gate import daemon, sign_in
from gate.caller import Connection
from gate.dump import Dump

WARM_UP_CALLS = 300
#: Of a start, how often so many calls as the scenario says; those of twice as many are the figure.
ROUNDS = (1, 2, 2)
STARTS = 3
#: If one start is not like the others, there are as many more, so often at most.
ATTEMPTS = 3
#: For so long the daemon is counted while nobody calls.
IDLE_S = 2.0


@dataclasses.dataclass(frozen=True)
class Round:
    calls: int
    dump: Dump

    def __add__(self, other):
        return Round(self.calls + other.calls, self.dump + other.dump)

    @property
    def instructions(self):
        return self.dump.instructions / self.calls

    def figures(self):
        return self.dump.figures(self.calls)

    def functions(self):
        return self.dump.functions(self.calls)


def count(scenario, binary, stub, provider):
    """The middle start, or the reason why there is no figure."""

    @contextlib.contextmanager
    def trunkline(address, folder):
        places = {"stub": f"http://{address}/mcp", "program": daemon.linked(folder, "stub", stub), "folder": folder}
        with contextlib.ExitStack() as stack:
            if "{provider}" in scenario.config:
                places["provider"] = stack.enter_context(sign_in.provider(provider))
            yield stack.enter_context(daemon.trunkline(binary, *scenario.write(**places), folder))

    return count_of(scenario, stub, trunkline)


def count_nginx(scenario, stub):
    """Likewise of nginx, which hands on what it is sent."""
    return count_of(scenario, stub, daemon.nginx)


def count_of(scenario, stub, start):
    found = []
    for attempt in range(ATTEMPTS):
        for _ in range(STARTS):
            with (
                daemon.stub(stub, scenario.stub_options) as address,
                daemon.folder() as folder,
                start(address, folder) as counted,
            ):
                found.append(rounds(scenario, counted))
        try:
            return middle(found, scenario.difference_max)
        except daemon.Failure:
            if attempt == ATTEMPTS - 1:
                raise


def rounds(scenario, counted):
    """The rounds of one start."""
    connection = Connection(counted.port)
    request = scenario.open(connection, scenario.request)
    call = repeat(connection, request, scenario.expected)
    call(WARM_UP_CALLS)
    idle = counted.count(lambda: time.sleep(IDLE_S))
    found = []
    for times in ROUNDS:
        calls = times * scenario.round_calls
        found.append(Round(calls, counted.count(lambda calls=calls: call(calls)).of_calls(idle)))
    connection.close()
    return found


def repeat(connection, request, expected):
    """A function that sends the request so many times."""
    prepared = request.bytes_for(connection.host)

    def call(times):
        for _ in range(times):
            reply = connection.exchange(prepared)
            if reply.status != 200 or expected not in reply.body:
                raise daemon.Failure(f"a call was answered with {reply}")

    return call


def middle(starts, difference_max):
    """The start in the middle, by its rounds of twice as many calls."""
    single = median([added(found, min) for found in starts])
    double = median([added(found, max) for found in starts])
    difference = double.instructions / single.instructions - 1
    if abs(difference) > difference_max:
        counts = ", ".join(f"{each.calls}: {each.instructions:.0f}" for found in starts for each in found)
        raise daemon.Failure(f"twice as many calls differ by {difference:+.2%} ({counts})")
    return double


def added(rounds, choose):
    """All rounds of as many calls as the one with fewest or most has, as one."""
    calls = choose(each.calls for each in rounds)
    first, *others = (each for each in rounds if each.calls == calls)
    return sum(others, first)


def median(rounds):
    return sorted(rounds, key=lambda each: each.instructions)[(len(rounds) - 1) // 2]

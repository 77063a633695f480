"""Counts one scenario: calls one after the other, in rounds, of which the one that took least is the figure.

What a worker does by the clock depends on how long a round takes; the best of several rounds has the least of it.
Rounds of twice as many calls must come to the same: else something is counted that is no part of a call.
"""

import dataclasses
import tempfile

from gate import daemon
from gate.caller import Connection
from gate.dump import Dump

WARM_UP_CALLS = 300
ROUND_CALLS = 500
ROUNDS = 3
#: One lucky round is no proof that the others count too much: then there are as many more, so often at most.
ATTEMPTS = 3


@dataclasses.dataclass(frozen=True)
class Round:
    calls: int
    dump: Dump

    @property
    def instructions(self):
        return self.dump.instructions / self.calls

    def figures(self):
        return self.dump.figures(self.calls)

    def functions(self):
        return self.dump.functions(self.calls)


def count(scenario, binary, stub):
    """The best round, or the reason why there is no figure."""

    def trunkline(address, folder):
        return daemon.trunkline(binary, scenario.write(f"http://{address}/mcp", stub, folder), folder)

    return count_of(scenario, stub, trunkline)


def count_nginx(scenario, stub):
    """Likewise of nginx, which hands on what it is sent."""
    return count_of(scenario, stub, daemon.nginx)


def count_of(scenario, stub, start):
    with (
        daemon.stub(stub, scenario.stub_options) as address,
        tempfile.TemporaryDirectory(prefix="gate") as folder,
        start(address, folder) as counted,
    ):
        found = []
        for attempt in range(ATTEMPTS):
            found += rounds(scenario, counted)
            try:
                return best(found, scenario.difference_max)
            except daemon.Failure:
                if attempt == ATTEMPTS - 1:
                    raise


def rounds(scenario, counted):
    connection = Connection(counted.port)
    request = scenario.open(connection, scenario.request)
    call = repeat(connection, request, scenario.expected)
    call(WARM_UP_CALLS)
    found = []
    for _ in range(ROUNDS):
        for calls in (ROUND_CALLS, 2 * ROUND_CALLS):
            counted.zero()
            call(calls)
            found.append(Round(calls, counted.dump()))
    connection.close()
    return found


def repeat(connection, request, expected):
    """What sends the request so many times."""
    prepared = request.bytes_for(connection.host)

    def call(times):
        for _ in range(times):
            reply = connection.exchange(prepared)
            if reply.status != 200 or expected not in reply.body:
                raise daemon.Failure(f"a call was answered with {reply}")

    return call


def best(rounds, difference_max):
    single = min((each for each in rounds if each.calls == ROUND_CALLS), key=lambda each: each.instructions)
    double = min((each for each in rounds if each.calls != ROUND_CALLS), key=lambda each: each.instructions)
    difference = double.instructions / single.instructions - 1
    if abs(difference) > difference_max:
        counts = ", ".join(f"{each.calls}: {each.instructions:.0f}" for each in rounds)
        raise daemon.Failure(f"twice as many calls differ by {difference:+.2%} ({counts})")
    return double

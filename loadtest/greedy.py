"""Takes all it can of one resource of a gateway, within a share of the CPU, until standard input ends.

    greedy.py WAY --address HOST:PORT --attackers N --pid PID,PID --cores SHARE --idle-cores CORES

Its own CPU time and what the processes of `--pid` need beyond `--idle-cores` stay below `--cores` together. Prints `full`
when it is refused for the first time, holds as much as it wants, or has tried for long enough; then goes on trying.
Meanwhile somebody takes one of the same who has nothing yet. At the end it prints what came of it, one line of JSON.

The way `nothing` spends the same CPU time and touches nothing: beside it the other is measured before the attack, so that
only what the gateway does differs.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import pathlib
import sys
import time

from attacks import ATTACKS, ATTEMPTS, Who
from wire import Refused

# More than any bound that is attacked.
HELD_MAX = 4096
FULL_AFTER_S = 4
# What may be spent at once.
BURST_CPU_S = 0.01
LOOK_EVERY_S = 0.02
OTHER_AFTER_S = 0.5
# What is held may be closed by the gateway; so often that is looked at.
PURGE_EVERY_S = 0.25
TAKE_TIMEOUT_S = 10
SPIN_CPU_S = 0.0003
PAUSE_AFTER_REFUSAL_S = 0.001
# Not that of the load, which holds a connection itself.
OTHER_SOURCE = "127.2.0.1"


class Budget:
    """CPU time that may be spent, by this process and by others for its sake."""

    def __init__(self, pids, cores, idle_cores):
        self.pids, self.cores, self.idle_cores = pids, cores, idle_cores
        self.begun, self.own, self.others = time.monotonic(), time.process_time(), cpu_s(pids)
        self.looked, self.left = 0.0, BURST_CPU_S

    async def turn(self):
        """Waits until there is something left to spend."""
        while self._left() <= 0:
            await asyncio.sleep(LOOK_EVERY_S)
        await asyncio.sleep(0)

    def spent(self):
        """By this process, and by the others for its sake."""
        elapsed = time.monotonic() - self.begun
        caused = cpu_s(self.pids) - self.others - self.idle_cores * elapsed
        return time.process_time() - self.own, max(0.0, caused)

    def _left(self):
        now = time.monotonic()
        if now - self.looked >= LOOK_EVERY_S:
            self.looked = now
            self.left = BURST_CPU_S + self.cores * (now - self.begun) - sum(self.spent())
        return self.left


def cpu_s(pids):
    """CPU time of processes and of their children."""
    nanoseconds, unvisited = 0, list(pids)
    while unvisited:
        # What ends meanwhile is left out.
        with contextlib.suppress(OSError):
            for thread in pathlib.Path(f"/proc/{unvisited.pop()}/task").iterdir():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
                unvisited += map(int, (thread / "children").read_text().split())
    return nanoseconds / 1e9


class Pressure:
    """One way, pressed by all attackers in turn."""

    def __init__(self, way, attackers, budget):
        self.take, self.attackers, self.budget = ATTACKS.get(way, nothing), attackers, budget
        self.held, self.taken, self.refused = [], 0, collections.Counter()
        self.full = asyncio.Event()

    async def press(self):
        # However little may be spent.
        asyncio.get_running_loop().call_later(FULL_AFTER_S if self.take is not nothing else 0, self.full.set)
        purged = time.monotonic()
        for who in itertools.cycle(self.attackers):
            await self.budget.turn()
            now = time.monotonic()
            if now - purged > PURGE_EVERY_S:
                purged = now
                self.purge()
            if len(self.held) >= HELD_MAX:
                self.full.set()
                await asyncio.sleep(LOOK_EVERY_S)
                continue
            await self.take_one(who)

    async def take_one(self, who):
        try:
            taken = await asyncio.wait_for(self.take(who), TAKE_TIMEOUT_S)
        except (Refused, TimeoutError, OSError, ValueError, asyncio.IncompleteReadError) as problem:
            self.refused[str(problem) or type(problem).__name__] += 1
            self.full.set()
            await asyncio.sleep(PAUSE_AFTER_REFUSAL_S)
            return
        self.taken += 1
        if taken is not None:
            self.held.append(taken)

    def purge(self):
        over = [each for each in self.held if each.is_over]
        for each in over:
            self.refused[refusal_of(each)] += 1
            each.close()
        if over:
            self.full.set()
            self.held = [each for each in self.held if not each.is_over]


async def nothing(_who):
    """So much as an attempt of the other ways costs, and nothing else."""
    until = time.process_time() + SPIN_CPU_S
    while time.process_time() < until:
        pass


def refusal_of(held):
    """How what was held came to its end."""
    answer = getattr(held, "answer", None)
    if answer is None or not answer.done() or answer.cancelled():
        return "closed"
    problem = answer.exception()
    return str(problem) if problem else "answered"


async def other_takes(take, other, full):
    """What somebody else gets meanwhile."""
    await full.wait()
    await asyncio.sleep(OTHER_AFTER_S)
    try:
        held = await asyncio.wait_for(take(other), TAKE_TIMEOUT_S)
        await asyncio.sleep(OTHER_AFTER_S)
        lost = held is not None and held.is_over and refusal_of(held) != "answered"
        return "closed" if lost else "taken"
    except (Refused, TimeoutError, OSError, ValueError, asyncio.IncompleteReadError) as problem:
        return str(problem) or type(problem).__name__


async def run(options):
    host, port = options.address.rsplit(":", 1)
    place = (host, int(port))
    attackers = [
        Who(number, options.key.format(number), f"127.1.0.{number}", place) for number in range(1, options.attackers + 1)
    ]
    pids = [int(pid) for pid in options.pid.split(",")]
    pressure = Pressure(options.way, attackers, Budget(pids, options.cores, options.idle_cores))
    pressing = asyncio.create_task(pressure.press())
    other = Who(0, options.key.format(options.other), OTHER_SOURCE, place)
    others = asyncio.create_task(other_takes(ATTEMPTS.get(options.way, pressure.take), other, pressure.full))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([asyncio.create_task(pressure.full.wait()), pressing], return_when=asyncio.FIRST_COMPLETED)
    print("full", flush=True)
    await asyncio.wait([ended, pressing], return_when=asyncio.FIRST_COMPLETED)
    if pressing.done():
        pressing.result()
    pressing.cancel()
    pressure.purge()
    elapsed = time.monotonic() - pressure.budget.begun
    own, caused = pressure.budget.spent()
    return {
        "taken": pressure.taken,
        "held": len(pressure.held),
        "refused": dict(pressure.refused),
        "own_cores": round(own / elapsed, 3),
        "caused_cores": round(caused / elapsed, 3),
        "other": await others,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=[*ATTACKS, "nothing"])
    parser.add_argument("--address", required=True)
    parser.add_argument("--attackers", type=int, default=1)
    parser.add_argument("--key", default="key-{}", help="the key of the attacker of this number")
    parser.add_argument("--other", type=int, default=0, help="the number of somebody else")
    parser.add_argument("--pid", required=True, help="the gateway, and what stands behind it")
    parser.add_argument("--cores", type=float, default=0.2)
    parser.add_argument("--idle-cores", type=float, default=0.0)
    print(json.dumps(asyncio.run(run(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()

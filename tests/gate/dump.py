"""Reads what callgrind wrote: how many instructions each function took itself, and how often it was called.

Threads are told apart. Work by the clock (health checks, samples, expiry) has threads of its own for the most part, and
how much it is depends on how long the calls take. So only the threads that work for the calls are added up, and from each
is taken off what it does by the clock in as many seconds, as it was counted while no call was made.
"""

import collections
import dataclasses
import re

NAMED = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
#: Callgrind numbers the levels of a recursion; here they are one function.
LEVEL = re.compile(r"'\d+$")

#: A thread with a smaller part of all instructions does not work for the calls.
BUSY_PART = 0.02

#: glibc's, and jemalloc's by the names that they have in the binary.
ALLOCATION = re.compile(
    r"(_rjem_)?(malloc|calloc|realloc|memalign|posix_memalign|aligned_alloc)$|_rjem_(mallocx|rallocx)$"
)
COPY = re.compile(r"_*mem(cpy|move)(_|$)")
#: Where tokio's run queue enters a task, whatever its type; nothing is inlined into it, as it is called by pointer.
TASK_POLL = re.compile(r"tokio::runtime::task::raw::poll(::<.*>)?$")


@dataclasses.dataclass
class Dump:
    #: Instructions of each function itself.
    own: collections.Counter
    calls: collections.Counter

    @classmethod
    def empty(cls):
        return cls(collections.Counter(), collections.Counter())

    def __add__(self, other):
        return Dump(self.own + other.own, self.calls + other.calls)

    def __sub__(self, other):
        """No function is left with less than nothing."""
        return Dump(self.own - other.own, self.calls - other.calls)

    def __mul__(self, factor):
        own = collections.Counter({name: count * factor for name, count in self.own.items()})
        return Dump(own, collections.Counter({name: count * factor for name, count in self.calls.items()}))

    @property
    def instructions(self):
        return self.own.total()

    def calls_of(self, pattern):
        return sum(count for name, count in self.calls.items() if pattern.match(name))

    def figures(self, calls):
        """What one of so many calls took."""
        return {
            "instructions": round(self.instructions / calls),
            "allocations": round(self.calls_of(ALLOCATION) / calls, 1),
            "copies": round(self.calls_of(COPY) / calls, 1),
            "polls": round(self.calls_of(TASK_POLL) / calls, 1),
        }

    def functions(self, calls):
        """Instructions of each function itself in one of so many calls."""
        return collections.Counter({name: own / calls for name, own in self.own.items()})


@dataclasses.dataclass
class Counts:
    """All threads of a process, by number, over so many seconds."""

    threads: dict
    seconds: float

    def of_calls(self, idle):
        """The threads that work for the calls, added up, without what they do by the clock; `idle`: without any call."""
        least = BUSY_PART * sum(thread.instructions for thread in self.threads.values())
        summed = Dump.empty()
        for number, thread in self.threads.items():
            if thread.instructions >= least:
                summed += thread - idle.threads.get(number, Dump.empty()) * (self.seconds / idle.seconds)
        return summed


def read(lines):
    """One thread. The format names a function where it first appears and refers to it by its number afterwards."""
    names, own, calls = {}, collections.Counter(), collections.Counter()
    function = callee = None
    is_inclusive = False
    for line in lines:
        if named := NAMED.match(line):
            is_callee, number, name = named.groups()
            if name:
                names[number] = LEVEL.sub("", name)
            if is_callee:
                callee = names[number]
            else:
                function = names[number]
        elif line.startswith("calls="):
            calls[callee] += int(line.removeprefix("calls=").split()[0])
            is_inclusive = True
        elif line[:1] in set("+-*0123456789"):
            # The line below `calls=` says what the callee took, which is counted where it is the function.
            if not is_inclusive:
                own[function] += int(line.split()[1])
            is_inclusive = False
    return Dump(own, calls)

"""Reads what callgrind wrote: how many instructions each function took itself, and how often it was called.

Threads are told apart. What the daemon does by the clock (health checks, samples, expiry) has threads of its own, and
how much it is depends on how long the calls take, so only the threads that work for the calls are added up.
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


def busy(threads):
    """The threads that work for the calls, added up."""
    least = BUSY_PART * sum(thread.instructions for thread in threads)
    summed = Dump(collections.Counter(), collections.Counter())
    for thread in threads:
        if thread.instructions >= least:
            summed.own.update(thread.own)
            summed.calls.update(thread.calls)
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

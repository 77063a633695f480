"""What is made of a soak: samples of the process, and what its clients counted.

The first sixth is the warm-up. What follows is cut into parts, and each is compared with the first of them by its median,
so that one sample at a bad moment is no finding and a slow growth is. Pure functions: `test_evaluation` shows that each
check fails where it should.
"""

import dataclasses
import statistics

WARM_UP_SHARE = 1 / 6
#: Of the time after the warm-up: ten minutes of an hour are one.
PARTS = 5
MEMORY_GROWTH_MAX = 0.05
#: Clients come and go, and so do their connections; what nobody closes grows beyond that.
FILES_GROWTH_MAX, FILES_ROOM = 0.05, 16


@dataclasses.dataclass(frozen=True)
class Sample:
    """The gateway at one moment, `at` seconds after the start."""

    at: float
    resident_kib: int
    files: int


@dataclasses.dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    found: str


@dataclasses.dataclass
class Soak:
    """What a soak has found."""

    seconds: float
    samples: list
    #: Kind of client → when each thing it did ended well, in seconds after the start.
    done: dict
    #: What failed without a reason, in words.
    unexplained: list
    #: Reason → how often.
    explained: dict
    #: Reasons that must have been met, because the soak makes them.
    expected: tuple
    reloads: int
    reloads_wanted: int
    files_before: int
    files_after: int


def checks(soak):
    """All checks of a soak."""
    return [memory(soak), files(soak), files_left(soak), errors(soak), faults_met(soak), reloads(soak), *progress(soak)]


def memory(soak):
    """Resident memory stays within a twentieth of what it was after the warm-up."""
    first, *later = medians(soak, lambda sample: sample.resident_kib)
    growth = max(later) / first - 1
    found = f"{first / 1024:.1f} MiB after the warm-up, then at most {growth:+.1%}"
    return Check("memory stays", growth <= MEMORY_GROWTH_MAX, found)


def files(soak):
    """So do open files."""
    first, *later = medians(soak, lambda sample: sample.files)
    found = f"{first:.0f} after the warm-up, then at most {max(later):.0f}"
    return Check("open files stay", max(later) <= first * (1 + FILES_GROWTH_MAX) + FILES_ROOM, found)


def files_left(soak):
    """When everybody has gone, nothing is left open that was not before."""
    found = f"{soak.files_before} before anybody came, {soak.files_after} when all had gone"
    return Check("no file is left open", soak.files_after <= soak.files_before + FILES_ROOM, found)


def errors(soak):
    """Every error is one that the soak makes."""
    count = len(soak.unexplained)
    kinds = {kind: soak.unexplained.count(kind) for kind in dict.fromkeys(soak.unexplained)}
    shown = "; ".join(f"{number} × {kind}" for kind, number in list(kinds.items())[:20])
    return Check("no unexplained error", count == 0, f"{count}: {shown}" if count else "none")


def faults_met(soak):
    """Who looks for errors that are explained must see some, or else the fault was none."""
    missing = [reason for reason in soak.expected if not soak.explained.get(reason)]
    found = ", ".join(f"{count} × {reason}" for reason, count in soak.explained.items())
    return Check("faults were met", not missing, f"{found or 'none'}; not met: {', '.join(missing) or 'none'}")


def reloads(soak):
    found = f"{soak.reloads} of {soak.reloads_wanted}"
    return Check("every reload was taken", soak.reloads == soak.reloads_wanted, found)


def progress(soak):
    """Every kind of client gets on in every part: who hangs has no errors."""
    part_s = soak.seconds * (1 - WARM_UP_SHARE) / PARTS
    begin = soak.seconds * WARM_UP_SHARE
    for kind, ends in soak.done.items():
        counts = [sum(begin + part_s * part <= end < begin + part_s * (part + 1) for end in ends) for part in range(PARTS)]
        yield Check(f"{kind} get on", min(counts) > 0, f"{len(ends)} in all, at least {min(counts)} in each part")


def medians(soak, figure):
    """Of each part after the warm-up."""
    begin = soak.seconds * WARM_UP_SHARE
    part_s = (soak.seconds - begin) / PARTS
    parts = [[] for _ in range(PARTS)]
    for sample in soak.samples:
        if sample.at >= begin:
            parts[min(int((sample.at - begin) / part_s), PARTS - 1)].append(figure(sample))
    return [statistics.median(part) for part in parts]

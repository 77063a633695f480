"""What the report says of the step `fairness`: figures of a measurement, bounds, and the rows of the table.

What must not happen at all is added up over the rounds; everything else is the median of them, as everywhere.
"""

import collections

from fairness import ATTACKERS, OVER_TLS, ROWS
from figures import milliseconds, number, quotient

# Of one measurement with attackers.
_FIGURES = {
    "before_p50_us": lambda found: found["before"]["p50_us"],
    "before_p99_us": lambda found: found["before"]["p99_us"],
    "during_p50_us": lambda found: found["during"]["p50_us"],
    "during_p99_us": lambda found: found["during"]["p99_us"],
    "p99_by_before": lambda found: quotient(found["during"]["p99_us"], found["before"]["p99_us"]),
    "errors": lambda found: found["before"]["errors"] + found["during"]["errors"],
    "not_taken": lambda found: int(found["attack"]["other"] != "taken"),
    "metric": lambda found: found["during"]["metric"],
    "taken": lambda found: found["attack"]["taken"],
    "refusals": lambda found: sum(found["attack"]["refused"].values()),
    "attackers_cores": lambda found: found["attack"]["own_cores"],
    "caused_cores": lambda found: found["during"]["serving_cores"] - found["before"]["serving_cores"],
}
FIGURES = {
    f"{who}_{name}": lambda run, who=who, of_attack=of_attack: of_attack(run[who])
    for who in ATTACKERS
    for name, of_attack in _FIGURES.items()
}
TOTALS = [f"{who}_{name}" for who in ATTACKERS for name in ("errors", "not_taken")]

BOUNDS = []
for _row in ROWS:
    for _who in ATTACKERS:
        _peer, _what = f"trunkline-{_row}-attacked", f"{_row}, {_who}"
        BOUNDS += [
            (f"{_what}: calls of another that failed", _peer, None, f"{_who}_errors", "≤", 0, None),
            (f"{_what}: times that another got none of it", _peer, None, f"{_who}_not_taken", "≤", 0, None),
            # Where the CPU is what is taken, nobody's own before can be kept.
            (f"{_what}: p99 of another, × nginx", _peer, f"nginx-{_row}-attacked", f"{_who}_during_p99_us", "≤", 1.25,
             None)
            if _row in OVER_TLS else
            (f"{_what}: p99 of another, × before", _peer, None, f"{_who}_p99_by_before", "≤", 1.25, None),
        ]


def foreign_cores(runs):
    """What others did on this machine in each window, in cores."""
    return [run[who][window]["foreign_cores"] for run in runs for who in ATTACKERS for window in ("before", "during")]


def errors(run):
    """How many calls of somebody else went wrong, or how often he got nothing, in one measurement."""
    return sum(FIGURES[name](run) for name in TOTALS)


def rows(runs, peers, figure):
    """Headings and rows; `figure` gives that of a peer by its name."""
    headings = [
        "peer", "attackers", "before p50 ms", "p99 ms", "during p50 ms", "p99 ms", "× before", "failed", "got none", "held",
        "refused", "attackers' cores", "caused cores",
    ]
    found = []
    for peer in peers:
        for who, count in ATTACKERS.items():

            def written(*columns, peer=peer, who=who):
                return [number(figure(peer, f"{who}_{name}"), decimals) for name, decimals in columns]

            latencies = ("before_p50_us", "before_p99_us", "during_p50_us", "during_p99_us")
            found.append([
                peer,
                str(count),
                *(milliseconds(figure(peer, f"{who}_{name}")) for name in latencies),
                *written(("p99_by_before", 2), ("errors", 0), ("not_taken", 0), ("metric", 0)),
                _refusals([run[who] for run in runs if run["peer"] == peer]),
                *written(("attackers_cores", 3), ("caused_cores", 3)),
            ])
    return headings, found


def _refusals(found):
    """How often the attackers met which refusal in all rounds, the most frequent first."""
    met = collections.Counter()
    for each in found:
        met.update(each["attack"]["refused"])
    return ", ".join(f"{count} × {kind}" for kind, count in met.most_common(3)) or "none"

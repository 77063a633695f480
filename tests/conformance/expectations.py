"""Compares two outcomes of the suite, and what is worse with what `expected-failures.yml` announces."""

import pathlib
import re

FILE = pathlib.Path(__file__).with_name("expected-failures.yml")


def read(text):
    """`{section: {entry: reason}}` of the file: sections of `- entry  # reason` lines, every reason given.

    An entry is `scenario` (no result at all), `scenario:check-id` or `scenario:*` (any of its checks).
    """
    sections, current = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        section = re.fullmatch(r"([\w -]+):(?: \[\])?", line)
        entry = re.fullmatch(r"  - ([^\s#]+)  # (\S.*)", line)
        if section:
            current = sections.setdefault(section[1], {})
        elif entry and current is not None:
            current[entry[1]] = entry[2]
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"{FILE.name}:{number}: neither `section:` nor `  - entry  # reason`: {line}")
    return sections


def imperfections(outcome):
    """What is wrong with an outcome in itself: `{scenario: {entry: explanation}}`, all scenarios present."""
    found = {}
    for scenario, checks in outcome.items():
        wrong = {} if checks else {scenario: "no result"}
        for check, statuses in checks.items():
            if set(statuses) - {"SUCCESS", "SKIPPED"}:
                wrong[f"{scenario}:{check}"] = ended(checks, check)
        found[scenario] = wrong
    return found


def shortfalls(outcome, reference):
    """Where an outcome is worse than the reference, check by check: `{scenario: {entry: explanation}}`."""
    found = {}
    for scenario, expected in reference.items():
        checks = outcome.get(scenario, {})
        if not checks:
            found[scenario] = {scenario: "no result"}
            continue
        found[scenario] = {
            f"{scenario}:{check}": f"{ended(checks, check)}, not {ended(expected, check)}"
            for check in sorted(checks.keys() | expected.keys())
            if is_worse(checks.get(check, []), expected.get(check, []))
        }
    return found


def is_worse(statuses, reference):
    """Fewer successes, or more of anything else. More successes are fine: a gateway makes requests of its own."""
    others = set(statuses) - {"SUCCESS"}
    missing = statuses.count("SUCCESS") < reference.count("SUCCESS")
    return missing or any(statuses.count(status) > reference.count(status) for status in others)


def ended(checks, check):
    return " ".join(checks.get(check, ["absent"]))


def verdicts(found, expected):
    """`{scenario: [complaint, …]}`: what was found and not announced, or announced and not found."""
    complaints = {}
    for scenario, wrong in found.items():
        announced = [entry for entry in expected if entry.partition(":")[0] == scenario]
        unexpected = [entry for entry in wrong if not any(covers(pattern, entry) for pattern in announced)]
        stale = [pattern for pattern in announced if not any(covers(pattern, entry) for entry in wrong)]
        complaints[scenario] = [f"{entry}: {wrong[entry]}" for entry in unexpected]
        complaints[scenario] += [f"{pattern}: announced, but it passes" for pattern in stale]
    for entry in expected:
        if entry.partition(":")[0] not in found:
            complaints[entry] = [f"{entry}: announced, but there is no such scenario"]
    return complaints


def covers(announced, entry):
    return announced == entry or (announced.endswith(":*") and entry.startswith(announced[:-1]))

"""Reads what test runners print: how many passed and failed, which were skipped, and what to tell of those that failed."""

import re

#: The last line of a runner of our own.
REPORT = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped \((.*)\))?$", re.M)
#: Written by a test in Rust that this machine does not allow.
CARGO_SKIPPED = re.compile(r"skipped: (.*)$", re.M)
#: So much of each failed step is printed again at the end.
TOLD_LINES_MAX = 60


def count_cargo_tests(output):
    found = re.findall(r"^test result: .* (\d+) passed; (\d+) failed;", output, re.M)
    skipped, _ = count_skipped(output)
    return sum(int(passed) for passed, _ in found) - skipped, sum(int(failed) for _, failed in found)


def count_unittest(output):
    ran = re.search(r"^Ran (\d+) tests?", output, re.M)
    failed = sum(int(count) for count in re.findall(r"(?:failures|errors)=(\d+)", output))
    skipped = sum(int(count) for count in re.findall(r"skipped=(\d+)", output))
    return (int(ran[1]) - failed - skipped if ran else 0), failed


def count_reported(output):
    reported = REPORT.findall(output)
    return (int(reported[-1][0]), int(reported[-1][1])) if reported else (0, 0)


def count_skipped(output):
    """The number of skipped tests, and why."""
    reported = REPORT.findall(output)
    if reported:
        return int(reported[-1][2] or 0), reported[-1][3]
    reasons = re.findall(r"^.* \.\.\. skipped ['\"](.*)['\"]$", output, re.M) or CARGO_SKIPPED.findall(output)
    return len(reasons), "; ".join(dict.fromkeys(reasons))


def failures_told(output):
    """All that cargo, or else a suite in Python, printed of each failure, or the lines that say so; the last lines of any
    other step. It is read where the middle of a long output is not kept."""
    told = re.findall(r"^failures:\n(.*?)^failures:\n", output, re.M | re.S)
    told = told or re.findall(r"^=+\n((?:FAIL|ERROR): .*?)(?=^=+\n|^-+\nRan |\Z)", output, re.M | re.S)
    told = told or re.findall(r"^.*\b(?:FAILED|OVER|BELOW)\b.*$", output, re.M)
    lines = "\n".join(told or [output]).splitlines()
    if len(lines) <= TOLD_LINES_MAX:
        return "\n".join(lines)
    if told:
        return "\n".join([*lines[:TOLD_LINES_MAX], f"[{len(lines) - TOLD_LINES_MAX} lines more]"])
    return "\n".join(lines[-TOLD_LINES_MAX:])

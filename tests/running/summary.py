"""The end of a run: its summary, and the seconds that it leaves for the bounds."""

import json

import suite
from running.places import seconds_file


def note_seconds(target, results, total):
    """Leaves the seconds of each step for the last of them to compare with its bounds."""
    file = seconds_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    busy = {name: round(result.busy_seconds, 1) for name, result in results.items()}
    file.write_text(json.dumps({"busy": busy, "total": round(total, 1)}))


def summarise(results, total):
    for name, result in results.items():
        if result.told:
            print(f"\n==> what failed in {name}\n{result.told}")
    print(f"\n{'step':30} {'seconds':>8} {'busy':>8} {'passed':>7} {'failed':>7}")
    for name, result in results.items():
        counted = f"{result.passed:7} {result.failed:7}"
        print(f"{name:30} {result.seconds:8.1f} {result.busy_seconds:8.1f} {counted}  {result.note}".rstrip())
    print(f"{'total':30} {total:8.1f} {sum(result.busy_seconds for result in results.values()):8.1f}")
    passed = sum(result.passed for result in results.values())
    failed = sum(result.failed for result in results.values())
    skipped = [f"{name}: {result.note}" for name, result in results.items() for _ in range(result.skipped)]
    print(suite.report(passed, failed, skipped), flush=True)
    return 1 if failed else 0

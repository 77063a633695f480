"""Sends the same bytes to Trunkline, nginx and HAProxy: `python -m proxies --binary PATH`, from `tests/`.

Whatever Trunkline reads as a request, the others hand on as the same one, and as many; whatever it takes for a reply, they
take for the same. What they see differently stands in `differences.py`, with its reason. What Trunkline refuses they may
read as they like: their verdicts are shown beside its own. Calls that are quiet for long pass HAProxy (`quiet.py`). Only the standard library, nginx and HAProxy are needed. The
last line is `N passed, N failed`.
"""

import argparse
import collections
import contextlib
import pathlib
import signal
import sys
import tempfile
import threading

from proxies import fixtures, quiet, site
from proxies.differences import REPLIES, REQUESTS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trunkline = stack.enter_context(site.trunkline(options.binary, folder))
        others = [stack.enter_context(site.nginx(folder)), stack.enter_context(site.haproxy(folder))]
        requests, replies = fixtures.requests(), fixtures.replies()
        read = side_by_side([trunkline, *others], requests, ask)
        answered = side_by_side([trunkline, *others], replies, answer)
        quiet_seen = report_quiet(quiet.verdicts(options.binary, folder))
    requests_seen = report("request", REQUESTS, verdicts_on_requests(requests, others, read))
    replies_seen = report("reply", REPLIES, verdicts_on_replies(replies, others, answered))
    show(others, requests, read)
    passed, failed = (sum(counts) for counts in zip(requests_seen, replies_seen, quiet_seen, strict=True))
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def report(what, known, verdicts):
    """Shows each difference, and counts what is alike or has its reason, and what is not."""
    counts = collections.Counter()
    for name, proxy, fault in verdicts:
        reason = known.get((proxy, name))
        counts[not fault or reason is not None] += 1
        if fault:
            print(f"{'known' if reason else 'NEW'}: {what} `{name}`, {proxy}: {fault}{f' ({reason})' if reason else ''}")
    return counts[True], counts[False]


def report_quiet(verdicts):
    """Shows what HAProxy cut, and counts what it did not and what it did."""
    counts = collections.Counter()
    for what, fault in verdicts:
        counts[fault is None] += 1
        if fault is not None:
            print(f"quiet call, {what}: {fault[:300]}")
    return counts[True], counts[False]


def side_by_side(proxies, sent, exchange):
    """What each proxy makes of each fixture, by the names of both."""
    found = {proxy.name: {} for proxy in proxies}

    def run(proxy):
        for fixture in sent:
            found[proxy.name][fixture.name] = exchange(proxy, fixture)

    threads = [threading.Thread(target=run, args=(proxy,)) for proxy in proxies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def ask(proxy, fixture):
    """The statuses that a client sees, and the requests that are handed on."""
    answers, requests = proxy.send(fixture.bytes)
    return site.statuses(answers), requests


def answer(proxy, fixture):
    """The status and the body that a client sees where the server replies like this."""
    proxy.recorder.reply = fixture
    answers, _ = proxy.send(fixtures.call())
    return site.reply(answers)


def verdicts_on_requests(sent, others, read):
    """Name, proxy, and what is different, of each fixture."""
    for fixture in sent:
        answers, requests = read["Trunkline"][fixture.name]
        if answers != fixture.answers:
            yield fixture.name, "Trunkline", f"{answers}, but {fixture.answers} is written down"
            continue
        for other in others:
            yield fixture.name, other.name, difference(answers, requests, read[other.name][fixture.name][1])


def difference(answers, requests, theirs):
    """Where they read something else than Trunkline; nothing where they read the same."""
    handed_on = iter(requests)
    # A request that is answered by Trunkline itself was read all the same, unless it is the last.
    ours = [next(handed_on) if status == 200 else None for status in answers]
    is_refused = bool(ours) and ours[-1] is None
    if is_refused:
        ours.pop()
    for number, request in enumerate(ours):
        if number >= len(theirs):
            return "" if request is None else f"it refuses request {number + 1}"
        if request not in (None, theirs[number]):
            return f"it reads {theirs[number]} for {request}"
    if len(theirs) > len(ours) and not is_refused:
        return f"it reads {len(theirs)} requests for {len(ours)}: {theirs[-1]}"
    return ""


def verdicts_on_replies(sent, others, answered):
    for fixture in sent:
        ours = answered["Trunkline"][fixture.name]
        if ours is None or ours[0] not in fixture.answers:
            yield fixture.name, "Trunkline", f"{ours}, but {fixture.answers} is written down"
            continue
        for other in others:
            theirs = answered[other.name][fixture.name]
            yield fixture.name, other.name, "" if ours[0] != 200 or theirs == ours else f"it reads {theirs} for {ours}"


def show(others, sent, read):
    """What the others make of what Trunkline refuses."""
    refused = [fixture for fixture in sent if read["Trunkline"][fixture.name][0][-1:] != [200]]
    for other in others:
        kinds = collections.defaultdict(list)
        for fixture in refused:
            answers, requests = read[other.name][fixture.name]
            kinds[len(requests)].append(fixture.name)
        for count, names in sorted(kinds.items()):
            shown = f": {'; '.join(names)}" if count else ""
            print(f"of {len(names)} that Trunkline refuses, {other.name} hands on {count} requests{shown}")


if __name__ == "__main__":
    sys.exit(main())

"""One measurement of idle streams: what each costs in memory, and how soon a notice is everywhere, or what they cost
in CPU time while nothing happens."""

import json
import threading
import time

from measure import Failed, fetch_tools, start, wait_for_sessions
from processes import Child

# Until allocations and buffers of what was just done have come to rest.
SETTLE_S = 0.5
# Beside the generator's own patience, for each command.
ANSWER_TIMEOUT_S = 45


def measure(bench, peer, counts, idle_s):
    """Opens streams in the steps `counts`; returns what was found, as plain data."""
    child, ready_ms = start(bench.directory, peer)
    command = [bench.generator, "--streams", "--url", f"http://{peer.address}/mcp", "--tool", peer.tools[0]]
    command += [*peer.load, *(["--notice", peer.notice_url] if peer.notice_url else [])]
    try:
        # What the first list costs is no cost of the streams.
        if peer.tools_listed:
            fetch_tools(peer)
        if peer.holds_sessions:
            wait_for_sessions(peer)
        opener = Child(command, bench.directory / "streams.log", takes_input=True)
        try:
            steps = [{"streams": 0, "resident_kib": _resident_kib(child)}]
            for count in counts:
                opened = _ask(opener, f"open {count}")
                if not opened["acknowledged"]:
                    raise Failed(f"{peer.name} acknowledged none of {count} streams: {opened['errors_by_kind']}")
                steps.append({**opened, "resident_kib": _resident_kib(child)})
            found = {"peer": peer.name, "ready_ms": ready_ms, "steps": steps}
            if peer.notice_url:
                found["notice"] = _notice(opener, child)
            if peer.watches_idle:
                found["idle"] = _idle(opener, child, idle_s)
        finally:
            opener.stop()
    finally:
        child.stop()
    return found


def _notice(opener, child):
    cpu_s = child.cpu_s()
    notice = _ask(opener, "notice")
    return {**notice, "cpu_ms": round((child.cpu_s() - cpu_s) * 1000, 1)}


def _idle(opener, child, seconds):
    """What the streams cost while nothing happens but keep-alives."""
    cpu_s = child.cpu_s()
    time.sleep(seconds)
    spent_s = child.cpu_s() - cpu_s
    return {**_ask(opener, "state"), "seconds": seconds, "cpu_cores": round(spent_s / seconds, 4)}


def _resident_kib(child):
    time.sleep(SETTLE_S)
    return child.resident_mib() * 1024


def _ask(opener, command):
    watchdog = threading.Timer(ANSWER_TIMEOUT_S, opener.process.kill)
    watchdog.start()
    try:
        opener.process.stdin.write(command + "\n")
        opener.process.stdin.flush()
        line = opener.process.stdout.readline()
    except OSError:
        line = ""
    finally:
        watchdog.cancel()
    if not line:
        raise Failed(f"the generator gave no answer to {command!r}: {opener.last_words()}")
    return json.loads(line)

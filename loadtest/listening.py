"""One measurement of idle `subscriptions/listen` streams: what each costs in memory, how soon a notice is everywhere."""

import json
import threading
import time

from measure import Failed, fetch_tools, start
from processes import Child

# Until allocations and buffers of what was just done have come to rest.
SETTLE_S = 0.5
# Beside the generator's own patience, for each command.
ANSWER_TIMEOUT_S = 45


def measure(bench, peer, counts):
    """Opens streams in the steps `counts`; returns what was found, as plain data."""
    child, ready_ms = start(bench.directory, peer)
    command = [bench.generator, "--streams", "--url", f"http://{peer.address}/mcp", "--notice", peer.notice_url]
    try:
        # What the first list costs is no cost of the streams.
        fetch_tools(peer)
        opener = Child(command, bench.directory / "streams.log", takes_input=True)
        try:
            steps = [{"streams": 0, "resident_kib": _resident_kib(child)}]
            for count in counts:
                opened = _ask(opener, f"open {count}")
                if not opened["acknowledged"]:
                    raise Failed(f"{peer.name} acknowledged none of {count} streams: {opened['errors_by_kind']}")
                steps.append({**opened, "resident_kib": _resident_kib(child)})
            cpu_s = child.cpu_s()
            notice = _ask(opener, "notice")
            notice["cpu_ms"] = round((child.cpu_s() - cpu_s) * 1000, 1)
        finally:
            opener.stop()
    finally:
        child.stop()
    return {"peer": peer.name, "ready_ms": ready_ms, "steps": steps, "notice": notice}


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

"""One measurement of idle streams or connections: what each costs in memory, and how soon a notice is everywhere, or what
they cost in CPU time while nothing happens."""

import json
import socket
import threading
import time

from measure import Failed, call_and_stay, started
from processes import Child

# Until allocations and buffers of what was just done have come to rest.
SETTLE_S = 0.5
# Beside the generator's own patience, for each command.
ANSWER_TIMEOUT_S = 45


def measure(bench, peer, counts, idle_s):
    """Opens streams in the steps `counts`; returns what was found, as plain data."""
    # What the first list costs is no cost of the streams.
    with started(bench, peer) as (child, ready_ms):
        opener = Connections(peer) if peer.holds_connections else Streams(bench, peer)
        try:
            steps = [{"streams": 0, "resident_kib": _resident_kib(child)}]
            for count in counts:
                opened = opener.open(count)
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
    return found


def _notice(opener, child):
    cpu_s = child.cpu_s()
    notice = opener.ask("notice")
    return {**notice, "cpu_ms": round((child.cpu_s() - cpu_s) * 1000, 1)}


def _idle(opener, child, seconds):
    """What they cost while nothing happens but keep-alives."""
    cpu_s = child.cpu_s()
    time.sleep(seconds)
    spent_s = child.cpu_s() - cpu_s
    return {**opener.state(), "seconds": seconds, "cpu_cores": round(spent_s / seconds, 4)}


def _resident_kib(child):
    time.sleep(SETTLE_S)
    return child.resident_mib() * 1024


class Streams:
    """What the generator opens."""

    def __init__(self, bench, peer):
        command = [bench.generator, "--streams", "--url", f"http://{peer.address}/mcp", "--tool", peer.tools[0]]
        command += [*peer.load, *(["--notice", peer.notice_url] if peer.notice_url else [])]
        self.generator = Child(command, bench.directory / "streams.log", takes_input=True)

    def open(self, count):
        return self.ask(f"open {count}")

    def state(self):
        return self.ask("state")

    def stop(self):
        self.generator.stop()

    def ask(self, command):
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self.generator.process.kill)
        watchdog.start()
        try:
            self.generator.process.stdin.write(command + "\n")
            self.generator.process.stdin.flush()
            line = self.generator.process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise Failed(f"the generator gave no answer to {command!r}: {self.generator.last_words()}")
        return json.loads(line)


class Connections:
    """Connections that are idle after one call each."""

    def __init__(self, peer):
        self.peer, self.connections, self.failed = peer, [], 0

    def open(self, count):
        begun = time.monotonic()
        while len(self.connections) + self.failed < count:
            connection = call_and_stay(self.peer)
            if connection:
                self.connections.append(connection)
            else:
                self.failed += 1
        return {**self.state(), "streams": count, "opening_s": time.monotonic() - begun}

    def state(self):
        closed = sum(1 for connection in self.connections if _is_closed(connection.sock))
        errors = {kind: count for kind, count in (("closed", closed), ("failed", self.failed)) if count}
        return {"acknowledged": len(self.connections), "errors": closed + self.failed, "errors_by_kind": errors}

    def stop(self):
        for connection in self.connections:
            connection.close()


def _is_closed(sock):
    """Whether the other side has closed it, or sent what nobody asked for."""
    if sock is None:
        return True
    sock.setblocking(False)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True

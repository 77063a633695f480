"""Many programs that take their time to start behind one address: `python -m starting --binary PATH`, from `tests/`.

Scripted servers are started one after the other by hand, and then all behind a gateway, while clients of both eras ask for
lists. Only the standard library is needed. The last line is `N passed, N failed`.
"""

import argparse
import contextlib
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import suite
from laptop.by_hand import ByHand, resident_bytes
from laptop.gateway import LEGACY, MODERN, Client, Gateway
from starting.site import Asking, Program, clients, configure

PROGRAMS = 35
#: Kinds of servers, by what they do with messages of the other era.
KINDS = (("strict",), ("modern", "fixes-era"), ())
#: Clients that ask at once.
ASKING = 6
ASK_INTERVAL_S = 3
#: How often clients come and introduce themselves.
COME_INTERVAL_S = 0.5
#: Times of one after the other.
COMPLETE_TIMES = 1.3
RESTARTED_MAX_S = 1
#: An introduction waits one second at most; the machine has more to do.
INTRODUCED_MAX_S = 1.5
CLIENTS_ONE_AFTER_ANOTHER = 10
#: Of the programs with the gateway and its guardians, by the programs alone. With an interpreter each takes as much as a
#: small server from npm does.
RESIDENT_TIMES = 1.2
HELD_MIB = 32
SLOW_PROGRAMS = 4
SLOW_START_S = 20
TRUTHFUL_MAX_S = 9
#: After the last program is up.
LATE_MAX_S = 1
HTTP_OK, HTTP_UNAVAILABLE = 200, 503


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--seconds", type=float, default=0.6, help="of computing that each program needs to start")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    Starting.binary, Starting.seconds = options.binary.resolve(), options.seconds
    return suite.run(Starting)


class Starting(unittest.TestCase):
    binary, seconds = None, None

    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="trunkline-starting-"))

    def gateway(self, configuration):
        return self.enterContext(Gateway(self.binary, configuration))

    def by_hand(self):
        """The seconds of as many programs one after the other, and the memory of all of them."""
        with tempfile.TemporaryDirectory(prefix="trunkline-starting-") as directory, contextlib.ExitStack() as running:
            servers = [running.enter_context(ByHand(program.entry())) for program in self.programs(directory)]
            for server in servers:
                self.assertEqual(len(server.tools), 1)
            return sum(server.seconds for server in servers), sum(resident_bytes(server.child.pid) for server in servers)

    def programs(self, directory):
        words = [f"burns={self.seconds}", f"holds={HELD_MIB}"]
        return [Program(directory, f"p{each:02}", *words, *KINDS[each % len(KINDS)]) for each in range(PROGRAMS)]

    def test_many_programs_are_listed_soon_and_started_once(self):
        alone, resident_alone = self.by_hand()
        programs = self.programs(self.directory)
        configuration = configure(self.directory, {"/mcp": programs})
        with Gateway(self.binary, configuration) as gateway:
            seconds = self.complete(gateway, COMPLETE_TIMES * alone)
            print(f"complete after {seconds:.1f} s, one after the other {alone:.1f} s", flush=True)
            self.ten_clients(gateway, resident_alone)
            self.assertEqual([program.starts() for program in programs], [1] * PROGRAMS)
        gateway = self.gateway(configuration)
        began = gateway.began
        for each in range(2):
            client = clients(gateway.url, each + 1)[-1]
            listed = client.list_tools()
            self.assertEqual(len(listed), PROGRAMS, f"{client.revision}, {listed}")
            self.assertLessEqual(time.monotonic() - began, RESTARTED_MAX_S, client.revision)
            began = time.monotonic()

    def complete(self, gateway, within_s):
        """Clients ask until each has every tool, and others come. Returns the seconds since the gateway accepted clients."""
        asking, coming = [], []
        with contextlib.ExitStack() as stack:
            for kind in (MODERN, LEGACY):
                introduce = lambda kind=kind: introduced(gateway.url, kind)
                coming.append(stack.enter_context(Asking(introduce, COME_INTERVAL_S)))
            for client in clients(gateway.url, ASKING):
                asking.append(stack.enter_context(Asking(client.list_tools, ASK_INTERVAL_S)))
            while not all(PROGRAMS in counts(each) for each in asking):
                passed = time.monotonic() - gateway.began
                if passed > within_s:
                    self.fail(f"{passed:.1f} s: {[counts(each) for each in asking]}\n{gateway.process.log()}")
                time.sleep(0.05)
            seconds = time.monotonic() - gateway.began
        for each in asking:
            self.assertEqual(counts(each), sorted(counts(each)), "no list is shorter than the one before")
            for answer in each.answers():
                if not isinstance(answer, dict):
                    self.assertIn("still starting", str(answer))
        for each in coming:
            self.assertTrue(all("result" in answer for answer in each.answers()), each.seen)
            self.assertLessEqual(max(took for took, _ in each.seen), INTRODUCED_MAX_S)
        return seconds

    def ten_clients(self, gateway, resident_alone):
        """They come one after the other, and programs are shared."""
        for each in range(CLIENTS_ONE_AFTER_ANOTHER):
            client = clients(gateway.url, each + 1)[-1]
            self.assertEqual(len(client.list_tools()), PROGRAMS)
            self.assertIn("result", client.call(f"p{each:02}__echo", {}))
        self.assertEqual(len(gateway.children()), PROGRAMS)
        resident = sum(map(resident_bytes, gateway.all()))
        print(f"resident {resident >> 20} MiB with the gateway, by hand {resident_alone >> 20} MiB", flush=True)
        self.assertLessEqual(resident, RESIDENT_TIMES * resident_alone)

    def test_clients_are_told_the_truth_about_slow_programs(self):
        slow = [Program(self.directory, f"slow{each}", f"starts-in={SLOW_START_S}", *KINDS[each % len(KINDS)])
                for each in range(SLOW_PROGRAMS)]
        quick = Program(self.directory, "quick", "starts-in=0")
        later = Program(self.directory, "later", "starts-in=5")
        ended = Program(self.directory, "ended", "starts-in=600", keys='start_timeout = "2s"\nstop_timeout = "100ms"')
        endpoints = {"/mcp": slow, "/quick": [quick], "/later": [later], "/ended": [ended]}
        at_once = sum(map(len, endpoints.values()))
        configuration = configure(self.directory, endpoints, f"\n[limits]\nchildren_starting_max = {at_once}\n")
        gateway = self.gateway(configuration)
        base = gateway.url.removesuffix("/mcp")
        with contextlib.ExitStack() as stack:
            asking = [stack.enter_context(Asking(lambda client=client: asked(client), 0)) for client in clients(gateway.url, 2)]
            for path, most_s in (("/quick", 3), ("/later", 8)):
                for client in clients(base + path, 2):
                    answer = client.list_tools()
                    self.assertEqual(len(answer), 1, f"{path}: {answer}")
                    self.assertLessEqual(time.monotonic() - gateway.began, most_s, path)
            for client in clients(base + "/ended", 2):
                self.assert_told_of_failure(client)
            complete_at = [self.when_complete(each) for each in asking]
        last_up = max(program.up() for program in slow)
        for each, at in zip(asking, complete_at, strict=True):
            self.assertLessEqual(at - last_up, LATE_MAX_S)
            took, (_, first, answer) = each.seen[0]
            self.assertLessEqual(took, TRUTHFUL_MAX_S)
            self.assert_still_starting(first, answer)
        self.assertEqual([program.starts() for program in slow], [1] * SLOW_PROGRAMS)

    def assert_told_of_failure(self, client):
        """A start that was given up is told, until the next one begins."""
        deadline = time.monotonic() + SLOW_START_S
        while "does not start" not in (told := client.list_tools()):
            self.assertIn("still starting: ended", told)
            self.assertLess(time.monotonic(), deadline, told)

    def when_complete(self, asking):
        deadline = time.monotonic() + 2 * SLOW_START_S
        while time.monotonic() < deadline:
            for _, (at, _, answer) in list(asking.seen):
                if len(answer.get("result", {}).get("tools", ())) == SLOW_PROGRAMS:
                    return at
            time.sleep(0.02)
        return self.fail(f"never complete: {asking.seen}")

    def assert_still_starting(self, told, answer):
        revision, status, retry_after = told
        self.assertRegex(answer["error"]["message"], r"still starting: slow\d")
        self.assertGreater(answer["error"]["data"]["retryAfterMs"], 0)
        self.assertEqual(status, HTTP_UNAVAILABLE if revision == MODERN else HTTP_OK)
        if revision == MODERN:
            self.assertGreater(int(retry_after), 0)


def counts(asking):
    """Of the lists that came."""
    return [len(answer) for answer in asking.answers() if isinstance(answer, dict)]


def introduced(url, revision):
    """The answer to a new client's first request."""
    client = Client(url, revision, {})
    return client.ask("server/discover", {}) if revision == MODERN else client.said


def asked(client):
    """When the answer came, what beside it was told, and the answer."""
    answer = client.ask("tools/list", {})
    return time.time(), (client.revision, client.status, client.headers.get("retry-after")), answer


if __name__ == "__main__":
    sys.exit(main())

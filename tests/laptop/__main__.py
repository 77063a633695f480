"""A person's dozen of servers behind one address: `python -m laptop --binary PATH --npm DIRECTORY`, from `tests/`.

Pinned servers from npm and PyPI, as a client's file has them, become a gateway by `trunkline import`. The gateway is
compared with the servers by themselves: definitions, time until the list is complete, processes and memory. The last
line is `N passed, N failed`.
"""

import argparse
import pathlib
import signal
import sys
import tempfile
import time
import unittest

import suite
from laptop import servers
from laptop.by_hand import ByHand
from laptop.gateway import LEGACY, MODERN, Client, Gateway, import_file

#: Sets of capabilities that clients declare.
CAPABILITIES = (
    {},
    {"elicitation": {}},
    {"sampling": {}, "roots": {"listChanged": True}},
    {"roots": {"listChanged": True}, "elicitation": {}, "sampling": {}},
)
#: Clients that ask at once, of both eras.
ASKING = 6
ASK_INTERVAL_S = 3
COMPLETE_TIMES = 1.3
#: Beyond the product of times and seconds: the programs of the gateway itself start, and clients ask at intervals.
COMPLETE_MORE_S = ASK_INTERVAL_S
RESTARTED_MAX_S = 1
RESIDENT_TIMES = 1.2
CLIENTS_ONE_AFTER_ANOTHER = 10
NAME_SEPARATOR = "__"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the gateway")
    parser.add_argument("--npm", type=pathlib.Path, required=True, help="directory with node_modules")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is running is stopped, too
    Laptop.binary, Laptop.npm = options.binary.resolve(), options.npm
    return suite.run(Laptop)


class Laptop(unittest.TestCase):
    binary, npm = None, None

    @classmethod
    def setUpClass(cls):
        """The servers by themselves, one after the other."""
        cls.alone = tempfile.TemporaryDirectory(prefix="trunkline-laptop-")
        servers.make_directory(cls.alone.name)
        cls.entries = servers.entries(cls.npm, cls.alone.name)
        cls.tools, cls.seconds, cls.resident = {}, 0.0, 0
        for name, entry in cls.entries.items():
            with ByHand(entry) as server:
                cls.tools |= {f"{name}{NAME_SEPARATOR}{tool['name']}": tool for tool in server.tools}
                cls.seconds += server.seconds
                cls.resident += server.resident_bytes
        print(f"by hand: {len(cls.entries)} servers, {len(cls.tools)} tools in {cls.seconds:.1f} s, "
              f"{cls.resident / 2**20:.0f} MiB", flush=True)

    @classmethod
    def tearDownClass(cls):
        cls.alone.cleanup()

    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="trunkline-laptop-"))
        self.configuration = import_file(self.binary, self.entries, self.directory)

    def gateway(self):
        """One that is running, whose log is shown if the test fails."""
        gateway = self.enterContext(Gateway(self.binary, self.configuration))
        self.addCleanup(lambda: self.failed() and print(gateway.process.log(), flush=True))
        return gateway

    def failed(self):
        return any(problem for _, problem in self._outcome.result.failures + self._outcome.result.errors)

    def clients(self, gateway, count):
        """Of both eras and all capabilities in turn."""
        kinds = [(MODERN, LEGACY)[number % 2] for number in range(count)]
        return [
            Client(gateway.url, kind, CAPABILITIES[number // 2 % len(CAPABILITIES)]) for number, kind in enumerate(kinds)
        ]

    def complete(self, gateway):
        """Asks until every client has every tool. Returns the seconds since the gateway accepted clients."""
        clients, most = self.clients(gateway, ASKING), dict.fromkeys(range(ASKING), 0)
        deadline = gateway.began + 3 * self.seconds + 30
        while min(most.values()) < len(self.tools):
            self.assertLess(time.monotonic(), deadline, f"tools of each client: {most}")
            began = time.monotonic()
            for number, client in enumerate(clients):
                listed = client.list_tools()
                if isinstance(listed, str):
                    self.assertIn("still starting", listed)
                    continue
                self.assertGreaterEqual(len(listed), most[number], "no list is shorter than the one before")
                most[number] = len(listed)
            time.sleep(max(0, ASK_INTERVAL_S - (time.monotonic() - began)))
        return time.monotonic() - gateway.began

    def assert_complete(self, client):
        """Returns the tools that the client is given, which are all."""
        listed = client.list_tools()
        self.assertIsInstance(listed, dict)
        self.assertEqual((set(self.tools) - set(listed), set(listed) - set(self.tools)), (set(), set()))
        return listed

    def test_all_servers_are_listed_soon_and_started_once(self):
        gateway = self.gateway()
        seconds = self.complete(gateway)
        print(f"complete after {seconds:.1f} s", flush=True)
        self.assertEqual(len(gateway.children()), len(self.entries), gateway.children())
        self.assertLessEqual(seconds, COMPLETE_TIMES * self.seconds + COMPLETE_MORE_S)
        for client in self.clients(gateway, 2):
            listed = self.assert_complete(client)
            for name, tool in self.tools.items():
                self.assertEqual(listed[name]["inputSchema"], tool["inputSchema"], name)
                self.assertEqual(listed[name].get("description"), tool.get("description"), name)

    def test_every_server_answers_clients_of_both_eras(self):
        gateway = self.gateway()
        self.complete(gateway)
        for client in self.clients(gateway, 2):
            for server, (tool, arguments, expected) in servers.calls(self.alone.name).items():
                answer = client.call(f"{server}{NAME_SEPARATOR}{tool}", arguments)
                self.assertIn("result", answer, (server, client.revision))
                self.assertIn(expected, answer["result"]["content"][0]["text"], server)

    def test_clients_share_one_process_of_each_server(self):
        gateway = self.gateway()
        self.complete(gateway)
        for number in range(CLIENTS_ONE_AFTER_ANOTHER):
            client = self.clients(gateway, number + 1)[-1]
            self.assert_complete(client)
        children = gateway.children()
        self.assertEqual(len(children), len(self.entries), children)
        resident = gateway.resident_bytes()
        print(f"{resident / 2**20:.0f} MiB of {self.resident / 2**20:.0f} MiB by hand", flush=True)
        self.assertLessEqual(resident, RESIDENT_TIMES * self.resident)

    def test_the_first_list_after_a_restart_is_complete(self):
        with Gateway(self.binary, self.configuration) as gateway:
            self.complete(gateway)
        gateway = self.gateway()
        began = gateway.began
        for number in range(2):
            self.assert_complete(self.clients(gateway, number + 1)[-1])
            self.assertLessEqual(time.monotonic() - began, RESTARTED_MAX_S)
            began = time.monotonic()


if __name__ == "__main__":
    sys.exit(main())

"""The means of every test on the booted machine: units, configurations, clients in its network and loads on the gateway."""

import contextlib
import json
import pathlib
import subprocess
import sys
import threading
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
UNITS = TESTS.parent / "systemd"
#: Nothing takes as long, whatever else the machine has to do. Figures are printed: a machine at leisure is far below.
IN_TIME_S = 20
#: Of calls that failed.
SHOWN_MAX = 10
#: In the machine's network: a call of a tool, and how long it took.
CLIENT = """
import http.client, json, sys, time
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}
fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
def ask():
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=20)
    try:
        connection.request("POST", "/mcp", json.dumps(call), fields)
        return connection.getresponse().status
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()
"""
ASK = CLIENT + "\nbegan = time.monotonic()\nprint(json.dumps([ask(), time.monotonic() - began]))"
CONFIGURATION = """
[[listener]]
address = "127.0.0.1:8080"
{listener}
[[endpoint]]
path = "/mcp"
upstreams = ["weather"]
[upstream.weather]
url = "http://127.0.0.1:9101/mcp/weather"
bearer = {bearer}
"""
DEMO = """
[Service]
ExecStart=/opt/trunkline demo --address 127.0.0.1:9101
"""
LISTENS = f"""
import socket, time
end = time.monotonic() + {IN_TIME_S}
while True:
    try:
        socket.create_connection(("127.0.0.1", 9101), timeout=1).close()
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
"""


class Units(unittest.TestCase):
    """The gateway is `trunkline.service` of the repository, with the configuration and the drop-ins that a test writes."""

    machine = None

    def setUp(self):
        self.write_units()
        self.addCleanup(self.stop_all)

    def write_units(self):
        for unit in ("trunkline.service", "trunkline.socket"):
            text = (UNITS / unit).read_text().replace("/usr/bin/trunkline", "/opt/trunkline")
            self.write(f"/etc/systemd/system/{unit}", text)
        self.write("/etc/systemd/system/demo.service", DEMO)

    def stop_all(self):
        self.machine.systemctl("stop", "trunkline.socket", "trunkline.service", "demo.service")
        self.machine.systemctl("reset-failed")

    def write(self, path, text):
        place = self.machine.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def write_drop_in(self, text):
        """Settings of the service, for one test."""
        drop_in = "/etc/systemd/system/trunkline.service.d/of-the-test.conf"
        self.write(drop_in, f"[Service]\n{text}")
        self.addCleanup(self.machine.path(drop_in).unlink)

    def configure(self, bearer="{ env = \"HOME\" }", listener=""):
        text = CONFIGURATION.format(bearer=bearer, listener=listener)
        self.write("/etc/trunkline/trunkline.toml", text)
        return text

    def systemctl(self, *arguments):
        done = self.machine.systemctl(*arguments)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}{self.status()}")

    def status(self):
        return self.machine.systemctl("status", "--no-pager", "--lines=40", "trunkline.service", "trunkline.socket").stdout

    def property(self, unit, name):
        return self.machine.systemctl("show", "--value", "--property", name, unit).stdout.strip()

    def assert_socket_goes_on(self):
        self.assertEqual(self.machine.is_active("trunkline.socket"), "active", self.status())

    def main_pid(self):
        return int(self.property("trunkline", "MainPID"))

    def client(self, program):
        """The output of a program that runs in the machine's network."""
        done = subprocess.run([*self.machine.in_network, "-c", program], capture_output=True, text=True, timeout=150)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def ask(self):
        """The status of a client's request, and the seconds that the answer took."""
        return json.loads(self.client(ASK))

    def assert_served(self):
        """The seconds that a client which connects now waits for its answer."""
        status, seconds = self.ask()
        self.assertEqual(status, 200, self.status())
        return seconds

    @contextlib.contextmanager
    def load(self):
        """Clients that go on to call during the block; afterwards it is known what became of their calls. The gateway is
        started once its server is there: otherwise it begins with a server that is down."""
        load = Load(self)
        try:
            self.systemctl("daemon-reload")
            self.systemctl("start", "trunkline.socket", "trunkline")
            load.goes_on()
            yield load
            load.end()
        finally:
            load.kill()

    def await_that(self, what, condition):
        end = time.monotonic() + IN_TIME_S
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what}\n{self.status()}")
            time.sleep(0.02)

    def tell(self, figure):
        print(f"{self.id().rpartition('.')[2]}: {figure}", flush=True)


class Load:
    """`booted.load` in the machine's network."""

    def __init__(self, test):
        command = [*test.machine.in_network, "-m", "booted.load"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self._test = test
        self._child = subprocess.Popen(command, cwd=TESTS, text=True, **pipes)
        self._watch = threading.Timer(6 * IN_TIME_S, self._child.kill)
        self._watch.start()
        self.told = None
        self._read()

    def goes_on(self):
        """Waits until every client has been answered some more times."""
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        self._read()

    def end(self):
        self._child.stdin.close()
        self.told = self._read()

    def kill(self):
        self._watch.cancel()
        self._child.kill()
        self._child.communicate() if not self._child.stdin.closed else self._child.wait()

    def _read(self):
        line = self._child.stdout.readline()
        self._test.assertTrue(line, lambda: f"{self._child.stderr.read()}{self._test.status()}")
        return json.loads(line)

    def assert_nothing_lost(self):
        self._test.assertEqual((self.told["failed"][:SHOWN_MAX], self.told["sessions_lost"], self.told["sent_twice"]), ([], 0, []))

    def back_after_s(self, moment):
        """The time from this moment to the first answer to a call that had begun after it."""
        return min(ended for begun, ended in self.told["spans"] if begun >= moment) - moment

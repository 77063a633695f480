"""Tests of the units on a systemd that is really booted: `python -m booted --binary PATH`, from `tests/`.

Where this machine lets none boot, it says why, and nothing is tested. The last line is `N passed, N failed`.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import unittest

import suite
from booted.machine import CannotBoot, Machine

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNITS = ROOT / "systemd"
#: A second of it is the unit's own pause, and the machine has more to do.
SERVED_AFTER_REPAIR_S = 10
LISTENING_MAX_S = 20
WRONG_FOR_S = 4
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
LISTENS = f"""
import socket, time
end = time.monotonic() + {LISTENING_MAX_S}
while True:
    try:
        socket.create_connection(("127.0.0.1", 9101), timeout=1).close()
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
"""
CERTIFICATE = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 8443)))"
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
DEMO = "[Service]\nExecStart=/opt/trunkline demo --address 127.0.0.1:9101\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is booted is stopped, too
    try:
        with Machine(options.binary) as machine:
            Units.machine = machine
            return suite.run(Units)
    except CannotBoot as why:
        print(f"no systemd can be booted here, so that the units are not tested on one: {why}")
        print("0 passed, 0 failed")
        return 0


class Units(unittest.TestCase):
    machine = None

    def setUp(self):
        for unit in ("trunkline.service", "trunkline.socket"):
            text = (UNITS / unit).read_text().replace("/usr/bin/trunkline", "/opt/trunkline")
            self.write(f"/etc/systemd/system/{unit}", text)
        self.write("/etc/systemd/system/demo.service", DEMO)
        self.addCleanup(self.stop_all)

    def stop_all(self):
        self.machine.systemctl("stop", "trunkline.socket", "trunkline.service", "demo.service")
        self.machine.systemctl("reset-failed")

    def write(self, path, text):
        place = self.machine.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def configure(self, bearer="{ env = \"HOME\" }", listener=""):
        text = CONFIGURATION.format(bearer=bearer, listener=listener)
        self.write("/etc/trunkline/trunkline.toml", text)
        return text

    def systemctl(self, *arguments):
        done = self.machine.systemctl(*arguments)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}{self.status()}")

    def status(self):
        return self.machine.systemctl("status", "--no-pager", "--lines=40", "trunkline.service", "trunkline.socket").stdout

    def client(self, program):
        """The output of a program that runs in the machine's network."""
        command = ["nsenter", "--target", str(self.machine.init), "--net", sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def make_certificate(self, name):
        folder = self.machine.path("/etc/trunkline")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
        files = ["-keyout", folder / "tls.key", "-out", folder / "tls.pem", "-subj", f"/CN={name}"]
        subprocess.run([*command, *files], check=True, capture_output=True, timeout=60)
        return (folder / "tls.pem").read_text().strip()

    def test_a_reload_with_credentials_succeeds_and_a_restart_takes_up_new_ones(self):
        first = self.make_certificate("first.example.com")
        listener = (
            '[[listener]]\naddress = "127.0.0.1:8443"\n[listener.tls]\n'
            'certificates = [{ chain = "/etc/trunkline/tls.pem", key = { credential = "tls.key" } }]\n'
        )
        text = self.configure('{ credential = "token" }', listener)
        self.write("/etc/trunkline/token", "swordfish\n")
        self.machine.path("/etc/trunkline/token").chmod(0o600)
        loads = "LoadCredential=tls.key:/etc/trunkline/tls.key\nLoadCredential=token:/etc/trunkline/token\n"
        drop_in = "/etc/systemd/system/trunkline.service.d/credentials.conf"
        self.write(drop_in, f"[Service]\n{loads}")
        self.addCleanup(self.machine.path(drop_in).unlink)
        self.systemctl("daemon-reload")
        self.systemctl("start", "trunkline")
        self.assertEqual(self.client(CERTIFICATE), first)
        self.systemctl("reload", "trunkline")
        # A wrong configuration still fails, and goes on with the old one.
        self.write("/etc/trunkline/trunkline.toml", "bogus = 1\n" + text)
        self.assertNotEqual(self.machine.systemctl("reload", "trunkline").returncode, 0)
        self.write("/etc/trunkline/trunkline.toml", text)
        second = self.make_certificate("second.example.com")
        # Versions of systemd differ in what a reload hands over; whichever it is, a pair that fits is served.
        self.machine.systemctl("reload", "trunkline")
        self.assertIn(self.client(CERTIFICATE), (first, second))
        self.systemctl("restart", "trunkline")
        self.assertEqual(self.client(CERTIFICATE), second)

    def test_a_wrong_configuration_leaves_the_socket_and_the_client_that_waits_is_served(self):
        text = self.configure()
        self.systemctl("daemon-reload")
        self.systemctl("start", "demo", "trunkline.socket", "trunkline")
        self.client(LISTENS)
        ask = CLIENT + "\nprint(json.dumps(ask()))"
        self.assertEqual(self.client(ask), "200", self.status())
        self.write("/etc/trunkline/trunkline.toml", "bogus = 1\n" + text)
        self.assertNotEqual(self.machine.systemctl("restart", "trunkline").returncode, 0)
        # Clients go on to connect, give up and come back; then the file is repaired while one waits.
        hammer = CLIENT + f"""
import socket
end = time.monotonic() + {WRONG_FOR_S}
while time.monotonic() < end:
    with socket.create_connection(("127.0.0.1", 8080), timeout=5):
        time.sleep(0.05)
"""
        self.client(hammer)
        self.assertEqual(self.machine.is_active("trunkline.socket"), "active", self.status())
        self.write("/etc/trunkline/trunkline.toml", text)
        served = CLIENT + "\nbegan = time.monotonic()\nprint(json.dumps([ask(), time.monotonic() - began]))"
        status, seconds = json.loads(self.client(served))
        self.assertEqual(status, 200, self.status())
        self.assertLess(seconds, SERVED_AFTER_REPAIR_S)
        self.assertEqual(self.machine.is_active("trunkline.socket"), "active", self.status())
        # Restarts go on to refuse nobody.
        self.systemctl("restart", "trunkline")
        self.assertEqual(self.client(ask), "200", self.status())


if __name__ == "__main__":
    sys.exit(main())

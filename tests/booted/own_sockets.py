"""A socket unit that has failed, and a service that was repaired without it."""

import json

from booted.units import Units

#: Clients that connect to a gateway that cannot start then end in a socket that has failed.
WITHOUT_PAUSE = "ExecStopPost=\n[Unit]\nStartLimitIntervalSec=10s\n"
KNOCK = """
import socket
try:
    socket.create_connection(("127.0.0.1", 8080), 1).close()
except OSError:
    pass
"""


class OwnSockets(Units):
    def test_sockets_of_its_own_beside_an_enabled_socket_unit_are_told_with_the_way_back(self):
        text = self.configure(listener='[admin]\naddress = "127.0.0.1:9090"\n')
        self.write_drop_in(WITHOUT_PAUSE)
        self.systemctl("daemon-reload")
        self.systemctl("enable", "trunkline.socket")
        self.addCleanup(self.machine.systemctl, "disable", "trunkline.socket")
        self.systemctl("start", "trunkline.socket", "trunkline")
        self.assertEqual(self.problems_of_listeners(), [])
        self.write("/etc/trunkline/trunkline.toml", "bogus = 1\n" + text)
        self.assertNotEqual(self.machine.systemctl("restart", "trunkline").returncode, 0)
        self.await_that("the socket fails", self.has_failed_after_a_client)
        # A repair that thinks of the service alone.
        self.write("/etc/trunkline/trunkline.toml", text)
        self.systemctl("reset-failed", "trunkline")
        self.systemctl("start", "trunkline")
        [problem] = self.problems_of_listeners()
        self.assertEqual((problem["level"], problem["subject"]), ("warning", "listener 127.0.0.1:8080"))
        self.assertIn("trunkline.socket is enabled", problem["what"])
        done = self.machine.run("sh", "-c", problem["advice"])
        self.assertEqual(done.returncode, 0, f"{problem}: {done.stderr}{self.status()}")
        self.assert_socket_goes_on()
        self.assertEqual(self.problems_of_listeners(), [])

    def has_failed_after_a_client(self):
        self.client(KNOCK)
        return self.machine.is_active("trunkline.socket") == "failed"

    def problems_of_listeners(self):
        done = self.machine.run("/opt/trunkline", "status", "--json", "--admin", "127.0.0.1:9090")
        self.assertTrue(done.stdout, f"{done.stderr}{self.status()}")
        return [problem for problem in json.loads(done.stdout)["problems"] if problem["subject"].startswith("listener ")]

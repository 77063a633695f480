"""A boot at which something that the gateway needs comes late: it starts by itself as soon as that is there."""

import subprocess
import time

from booted.units import LISTENS, Units

#: With five starts and a second between them the gateway would have been given up by then.
LATE_BY_S = 6
TAKES_THE_ADDRESS = f"""
import socket, time
listening = socket.create_server(("127.0.0.1", 8080))
print("taken", flush=True)
time.sleep({LATE_BY_S})
listening.close()
print(time.monotonic(), flush=True)
"""


class SlowBoot(Units):
    def test_an_address_that_is_taken_at_first(self):
        self.configure()
        self.systemctl("daemon-reload")
        self.systemctl("start", "demo")
        self.client(LISTENS)
        command = [*self.machine.in_network, "-c", TAKES_THE_ADDRESS]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            self.assertEqual(holder.stdout.readline(), "taken\n")
            self.systemctl("start", "--no-block", "trunkline")
            free = float(holder.stdout.readline())
        self.assert_up_by_itself(free)

    def test_a_secret_that_comes_late_with_the_socket(self):
        self.configure(bearer='{ file = "/etc/trunkline/late" }')
        self.systemctl("daemon-reload")
        self.systemctl("start", "demo", "trunkline.socket")
        self.client(LISTENS)
        self.systemctl("start", "--no-block", "trunkline")
        time.sleep(LATE_BY_S)
        self.write("/etc/trunkline/late", "swordfish\n")
        self.addCleanup(self.machine.path("/etc/trunkline/late").unlink)
        self.assert_up_by_itself(time.monotonic())
        self.assert_socket_goes_on()
        self.assertEqual(self.property("trunkline.socket", "Result"), "success")

    def assert_up_by_itself(self, possible):
        """It can start from that moment on."""
        self.await_that("the gateway is up by itself", lambda: self.machine.is_active("trunkline") == "active")
        seconds = time.monotonic() - possible
        self.assertGreater(int(self.property("trunkline", "NRestarts")), 0, "it had failed before")
        self.assert_served()
        self.tell(f"late by {LATE_BY_S} s, up {seconds:.2f} s after")

    def test_the_pauses_before_a_start_are_a_second_together(self):
        """One after the other they are what every client waits for, however fast the machine."""
        self.systemctl("daemon-reload")
        self.assertEqual(self.property("trunkline", "RestartUSec"), "100ms")
        self.assertRegex(self.property("trunkline", "ExecStopPost"), r"exec sleep 1 ;")

"""Restarts and faults while clients call, with the socket: nothing is lost by what is done in order."""

import signal
import time

from booted.units import SHOWN_MAX, Units

RESTARTS = 3
#: Instead of the unit's 30 s.
WATCHDOG_S = 4


class UnderLoad(Units):
    def setUp(self):
        super().setUp()
        self.configure()

    def signal_main(self, number):
        """The moment after which the gateway has got this signal."""
        self.systemctl("kill", "--kill-who=main", f"--signal={number.value}", "trunkline")
        return time.monotonic()

    def test_restarts_lose_no_call(self):
        with self.load() as load:
            for _ in range(RESTARTS):
                before = self.main_pid()
                self.systemctl("restart", "trunkline")
                self.assertNotEqual(self.main_pid(), before)
                load.goes_on()
        load.assert_nothing_lost()
        self.tell(f"{load.told['calls']} calls, 0 lost in {RESTARTS} restarts, longest {load.told['longest_s']:.2f} s")

    def test_a_kill_loses_only_what_was_on_its_way(self):
        with self.load() as load:
            killed = self.signal_main(signal.SIGKILL)
            load.goes_on()
        self.assert_lost_by_the_end(load, killed)
        self.assert_socket_goes_on()

    def test_a_gateway_that_hangs_is_killed_and_started_again(self):
        self.write_drop_in(f"WatchdogSec={WATCHDOG_S}\nLimitCORE=0\n")
        with self.load() as load:
            hung = self.main_pid()
            stopped = self.signal_main(signal.SIGSTOP)
            self.await_that("it is killed", lambda: self.main_pid() not in (0, hung))
            load.goes_on()
        self.assert_lost_by_the_end(load, stopped)
        self.assert_socket_goes_on()

    def assert_lost_by_the_end(self, load, moment):
        """Each client may lose the call that the process had got, or its connection was kept for."""
        told = load.told
        self.assertLessEqual(told["most_failed"], 1, told["failed"][:SHOWN_MAX])
        self.assertEqual({kind for *_, kind in told["failed"]} - {"closed"}, set())
        self.assertEqual((told["sessions_lost"], told["sent_twice"]), (0, []))
        back = load.back_after_s(moment)
        self.tell(f"{told['calls']} calls, {len(told['failed'])} lost, back after {back:.2f} s")

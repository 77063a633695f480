"""Limits that three gateways share, while many clients call more than they may."""

import contextlib
import http.client
import threading
import time

from fleet.case import Case
from fleet.client import Client

CLIENTS = 6
PAUSE_S = 0.02
#: Of the limits below: 600 in a minute.
CALLS, CALLS_PER_S = 600, 10
BURST = 100
HAMMER_S, WINDOW_S = 45, 10
PART = 0.05
#: Of a limit that is in use, parts are out at the gateways.
WINDOW_LEEWAY = CALLS * PART


class Limited(Case):
    replicas = 3

    @contextlib.contextmanager
    def hammer(self):
        """The number of calls that have passed, counted during the block."""
        passed, ends = [0] * CLIENTS, threading.Event()

        def call(number):
            client = Client(self.site.port)
            while not ends.wait(PAUSE_S):
                # A gateway that is killed takes the calls with it that it has.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status, _ = client.modern("/limited", "tools/call", name="whoami", arguments={})
                    passed[number] += status == 200
            client.close()

        threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield lambda: sum(passed)
        finally:
            ends.set()
            for thread in threads:
                thread.join()

    def window(self, passed, action=lambda: None):
        """The number of calls that passed within some seconds from this action on, and the number that should have."""
        begun, before = time.monotonic(), passed()
        action()
        time.sleep(WINDOW_S)
        return passed() - before, CALLS_PER_S * (time.monotonic() - begun)


class Limits(Limited):
    limit = f'rate = "{CALLS}/m"'

    def test_a_shared_limit_holds_also_while_one_is_gone_and_when_it_is_back(self):
        begun = time.monotonic()
        with self.hammer() as passed:
            time.sleep(HAMMER_S)
            there, meant = passed(), CALLS + CALLS_PER_S * (time.monotonic() - begun)
            self.tell(f"{there} of {meant:.0f} in {HAMMER_S} s")
            self.assertAlmostEqual(there, meant, delta=meant * PART)
            gateway = self.site.gateways[0]
            self.assert_window(passed, gateway.process.kill, "without one of three")
            self.assert_window(passed, gateway.start, "with it again")

    def assert_window(self, passed, action, when):
        there, meant = self.window(passed, action)
        self.tell(f"{there} of {meant:.0f} in {WINDOW_S} s {when}")
        self.assertAlmostEqual(there, meant, delta=WINDOW_LEEWAY)


class Small(Limited):
    limit = f'rate = "{CALLS}/m"\nburst = {BURST}'

    def test_a_shared_limit_while_redis_is_away_and_after_it_came_back_empty(self):
        with self.hammer() as passed:
            self.window(passed)
            there, meant = self.window(passed, self.site.redis.stop)
            self.tell(f"{there} of {meant:.0f} in {WINDOW_S} s without Redis")
            self.assertAlmostEqual(there, meant, delta=WINDOW_LEEWAY)
            there, meant = self.window(passed, self.start_redis)
            self.tell(f"{there} of {meant:.0f} and a burst of {BURST} in {WINDOW_S} s after it came back empty")
            self.assertGreaterEqual(there, meant - WINDOW_LEEWAY)
            # Those that are not connected yet count by themselves while the first has the new burst.
            self.assertLessEqual(there, meant + BURST + 2 * WINDOW_LEEWAY)

    def start_redis(self):
        self.site.redis.start()
        self.site.await_shared()

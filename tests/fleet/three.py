"""Drills with three gateways."""

import http.client
import threading
import time

from fleet.case import Case
from fleet.client import BAD_GATEWAY, CLOSED, Load, Unanswered, kind_of, sessions
from fleet.site import wait_for

CLIENTS = 8
CALLERS = 9
PAUSE_S = 0.03
#: `drain.max` of the site.
DRAIN_MAX_S = 10
REDIS_AWAY_S = 3
IN_FLIGHT = 'trunkline_replica_in_flight{{replica="{}/mcp",upstream="sessions"}}'


class Three(Case):
    replicas = 3


class Rolling(Three):
    def test_a_rolling_restart_loses_no_call(self):
        with Load(sessions(self.site.port, CLIENTS), PAUSE_S) as load:
            self.more_calls(load)
            for gateway in self.site.gateways:
                self.assertEqual(gateway.process.stop(), 0)
                gateway.start()
                self.more_calls(load)
        self.assertEqual(load.failed(), [])
        self.assert_sessions_went_on(load)
        self.assertNotIn("more replicas share", self.site.logs())
        self.tell(f"{sum(load.counts())} calls, 0 lost, longest {load.longest_s():.2f} s")


class Long(Three):
    """Those that take their time."""

    def test_one_is_killed_one_drains_and_redis_restarts(self):
        one, two, _ = self.site.gateways
        with Load(sessions(self.site.port, CLIENTS), PAUSE_S) as load:
            self.more_calls(load)
            one.process.kill()
            self.more_calls(load)
            one.start()
            self.more_calls(load)
            lost_by_the_kill = len(load.failed())
            self.assertEqual(two.process.stop(), 0)
            two.start()
            self.more_calls(load)
            self.site.redis.stop()
            time.sleep(REDIS_AWAY_S)
            self.more_calls(load)
            self.site.redis.start()
            self.site.await_shared()
            self.more_calls(load)
        self.assertLessEqual({failure.kind for failure in load.failed()}, {CLOSED, BAD_GATEWAY})
        self.assertEqual(len(load.failed()), lost_by_the_kill, "nothing else loses one")
        self.assertLessEqual(lost_by_the_kill, 2 * CLIENTS)
        self.assert_sessions_went_on(load)
        self.tell(f"{sum(load.counts())} calls in their sessions, {lost_by_the_kill} lost by the kill, 0 by anything else")

    def test_a_kill_during_long_calls_sends_none_twice(self):
        calls = Calls(self.site, "long")
        gateway = max(self.site.gateways, key=calls.in_flight)
        there = calls.in_flight(gateway)
        gateway.process.kill()
        calls.join()
        self.assertEqual(len(calls.failures), there)
        self.assertLessEqual(set(calls.failures), {CLOSED, BAD_GATEWAY})
        self.assertEqual(self.site.server.sent_twice(), [])
        self.tell(f"{there} of {CALLERS} lost, which were those of the gateway, none sent twice")

    def test_a_drain_waits_for_calls(self):
        calls = Calls(self.site, "long")
        gateway = max(self.site.gateways, key=calls.in_flight)
        there = calls.in_flight(gateway)
        self.assertEqual(gateway.process.stop(3 * DRAIN_MAX_S), 0)
        calls.join()
        self.assertEqual(calls.failures, [])
        self.tell(f"{CALLERS} of {CALLERS} answered, {there} by the gateway that drained")

    def test_a_drain_cuts_what_takes_longer_than_it_may(self):
        calls = Calls(self.site, "longer")
        gateway = max(self.site.gateways, key=calls.in_flight)
        there, begun = calls.in_flight(gateway), time.monotonic()
        self.assertEqual(gateway.process.stop(3 * DRAIN_MAX_S), 0)
        seconds = time.monotonic() - begun
        calls.join()
        self.assertEqual(len(calls.failures), there)
        self.assertGreaterEqual(seconds, DRAIN_MAX_S)
        self.assertRegex(gateway.process.log(), rf"cutting what is left .*calls={there}\b")
        self.assertEqual(self.site.server.sent_twice(), [])
        self.tell(f"{there} of {CALLERS} cut after {seconds:.1f} s")


class Calls:
    """One call of each of nine sessions, all of them at the server when this is made."""

    def __init__(self, site, tool):
        self._name = IN_FLIGHT.format(site.server.address)
        self.failures = []
        callers = sessions(site.port, CALLERS, tool)
        self._threads = [threading.Thread(target=self._call, args=(session,), daemon=True) for session in callers]
        for thread in self._threads:
            thread.start()
        wait_for("all calls are on their way", lambda: sum(map(self.in_flight, site.gateways)) == CALLERS)

    def in_flight(self, gateway):
        return int(gateway.metric(self._name))

    def join(self):
        for thread in self._threads:
            thread.join()

    def _call(self, session):
        try:
            session.call()
        except (OSError, http.client.HTTPException, Unanswered) as failure:
            self.failures.append(kind_of(failure))
        finally:
            session.close()

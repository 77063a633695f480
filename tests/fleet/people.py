"""People who are signed in at three gateways, while what they are signed in at is killed."""

import http.client
import threading
import time

from fleet.case import Case
from fleet.sign_in import Person, Refused
from fleet.site import wait_for

PEOPLE = 6
PAUSE_S = 0.05
REDIS_AWAY_S = 3
SUCCESSORS = 'trunkline_sign_in_tokens_total{kind="next"} '
REDIS_KILLS = 3
#: Answers that a client may meet, and that pass: its gateway was killed, the proxy says so, or the gateway has no Redis.
PASSING = {(502, "of the proxy"), (503, "of the proxy"), (503, "temporarily_unavailable")}


def successors(gateway):
    """The refresh tokens that this gateway has made in the place of others."""
    text = gateway.metrics()
    return float(next((line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(SUCCESSORS)), 0))


def all_have_risen(counts, before):
    """True if each count is higher than it was before."""
    return all(now > then for now, then in zip(counts, before, strict=True))


class Renewing:
    """`with Renewing(people) as load:` – each client renews its token again and again, and comes again with the same one where
    there was no answer."""

    def __init__(self, people):
        self._people = people
        self._ends = threading.Event()
        self.answered = [0] * len(people)
        #: The answers that a client may not get, as it would open a browser.
        self.refused = []

    def __enter__(self):
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(len(self._people))]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, gateways):
        """Waits until these gateways have made as many new tokens as there are clients, and each client was answered."""
        before, made = list(self.answered), sum(map(successors, gateways))

        def all_go_on():
            is_made = sum(map(successors, gateways)) >= made + len(self._people)
            return is_made and all_have_risen(self.answered, before)

        wait_for("every client goes on", lambda: self.refused or all_go_on())

    def _run(self, number):
        while not self._ends.wait(PAUSE_S):
            try:
                self._people[number].refresh()
                self.answered[number] += 1
            except Refused as refused:
                if (refused.status, refused.error) not in PASSING:
                    self.refused.append(refused)
                    return
            except (OSError, http.client.HTTPException):
                pass


class SignedIn(Case):
    replicas = 3

    def setUp(self):
        super().setUp()
        self.people = [Person(self.site.port, user) for user in ("alice", "bob") * (PEOPLE // 2)]
        for person in self.people:
            person.exchange(person.sign_in())

    def assert_signed_in(self):
        for person in self.people:
            person.refresh()
            self.assertEqual(self.calls(person), [200] * self.replicas)

    def calls(self, person):
        """The status of a call at each gateway."""
        return [person.call(gateway.port) for gateway in self.site.gateways]


class People(SignedIn):
    def test_no_client_opens_a_browser_while_each_gateway_is_killed(self):
        with Renewing(self.people) as load:
            for gateway in self.site.gateways:
                gateway.process.kill()
                load.go_on([each for each in self.site.gateways if each is not gateway])
                gateway.start()
        self.assertEqual(load.refused, [])
        self.assert_signed_in()
        self.tell(f"{sum(load.answered)} answers to {PEOPLE} clients, none of them opens a browser")


class LongPeople(SignedIn):
    """Those that take their time."""

    #: A gateway tries every five seconds to connect to Redis.
    reuse = "8s"

    def test_no_client_opens_a_browser_while_redis_is_killed_and_away(self):
        with Renewing(self.people) as load:
            for _ in range(REDIS_KILLS):
                load.go_on(self.site.gateways)
                self.restart_redis()
            load.go_on(self.site.gateways)
            self.site.redis.stop()
            for person in self.people:
                self.assertEqual(self.calls(person), [200] * self.replicas)
            time.sleep(REDIS_AWAY_S)
            self.site.redis.start()
            self.site.await_shared()
            load.go_on(self.site.gateways)
        self.assertEqual(load.refused, [])
        self.assert_signed_in()
        self.tell(f"{sum(load.answered)} answers to {PEOPLE} clients, none of them opens a browser")

    def test_people_sign_in_while_gateways_are_killed_at_any_step(self):
        done, again, ends = [0] * PEOPLE, [0] * PEOPLE, threading.Event()

        def sign_in(number):
            while not ends.is_set():
                # A visit that a kill has cut off is begun anew, as people do.
                try:
                    self.people[number].exchange(self.people[number].sign_in())
                    done[number] += 1
                except (AssertionError, Refused, OSError, http.client.HTTPException):
                    again[number] += 1

        threads = [threading.Thread(target=sign_in, args=(number,), daemon=True) for number in range(PEOPLE)]
        for thread in threads:
            thread.start()
        try:
            for gateway in self.site.gateways * 2:
                before = list(done)
                gateway.process.kill()
                wait_for("all sign in at the others", lambda: all_have_risen(done, before))
                gateway.start()
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        self.assert_signed_in()
        self.tell(f"{sum(done)} sign-ins of {PEOPLE} people, {sum(again)} were begun anew")

    def test_a_redis_that_comes_back_empty_revives_nothing(self):
        ended, living = self.people[0], self.people[1:]
        ended.revoke()
        begun = time.monotonic()
        wait_for("all gateways know it", lambda: self.calls(ended) == [401] * self.replicas)
        seconds = time.monotonic() - begun
        self.site.redis.empty()
        self.restart_redis()
        for person in self.people:
            with self.assertRaises(Refused) as caught:
                person.refresh()
            self.assertEqual((caught.exception.status, caught.exception.error), (400, "invalid_grant"))
        self.assertEqual(self.calls(ended), [401] * self.replicas)
        for person in living:
            person.exchange(person.sign_in())
            self.assertEqual(self.calls(person), [200] * self.replicas)
        self.tell(f"an end was known at {self.replicas} gateways after {seconds:.2f} s")

    def restart_redis(self):
        self.site.redis.stop()
        self.site.redis.start()
        self.site.await_shared()

"""Sign-in with providers that nobody here wrote, and that refuse what real ones refuse."""

import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from signing.calls import status_of_call
from signing.person import Person
from signing.second_opinion import SecondOpinion

#: Longer than `recheck_interval` of the profile that rotates, several times.
RECHECKS, RECHECK_TIMEOUT_S = 2, 100
ASK_EVERY_S = 3


class ProviderCase(unittest.TestCase):
    """A test method with one provider."""

    def __init__(self, method, profile, place):
        super().__init__(method)
        self.profile, self.place = profile, place

    def __str__(self):
        return f"oidc-provider, {self.profile.name}: {self._testMethodName}"

    id = __str__

    def signed_in(self, user):
        client = SecondOpinion(f"{self.place.url}/mcp")
        client.sign_in(Person(user))
        return client

    def assert_calls(self, client):
        self.assertEqual(status_of_call(f"{self.place.url}/mcp", client.session.token["access_token"]), 200)


    def provider_was_asked(self):
        """The number of times that the gateway has had an answer about an account, since its start."""
        return self.place.metric(r'trunkline_sign_in_checks_total\{result="ok"\}')


class Providers(ProviderCase):
    """The way of every client."""

    def test_groups_of_the_provider_give_scopes(self):
        for user, scope in (("alice", "mcp:read mcp:write"), ("bob", "mcp:read")):
            client = self.signed_in(user)
            self.assertEqual(client.session.token["scope"], scope)
            self.assert_calls(client)

    def test_a_sign_in_goes_on_after_the_gateway_was_killed(self):
        client = self.signed_in("alice")
        for again in (self.place.kill, self.place.restart):
            again()
            client.refresh()
            self.assert_calls(client)


class Rotation(ProviderCase):
    """A provider that ends everything if one of its refresh tokens is used twice."""

    def test_clients_of_one_person_share_what_the_provider_rotates(self):
        with ThreadPoolExecutor() as threads:
            clients = list(threads.map(self.signed_in, ["alice"] * 4))
            for _ in range(RECHECKS):
                until = time.monotonic() + RECHECK_TIMEOUT_S
                while not self.provider_was_asked():
                    self.assertLess(time.monotonic(), until, "the provider is not asked again")
                    list(threads.map(SecondOpinion.refresh, clients))
                    time.sleep(ASK_EVERY_S)
                self.place.kill()  # which forgets what it has counted
                for client in clients:
                    client.refresh()
                    self.assert_calls(client)

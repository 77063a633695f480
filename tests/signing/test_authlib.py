"""Our authorization server, as another implementation of OAuth sees it."""

import unittest

from signing.calls import status_of_call
from signing.person import Person
from signing.second_opinion import OAuthError, SecondOpinion
from signing.site import CONFIGURED, CONFIGURED_SECRET, DOCUMENT_WITH_KEY, document_key


class Authlib(unittest.TestCase):
    """A client that registers, or is known, with each way to prove itself."""

    def __init__(self, method, place):
        super().__init__(method)
        self.place = place

    def __str__(self):
        return f"authlib: {self._testMethodName}"

    id = __str__

    def opinion(self, method="none", known=None):
        return SecondOpinion(f"{self.place.url}/mcp", method, known)

    def status(self, tokens):
        return status_of_call(f"{self.place.url}/mcp", tokens["access_token"])

    def test_goes_the_whole_way_by_each_proof_of_a_client(self):
        configured = (CONFIGURED, CONFIGURED_SECRET)
        with_key = (DOCUMENT_WITH_KEY, document_key())
        ways = [
            ("none", None),
            ("client_secret_basic", None),
            ("client_secret_post", None),
            ("client_secret_basic", configured),
            ("client_secret_post", configured),
            ("private_key_jwt", with_key),
        ]
        for method, known in ways:
            with self.subTest(method=method, known=known and known[0]):
                client = self.opinion(method, known)
                tokens = client.sign_in(Person("alice"))
                self.assertEqual(tokens["scope"], "mcp:read mcp:write")
                self.assertEqual(self.status(tokens), 200)
                self.assertEqual(self.status(client.refresh()), 200)
                self.assertEqual(client.revoke(), 200)
                self.assertEqual(self.status(client.session.token), 401)
                with self.assertRaisesRegex(OAuthError, "invalid_grant"):
                    client.refresh()

    def test_no_scope_comes_for_the_asking_nor_at_a_refresh(self):
        client = self.opinion()
        self.assertEqual(client.sign_in(Person("bob"))["scope"], "mcp:read")
        self.assertEqual(client.refresh()["scope"], "mcp:read")

    def test_a_code_is_worth_nothing_without_its_verifier(self):
        with self.assertRaisesRegex(OAuthError, "invalid_grant"):
            self.opinion().sign_in(Person("alice"), verifier="another-verifier-that-is-long-enough-for-the-rfc")

    def test_a_wrong_secret_is_no_proof(self):
        with self.assertRaisesRegex(OAuthError, "invalid_client"):
            self.opinion("client_secret_basic", (CONFIGURED, "wrong")).sign_in(Person("alice"))

"""A site for each test, and what all of them ask of a load."""

import unittest

from fleet.site import LIMIT, Site, wait_for

CLIENTS = 8
#: Calls of each client before and after something happens.
CALLS = 20


class Case(unittest.TestCase):
    binary = None
    #: The program of a provider of sign-ins, where one is wanted.
    provider = None
    #: For so long a refresh token gets the same successor again: for longer than a client without an answer comes again.
    reuse = "2s"
    replicas = 2
    limit = LIMIT

    def setUp(self):
        self.site = self.enterContext(Site(self.binary, self.replicas, self.limit, self.provider, self.reuse))

    def run(self, result=None):
        before = len(result.failures) + len(result.errors)
        super().run(result)
        if len(result.failures) + len(result.errors) > before and hasattr(self, "site"):
            print(self.site.logs(), flush=True)
        return result

    def more_calls(self, load, count=CALLS):
        """Waits until every client has had further calls answered."""
        before = load.counts()
        enough = lambda: all(seen >= then + count for seen, then in zip(load.counts(), before, strict=True))
        wait_for("every client goes on", enough)

    def assert_sessions_went_on(self, load):
        for answers in load.answers:
            self.assertEqual(len(set(answers)), 1, "all calls of a session come in one session of the server")
        told = {answers[0] for answers in load.answers}
        self.assertEqual(len(told), len(load.answers), "and no two share one")
        self.assertEqual(self.site.server.sent_twice(), [])

    def tell(self, figure):
        print(f"{self.id().rpartition('.')[2]}: {figure}", flush=True)

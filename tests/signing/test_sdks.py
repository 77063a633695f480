"""The official SDKs sign in, and go on, in every kind of registration, whatever happens to the gateway in between."""

import pathlib
import shutil
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from signing.calls import status_of_call
from signing.clients import Client, ClientError
from signing.person import Person
from signing.site import GUARDED_TOOL, OPEN_TOOL

#: The answers of `OPEN_TOOL` and `GUARDED_TOOL`.
OPEN_ANSWER = "everything"
GUARDED_ANSWER = "This is a simple text response for testing."
#: A question, a page that moves on, the provider's form and the way back, at least.
PAGES = 4
#: The place at which clients would listen; the browser of these tests does not go there.
CLIENT_PORT = 3118


class SdkCase(unittest.TestCase):
    """A test method for one SDK, or for all of them, and one kind of registration."""

    def __init__(self, method, place, provider, sdk, kind):
        super().__init__(method)
        self.place, self.provider, self.sdk, self.kind = place, provider, sdk, kind

    def __str__(self):
        return f"{self.sdk.name}, {self.kind}: {type(self).__name__}.{self._testMethodName}"

    id = __str__

    def setUp(self):
        folder = tempfile.mkdtemp(prefix="trunkline-client-")
        self.addCleanup(shutil.rmtree, folder)
        self.store = pathlib.Path(folder, "store.json")

    def client(self, user="alice", store=None):
        endpoint = f"{self.place.url}/mcp"
        started = Client(self.sdk, self.kind, endpoint, Person(user), store or self.store, CLIENT_PORT)
        return self.enterContext(started)


class Flow(SdkCase):
    """The whole way."""

    def test_signs_in_once_and_goes_on_over_restarts(self):
        client = self.client()
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        self.assertEqual(client.visits, 1)
        token = client.known()["tokens"]["access_token"]
        self.assertEqual(status_of_call(f"{self.place.url}/mcp", token), 200)
        self.assertEqual(status_of_call(f"{self.place.url}/other", token), 401, "it is for one endpoint")
        self.place.restart()
        client.later()
        before = client.known()["tokens"]
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        self.assertEqual(client.visits, 1, "a refresh opens no browser")
        if not self.sdk.refreshes_at_401:  # the others do not look at a clock
            self.assertNotEqual(client.known()["tokens"], before)
        self.place.kill()
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        another = self.client()
        self.assertEqual(another.call(OPEN_TOOL), OPEN_ANSWER, "another process goes on with what this one has kept")
        self.assertEqual((client.visits, another.visits), (1, 0))


class Ends(SdkCase):
    """Things that are not given, and those that have ended."""

    def test_comes_back_after_its_token_has_ended(self):
        client = self.client()
        client.call(OPEN_TOOL)
        client.spoil()
        again = self.client()
        self.assertEqual(again.call(OPEN_TOOL), OPEN_ANSWER)
        self.assertEqual(again.visits, 0 if self.sdk.refreshes_at_401 else 1)

    def test_steps_up_for_a_scope_that_a_tool_needs(self):
        client = self.client()
        client.call(OPEN_TOOL)
        self.assertEqual(client.known()["tokens"]["scope"], "mcp:read")
        if not self.sdk.steps_up:
            with self.assertRaisesRegex(ClientError, "403"):
                client.call(GUARDED_TOOL)
            self.assertEqual(client.visits, 1)
            return
        self.assertEqual(client.call(GUARDED_TOOL), GUARDED_ANSWER)
        self.assertEqual(set(client.known()["tokens"]["scope"].split()), {"mcp:read", "mcp:write"})
        self.assertEqual(client.visits, 2)

    def test_is_not_sent_to_a_browser_for_what_its_user_may_not_have(self):
        client = self.client("bob")
        client.call(OPEN_TOOL)
        with self.assertRaises(ClientError):
            client.call(GUARDED_TOOL)
        self.assertEqual(client.visits, 1)

    def test_somebody_who_says_no_is_not_signed_in_and_an_end_opens_the_browser(self):
        client = self.client()
        client.person.answer = "deny"
        with self.assertRaisesRegex(ClientError, "access_denied"):
            client.call(OPEN_TOOL)
        client.person.answer = "allow"
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        self.place.grants("revoke", "--user", "alice")
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        self.assertEqual(client.visits, 3)


class Kills(SdkCase):
    """A gateway that does not live long."""

    def test_signs_in_though_the_gateway_is_killed_before_each_page(self):
        killed = []

        def kill():
            self.place.kill()
            killed.append(1)

        client = self.client()
        client.person.meanwhile = kill
        self.assertEqual(client.call(OPEN_TOOL), OPEN_ANSWER)
        self.assertEqual(client.visits, 1)
        self.assertGreater(len(killed), PAGES)


class Parallel(SdkCase):
    """Several processes that have one refresh token, each for itself."""

    PROCESSES = 4

    def test_processes_with_one_refresh_token_all_go_on(self):
        client = self.client()
        client.call(OPEN_TOOL)
        client.spoil()
        stores = [client.copied(f"{number}.json") for number in range(self.PROCESSES)]
        others = [self.client(store=store) for store in stores]
        for _ in range(2):
            with ThreadPoolExecutor(self.PROCESSES) as threads:
                answers = list(threads.map(lambda other: other.call(OPEN_TOOL), others))
            self.assertEqual(answers, [OPEN_ANSWER] * self.PROCESSES)
            for other in others:
                other.spoil()
        self.assertEqual([other.visits for other in others], [0] * self.PROCESSES)


class Together(unittest.TestCase):
    """All SDKs at once."""

    def __init__(self, method, place, sdks):
        super().__init__(method)
        self.place, self.sdks = place, sdks

    def test_four_clients_sign_in_at_once(self):
        with tempfile.TemporaryDirectory(prefix="trunkline-client-") as folder, ThreadPoolExecutor() as threads:

            def signs_in(number):
                store = pathlib.Path(folder, f"{number}.json")
                user = ("alice", "bob")[number % 2]
                endpoint = f"{self.place.url}/mcp"
                client = Client(self.sdks[number], "registered", endpoint, Person(user), store, CLIENT_PORT)
                with client:
                    return client.call(OPEN_TOOL), client.visits

            self.assertEqual(list(threads.map(signs_in, range(len(self.sdks)))), [(OPEN_ANSWER, 1)] * len(self.sdks))

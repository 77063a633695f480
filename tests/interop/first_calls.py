"""The calls that people make first, with every SDK: a tool whose argument is mirrored in a header, and on the demo one
that asks its caller.

An SDK takes part through its `Session`; see `python_client` and `python1_client`.
"""

from interop.cases import BoundedCase

CITY = "Zürich"
HEADER_MISMATCH = -32020


class Person:
    """Answers the question of the demo, and remembers what was asked."""

    def __init__(self):
        self.agrees = False
        self.asked = []

    async def answer(self, method, params, report):
        self.asked.append(params["message"])
        return {"action": "accept", "content": {"ok": True}} if self.agrees else {"action": "decline"}


class FirstCalls(BoundedCase):
    """`open_session(topology, route, person)` opens a `Session`."""

    def __init__(self, method, sdk, open_session, topology, route):
        super().__init__(method, f"{sdk}, {route.name}")
        self.topology, self.route, self.open_session = topology, route, open_session

    async def test_a_declared_argument_needs_no_more_of_a_client_than_its_revision_says(self):
        async with self.open_session(self.topology, self.route, Person()) as session:
            for _ in ("before the list of tools", "after it"):
                if self.route.is_demo:
                    result = await session.call("weather__forecast", {"city": CITY, "days": 1})
                    self.assertEqual(result["structuredContent"]["city"], CITY)
                else:
                    result = await session.call(self.route.tool("test_x_mcp_header"), {"region": CITY})
                    self.assertIn("host", result["structuredContent"]["headers"])
                await session.client.list_tools()


class Questions(FirstCalls):
    async def test_a_person_is_asked(self):
        person = Person()
        async with self.open_session(self.topology, self.route, person) as session:
            added = await session.call("notes__add_note", {"title": self.against, "text": ""})
            number = added["structuredContent"]["number"]
            for person.agrees in (False, True):
                deleted = await session.call("notes__delete_note", {"number": number})
                self.assertEqual(deleted["structuredContent"], {"deleted": person.agrees})
        self.assertEqual(person.asked, [f"Delete note {number} “{self.against}” for good?"] * 2)


class Unmirrored(BoundedCase):
    """A client of the demo that mirrors nothing where its revision demands it, which the gateway cannot let pass."""

    def __init__(self, method, sdk, open_session, topology, route):
        super().__init__(method, f"{sdk}, {route.name}")
        self.topology, self.route, self.open_session = topology, route, open_session

    async def test_a_declared_argument_is_missed_and_others_are_not(self):
        async with self.open_session(self.topology, self.route, Person()) as session:
            with self.assert_error(HEADER_MISMATCH):
                await session.call("weather__forecast", {"city": CITY})
            compared = await session.call("weather__compare", {"cities": ["Oslo", "Lima"]})
            self.assertFalse(compared.get("isError"), compared)


def cases_for(route):
    return (Questions,) if route.is_demo else (FirstCalls,)

"""Sessions: what one client does in its session concerns no other, and what has ended stays ended."""

import asyncio

from interop.cases import AnswerError
from interop.python1_client import RouteCase, end_session, post

NOT_FOUND = 404


class Sessions(RouteCase):
    async def test_ping(self):
        async with self.connect() as client:
            await client.send_ping()

    async def test_two_clients_at_once_do_not_cross(self):
        async def one_client(key):
            async with self.connect() as client:
                for number in range(8):
                    arguments = {"client": key, "number": number}
                    result = await client.call_tool(self.route.tool("echo"), arguments)
                    self.assertEqual(result.structuredContent, {"arguments": arguments})
                return client.session_id

        one, two = await asyncio.gather(one_client("one"), one_client("two"))
        self.assertNotEqual(one, two)

    async def test_closing_ends_the_session(self):
        async with self.connect() as client:
            status, answer = await asyncio.to_thread(post, self.route.url, client.session_id, "ping", {})
            self.assertNotEqual(status, NOT_FOUND, answer)
        status, _ = await asyncio.to_thread(post, self.route.url, client.session_id, "ping", {})
        self.assertEqual(status, NOT_FOUND)

    async def test_an_ended_session_is_noticed_and_a_new_one_opens(self):
        async with self.connect() as client:
            await asyncio.to_thread(end_session, self.route.url, client.session_id)
            with self.assertRaisesRegex(AnswerError, "Session terminated"):
                await client.call_tool(self.route.tool("whoami"))
        async with self.connect() as another:
            self.assertNotEqual(another.session_id, client.session_id)
            self.assertFalse((await another.call_tool(self.route.tool("whoami"))).isError)

    async def test_an_unknown_session_is_not_found(self):
        async with self.connect() as client:
            for forged in ("0" * 32, client.session_id[:-1], client.session_id + "A", client.session_id[::-1]):
                status, answer = await asyncio.to_thread(post, self.route.url, forged, "tools/list", {})
                self.assertEqual(status, NOT_FOUND, (forged, answer))
            await client.send_ping()

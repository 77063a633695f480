"""What a session of the older revisions carries beside calls, whichever SDK and transport it runs on.

Everything happens in one session, one check after the other, so that each also shows that the one before left the
session usable. Where a route reaches two upstreams, both are asked for the same thing at once, and what comes back
must not cross. An SDK takes part through its `Session`; see `python_client` and `python1_client`.
"""

import asyncio
import collections

from interop.cases import AnswerError, BoundedCase

REVISION = "2026-07-28"

CHECK_TIMEOUT_S = 10
#: How many questions each upstream has open at once.
QUESTIONS = 3
LIST_CHANGES = ("tools", "prompts", "resources")
URL_ELICITATION_REQUIRED = -32042
ROOTS = [{"uri": "file:///srv/project", "name": "project"}]
WATCHED = "test://watched-resource"
#: What a question starts with when nobody shall answer it.
UNANSWERED = "nobody answers"

#: One upstream of a route: its name, functions to how its tools and URIs are called there, and whether it speaks the
#: newest revision only. Such a one asks nothing that it could take back, and hears of no progress of its questions.
Upstream = collections.namedtuple("Upstream", "name tool uri is_modern")


def upstreams(route):
    yield Upstream("alpha", route.tool, route.uri, route.alpha_revision == REVISION)
    if route.beta_name:
        yield Upstream(
            "beta",
            lambda inner: route.beta_name.replace("{}", inner),
            lambda uri: route.beta_uri.replace("{}", uri),
            route.beta_revision == REVISION,
        )


class Person:
    """Answers what servers ask, each answer naming its question, and remembers what was asked.

    With `together`, nothing is answered before so many questions are open at once.
    """

    def __init__(self):
        self.asked = []
        self.interrupted = []
        self.together = 1
        self._arrived = asyncio.Condition()
        self._open = 0

    async def answer(self, method, params, report):
        """The result, as it stands on the wire; `report(done, total)` sends progress."""
        self.asked.append((method, params))
        message = asked(method, params)
        if message.startswith(UNANSWERED):
            try:
                await asyncio.sleep(CHECK_TIMEOUT_S)
            finally:
                self.interrupted.append(message)
        await self._all_are_here()
        await report(1, 2)
        if method == "roots/list":
            return {"roots": ROOTS}
        if method == "sampling/createMessage":
            return {"role": "assistant", "model": "none", "content": {"type": "text", "text": f"re {message}"}}
        return {"action": "accept"} | ({} if "url" in params else {"content": {"name": f"re {message}"}})

    async def _all_are_here(self):
        async with self._arrived:
            self._open += 1
            self._arrived.notify_all()
            await self._arrived.wait_for(lambda: self._open >= self.together)


def asked(method, params):
    if method == "sampling/createMessage":
        return params["messages"][0]["content"]["text"]
    return params.get("message", "")


class Session:
    """What the checks need of a client, results and parameters as they stand on the wire.

    Subclasses bring `call(tool, arguments, progress)`, `call_and_cancel(tool, arguments)`, `subscribe(uri)`,
    `unsubscribe(uri)`, `set_level(level)` and `ping()`, and say with `hears` what the server notified of.
    """

    #: Whether questions are answered side by side.
    is_concurrent = True

    def __init__(self, person):
        self.person = person
        self.heard = []
        self._changed = asyncio.Condition()

    async def hears(self, method, params):
        async with self._changed:
            self.heard.append((method, params or {}))
            self._changed.notify_all()

    async def awaits(self, method, accept=lambda params: True):
        """The parameters of the first notification of this kind."""

        def found():
            return next((params for name, params in self.heard if name == method and accept(params)), None)

        async with self._changed:
            await self._changed.wait_for(lambda: found() is not None)
            return found()

    def logged(self):
        return [params["data"] for method, params in self.heard if method == "notifications/message"]


class Sessions(BoundedCase):
    """`open_session(topology, route, person)` opens a `Session`."""

    timeout_s = 90

    def __init__(self, method, sdk, open_session, topology, route):
        super().__init__(method, f"{sdk}, {route.name}")
        self.topology, self.route, self.open_session = topology, route, open_session
        self.upstreams = list(upstreams(route))

    async def test_everything_in_one_session(self):
        person = Person()
        async with self.open_session(self.topology, self.route, person) as session:
            await self.from_each(session, "whoami")  # where upstreams are children, they start now
            if any(each.is_modern for each in self.upstreams):
                await session.set_level("info")  # until then, such an upstream sends no lines
            for name in (name for name in dir(self) if name.startswith("check_")):
                with self.subTest(name):
                    session.heard.clear()
                    person.asked.clear()
                    async with asyncio.timeout(CHECK_TIMEOUT_S):
                        await getattr(self, name)(session, person)

    async def from_each(self, session, tool, **arguments):
        """The results of one tool of every upstream, called at once."""
        return await asyncio.gather(*(session.call(each.tool(tool), arguments) for each in self.upstreams))

    async def marked(self, session):
        """The last line of each upstream: what it sent before on its stream of no call has arrived by then."""
        marks = [f"mark of {each.name}" for each in self.upstreams]
        for each, mark in zip(self.upstreams, marks, strict=True):
            await session.call(each.tool("log_apart"), {"message": mark})
        for mark in marks:
            await session.awaits("notifications/message", lambda params, mark=mark: params["data"] == mark)
        return marks

    # ---- questions ---------------------------------------------------------------------------------

    async def check_answers_do_not_cross(self, session, person):
        for tool in ("ask_here", "ask_apart"):
            for kind in ("elicitation", "sampling"):
                everybody = self.upstreams * QUESTIONS
                messages = [(each, f"{each.name} {tool} {kind} {n}") for n, each in enumerate(everybody)]
                person.together = person._open + len(messages) if session.is_concurrent else 1
                results = await asyncio.gather(
                    *(session.call(each.tool(tool), {"kind": kind, "message": text}) for each, text in messages)
                )
                given = [result["structuredContent"]["content"] for result in results]
                found = [content["name"] if kind == "elicitation" else content["text"] for content in given]
                self.assertEqual(found, [f"re {message}" for _, message in messages])

    async def check_roots(self, session, person):
        person.together = 1
        for tool in ("ask_here", "ask_apart"):
            for result in await self.from_each(session, tool, kind="roots"):
                self.assertEqual(result["structuredContent"], {"roots": ROOTS})

    async def check_pings_either_way(self, session, person):
        for tool in ("ask_here", "ask_apart"):
            for result in await self.from_each(session, tool, kind="ping"):
                self.assertEqual(result["content"][0]["text"], "answered")
        await session.ping()

    async def check_progress_of_the_client_reaches_who_asked(self, session, person):
        person.together = 1
        results = await self.from_each(session, "ask_with_progress", message="how far?")
        for each, result in zip(self.upstreams, results, strict=True):
            if each.is_modern:
                self.assertEqual(result["structuredContent"]["content"]["text"], "re how far?")
            else:
                self.assertEqual(result["structuredContent"], {"seen": [[1, 2]]})

    async def check_a_question_that_is_taken_back(self, session, person):
        if not session.is_concurrent:
            return
        person.interrupted.clear()
        for result in await self.from_each(session, "ask_and_give_up", message=UNANSWERED):
            self.assertEqual(result["content"][0]["text"], "gave up")
        while len(person.interrupted) < sum(not each.is_modern for each in self.upstreams):
            await asyncio.sleep(0.01)

    async def check_a_person_is_sent_to_a_page(self, session, person):
        person.together = 1
        results = await self.from_each(session, "ask_url", message="sign in")
        self.assertEqual({result["content"][0]["text"] for result in results}, {"accept"})
        ids = {result["structuredContent"].get("id") for result in results} - {None}
        asked = {params["elicitationId"] for _, params in person.asked}
        self.assertEqual(len(asked), len(self.upstreams))
        self.assertLessEqual(ids, asked)
        self.assertEqual(len(ids), sum(not each.is_modern for each in self.upstreams))
        for elicitation in ids:
            await session.awaits(
                "notifications/elicitation/complete", lambda params, id=elicitation: params["elicitationId"] == id
            )

    async def check_a_page_is_needed_first(self, session, person):
        person.together = 1
        for each in self.upstreams:
            if each.is_modern:
                result = await session.call(each.tool("need_url"), {})
                self.assertEqual(result["content"][0]["text"], "accept")
                continue
            with self.assertRaises(AnswerError) as caught:
                await session.call(each.tool("need_url"), {})
            error = caught.exception.error
            self.assertEqual(error.code, URL_ELICITATION_REQUIRED, error)
            self.assertEqual(error.data["elicitations"][0]["mode"], "url")

    # ---- calls -------------------------------------------------------------------------------------

    async def check_progress(self, session, person):
        async def one(each):
            seen = []
            await session.call(each.tool("test_tool_with_progress"), {}, lambda *step: seen.append(step))
            return seen

        for seen in await asyncio.gather(*(one(each) for each in self.upstreams * 2)):
            self.assertEqual(seen, [(0, 100), (50, 100), (100, 100)])

    async def check_cancelling(self, session, person):
        for each in self.upstreams:
            key = f"{self.against} {each.name}"
            await session.call_and_cancel(each.tool("hold"), {"key": key})
            result = await session.call(each.tool("hold_outcome"), {"key": key})
            self.assertEqual(result["structuredContent"], {"outcome": "cancelled"})

    async def check_a_stream_that_breaks_off_is_taken_up_again(self, session, person):
        for result in await self.from_each(session, "test_reconnection"):
            self.assertEqual(result["content"][0]["text"], "answered after the stream ended")

    # ---- notifications of no call ------------------------------------------------------------------

    async def check_the_level_holds_for_every_upstream(self, session, person):
        lines = len(self.upstreams) * ["started", "working", "finished"]
        for level, expected in (("error", []), ("info", lines)):
            session.heard.clear()
            await session.set_level(level)
            await self.from_each(session, "test_logging_tool")
            marks = await self.marked(session)
            self.assertEqual(sorted(session.logged()), sorted([*expected, *marks]))

    async def check_log_lines_of_no_call(self, session, person):
        await self.marked(session)

    async def check_updates_of_what_is_watched(self, session, person):
        for each in self.upstreams:
            await session.subscribe(each.uri(WATCHED))
        for each in self.upstreams:
            await session.call(each.tool("announce_watched"), {})
            uri = each.uri(WATCHED)
            await session.awaits("notifications/resources/updated", lambda params, uri=uri: params["uri"] == uri)
        await self.marked(session)
        heard = [params["uri"] for method, params in session.heard if method == "notifications/resources/updated"]
        self.assertEqual(heard, [each.uri(WATCHED) for each in self.upstreams])

    async def check_what_is_watched_no_longer_is_not_told(self, session, person):
        for each in self.upstreams:
            await session.unsubscribe(each.uri(WATCHED))
        await self.from_each(session, "announce_watched")
        await self.marked(session)
        self.assertNotIn("notifications/resources/updated", [method for method, _ in session.heard])

    async def check_lists_that_change(self, session, person):
        for each in self.upstreams:
            session.heard.clear()
            await session.call(each.tool("change_lists"), {})
            for kind in LIST_CHANGES:
                await session.awaits(f"notifications/{kind}/list_changed")

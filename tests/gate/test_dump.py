"""A dump of callgrind is read as callgrind means it, and what is made of it."""

import collections
import pathlib
import tempfile
import unittest
from unittest import mock

from gate import counting, dump, reference
from gate.daemon import Failure

DUMP = """\
# callgrind format
positions: line
events: Ir
summary: 1000

ob=(1) /usr/bin/trunkline
fl=(1) a.rs
fn=(1) trunkline::serve
14 100
+2 20
cfi=(2) malloc.c
cob=(2) libc.so
cfn=(2) malloc
calls=20 30
16 400
* 5
cfn=(3) __memcpy_avx_unaligned_erms
calls=30 7
-3 200

fn=(2)
30 400

fn=(3)
fi=(4) inlined.S
7 200
fe=(3)
8 1

fn=(5) trunkline::read'2
9 1
cfn=(6) tokio::runtime::task::raw::poll
calls=60 1
9 50
cfn=(6)
calls=2 1
9 50

totals: 727
"""


class Read(unittest.TestCase):
    def setUp(self):
        self.dump = dump.read(DUMP.splitlines(keepends=True))

    def test_what_a_function_took_itself(self):
        expected = {
            "trunkline::serve": 125,
            "malloc": 400,
            "__memcpy_avx_unaligned_erms": 201,
            "trunkline::read": 1,
        }
        self.assertEqual(dict(self.dump.own), expected)
        self.assertEqual(self.dump.instructions, 727)

    def test_how_often_it_was_called(self):
        calls = {"malloc": 20, "__memcpy_avx_unaligned_erms": 30, "tokio::runtime::task::raw::poll": 62}
        self.assertEqual(dict(self.dump.calls), calls)

    def test_figures_of_one_call(self):
        expected = {"instructions": 73, "allocations": 2.0, "copies": 3.0, "polls": 6.2}
        self.assertEqual(self.dump.figures(10), expected)


def thread(own, calls=1):
    return dump.Dump(collections.Counter(own), collections.Counter({"f": calls}))


class Threads(unittest.TestCase):
    def test_those_that_work_for_the_calls_are_added_up(self):
        counts = dump.Counts({"01": thread({"f": 600}), "02": thread({"f": 385}), "03": thread({"f": 15})}, 1.0)
        summed = counts.of_calls(dump.Counts({}, 1.0))
        self.assertEqual((summed.instructions, summed.calls["f"]), (985, 2))

    def test_what_is_done_by_the_clock_is_taken_off(self):
        idle = dump.Counts({"01": thread({"sweep": 100}, 4), "02": thread({"f": 500})}, 2.0)
        counts = dump.Counts({"01": thread({"sweep": 350, "f": 600}, 10)}, 6.0)
        summed = counts.of_calls(idle)
        self.assertEqual((dict(summed.own), dict(summed.calls)), ({"sweep": 50, "f": 600}, {}))


class Names(unittest.TestCase):
    def test_allocations(self):
        glibc = ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign")
        jemalloc = ("_rjem_malloc", "_rjem_calloc", "_rjem_realloc", "_rjem_mallocx", "_rjem_rallocx")
        for name in (*glibc, *jemalloc):
            self.assertTrue(dump.ALLOCATION.match(name), name)
        for name in ("malloc_consolidate", "_int_malloc", "free", "__rust_alloc", "_rjem_sdallocx", "_rjem_je_malloc_default"):
            self.assertFalse(dump.ALLOCATION.match(name), name)

    def test_copies(self):
        for name in ("memcpy", "memmove", "__memmove_avx_unaligned_erms", "__memcpy_sse2_unaligned", "memcpy_fast"):
            self.assertTrue(dump.COPY.match(name), name)
        for name in ("memchr", "memset", "__memcmp_avx2_movbe", "core::memcpy"):
            self.assertFalse(dump.COPY.match(name), name)

    def test_polls(self):
        for name in ("tokio::runtime::task::raw::poll", "tokio::runtime::task::raw::poll::<core::Future, Arc<X>>"):
            self.assertTrue(dump.TASK_POLL.match(name), name)
        self.assertFalse(dump.TASK_POLL.match("tokio::runtime::task::raw::RawTask::poll"))


class Middle(unittest.TestCase):
    def middle(self, *starts):
        listed = [
            [counting.Round(calls, thread({"f": round(own * calls)})) for calls, own in zip((500, 1000, 1000), start)]
            for start in starts
        ]
        return counting.middle(listed, 0.001).instructions

    def test_the_start_in_the_middle_with_all_its_long_rounds(self):
        self.assertEqual(self.middle((1000, 990, 1010), (1000, 1010, 1012), (1000, 900, 910)), 1000)

    def test_twice_as_many_calls_come_to_the_same(self):
        with self.assertRaisesRegex(Failure, r"\+0.20%"):
            self.middle((1000, 1002, 1002), (1000, 1002, 1002), (1000, 1002, 1002))


class Reference(unittest.TestCase):
    def test_the_functions_that_have_grown_are_told(self):
        before = collections.Counter({"same": 500, "grown": 400, "gone": 70, "least": 50})
        now = collections.Counter({"same": 500, "grown": 440.4, "new": 90, "small": 3, "least": 51})
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(reference, "FOLDER", pathlib.Path(folder)):
            reference.write("plain", before)
            self.assertEqual(reference.read("plain"), dict(before))
            lines = reference.explain("plain", now)
        heading = next(number for number, line in enumerate(lines) if "have grown" in line)
        told = [line.split() for line in lines[heading + 1 :]]
        self.assertEqual(told[:3], [["+40", "grown"], ["+40", "new"], ["+1", "least"]])
        self.assertEqual(told[4:], [["-70", "gone"]])

    def test_a_function_that_has_moved_is_the_same(self):
        names = {
            "trunkline_net::framing::Framing::follow": "Framing::follow",
            "gateway::line::proxy::Proxy::decide::{{closure}}": "Proxy::decide::{{closure}}",
            "<net::socket::Observed<S,F> as tokio::io::Read>::poll_read": "<Observed<S,F> as Read>::poll_read",
            "tokio::runtime::task::raw::poll": "raw::poll",
            "httparse::parse": "httparse::parse",
            "_int_free": "_int_free",
        }
        found = reference.without_modules(collections.Counter(dict.fromkeys(names, 2)))
        self.assertEqual(found, dict.fromkeys(names.values(), 2))
        summed = reference.without_modules(collections.Counter({"a::b::C::d": 1, "e::C::d": 2}))
        self.assertEqual(summed, {"C::d": 3})

    def test_without_one_the_largest_are_told(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(reference, "FOLDER", pathlib.Path(folder)):
            self.assertEqual(reference.explain("plain", collections.Counter({"a": 5}))[1:], ["       5 a"])


if __name__ == "__main__":
    unittest.main()

"""Tests of how a step is judged, and of what is told of skipped tests."""

import contextlib
import io
import sys
import unittest

import suite
from running.counts import count_cargo_tests, count_reported, count_unittest
from running.step import Result, Step
from running.summary import summarise


def result_of(printed, count=count_reported, **more):
    """The result of a step that prints this."""
    results = {}
    step = Step("a step", [sys.executable, "-c", f"print({printed!r})"], 30, count, **more)
    with contextlib.redirect_stdout(io.StringIO()):
        step.run(results)
    return results["a step"]


def judged(printed, **more):
    return result_of(printed, **more).failed


def last_line(action, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        action(*arguments)
    return printed.getvalue().splitlines()[-1]


def passes():
    pass


def is_skipped():
    raise unittest.SkipTest("there are no\npackages")


def is_skipped_too():
    is_skipped()


def fails():
    raise AssertionError


def last_line_of(*functions):
    return last_line(suite.run_all, unittest.TestSuite(map(unittest.FunctionTestCase, functions)))


class Steps(unittest.TestCase):
    def test_a_step_that_tests_nothing_fails_unless_its_machine_may_not_allow_it(self):
        self.assertEqual(judged("2 passed, 0 failed"), 0)
        self.assertEqual(judged("2 passed, 1 failed", may_be_impossible=True), 1)
        self.assertEqual(judged("0 passed, 0 failed"), 1)
        self.assertEqual(judged("nothing"), 1)
        self.assertEqual(judged("0 passed, 0 failed", may_be_impossible=True), 0)

    def test_a_skipped_test_has_not_passed_and_the_reason_is_told(self):
        told = "1 passed, 0 failed, 2 skipped (there are no packages)"
        self.assertEqual(last_line_of(passes, is_skipped, is_skipped_too), told)
        self.assertEqual(last_line_of(passes), "1 passed, 0 failed")
        told = "0 passed, 1 failed, 1 skipped (there are no packages)"
        self.assertEqual(last_line_of(fails, is_skipped), told)

    def test_what_a_step_skipped_is_told_at_its_end_and_at_that_of_the_run(self):
        result = result_of("9 passed, 0 failed, 1 skipped (there are no packages)")
        self.assertEqual((result.passed, result.failed, result.skipped), (9, 0, 1))
        self.assertEqual(result.note, "1 skipped (there are no packages)")
        summary = last_line(summarise, {"booted": result, "other": Result(2, 0)}, 1.0)
        self.assertEqual(summary, "11 passed, 0 failed, 1 skipped (booted: 1 skipped (there are no packages))")
        self.assertEqual(judged("0 passed, 0 failed, 3 skipped (no systemd)"), 1)
        self.assertEqual(judged("0 passed, 0 failed, 3 skipped (no systemd)", may_be_impossible=True), 0)
        printed = "test a ... ok\nskipped: no mount\ntest b ... ok\ntest result: ok. 2 passed; 0 failed; 0 ignored"
        result = result_of(printed, count_cargo_tests)
        self.assertEqual((result.passed, result.skipped, result.note), (1, 1, "1 skipped (no mount)"))
        printed = "test_a (b.C.test_a) ... skipped 'no Node'\n\nRan 3 tests in 0.1s\n\nOK (skipped=1)"
        result = result_of(printed, count_unittest)
        self.assertEqual((result.passed, result.skipped, result.note), (2, 1, "1 skipped (no Node)"))

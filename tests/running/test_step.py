"""Tests of how a step is judged."""

import contextlib
import io
import sys
import unittest

from running.counts import count_reported
from running.step import Step


def judged(printed, **more):
    """The number of failures of a step that prints this."""
    results = {}
    step = Step("a step", [sys.executable, "-c", f"print({printed!r})"], 30, count_reported, **more)
    with contextlib.redirect_stdout(io.StringIO()):
        step.run(results)
    return results["a step"].failed


class Steps(unittest.TestCase):
    def test_a_step_that_tests_nothing_fails_unless_its_machine_may_not_allow_it(self):
        self.assertEqual(judged("2 passed, 0 failed"), 0)
        self.assertEqual(judged("2 passed, 1 failed", may_be_impossible=True), 1)
        self.assertEqual(judged("0 passed, 0 failed"), 1)
        self.assertEqual(judged("nothing"), 1)
        self.assertEqual(judged("0 passed, 0 failed", may_be_impossible=True), 0)

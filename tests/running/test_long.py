"""The parts of `--long`: which run, and the row that each leaves for the book."""

import contextlib
import io
import unittest

from running import command, long
from running.cache import Cache
from running.counts import count_cargo_tests, count_reported
from running.long import Part
from running.step import Result, Step

FUZZED = """jwt                 1,200 inputs,    310 places reached
task_id                34 inputs,     20 places reached
2 passed, 0 failed
"""
PLAYED = """seeds 20 to 119 in 12s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out
"""


class Long(unittest.TestCase):
    def test_parts_are_named_one_by_one_or_in_a_list(self):
        self.assertEqual(command.parse("", ["--long", "--only", "fuzz,soak", "--only", "bridge"]).only, ["fuzz", "soak", "bridge"])
        self.assertEqual(command.parse("", ["--long"]).only, list(long.PARTS))
        for wrong in (["--long", "--only", "fuss"], ["--only", "fuzz"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                command.parse("", wrong)

    def test_they_run_in_one_order_with_what_they_need(self):
        parts = long.parts(Cache(None), None, ["bridge", "fuzz"], 1)
        self.assertEqual([part.name for part in parts], ["fuzz", "bridge"])
        self.assertEqual([step.name for step in parts[1].needed], ["tools", "kept objects", "test build"])

    def test_a_row_says_what_was_done_and_found(self):
        part = Part("fuzz", [])
        part.step = Step("fuzzing", [])
        passed, failed = part.said(FUZZED, count_reported, long.INPUTS, "inputs")
        row = part.row({"fuzzing": Result(passed, failed, seconds=61.2)}, "0123abc")
        self.assertRegex(row, r"^\| fuzz \| 0123abc \| \d{4}-\d\d-\d\d \| 61 \| 1,234 inputs \| nothing \|$")
        found = Result(1, 1, seconds=2.0, told="input, as base64: AA==\nagain: …")
        self.assertRegex(part.row({"fuzzing": found}, "0123abc"), r"\| input, as base64: AA== \(2 lines\) \|$")

    def test_seeds_are_counted(self):
        part = Part("simulation", [])
        self.assertEqual(part.played(PLAYED), count_cargo_tests(PLAYED))
        self.assertEqual(part.executions, "100 seeds from 20")


if __name__ == "__main__":
    unittest.main()

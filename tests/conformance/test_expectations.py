"""The comparison with the announced failures notices what it is there to notice."""

import unittest

from conformance import expectations

PERFECT = {"lists": {"order": ["SUCCESS"], "schema": ["SKIPPED", "SUCCESS"]}, "calls": {"text": ["SUCCESS"]}}
BROKEN = {"lists": {"order": ["WARNING"], "schema": ["SKIPPED", "SUCCESS"]}, "calls": {}}


class Expectations(unittest.TestCase):
    def complaints(self, found, expected):
        verdicts = expectations.verdicts(found, expected)
        return {scenario: lines for scenario, lines in verdicts.items() if lines}

    def test_a_perfect_outcome_has_no_complaints(self):
        self.assertEqual(self.complaints(expectations.imperfections(PERFECT), {}), {})
        self.assertEqual(self.complaints(expectations.shortfalls(PERFECT, PERFECT), {}), {})

    def test_every_failure_is_named(self):
        expected = {"lists": ["lists:order: WARNING"], "calls": ["calls: no result"]}
        self.assertEqual(self.complaints(expectations.imperfections(BROKEN), {}), expected)

    def test_every_shortfall_is_named(self):
        expected = {"lists": ["lists:order: WARNING, not SUCCESS"], "calls": ["calls: no result"]}
        self.assertEqual(self.complaints(expectations.shortfalls(BROKEN, PERFECT), {}), expected)

    def test_a_check_that_vanished_or_was_skipped_is_a_shortfall(self):
        outcome = {"lists": {"schema": ["SKIPPED", "SKIPPED"]}, "calls": {"text": ["SUCCESS"], "new": ["WARNING"]}}
        expected = {
            "lists": ["lists:order: absent, not SUCCESS", "lists:schema: SKIPPED SKIPPED, not SKIPPED SUCCESS"],
            "calls": ["calls:new: WARNING, not absent"],
        }
        self.assertEqual(self.complaints(expectations.shortfalls(outcome, PERFECT), {}), expected)

    def test_more_successes_are_no_shortfall(self):
        outcome = {"lists": PERFECT["lists"], "calls": {"text": ["SUCCESS", "SUCCESS"], "new": ["SUCCESS"]}}
        self.assertEqual(self.complaints(expectations.shortfalls(outcome, PERFECT), {}), {})

    def test_announced_failures_are_expected(self):
        announced = {"lists:order": "not yet", "calls": "not yet"}
        self.assertEqual(self.complaints(expectations.shortfalls(BROKEN, PERFECT), announced), {})

    def test_all_checks_of_a_scenario_are_announced_at_once(self):
        worse = {"lists": {"order": ["WARNING"], "schema": ["FAILURE"]}, "calls": PERFECT["calls"]}
        self.assertEqual(self.complaints(expectations.shortfalls(worse, PERFECT), {"lists:*": "not yet"}), {})
        announced = {"lists:*": "not yet", "calls:*": "fixed since"}
        expected = {"calls": ["calls:*: announced, but it passes"]}
        self.assertEqual(self.complaints(expectations.shortfalls(worse, PERFECT), announced), expected)
        announced = {"lists:*": "not yet", "calls:*": "not yet"}
        found = self.complaints(expectations.shortfalls(BROKEN, PERFECT), announced)
        self.assertIn("calls: no result", found["calls"])

    def test_stale_announcements_fail(self):
        announced = {"lists:order": "fixed since", "gone:check": "removed since"}
        expected = {
            "lists": ["lists:order: announced, but it passes"],
            "gone:check": ["gone:check: announced, but there is no such scenario"],
        }
        self.assertEqual(self.complaints(expectations.shortfalls(PERFECT, PERFECT), announced), expected)

    def test_the_file(self):
        text = "# comment\n2026-07-28 one: []\n2026-07-28 two:\n  - lists:order  # not yet\n  - calls  # hangs\n"
        expected = {"2026-07-28 one": {}, "2026-07-28 two": {"lists:order": "not yet", "calls": "hangs"}}
        self.assertEqual(expectations.read(text), expected)
        for refused in ("transparent:\n  - lists:order\n", "  - lists:order  # no section\n", "what: ever\n"):
            with self.assertRaises(ValueError, msg=refused):
                expectations.read(refused)


if __name__ == "__main__":
    unittest.main()

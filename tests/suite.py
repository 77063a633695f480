"""Runs tests of Python whose last line is `N passed, N failed`."""

import sys
import unittest


def run(*cases, names=()):
    """Runs classes of tests, or of them only those whose name has one of these in it. Returns the exit status."""
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in names] or None
    return run_all(unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases))


def run_all(tests):
    """Runs these tests. Returns the exit status."""
    outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    # Each part of a test that fails is listed by itself, and counts once for its test.
    failed = len({getattr(test, "test_case", test).id() for test, _ in outcome.failures + outcome.errors})
    print(f"{outcome.testsRun - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0

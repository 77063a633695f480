"""Runs tests of Python whose last line is `N passed, N failed`, with `, N skipped (why)` behind it where some were."""

import sys
import unittest


def run(*cases, names=()):
    """Runs classes of tests, or of them only those whose name has one of these in it. Returns the exit status."""
    return run_all(load(*cases, names=names))


def load(*cases, names=()):
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in names] or None
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


def run_all(tests):
    """Runs these tests. Returns the exit status."""
    outcome = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    # Each part of a test that fails is listed by itself, and counts once for its test.
    failed = {test_of(test) for test, _ in outcome.failures + outcome.errors}
    skipped = {test_of(test): why for test, why in outcome.skipped if test_of(test) not in failed}
    print(report(outcome.testsRun - len(failed) - len(skipped), len(failed), list(skipped.values())), flush=True)
    return 1 if failed else 0


def test_of(test):
    return getattr(test, "test_case", test).id()


def report(passed, failed, skipped=()):
    """The last line; `skipped` is why each one was."""
    counts = f"{passed} passed, {failed} failed"
    reasons = "; ".join(dict.fromkeys(" ".join(str(why).split()) for why in skipped))
    return f"{counts}, {len(skipped)} skipped ({reasons})" if skipped else counts

"""What every test of a Python client is built on, whichever SDK it is for, and how such tests are run."""

import asyncio
import contextlib
import functools
import inspect
import sys
import unittest

from mcp.shared import exceptions

#: An answer that is an error, under the name that the installed SDK gives it.
AnswerError = getattr(exceptions, "MCPError", None) or exceptions.McpError


class BoundedCase(unittest.IsolatedAsyncioTestCase):
    """A test method that ends in time, and says in its name what it ran against."""

    timeout_s = 30

    def __init__(self, method, against):
        super().__init__(method)
        self.against = against
        test = getattr(self, method)
        if inspect.iscoroutinefunction(test):
            setattr(self, method, bounded(test, self.timeout_s))

    def __str__(self):
        return f"{self.against}: {type(self).__name__}.{self._testMethodName}"

    id = __str__

    @contextlib.contextmanager
    def assert_error(self, code):
        with self.assertRaises(AnswerError) as caught:
            yield caught
        self.assertEqual(caught.exception.error.code, code, caught.exception.error)


def bounded(test, timeout_s):
    @functools.wraps(test)
    async def in_time():
        async with asyncio.timeout(timeout_s):
            await test()

    return in_time


def add(suite, case, *arguments):
    """Adds every test method of a case, each bound to the arguments."""
    suite.addTests(case(name, *arguments) for name in unittest.defaultTestLoader.getTestCaseNames(case))


def run(tests):
    """How many passed and how many failed."""
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    failed = len({failing_test(test) for test, _ in result.failures + result.errors})
    return result.testsRun - failed, failed


def failing_test(test):
    """The test method, also where only some of its sub-tests failed."""
    return getattr(test, "test_case", test).id()

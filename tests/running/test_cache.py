"""The cache is emptied of what is old or too much, and never under a run."""

import os
import pathlib
import tempfile
import time
import unittest
from unittest import mock

from running import cache
from running.cache import AGE_MAX_S, Cache


class Emptying(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = Cache(self.directory)

    def entry(self, name, age_s, size=1):
        place = self.directory / name
        place.mkdir(parents=True)
        (place / "file").write_bytes(bytes(size))
        at = time.time() - age_s
        os.utime(place, (at, at))

    def there(self):
        return sorted(str(path.parent.relative_to(self.directory)) for path in self.directory.rglob("file"))

    def test_what_is_too_old_goes(self):
        self.entry("objects/old", AGE_MAX_S + 60)
        self.entry("objects/used", AGE_MAX_S - 60)
        self.entry("pip", AGE_MAX_S + 60)
        self.entry("corpus/jwt", 2 * AGE_MAX_S)
        with self.cache.used():
            self.assertEqual(self.there(), ["corpus/jwt", "objects/used"])

    def test_the_oldest_goes_while_there_is_too_much(self):
        for age_s, name in enumerate(("python/new", "tools/middle", "node/old")):
            self.entry(name, 100 * age_s, 1000)
        with mock.patch.object(cache, "BYTES_MAX", 2500), self.cache.used():
            self.assertEqual(self.there(), ["python/new", "tools/middle"])

    def test_nothing_goes_while_another_run_goes_on(self):
        with self.cache.used():
            self.entry("objects/old", AGE_MAX_S + 60)
            with Cache(self.directory).used():
                self.assertEqual(self.there(), ["objects/old"])
        with self.cache.used():
            self.assertEqual(self.there(), [])

    def test_what_is_asked_for_counts_as_used(self):
        self.entry("objects/asked", AGE_MAX_S + 60)
        self.assertEqual(self.cache.entry("objects", "asked"), self.directory / "objects" / "asked")
        with self.cache.used():
            self.assertEqual(self.there(), ["objects/asked"])

    def test_without_a_directory_there_is_nothing(self):
        cold = Cache(None)
        with cold.used(), cold.changing():
            self.assertIsNone(cold.entry("pip"))


if __name__ == "__main__":
    unittest.main()

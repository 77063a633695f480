"""The registry of mechanisms: where a pattern stands, and where it may."""

import pathlib
import re
import tempfile
import unittest

from bounds import figures, once, sources
from bounds.tree import written


class Strays(unittest.TestCase):
    def found(self, below="", **texts):
        row = once.Row("a queue", re.compile(r"\bqueue\("), below, {"a.rs": "It is the one."})
        with tempfile.TemporaryDirectory() as folder:
            src = pathlib.Path(folder)
            files = written(src, texts)
            return once.strays([row], files, src), list(once.idle([row], files, src))

    def test_only_in_other_files(self):
        strays, idle = self.found(a="fn f() { queue(1) }", b="\nfn g() { queue(2) }")
        self.assertEqual((len(strays), idle), (1, []))
        self.assertTrue(strays[0].startswith("src/b.rs:2: a queue is there once"), strays)
        self.assertTrue(strays[0].endswith("fn g() { queue(2) }"), strays)

    def test_comments_and_tests_do_not_count(self):
        text = "// queue(1)\nfn f() {}\n#[cfg(test)]\nmod tests {\n fn g() { queue(1) }\n}\n"
        self.assertEqual(self.found(a="queue(1)", b=text), ([], []))

    def test_only_below_its_folder(self):
        strays, _ = self.found(below="x", a="queue(1)", x__b="queue(1)")
        self.assertEqual(len(strays), 1)

    def test_a_file_that_has_none_any_more_is_told(self):
        self.assertEqual(len(self.found(a="fn f() {}")[1]), 1)


class Registry(unittest.TestCase):
    def test_it_is_well_formed(self):
        for row in once.load():
            self.assertTrue(all(reason.endswith(".") for reason in row.files.values()), row.mechanism)
            self.assertTrue((figures.SRC / row.below).is_dir(), row.mechanism)

    def test_each_row_hits_something(self):
        files = sources.read(figures.SRC)
        for row in once.load():
            self.assertTrue(list(once.hits(row, files)), row.mechanism)


if __name__ == "__main__":
    unittest.main()

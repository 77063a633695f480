"""The output of git is read as git writes it."""

import unittest

from bounds import history


class Changes(unittest.TestCase):
    def test_commits_and_their_rows(self):
        log = "\0a1 fix: one\n\ntests/bounds.toml\n\0b2 feat: two\n\nsrc/a.rs\ntests/bounds.toml\n\0c3 empty\n"
        expected = [("a1 fix: one", ["tests/bounds.toml"]), ("b2 feat: two", ["src/a.rs", "tests/bounds.toml"]), ("c3 empty", [])]
        self.assertEqual(list(history.changes(log)), expected)

    def test_net_lines(self):
        self.assertEqual([history.net_lines(row) for row in ("12\t2\tsrc/a.rs", "-\t-\tpicture.png")], [10, 0])

    def test_folders_of_floors_and_crates(self):
        self.assertEqual(history.folder_of("net"), ["src/net"])
        self.assertEqual(history.folder_of("line"), ["src/gateway/line", "src/gateway/line.rs"])


if __name__ == "__main__":
    unittest.main()

"""Figures of small source trees, and what is said of them."""

import json
import pathlib
import tempfile
import unittest

from bounds import bounds, figures, sources


def tree(**texts):
    """The files of a source tree; `__` in a name stands for a slash."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = pathlib.Path(folder, *name.split("__")).with_suffix(".rs")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return sources.read(pathlib.Path(folder))


class Lines(unittest.TestCase):
    def lines(self, **texts):
        return {str(file.path): file.lines for file in tree(**texts)}

    def test_tests_and_the_gap_above_them_are_left_out(self):
        text = "//! Head.\n\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"
        self.assertEqual(self.lines(a=text), {"a.rs": 3})

    def test_files_of_tests_are_left_out(self):
        found = self.lines(
            lib="mod a;\nmod b;\n",
            a="fn a() {}\n#[cfg(test)]\nmod tests;\n",
            a__tests="mod more;\n",
            a__tests__more="fn x() {}\n",
            b__mod="#[cfg(test)]\npub(crate) mod fixtures;\n#[cfg(test)]\nmod tests {\n mod keys;\n}\nfn b() {}\n",
            b__fixtures="fn y() {}\n",
            b__tests__keys="fn z() {}\n",
            tests="fn no_test() {}\n",
        )
        self.assertEqual(found, {"lib.rs": 2, "a.rs": 1, "b/mod.rs": 1, "tests.rs": 1})

    def test_functions_and_types_of_tests_are_left_out(self):
        (file,) = tree(a="struct A;\n#[cfg(test)]\nmod tests {\nstruct B;\nfn b() {}\n}\nfn a() {}\n")
        self.assertEqual([each.name for each in file.types], ["A"])
        self.assertEqual([each.name for each in file.functions], ["a"])


class Crates(unittest.TestCase):
    def test_a_crate_is_a_folder_with_a_lib(self):
        found = tree(main="", commands__run="", net__lib="", net__tls__mod="", lib="")
        crates = {str(file.path): file.crate for file in found}
        expected = {"main.rs": ".", "commands/run.rs": ".", "net/lib.rs": "net", "net/tls/mod.rs": "net", "lib.rs": "."}
        self.assertEqual(crates, expected)

    def test_who_works_on_the_gateway(self):
        files = tree(gateway__lib="a\n", gateway__cli="fn a() {}\n", protocol__lib="a\n", main="a\n", tools__lib="a\n")
        self.assertEqual(figures.of_sources(files, set())["lines.gateway"], 3)


class Homonyms(unittest.TestCase):
    def test_across_files_and_inline_modules(self):
        files = tree(a="struct A;\nmod b { struct B; }\nenum B {}\n", c="type A = u8;\nstruct C;\n")
        self.assertEqual({name for _, name in figures.homonyms(files, lambda file: None)}, {"A", "B"})

    def test_one_module_with_two_forms_of_a_type_is_none(self):
        self.assertEqual(figures.homonyms(tree(a="#[cfg(x)] struct A;\n#[cfg(y)] struct A;"), lambda file: None), {})

    def test_within_a_crate(self):
        files = tree(a__lib="struct A;\nstruct B;", b__lib="struct A;", b__c="struct B;", a__d="enum B {}")
        found = figures.of_sources([*files, *tree(e="fn f() {}")], set())
        self.assertEqual((found["names.homonyms"], found["names.homonyms_in_crate"]), (2, 1))


class Lengths(unittest.TestCase):
    def test_tables_may_be_long(self):
        body = "fn a() {\n" + 60 * "x;\n" + "}\n"
        files = tree(a=body, b=500 * "x;\n", c__table=600 * "x;\n")
        found = figures.of_sources(files, {"c/table.rs"})
        self.assertEqual((found["files.long"], found["files.longest"]), (1, 500))
        self.assertEqual((found["functions.long"], found["functions.longest"]), (1, 62))
        self.assertEqual(found["lines.all"], 62 + 500 + 600)


class Steps(unittest.TestCase):
    def found(self, busy):
        with tempfile.NamedTemporaryFile("w+") as file:
            json.dump({"busy": busy, "total": 4.0}, file)
            file.flush()
            return figures.of_steps(pathlib.Path(file.name))

    def test_a_step_is_judged_by_its_work_and_the_run_by_how_long_it_took(self):
        expected = {"busy.lints": 2.0, "busy.page": 3.0, "seconds.total": 4.0}
        self.assertEqual(self.found({"lints": 2.0, "page": 3.0}), expected)

    def test_steps_of_longer_runs_do_not_count(self):
        self.assertEqual(self.found({"lints": 2.0, "page, thin build": 9.0}), {"busy.lints": 2.0})


class Verdicts(unittest.TestCase):
    def verdict(self, today, name="a", wider=False, **bound):
        known = bounds.Bounds({name: bounds.Bound(bound=100, measure="lines", reason="It is read.", **bound)})
        (found,) = bounds.judge(known, {} if today is None else {name: today}, wider)
        return found.note, found.failed

    def test_over_equal_below(self):
        self.assertEqual(self.verdict(101), ("OVER: It is read.", True))
        self.assertEqual(self.verdict(100), ("", False))
        self.assertEqual(self.verdict(99), ("may be lowered", False))
        self.assertEqual(self.verdict(99, noisy=True), ("", False))

    def test_a_band(self):
        band = {"rise": 0.01, "fall": 0.03}
        self.assertEqual(self.verdict(101, **band), ("", False))
        self.assertEqual(self.verdict(102, **band)[1], True)
        self.assertEqual(self.verdict(97, **band), ("", False))
        self.assertIn("record it anew", self.verdict(96, **band)[0])
        self.assertEqual(self.verdict(96, **band)[1], True)

    def test_the_gate_has_room_on_another_machine(self):
        self.assertEqual(self.verdict(102, name="gate.plain.instructions", wider=True, rise=0.01), ("", False))
        self.assertEqual(self.verdict(103, name="gate.plain.instructions", wider=True, rise=0.01)[1], True)
        self.assertEqual(self.verdict(101, name="lines.all", wider=True)[1], True)

    def test_what_was_not_measured_does_not_fail(self):
        self.assertEqual(self.verdict(None), ("not measured", False))

    def test_a_figure_without_bound_fails(self):
        (found,) = bounds.judge(bounds.Bounds({}), {"new": 1})
        self.assertTrue(found.failed)

    def test_the_file_is_well_formed(self):
        known = bounds.load()
        self.assertTrue(all(each.reason.endswith(".") and each.measure for each in known.of.values()))
        self.assertTrue(all((figures.ROOT / "src" / table).is_file() for table in known.tables))
        self.assertIn("busy.rust tests", known.of)


if __name__ == "__main__":
    unittest.main()

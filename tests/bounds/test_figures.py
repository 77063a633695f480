"""Figures of small source trees, and what is said of them."""

import json
import pathlib
import re
import tempfile
import tomllib
import unittest

from bounds import bounds, figures
from bounds.tree import tree


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

    def test_functions_types_and_tokens_of_tests_are_left_out(self):
        (file,) = tree(a="struct A;\n#[cfg(test)]\nmod tests {\nstruct B;\nfn b() {}\n}\nfn a() {}\n")
        self.assertEqual([each.name for each in file.types], ["A"])
        self.assertEqual([each.name for each in file.functions], ["a"])
        self.assertNotIn("B", [token.text for token in file.tokens])

    def test_lines_of_code_hold_more_than_a_comment(self):
        (file,) = tree(a='//! Head.\n\nfn a() { // Says it.\n    "one\n    two"\n/* not\n   this */\n}\n#[cfg(test)]\nmod tests {}\n')
        self.assertEqual(file.code, (3, 4, 5, 8))

    def test_wide_comments(self):
        wide, narrow = "/" * 111, "/" * 110
        (file,) = tree(a=f"    //{'x' * 106}\n{wide}\n{narrow}\nlet a = 1; {wide}\n#[cfg(test)]\nmod tests {{\n{wide}\n}}\n")
        self.assertEqual(file.wide_comments, 2)


class Crates(unittest.TestCase):
    def test_a_crate_is_a_folder_with_a_lib(self):
        found = tree(main="", commands__run="", net__lib="", net__tls__mod="", lib="")
        crates = {str(file.path): file.crate for file in found}
        expected = {"main.rs": ".", "commands/run.rs": ".", "net/lib.rs": "net", "net/tls/mod.rs": "net", "lib.rs": "."}
        self.assertEqual(crates, expected)

    def test_sizes_are_those_of_floors_and_of_other_crates(self):
        files = tree(
            gateway__lib="a\n", gateway__line__mod="a\nb\n", gateway__line__x="// c\nd\n", gateway__clock="a\n", net__lib="a\n", main="a\n"
        )
        expected = {"size.gateway": 1, "size.line": 3, "size.clock": 1, "size.net": 1, "size.commands": 1}
        self.assertEqual(figures.of_sizes(files), expected)


class Twice(unittest.TestCase):
    def test_names_in_two_modules_of_a_floor(self):
        files = tree(gateway__lib="", gateway__a__b="struct A; mod c { struct B; }", gateway__a__d="type A = u8; trait B {}")
        self.assertEqual(set(figures.twice(files)), {("a", "A"), ("a", "B")})

    def test_other_floors_and_crates_are_others(self):
        files = tree(gateway__lib="struct A;", gateway__a="struct A;", gateway__b="struct A;", net__lib="struct A;", main="struct A;")
        self.assertEqual(figures.twice(files), {})

    def test_one_module_with_two_forms_of_a_type_is_none(self):
        self.assertEqual(figures.twice(tree(a="#[cfg(x)] struct A;\n#[cfg(y)] struct A;")), {})


class Shapes(unittest.TestCase):
    def test_long_ones_are_told_and_longer_ones_fail(self):
        body = "fn a() {\n" + 60 * "x;\n" + "}\n"
        longer = "fn b() {\n" + 100 * "x;\n" + "}\n"
        found = figures.of_shapes(tree(a=body, b=451 * "x;\n", c=801 * "x;\n" + longer))
        self.assertEqual((found["shape.files"], found["shape.long_files"]), (1, 2))
        self.assertEqual((found["shape.functions"], found["shape.long_functions"]), (1, 2))

    def test_the_longest_are_named(self):
        lines = list(figures.longest(tree(a="fn a() {\n}\n", b="fn b() {}\n")))
        self.assertEqual(lines[1].split(), ["2", "src/a.rs"])
        self.assertEqual(lines[4].split(), ["2", "a,", "src/a.rs:1"])


class Widths(unittest.TestCase):
    def test_tables_are_left_out(self):
        files = tree(a="struct Wide { pub a: u8, pub b: u8 } struct Narrow { pub a: u8 } fn f(a: (u8, u8)) {}")
        self.assertEqual(figures.of_widths(files, {"Wide"}), {"width.fields": 1, "width.tuples": 1})


class Steps(unittest.TestCase):
    def found(self, busy):
        with tempfile.NamedTemporaryFile("w+") as file:
            json.dump({"busy": busy, "total": 4.0}, file)
            file.flush()
            return figures.of_steps(pathlib.Path(file.name))

    def test_the_work_of_each_step_and_the_time_of_the_run(self):
        expected = {"busy.lints": 2.0, "busy.page": 3.0, "seconds.total": 4.0}
        self.assertEqual(self.found({"lints": 2.0, "page": 3.0}), expected)

    def test_steps_of_longer_runs_do_not_count(self):
        self.assertEqual(self.found({"lints": 2.0, "page, thin build": 9.0}), {"busy.lints": 2.0})


def bound(**more):
    return bounds.Bound(bound=100, measure="lines", reason="It is read.", **more)


class Verdicts(unittest.TestCase):
    def verdict(self, today, name="a", wider=False, **more):
        (found,) = bounds.judge(bounds.Bounds({name: bound(**more)}), {name: today}, wider)
        return found.note, found.failed

    def test_over_equal_below(self):
        self.assertEqual(self.verdict(101), ("OVER: It is read.", True))
        self.assertEqual(self.verdict(100), ("", False))
        self.assertEqual(self.verdict(99), ("may be lowered", False))

    def test_a_band(self):
        band = {"rise": 0.01, "fall": 0.03}
        self.assertEqual(self.verdict(101, **band), ("", False))
        self.assertEqual(self.verdict(102, **band)[1], True)
        self.assertEqual(self.verdict(97, **band), ("", False))

    def test_a_fall_is_only_reported(self):
        self.assertEqual(self.verdict(1, rise=0.01, fall=0.03), ("may be lowered", False))

    def test_reported_before_it_fails(self):
        both = {"rise": 0.05, "report_rise": 0.01}
        self.assertEqual(self.verdict(101, **both), ("", False))
        self.assertEqual(self.verdict(105, **both), ("over, which is reported only: It is read.", False))
        self.assertEqual(self.verdict(106, **both), ("OVER: It is read.", True))

    def test_reported_and_never_failed(self):
        self.assertEqual(self.verdict(1000, report=True), ("over, which is reported only: It is read.", False))
        self.assertEqual(self.verdict(104, report=True, report_rise=0.05), ("", False))
        self.assertEqual(self.verdict(1, report=True), ("", False))

    def test_the_gate_has_room_on_another_machine(self):
        self.assertEqual(self.verdict(102, name="gate.plain.instructions", wider=True, rise=0.01), ("", False))
        self.assertEqual(self.verdict(103, name="gate.plain.instructions", wider=True, rise=0.01)[1], True)
        self.assertEqual(self.verdict(101, name="width.fields", wider=True)[1], True)

    def test_only_what_was_measured_is_judged(self):
        self.assertEqual(bounds.judge(bounds.Bounds({"a": bound()}), {}), [])

    def test_a_figure_without_bound_fails_unless_its_table_only_reports(self):
        known = bounds.Bounds({"busy.lints": bound(report=True), "gate.plain.polls": bound()})
        for name, fails in (("busy.new", False), ("new", True), ("gate.plain.new", True), ("gate.new.polls", True)):
            found = {each.name: each.failed for each in bounds.judge(known, {name: 1})}
            self.assertEqual(found, {name: fails})


class TheFile(unittest.TestCase):
    def test_it_is_well_formed(self):
        known = bounds.load()
        self.assertTrue(all(each.reason.endswith(".") and each.measure for each in known.of.values()))
        structs = {name for path in figures.SRC.rglob("*.rs") for name in re.findall(r"\bstruct (\w+)", path.read_text())}
        self.assertLessEqual(known.tables, structs)

    def test_what_depends_on_the_machine_fails_nothing(self):
        known = bounds.load()
        timed = {name: each for name, each in known.of.items() if name.startswith(("busy.", "seconds.", "size."))}
        self.assertTrue(timed and all(each.report for each in timed.values()))

    def test_calls_between_eras_are_reported_first(self):
        known = bounds.load()
        for scenario in ("bridged", "askable", "crossed"):
            row = known.of[f"gate.{scenario}.instructions"]
            self.assertEqual((row.report_rise, row.rise), (0.01, 0.05))

    def test_figures_are_recorded_in_their_rows(self):
        text = bounds.FILE.read_text()
        figure = {"gate.plain.instructions": 12345, "gate.edge.times_nginx": 1.25, "gate.list.polls": 3.0, "gate.jwt.copies": 21.2}
        with_them = bounds.recorded(text, figure, {"rustc": "2.0"})
        before, after = tomllib.loads(text), tomllib.loads(with_them)
        self.assertEqual(after["gate"]["plain"]["instructions"]["bound"], 12345)
        self.assertEqual(after["gate"]["edge"]["times_nginx"]["bound"], 1.25)
        self.assertEqual(after["gate"]["list"]["polls"]["bound"], 3)
        self.assertEqual(after["gate"]["jwt"]["copies"]["bound"], 22)
        self.assertEqual(after["gate"]["recorded_with"], {"rustc": "2.0"})
        self.assertEqual(after["gate"]["session"], before["gate"]["session"])
        self.assertEqual(text.count("\n"), with_them.count("\n"))


if __name__ == "__main__":
    unittest.main()

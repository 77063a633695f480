"""Imports are followed to the file that defines what is imported, and circles are found."""

import pathlib
import unittest

import layers
from bounds import imports
from bounds.tree import tree


def arrows(**texts):
    """File → the files that it imports, without `.rs`, in a crate `x`."""
    files = tree(**{f"x__{name}": text for name, text in {"lib": "", **texts}.items()})
    found = imports.of_crate(files, "x")
    short = {path: str(path.relative_to("x").with_suffix("")) for path in found}
    return {short[path]: sorted(short[to] for to in targets) for path, targets in found.items() if targets}


class Paths(unittest.TestCase):
    def test_from_the_root_from_here_and_upwards(self):
        for path in ("crate::a::A", "super::a::A", "super::super::x::a::A", "self::super::a::A"):
            with self.subTest(path):
                found = arrows(x__a="pub struct A;", x__b=f"fn f(a: {path.replace('crate::', 'crate::x::')}) {{}}", x__mod="")
                self.assertEqual(found, {"x/b": ["x/a"]})

    def test_a_tree_with_aliases_and_self(self):
        text = "use crate::{a::{self, A as Z}, b::{B, C}, c};\nfn f() { a::g(); c::d::D::new(); }"
        found = arrows(a="pub struct A; fn g() {}", b="struct B; struct C;", c__mod="", c__d="struct D;", e=text)
        self.assertEqual(found, {"e": ["a", "b", "c/d"]})

    def test_an_alias_of_a_module(self):
        self.assertEqual(arrows(a="fn g() {}", b="use crate::a as other;\nfn f() { other::g() }"), {"b": ["a"]})

    def test_a_module_that_is_only_named_is_not_imported(self):
        self.assertEqual(arrows(a="fn g() {}", b="use crate::a;\npub(in crate::a) struct B;"), {})

    def test_a_child_by_its_name_and_all_its_names(self):
        found = arrows(a__mod="mod b; mod c;\nuse c::*;\nfn f() { b::g(); h() }", a__b="fn g() {}", a__c="fn h() {}", d="use crate::a::h;")
        self.assertEqual(found, {"a/mod": ["a/b"], "d": ["a/c"]})

    def test_other_crates_strings_comments_tests_and_methods_are_none(self):
        text = '''use std::a::A;\nuse a::a;\n// crate::b::B\nfn f() { "crate::b::B"; x.b::<u8>(); <T as b::B>::c(); }
        #[cfg(test)]\nmod tests { use crate::b::B; }\n'''
        self.assertEqual(arrows(b="struct B;", c=text), {})

    def test_the_line_is_the_first(self):
        files = tree(x__lib="", x__a="struct A;", x__b="\nuse crate::a::A;\nfn f(a: crate::a::A) {}")
        self.assertEqual(imports.of_crate(files, "x")[pathlib.PurePath("x/b.rs")], {pathlib.PurePath("x/a.rs"): 2})


class FoldersFiles(unittest.TestCase):
    def test_a_name_that_a_folder_defines_is_imported_from_it(self):
        self.assertEqual(arrows(a__mod="mod b;\npub struct A;", a__b="use super::A;"), {"a/b": ["a/mod"]})

    def test_a_name_that_it_hands_on_is_imported_from_where_it_is(self):
        found = arrows(a__mod="mod b; mod c;\npub use b::B;\npub(crate) use other::Other;", a__b="struct B;", a__c="use super::{B, Other};")
        self.assertEqual(found, {"a/mod": ["a/b"], "a/c": ["a/b"]})

    def test_a_handed_on_name_under_another_and_twice_removed(self):
        found = arrows(lib="pub use a::A as Z;", a__mod="mod b; pub use self::b::B as A;", a__b="struct B;", c="use crate::Z;")
        self.assertEqual(found["c"], ["a/b"])

    def test_names_that_lead_to_themselves_end(self):
        self.assertEqual(arrows(a="pub use crate::b::X;", b="pub use crate::a::X;", c="use crate::a::X;"), {})


class Circles(unittest.TestCase):
    def test_only_what_leads_back(self):
        found = imports.circles({1: {2}, 2: {3, 4}, 3: {1}, 4: {5}, 5: {6}, 6: {5}, 7: {1}})
        self.assertEqual(found, [[1, 2, 3], [5, 6]])

    def test_two_that_share_a_member_are_one(self):
        self.assertEqual(imports.circles({1: {2}, 2: {1, 3}, 3: {2}}), [[1, 2, 3]])


class Rooms(unittest.TestCase):
    def faults(self, **texts):
        files = tree(**{f"tokens__{name}": text for name, text in texts.items()})
        return list(layers.faults_of_rooms(imports.of_crate(files, "tokens")))

    def test_a_room_uses_earlier_ones(self):
        self.assertEqual(self.faults(grant="struct G;", jwt="use crate::grant::G;", lib="pub use jwt::J;"), [])

    def test_not_later_ones(self):
        (fault,) = self.faults(grant="\nuse crate::jwt::J;", jwt="struct J;", lib="")
        self.assertIn("src/tokens/grant.rs:2: in tokens, grant may not use jwt", fault)

    def test_a_room_that_is_not_listed(self):
        (fault,) = self.faults(other="", lib="")
        self.assertIn("other is no room of tokens", fault)

    def test_tables_are_in_order(self):
        self.assertEqual(list(layers.faults_of_tables()), [])
        for folder, rooms in layers.ROOMS.items():
            self.assertEqual(len(set(rooms.split())), len(rooms.split()), folder)
            self.assertTrue((layers.SRC / folder).is_dir(), folder)


class Reach(unittest.TestCase):
    def test_floors_besides_its_own(self):
        texts = {"a": "struct A;", "b": "struct B;", "c__mod": "use crate::a::A; use crate::b::B; use self::d::D;", "c__d": "struct D;"}
        found = imports.of_crate(tree(**{f"gateway__{name}": text for name, text in {"lib": "", **texts}.items()}), "gateway")
        self.assertEqual(layers.reached(found)[pathlib.PurePath("gateway/c/mod.rs")], 2)


if __name__ == "__main__":
    unittest.main()

"""The reader of Rust finds what is there, and nothing in strings and comments."""

import unittest

from bounds import rust


def items(text):
    return rust.items(list(rust.tokens(text)))


def functions(text):
    return [(function.name, function.lines) for function in items(text).functions]


def types(text):
    return [(each.name, each.modules) for each in items(text).types]


def test_modules(text):
    return [(module.name, module.first, module.last) for module in items(text).test_modules]


class Tokens(unittest.TestCase):
    def texts(self, text):
        return [(token.text, token.line) for token in rust.tokens(text)]

    def test_comments_are_left_out(self):
        text = "a // fn x() {}\n/* struct /* nested */ B */ c /// fn\n//! d"
        self.assertEqual(self.texts(text), [("a", 1), ("c", 2)])

    def test_strings_are_one_token(self):
        for spelled in ('"a \\" { b"', 'r"a\\"', 'r#"a " {"#', 'br##"a"# {"##', 'b"{"', 'c"{"', '"a\n{"', '"\\\\"'):
            with self.subTest(spelled):
                last = 1 + spelled.count("\n")
                self.assertEqual(self.texts(f"{spelled} z"), [(spelled, 1), ("z", last)])

    def test_characters_are_no_lifetimes(self):
        for spelled in ("'{'", "'\\''", "'\\\\'", "'\"'", "b'{'", "'\\u{7b}'", "'\\x7b'", "'a", "'static", "'_"):
            with self.subTest(spelled):
                self.assertEqual(self.texts(f"{spelled} z"), [(spelled, 1), ("z", 1)])
        lifetimes = [token.text for token in rust.tokens("<'a,'b>") if token.kind == "lifetime"]
        self.assertEqual(lifetimes, ["'a", "'b"])

    def test_raw_words_are_words(self):
        self.assertEqual(self.texts("r#type x"), [("r#type", 1), ("x", 1)])

    def test_what_does_not_end_ends_with_the_file(self):
        self.assertEqual(self.texts("/* a"), [])
        self.assertEqual(self.texts('r#"a'), [('r#"a', 1)])


class Functions(unittest.TestCase):
    def test_from_its_first_line_to_its_closing_brace(self):
        text = "/// Says it.\n#[inline]\npub(crate) async fn say(\n    a: [u8; 4],\n) -> impl Fn() {\n    a\n}\n"
        self.assertEqual(functions(text), [("say", 5)])

    def test_blocks_within_count_as_lines_only(self):
        text = 'fn outer() {\n    if x { y(|| { z; }); }\n    match w { _ => "}" }\n    let s = S { a };\n}\n'
        self.assertEqual(functions(text), [("outer", 5)])

    def test_methods_and_functions_within_functions(self):
        text = "impl A {\n fn a() {\n  fn b() {}\n }\n}\ntrait T { fn declared(&self); fn given(&self) {} }"
        self.assertEqual(functions(text), [("b", 1), ("a", 3), ("given", 1)])

    def test_types_of_functions_are_none(self):
        self.assertEqual(functions("const F: fn(u8) = { f }; type G = fn(); struct S { f: fn() }"), [])


class Types(unittest.TestCase):
    def test_all_kinds_at_any_visibility(self):
        text = "pub struct A;\nstruct B(u8);\npub(super) enum C {}\ntrait D {}\ntype E = A;\nstruct F<T> where T: D {}"
        self.assertEqual([name for name, _ in types(text)], list("ABCDEF"))

    def test_associated_types_are_none(self):
        text = "trait A { type B; }\nimpl A for C { type B = u8; }\nfn f() -> impl D { type E = u8; }"
        self.assertEqual([name for name, _ in types(text)], ["A", "E"])

    def test_inline_modules_are_told(self):
        self.assertEqual(types("mod a { mod b { struct C; } } struct D;"), [("C", ("a", "b")), ("D", ())])

    def test_words_in_macros_are_no_names(self):
        self.assertEqual(types("macro_rules! m { ($n:ident) => { struct $n; } }"), [])
        self.assertEqual(types("keys! { struct A { a: u8 } }"), [("A", ())])

    def test_variables_of_macros_are_no_keywords(self):
        text = "macro_rules! m { ($type:ty) => { <$type as B>::C }; ($struct:ident) => { $struct d {} } } struct A;"
        self.assertEqual(types(text), [("A", ())])


class TestModules(unittest.TestCase):
    def test_in_the_file(self):
        text = "fn a() {}\n\n#[cfg(test)]\n#[expect(x)]\nmod tests {\n    fn b() { }\n}\nfn c() {}"
        self.assertEqual(test_modules(text), [("tests", 3, 7)])

    def test_in_a_file_of_its_own(self):
        self.assertEqual(test_modules("#[cfg(test)]\npub(crate) mod fixtures;\nmod b;"), [("fixtures", 1, 2)])
        self.assertEqual(test_modules("#[cfg(all(test, unix))]\nmod tests;"), [("tests", 1, 2)])
        self.assertEqual(test_modules("#[cfg(any(test, fuzzing))]\nmod tests;"), [("tests", 1, 2)])

    def test_other_items_and_other_conditions_are_none(self):
        for text in (
            "#[cfg(test)] use a::b;\nmod c { }",
            "#[cfg(test)] fn a() {}\nmod c { }",
            "#[cfg(not(test))] mod c {}",
            "#[cfg(unix)] mod c {}",
            "#[cfg(any(test, unix))] mod c {}",
            "struct S { #[cfg(test)] a: u8 }\nmod c {}",
            '"#[cfg(test)]"; mod c {}',
        ):
            with self.subTest(text):
                self.assertEqual(test_modules(text), [])


if __name__ == "__main__":
    unittest.main()

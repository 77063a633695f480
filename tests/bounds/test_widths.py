"""Public fields and tuple parameters are counted as they are written."""

import unittest

from bounds import rust, widths


def fields(text):
    return [(name, public) for name, _, public in widths.fields(list(rust.tokens(text)))]


def functions(text):
    return [name for name, _ in widths.tuple_functions(list(rust.tokens(text)))]


class Fields(unittest.TestCase):
    def test_public_ones_of_each_struct(self):
        text = "struct A { pub a: u8, pub(crate) b: Vec<(u8, u8)>, pub(in crate::x) c: u8, d: u8 }\nstruct B;\nstruct C {}"
        self.assertEqual(fields(text), [("A", 3), ("C", 0)])

    def test_those_of_a_parent_or_nobody_are_not_public(self):
        self.assertEqual(fields("struct A { pub(super) a: u8, pub(self) b: u8, #[serde(default)] pub c: u8 }"), [("A", 1)])

    def test_generics_bounds_and_tuples(self):
        text = "struct A<T: Fn(u8) -> u8>(pub T, u8, pub u8);\nstruct B<'a, T> where T: Into<(u8, u8)> { pub b: &'a T }"
        self.assertEqual(fields(text), [("A", 2), ("B", 1)])

    def test_inputs_of_macros_count_and_variables_do_not(self):
        self.assertEqual(fields("keys! { struct A { pub a: u8 } }\nmacro_rules! m { ($n:ident) => { struct $n { pub a: u8 } } }"), [("A", 1)])


class Tuples(unittest.TestCase):
    def test_parameters_that_are_tuples(self):
        for parameters in (
            "a: (u8, u8)",
            "&self, (a, b): (u8, u8)",
            "a: &(u8, u8)",
            "a: &'a mut (u8, u8)",
            "a: u8, b: HashMap<u8, u8>, c: (&mut S, usize),",
        ):
            with self.subTest(parameters):
                self.assertEqual(functions(f"fn f<'a, F: Fn(u8) -> u8>({parameters}) -> u8 {{ }}"), ["f"])

    def test_what_is_none(self):
        for parameters in (
            "",
            "a: ()",
            "a: (u8)",
            "a: &[(u8, u8)]",
            "a: Option<(u8, u8)>",
            "a: HashMap<u8, (u8, u8)>",
            "a: impl Fn(u8, u8) -> (u8, u8)",
            "a: &(dyn Fn(u8, u8) + 'a)",
            "Path((a, b)): Path<(u8, u8)>",
            "a: std::io::Result<u8>",
        ):
            with self.subTest(parameters):
                self.assertEqual(functions(f"fn f({parameters}) -> (u8, u8) {{ let x: (u8, u8) = g((1, 2)); }}"), [])

    def test_closures_and_types_of_functions_are_none(self):
        self.assertEqual(functions("fn f() { |(a, b): (u8, u8)| a }\ntype G = fn((u8, u8));"), [])

    def test_methods_and_declarations_count(self):
        self.assertEqual(functions("trait T { fn a(&self, b: (u8, u8)); }\nimpl T for S { async fn c(b: (u8, u8)) {} }"), ["a", "c"])


if __name__ == "__main__":
    unittest.main()

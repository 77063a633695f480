//! Arguments of a tool by the names that lead to them, as limits, rules and `Mcp-Param-*` headers read them.
//!
//! Deliberately absent: what they are read for. Invariants: each text is read once, from front to back. Where two readers
//! could take a value differently, because a key on the way stands twice or could be taken for another, nobody is told
//! either: it is ambiguous. What stands elsewhere is nobody's business.

use std::fmt;

use icu_normalizer::ComposingNormalizerBorrowed;

use super::json::{Cursor, Decimal, JsonKind, Literal, Span, Value};
use super::text::is_seen;

/// The names that lead to an argument, from `params.arguments` down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArgumentPath(Box<[Box<str>]>);

/// A value that a rule or a limit can go by. Two are equal if type and value are, however they are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ArgumentValue {
    /// A string.
    Text(Box<str>),
    /// A number, in one spelling for each.
    Number(Box<str>),
    /// `true` or `false`.
    Boolean(bool),
}

/// What a call says at several paths.
#[derive(Debug, Default)]
pub struct CallArguments<'p> {
    paths: &'p [ArgumentPath],
    values: Vec<CallArgument>,
}

/// Numbers that take more bytes are nobody's amount or id: no time is spent on them.
const NUMBER_BYTES_MAX: usize = 1000;

/// It asks for a character as a picture, and is no part of a name.
const PICTURE_SELECTOR: char = '\u{fe0f}';

/// What a call says at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallArgument {
    /// Nothing, or what is no string, number or boolean.
    Missing,
    /// This.
    Value(ArgumentValue),
    /// What readers could take differently.
    Ambiguous,
}

/// An argument that readers could take differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key of the argument {0} stands twice or is written in an ambiguous way")]
pub struct AmbiguousArgument(pub String);

impl ArgumentPath {
    /// The path of these names. `None`: there is none.
    pub fn new(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Option<Self> {
        let names: Box<[Box<str>]> = names.into_iter().map(Into::into).collect();
        (!names.is_empty()).then_some(Self(names))
    }

    /// Reads names with dots between them. `None`: one of them is empty.
    pub fn read(text: &str) -> Option<Self> {
        text.split('.').all(|name| !name.is_empty()).then(|| Self::new(text.split('.')))?
    }
}

impl fmt::Display for ArgumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl ArgumentValue {
    /// The number that JSON or TOML writes like this.
    pub fn number(text: &str) -> Option<Self> {
        Decimal::read(text).map(|number| Self::Number(number.to_string().into()))
    }

    /// Whether both are of one type.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether some reader may take one for the other. Many read numbers as floats of 64 bits.
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => {
                one == other || float(one).to_bits() == float(other).to_bits()
            }
            _ => self == other,
        }
    }

    /// Shows `visit` its type as one byte, then what it is: the same for values that [may be](Self::may_be) each other.
    pub fn each_part(&self, mut visit: impl FnMut(&[u8])) {
        match self {
            Self::Text(text) => [b"s", text.as_bytes()].into_iter().for_each(visit),
            Self::Number(number) => {
                visit(b"n");
                visit(&float(number).to_be_bytes());
            }
            Self::Boolean(value) => [b"b", &[u8::from(*value)][..]].into_iter().for_each(visit),
        }
    }

    fn of(kind: JsonKind, span: Span, text: &[u8]) -> Option<Self> {
        match kind {
            JsonKind::String => Some(Self::Text(Literal::at(span, text).decode(text)?.into())),
            JsonKind::Number => {
                let number = text.get(span).filter(|number| number.len() <= NUMBER_BYTES_MAX)?;
                Self::number(std::str::from_utf8(number).ok()?)
            }
            JsonKind::True => Some(Self::Boolean(true)),
            JsonKind::False => Some(Self::Boolean(false)),
            JsonKind::Null | JsonKind::Object | JsonKind::Array => None,
        }
    }
}

/// The float next to a number in its only spelling; what is too large is infinite.
fn float(number: &str) -> f64 {
    // Adding zero takes the sign from what is too small.
    number.parse::<f64>().unwrap_or(f64::INFINITY) + 0.0
}

impl fmt::Display for ArgumentValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => f.write_str(number),
            Self::Boolean(value) => write!(f, "{value}"),
        }
    }
}

impl<'p> CallArguments<'p> {
    /// What was read at these paths.
    pub fn new(paths: &'p [ArgumentPath], values: Vec<CallArgument>) -> Self {
        Self { paths, values }
    }

    /// Reads what stands at each path of `arguments`, which is `params.arguments` of a call.
    pub fn values(paths: &[ArgumentPath], arguments: Option<Value<'_>>) -> Vec<CallArgument> {
        let text = arguments.map(Value::text).unwrap_or_default();
        let value = |found| match found {
            FoundArgument::Nothing => CallArgument::Missing,
            FoundArgument::Value(JsonKind::Null | JsonKind::Object | JsonKind::Array, _) => {
                CallArgument::Missing
            }
            // Text that is not Unicode, and numbers beyond all reason, are what each reader makes of them.
            FoundArgument::Value(kind, span) => {
                ArgumentValue::of(kind, span, text).map_or(CallArgument::Ambiguous, CallArgument::Value)
            }
            FoundArgument::Ambiguous => CallArgument::Ambiguous,
        };
        find(Spellings::Each, paths.iter().map(|path| &*path.0), arguments).into_iter().map(value).collect()
    }

    /// The value at a path. `None`: there is none, or one of a type that nothing goes by, or an ambiguous one.
    pub fn at(&self, path: &ArgumentPath) -> Option<&ArgumentValue> {
        match self.read_at(path) {
            Some(CallArgument::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether any value is ambiguous.
    pub fn are_ambiguous(&self) -> bool {
        self.values.contains(&CallArgument::Ambiguous)
    }

    /// The first of these paths whose value is ambiguous.
    pub fn check<'a>(
        &self,
        mut paths: impl Iterator<Item = &'a ArgumentPath>,
    ) -> Result<(), AmbiguousArgument> {
        let is_ambiguous = |path: &&ArgumentPath| self.read_at(path) == Some(&CallArgument::Ambiguous);
        paths.find(is_ambiguous).map_or(Ok(()), |path| Err(AmbiguousArgument(path.to_string())))
    }

    fn read_at(&self, path: &ArgumentPath) -> Option<&CallArgument> {
        self.values.get(self.paths.iter().position(|known| known == path)?)
    }
}

/// What stands at the end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundArgument {
    Nothing,
    Value(JsonKind, Span),
    /// Readers could take it differently.
    Ambiguous,
}

/// What is to be made of a key that some readers take for the first of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spellings {
    /// All paths are of one tool, whose parameters they name: a key that is one of them is no other.
    OfOneTool,
    /// The paths have nothing to do with each other.
    Each,
}

/// What stands in `arguments` at the end of each path.
pub(crate) fn find<'p>(
    spellings: Spellings,
    paths: impl ExactSizeIterator<Item = &'p [Box<str>]>,
    arguments: Option<Value<'_>>,
) -> Vec<FoundArgument> {
    let mut values = vec![FoundArgument::Nothing; paths.len()];
    if let Some(arguments) = arguments.filter(|arguments| arguments.kind() == JsonKind::Object) {
        let wanted: Vec<Lookup<'_>> =
            paths.enumerate().map(|(index, path)| Lookup { index, path, is_seen: false }).collect();
        find_in((&mut arguments.cursor(), arguments.text()), spellings, wanted, &mut values);
    }
    values
}

/// A value that is looked for in an object.
struct Lookup<'a> {
    /// Which of the paths leads to it.
    index: usize,
    /// The keys that lead to it from the object.
    path: &'a [Box<str>],
    /// Whether the first of these keys stood in the object already.
    is_seen: bool,
}

/// Finds the wanted values in the object at the cursor.
fn find_in(
    (cursor, text): (&mut Cursor<'_>, &[u8]),
    spellings: Spellings,
    mut wanted: Vec<Lookup<'_>>,
    values: &mut [FoundArgument],
) {
    while let Some(key) = cursor.next_key() {
        let key = Literal::at(key, text).decode(text);
        let (ends, further) = select(key.as_deref(), spellings, &mut wanted, values);
        let kind = cursor.kind();
        let span = if kind == JsonKind::Object && !further.is_empty() {
            let start = *cursor;
            find_in((&mut *cursor, text), spellings, further, values);
            cursor.span_since(start)
        } else {
            cursor.skip()
        };
        for index in ends {
            if let Some(value @ FoundArgument::Nothing) = values.get_mut(index) {
                *value = FoundArgument::Value(kind, span.clone());
            }
        }
    }
}

/// Those of `wanted` that end at `key`, and what is wanted of the object behind it. A key that is not Unicode, that stood
/// before, or that some take for a wanted one makes that ambiguous.
fn select<'a>(
    key: Option<&str>,
    spellings: Spellings,
    wanted: &mut [Lookup<'a>],
    values: &mut [FoundArgument],
) -> (Vec<usize>, Vec<Lookup<'a>>) {
    let (mut ends, mut further, mut alike) = (Vec::new(), Vec::new(), Vec::new());
    let mut doubt = |index: usize| {
        if let Some(value) = values.get_mut(index) {
            *value = FoundArgument::Ambiguous;
        }
    };
    let mut is_wanted = false;
    for Lookup { index, path, is_seen } in wanted {
        let (Some(key), [first, rest @ ..]) = (key, *path) else {
            doubt(*index);
            continue;
        };
        if **first != *key {
            if is_alike(first, key) {
                alike.push(*index);
            }
            continue;
        }
        is_wanted = true;
        if std::mem::replace(is_seen, true) {
            doubt(*index);
        } else if rest.is_empty() {
            ends.push(*index);
        } else {
            further.push(Lookup { index: *index, path: rest, is_seen: false });
        }
    }
    if !(is_wanted && spellings == Spellings::OfOneTool) {
        alike.into_iter().for_each(doubt);
    }
    (ends, further)
}

/// True if some readers take one key for the other: those that fold case or compatible letters (NFKC, such as `ｅｎｖ` for
/// `env`), or drop what nobody sees. Parameters can have names in any script, so this folds all letters; what it takes for
/// alike in excess is refused in vain.
fn is_alike(one: &str, other: &str) -> bool {
    let is_plain = |key: &str| key.is_ascii() && !key.contains('\0');
    if is_plain(one) && is_plain(other) {
        return one.eq_ignore_ascii_case(other);
    }
    folded(one).eq(folded(other))
}

/// The key without compatible letters, case and what nobody sees. Lower case joins the Kelvin sign with k; upper case the
/// long s with s, and sigma with its final form. What case takes apart is joined again. As it is read, so that keys which differ
/// from the beginning cost little, however many there are.
fn folded(key: &str) -> impl Iterator<Item = char> {
    let compatible = ComposingNormalizerBorrowed::new_nfkc();
    let seen = key.chars().filter(|&char| is_seen(char) && char != PICTURE_SELECTOR);
    let lower = compatible.normalize_iter(seen).flat_map(char::to_lowercase);
    compatible.normalize_iter(lower.flat_map(char::to_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    fn read(paths: &[&str], arguments: &str) -> Vec<String> {
        let paths: Vec<_> = paths.iter().map(|path| ArgumentPath::read(path).unwrap()).collect();
        let mut scratch = Scratch::default();
        let root = scratch.index(arguments.as_bytes(), 16).unwrap().root();
        let read = CallArguments::new(&paths, CallArguments::values(&paths, Some(root)));
        let shown = |path| match (read.check([path].into_iter()), read.at(path)) {
            (Err(_), None) => "?".to_owned(),
            (Ok(()), value) => value.map_or_else(|| "-".to_owned(), ToString::to_string),
            (Err(_), Some(value)) => panic!("{value} may not be told"),
        };
        paths.iter().map(shown).collect()
    }

    #[test]
    fn values_are_read_by_their_paths() {
        for (arguments, expected) in [
            (r#"{"a":"x","b":{"c":1.50,"d":true},"e":0}"#, ["\"x\"", "1.5", "true"]),
            (r#"{"b":{"d":false,"c":15e-1},"a":"\u0078"}"#, ["\"x\"", "1.5", "false"]),
            (r#"{"a":null,"b":[{"c":1}]}"#, ["-", "-", "-"]),
            (r#"{"a":{"b":1},"b":{"c":{},"d":[]}}"#, ["-", "-", "-"]),
            ("[]", ["-", "-", "-"]),
            ("{}", ["-", "-", "-"]),
        ] {
            assert_eq!(read(&["a", "b.c", "b.d"], arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn what_readers_could_take_differently_is_ambiguous() {
        for (arguments, expected) in [
            (r#"{"a":1,"a":2,"b":{"c":3}}"#, ["?", "3"]),
            (r#"{"a":1,"\u0061":2}"#, ["?", "-"]),
            (r#"{"a":1,"A":2,"b":{"c":3}}"#, ["?", "3"]),
            (r#"{"A":2,"a":1}"#, ["?", "-"]),
            (r#"{"A":1}"#, ["?", "-"]),
            (r#"{"a":1,"b":{"c":1},"b":{}}"#, ["1", "?"]),
            (r#"{"b":{},"b":{"c":1},"a":1}"#, ["1", "?"]),
            (r#"{"b":{"c":1,"C":2},"a":1}"#, ["1", "?"]),
            (r#"{"a":1,"B":2,"b":{"c":1}}"#, ["1", "?"]),
            (r#"{"a":1,"ａ":1}"#, ["?", "-"]),
            (r#"{"Ａ":1,"b":{"ⓒ":2}}"#, ["?", "?"]),
            (r#"{"𝐚":1,"b":{"c":2,"ᶜ":2}}"#, ["?", "?"]),
            (r#"{"a\u200b":1,"b":{"c":2}}"#, ["?", "2"]),
            (r#"{"a\ufe0f":1,"b":{"c":2}}"#, ["?", "2"]),
            (r#"{"\u034fa":1,"b":{"\u180bc":2}}"#, ["?", "?"]),
            (r#"{"ä":1,"b":{"c":2}}"#, ["-", "2"]),
            (r#"{"a":1,"\ud800":2}"#, ["?", "?"]),
            (r#"{"a":1,"d":1,"d":2,"D":3}"#, ["1", "-"]),
        ] {
            assert_eq!(read(&["a", "b.c"], arguments), expected, "{arguments}");
        }
        let paths = ["id", "ID"];
        assert_eq!(
            read(&paths, r#"{"id":1,"ID":2}"#),
            ["?", "?"],
            "each is of another rule, about another tool"
        );
        assert_eq!(read(&paths, r#"{"id":1}"#), ["1", "?"]);
        let mut scratch = Scratch::default();
        let root = scratch.index(br#"{"id":1,"ID":2}"#, 16).unwrap().root();
        let paths = paths.map(|path| ArgumentPath::read(path).unwrap());
        let found = find(Spellings::OfOneTool, paths.iter().map(|path| &*path.0), Some(root));
        assert!(!found.contains(&FoundArgument::Ambiguous), "one tool has both: {found:?}");
    }

    #[test]
    fn numbers_that_readers_may_take_for_each_other_are_counted_together() {
        for (one, other, may_be) in [
            ("100", "100.0", true),
            ("100", "100.00000000000000001", true),
            ("0.1", "0.1000000000000000055511151231257827", true),
            ("9007199254740992", "9007199254740993", true),
            ("0", "-1e-999", true),
            ("1e400", "1e999", true),
            ("1e400", "-1e400", false),
            ("100", "100.1", false),
            ("1", "-1", false),
        ] {
            let [one, other] = [one, other].map(|text| ArgumentValue::number(text).unwrap());
            let parts = |value: &ArgumentValue| {
                let mut parts = Vec::new();
                value.each_part(|part| parts.push(part.to_vec()));
                parts
            };
            assert_eq!(one.may_be(&other), may_be, "{one} {other}");
            assert_eq!(parts(&one) == parts(&other), may_be, "{one} {other}");
            assert_eq!(one == other, one.to_string() == other.to_string());
        }
    }

    #[test]
    fn what_no_reader_agrees_on_is_ambiguous() {
        let long = "1".repeat(NUMBER_BYTES_MAX);
        let too_long = format!("{long}1");
        for value in ["1e-99999999999999999999", "1e99999999999999999999", "\"\\ud800\"", &too_long] {
            assert_eq!(read(&["a"], &format!("{{\"a\":{value}}}")), ["?"], "{value}");
        }
        assert_eq!(read(&["a"], "{\"a\":0e99999999999999999999}"), ["0"]);
        assert_ne!(read(&["a"], &format!("{{\"a\":{long}}}")), ["?"]);
    }

    #[test]
    fn types_are_told_apart() {
        let number = ArgumentValue::number("5.0").unwrap();
        assert_eq!(number, ArgumentValue::number("5").unwrap());
        assert_ne!(number, ArgumentValue::Text("5".into()));
        assert!(!number.may_be(&ArgumentValue::Text("5".into())));
        assert!(!number.is_like(&ArgumentValue::Boolean(true)));
        assert!(ArgumentPath::read("a..b").is_none() && ArgumentPath::read("").is_none());
    }
}

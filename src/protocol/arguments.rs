//! Arguments of a tool by the names that lead to them, as limits, rules and `Mcp-Param-*` headers read them.
//!
//! Deliberately absent: what they are read for. Invariants: each text is read once, from front to back. Where two readers
//! could take a value differently, because a key on the way stands twice or could be taken for another, nobody is told
//! either: it is ambiguous.

use std::fmt;

use super::json::{Cursor, Decimal, JsonKind, Literal, Span, Value};

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
    values: Vec<Option<ArgumentValue>>,
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

    /// Its type as one byte, and its only spelling.
    pub fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Text(text) => [b"s", text.as_bytes()],
            Self::Number(number) => [b"n", number.as_bytes()],
            Self::Boolean(true) => [b"b", b"true"],
            Self::Boolean(false) => [b"b", b"false"],
        }
    }

    fn of(kind: JsonKind, span: Span, text: &[u8]) -> Option<Self> {
        match kind {
            JsonKind::String => Some(Self::Text(Literal::at(span, text).decode(text)?.into())),
            JsonKind::Number => Self::number(std::str::from_utf8(text.get(span)?).ok()?),
            JsonKind::True => Some(Self::Boolean(true)),
            JsonKind::False => Some(Self::Boolean(false)),
            JsonKind::Null | JsonKind::Object | JsonKind::Array => None,
        }
    }
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
    pub fn new(paths: &'p [ArgumentPath], values: Vec<Option<ArgumentValue>>) -> Self {
        Self { paths, values }
    }

    /// Reads what stands at each path of `arguments`, which is `params.arguments` of a call. `None`: nothing, or what is
    /// no string, number or boolean.
    pub fn values(
        paths: &[ArgumentPath],
        arguments: Option<Value<'_>>,
    ) -> Result<Vec<Option<ArgumentValue>>, AmbiguousArgument> {
        let text = arguments.map(Value::text).unwrap_or_default();
        let found = find(paths.iter().map(|path| &*path.0), arguments);
        let found = found.map_err(|index| {
            AmbiguousArgument(paths.get(index).map(ToString::to_string).unwrap_or_default())
        })?;
        let value = |found: Option<(JsonKind, Span)>| {
            let (kind, span) = found?;
            ArgumentValue::of(kind, span, text)
        };
        Ok(found.into_iter().map(value).collect())
    }

    /// The value at a path. `None`: there is none, or one of a type that nothing goes by.
    pub fn at(&self, path: &ArgumentPath) -> Option<&ArgumentValue> {
        let index = self.paths.iter().position(|known| known == path)?;
        self.values.get(index)?.as_ref()
    }
}

/// What stands in `arguments` at the end of each path. An error is the path whose value is ambiguous.
pub(crate) fn find<'p>(
    paths: impl ExactSizeIterator<Item = &'p [Box<str>]>,
    arguments: Option<Value<'_>>,
) -> Result<Vec<Option<(JsonKind, Span)>>, usize> {
    let mut values: Vec<Option<(JsonKind, Span)>> = vec![None; paths.len()];
    if let Some(arguments) = arguments.filter(|arguments| arguments.kind() == JsonKind::Object) {
        let wanted: Vec<Lookup<'_>> =
            paths.enumerate().map(|(index, path)| Lookup { index, path, is_seen: false }).collect();
        find_in(&mut arguments.cursor(), arguments.text(), wanted, &mut values)?;
    }
    Ok(values)
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

/// Finds the wanted values in the object at the cursor. An error is the path whose value is ambiguous.
fn find_in(
    cursor: &mut Cursor<'_>,
    text: &[u8],
    mut wanted: Vec<Lookup<'_>>,
    values: &mut [Option<(JsonKind, Span)>],
) -> Result<(), usize> {
    while let Some(key) = cursor.next_key() {
        let key = Literal::at(key, text).decode(text);
        let (ends, further) = select(key.as_deref(), &mut wanted)?;
        let kind = cursor.kind();
        let span = if kind == JsonKind::Object && !further.is_empty() {
            let start = *cursor;
            find_in(cursor, text, further, values)?;
            cursor.span_since(start)
        } else {
            cursor.skip()
        };
        for index in ends {
            if let Some(value) = values.get_mut(index) {
                *value = Some((kind, span.clone()));
            }
        }
    }
    Ok(())
}

/// Those of `wanted` that end at `key`, and what is wanted of the object behind it. A key that is not Unicode
/// is ambiguous.
fn select<'a>(key: Option<&str>, wanted: &mut [Lookup<'a>]) -> Result<(Vec<usize>, Vec<Lookup<'a>>), usize> {
    let (mut ends, mut further) = (Vec::new(), Vec::new());
    let mut alike = None;
    for Lookup { index, path, is_seen } in wanted {
        let (Some(key), [first, rest @ ..]) = (key, *path) else { return Err(*index) };
        if **first != *key {
            alike = alike.or_else(|| is_alike(first, key).then_some(*index));
            continue;
        }
        if std::mem::replace(is_seen, true) {
            return Err(*index);
        }
        if rest.is_empty() {
            ends.push(*index);
        } else {
            further.push(Lookup { index: *index, path: rest, is_seen: false });
        }
    }
    match alike {
        Some(index) if ends.is_empty() && further.is_empty() => Err(index),
        _ => Ok((ends, further)),
    }
}

/// Whether some readers take one key for the other: those that fold case, or drop NULs. Parameters can have
/// names in any script, so this folds all letters; what it takes for alike in excess is refused in vain.
fn is_alike(one: &str, other: &str) -> bool {
    let is_plain = |key: &str| key.is_ascii() && !key.contains('\0');
    if is_plain(one) && is_plain(other) {
        return one.eq_ignore_ascii_case(other);
    }
    folded(one).eq(folded(other))
}

/// The key without NULs and case. Lower case joins the Kelvin sign with k; upper case the long s with s, and
/// sigma with its final form.
fn folded(key: &str) -> impl Iterator<Item = char> {
    let chars = key.chars().filter(|&char| char != '\0');
    chars.flat_map(char::to_lowercase).flat_map(char::to_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    fn read(paths: &[&str], arguments: &str) -> Result<Vec<String>, String> {
        let paths: Vec<_> = paths.iter().map(|path| ArgumentPath::read(path).unwrap()).collect();
        let mut scratch = Scratch::default();
        let root = scratch.index(arguments.as_bytes(), 16).unwrap().root();
        let values = CallArguments::values(&paths, Some(root)).map_err(|error| error.0)?;
        let read = CallArguments::new(&paths, values);
        let shown = |path| read.at(path).map_or_else(|| "-".to_owned(), ToString::to_string);
        Ok(paths.iter().map(shown).collect())
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
            assert_eq!(read(&["a", "b.c", "b.d"], arguments).unwrap(), expected, "{arguments}");
        }
    }

    #[test]
    fn what_readers_could_take_differently_is_ambiguous() {
        for arguments in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":1,"A":2}"#,
            r#"{"A":1}"#,
            r#"{"b":{"c":1},"b":{}}"#,
            r#"{"b":{"c":1,"C":2}}"#,
        ] {
            let found = read(&["a", "b.c"], arguments);
            assert!(found.is_err(), "{arguments}: {found:?}");
        }
        assert!(read(&["a"], r#"{"b":1,"b":2}"#).is_ok());
    }

    #[test]
    fn types_are_told_apart() {
        let number = ArgumentValue::number("5.0").unwrap();
        assert_eq!(number, ArgumentValue::number("5").unwrap());
        assert_ne!(number, ArgumentValue::Text("5".into()));
        assert_ne!(number.parts(), ArgumentValue::Text("5".into()).parts());
        assert!(!number.is_like(&ArgumentValue::Boolean(true)));
        assert!(ArgumentPath::read("a..b").is_none() && ArgumentPath::read("").is_none());
    }
}

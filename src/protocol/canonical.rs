//! The canonical form of a JSON value, and its hash: the same for every spelling of the same value.
//!
//! White space is left out, keys are sorted, strings have only the escapes they must have, and numbers are their exact
//! decimal value, written one way. Nothing is rounded: two numbers that only some readers tell apart are two. Of a key
//! that stands twice both values count, in their order, as readers differ in which one they take. Halves of surrogate
//! pairs stay as escapes. The form is JSON again, and its own canonical form.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::json::{Decimal, JsonKind, Scratch, Value};

/// The SHA-256 of a canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of a text.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// The hash of hashes, in this order.
    pub fn of_all(hashes: impl Iterator<Item = Self>) -> Self {
        let mut sha256 = Sha256::new();
        hashes.for_each(|hash| sha256.update(hash.0));
        Self(sha256.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digits = text.as_bytes();
        let mut hash = [0; 32];
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotAHash);
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NotAHash)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NotAHash)?;
        }
        Ok(Self(hash))
    }
}

/// A text that is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct NotAHash;

/// The canonical form of a JSON text. `None`: it is no JSON, or nested too deeply.
pub fn canonical(text: &[u8], scratch: &mut Scratch, depth_max: usize) -> Option<String> {
    let document = scratch.index(text, depth_max).ok()?;
    let mut into = String::with_capacity(text.len());
    write_value(document.root(), &mut into);
    Some(into)
}

fn write_value(value: Value<'_>, into: &mut String) {
    match value.kind() {
        JsonKind::Object => write_object(value, into),
        JsonKind::Array => {
            into.push('[');
            for (index, item) in value.items().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                write_value(item, into);
            }
            into.push(']');
        }
        JsonKind::String => write_string(value.raw(), into),
        // Beyond what any reader can compute with, only the spelling can be compared.
        JsonKind::Number => match Decimal::read(value.source()) {
            Some(number) => into.push_str(&number.to_string()),
            None => into.push_str(value.source()),
        },
        JsonKind::True => into.push_str("true"),
        JsonKind::False => into.push_str("false"),
        JsonKind::Null => into.push_str("null"),
    }
}

fn write_object(value: Value<'_>, into: &mut String) {
    let mut members: Vec<(String, Value<'_>)> = value
        .entries()
        .map(|(key, member)| {
            let mut written = String::new();
            write_string(value.text().get(key.span).unwrap_or_default(), &mut written);
            (written, member)
        })
        .collect();
    // Stable: equal keys keep their order.
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    into.push('{');
    for (index, (key, member)) in members.iter().enumerate() {
        if index > 0 {
            into.push(',');
        }
        into.push_str(key);
        into.push(':');
        write_value(*member, into);
    }
    into.push('}');
}

/// `raw` is a string as it stands, with its quotes.
fn write_string(raw: &[u8], into: &mut String) {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    // A text that was checked is UTF-8.
    let mut rest = std::str::from_utf8(inner).unwrap_or_default();
    into.push('"');
    while let Some(at) = rest.find('\\') {
        into.push_str(&rest[..at]);
        rest = write_escape(&rest[at + 1..], into);
    }
    into.push_str(rest);
    into.push('"');
}

/// Writes what stands after a backslash, and returns what follows it.
fn write_escape<'t>(text: &'t str, into: &mut String) -> &'t str {
    let mut chars = text.chars();
    match chars.next() {
        Some('u') => return write_unit(chars.as_str(), into),
        Some('/') => into.push('/'),
        // The others are the shortest spelling of what they mean.
        Some(letter) => into.extend(['\\', letter]),
        None => {}
    }
    chars.as_str()
}

/// Writes the character of `\u`, or of two of them.
fn write_unit<'t>(text: &'t str, into: &mut String) -> &'t str {
    let unit = |text: &'t str| Some((u16::from_str_radix(text.get(..4)?, 16).ok()?, text.get(4..)?));
    let Some((first, rest)) = unit(text) else { return text };
    let second = rest.strip_prefix("\\u").and_then(unit);
    let pair = second.and_then(|(second, rest)| {
        let decoded = char::decode_utf16([first, second]).next()?.ok()?;
        (u32::from(decoded) > 0xFFFF).then_some((decoded, rest))
    });
    if let Some((decoded, rest)) = pair {
        into.push(decoded);
        return rest;
    }
    match char::from_u32(u32::from(first)) {
        Some('"') => into.push_str("\\\""),
        Some('\\') => into.push_str("\\\\"),
        Some('\u{8}') => into.push_str("\\b"),
        Some('\u{c}') => into.push_str("\\f"),
        Some('\n') => into.push_str("\\n"),
        Some('\r') => into.push_str("\\r"),
        Some('\t') => into.push_str("\\t"),
        Some(decoded) if decoded >= ' ' => into.push(decoded),
        _ => {
            // Writing to a string cannot fail.
            let _ = write!(into, "\\u{first:04x}");
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn form(text: &str) -> String {
        canonical(text.as_bytes(), &mut Scratch::default(), 128).unwrap_or_else(|| panic!("no JSON: {text}"))
    }

    #[test]
    fn every_spelling_has_one_form() {
        let cases: [(&[&str], &str); 14] = [
            (&[r#"{"b":1,"a":2}"#, " { \"a\" : 2 ,\n\"\\u0062\":1 } "], r#"{"a":2,"b":1}"#),
            (&["[ 1, 2 ]", "[1,2]"], "[1,2]"),
            (&["1", "1.0", "10e-1", "1E0", "1e+0", "0.1e1", "1.000"], "1"),
            (&["-0", "0", "0.0", "0e7", "-0.0e-999999999999999999999"], "0"),
            (&["100", "1e2", "1.00E+2", "1000e-1"], "100"),
            (&["0.5", "5e-1", "0.50", "50e-2"], "0.5"),
            (&["-12.25", "-1225e-2", "-1.225e1"], "-12.25"),
            (&["1e400", "10e399", "0.1e401"], "1e400"),
            (&["1e-400", "0.01e-398"], "1e-400"),
            (&[r#""a\/b""#, r#""a/b""#, r#""\u0061\u002Fb""#], r#""a/b""#),
            (&[r#""\u000a\"\\""#, r#""\n\u0022\u005c""#], r#""\n\"\\""#),
            (&[r#""\u0001\u001F""#], r#""\u0001\u001f""#),
            (&[r#""\ud83d\ude00""#, "\"\u{1f600}\"", r#""\uD83D\uDE00""#], "\"\u{1f600}\""),
            (&[r#""\ud83d\ud83d\ude00\ude00""#], "\"\\ud83d\u{1f600}\\ude00\""),
        ];
        for (spellings, expected) in cases {
            for spelling in spellings {
                assert_eq!(form(spelling), expected, "{spelling}");
                assert_eq!(form(&form(spelling)), expected, "{spelling}");
            }
        }
    }

    #[test]
    fn what_is_not_the_same_differs() {
        for (one, other) in [
            ("1", "\"1\""),
            ("1", "-1"),
            ("9007199254740993", "9007199254740992"),
            ("0.1", "0.10000000000000001"),
            ("1e99999999999999999999", "1e99999999999999999998"),
            ("[1,2]", "[2,1]"),
            (r#"{"a":null}"#, "{}"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":1}"#),
            (r#""\ud83d""#, r#""\ude00""#),
            (r#""\\u0061""#, r#""a""#),
            (r#""\u00e9""#, r#""e\u0301""#),
        ] {
            assert_ne!(form(one), form(other), "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_json_has_no_form() {
        for text in ["", "{", "{} {}", "nul", "\"\u{1}\"", "[[[[[]]]]]"] {
            assert_eq!(canonical(text.as_bytes(), &mut Scratch::default(), 4), None, "{text}");
        }
    }

    #[test]
    fn hashes_are_read_as_they_are_written() {
        let hash = Hash::of("{}");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        for text in ["", "44", &format!("{hash}0"), &hash.to_string().replace('4', "+")] {
            assert_eq!(text.parse::<Hash>(), Err(NotAHash), "{text}");
        }
    }

    /// Any value without numbers that a 64-bit float cannot hold.
    fn values() -> impl Strategy<Value = Value> {
        let leaves = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (any::<i16>(), 1_u8..5)
                .prop_map(|(number, twos)| Value::from(f64::from(number) / f64::from(1 << twos))),
            any::<String>().prop_map(Value::from),
        ];
        leaves.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Another spelling: keys in reverse, white space, every character escaped, numbers with exponents.
    fn respelled(value: &Value) -> String {
        let string = |text: &str| {
            let units: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            let units = units.concat();
            format!("\"{units}\"")
        };
        match value {
            Value::Object(members) => {
                let members = members.iter().rev();
                let members: Vec<String> =
                    members.map(|(key, value)| format!(" {} :\t{}", string(key), respelled(value))).collect();
                format!("{{{}\n}}", members.join(" ,"))
            }
            Value::Array(items) => {
                format!("[ {} ]", items.iter().map(respelled).collect::<Vec<_>>().join("\r\n,"))
            }
            Value::String(text) => string(text),
            Value::Number(number) => {
                let float = number.as_f64().unwrap_or_default();
                if float.to_bits() == (-0.0_f64).to_bits() { "-0e3".to_owned() } else { format!("{float:E}") }
            }
            other => other.to_string(),
        }
    }

    /// Equal values whose numbers are spelled apart are not equal to `serde_json`.
    fn with_floats(value: &Value) -> Value {
        match value {
            Value::Number(number) => Value::from(number.as_f64().unwrap_or_default() + 0.0),
            Value::Array(items) => items.iter().map(with_floats).collect(),
            Value::Object(members) => {
                members.iter().map(|(key, value)| (key.clone(), with_floats(value))).collect()
            }
            other => other.clone(),
        }
    }

    proptest! {
        #[test]
        fn a_form_is_the_same_for_equal_values_alone(one in values(), other in values()) {
            let written = form(&one.to_string());
            prop_assert_eq!(&written, &form(&respelled(&one)));
            let read: Value = serde_json::from_str(&written).expect("JSON");
            prop_assert_eq!(with_floats(&read), with_floats(&one));
            let is_same = with_floats(&one) == with_floats(&other);
            prop_assert_eq!(written == form(&other.to_string()), is_same);
        }

        #[test]
        fn a_small_change_is_one(value in values(), key in any::<String>()) {
            let wrapped = |inner: &Value| serde_json::json!({"a": [inner], "k": key}).to_string();
            let changed = Value::from(vec![value.clone()]);
            prop_assert_ne!(form(&wrapped(&value)), form(&wrapped(&changed)));
        }
    }
}

//! Literals of strings and integers.

use std::borrow::Cow;

use super::Span;

/// A string as it stands in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// Where it stands, quotes included.
    pub span: Span,
    /// Whether it holds a backslash, so that its bytes are not its value.
    pub escaped: bool,
}

impl Literal {
    /// The string that stands at `span`, quotes included.
    pub fn at(span: Span, text: &[u8]) -> Self {
        let escaped = text.get(span.clone()).is_some_and(|raw| raw.contains(&b'\\'));
        Self { span, escaped }
    }

    /// The string's value. `None` if it escapes half a surrogate pair, and so is not Unicode.
    pub fn decode<'t>(&self, text: &'t [u8]) -> Option<Cow<'t, str>> {
        if self.escaped {
            let value: String = serde_json::from_slice(text.get(self.span.clone())?).ok()?;
            return Some(Cow::Owned(value));
        }
        std::str::from_utf8(self.as_bytes(text)?).ok().map(Cow::Borrowed)
    }

    /// The bytes of the string's value where it stands, unless it holds escapes.
    pub fn as_bytes<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        text.get(self.span.start + 1..self.span.end.checked_sub(1)?).filter(|_| !self.escaped)
    }

    /// Whether the string's value is `other`.
    pub fn equals(&self, text: &[u8], other: &str) -> bool {
        if self.escaped {
            self.decodes_to(text, other)
        } else {
            self.as_bytes(text) == Some(other.as_bytes())
        }
    }

    #[cold]
    #[inline(never)]
    fn decodes_to(&self, text: &[u8], other: &str) -> bool {
        self.decode(text).is_some_and(|value| value == other)
    }
}

/// `value` as a JSON string literal, with only those escapes that JSON requires.
pub fn quote(value: &str) -> String {
    // Names rarely have to be escaped.
    if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        let mut literal = String::with_capacity(value.len() + 2);
        literal.extend(["\"", value, "\""]);
        return literal;
    }
    serde_json::Value::from(value).to_string()
}

/// Whether `value`, a JSON value, is a number without fraction and exponent, of any length.
pub fn is_integer(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-'))
}

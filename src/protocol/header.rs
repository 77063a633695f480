//! Values of the headers that mirror a message: `Mcp-Name` and `Mcp-Param-*`.
//!
//! A value that HTTP can carry stands there as it is, any other one as `=?base64?…?=`, which is compared
//! after decoding (2026-07-28, Streamable HTTP, "Value Encoding").
//!
//! Deliberately absent: whether a header is required, and whether it agrees with the body.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The string that a header value stands for. `None` if it holds anything but visible ASCII, space and
/// tab, or is marked as Base64 and is not the canonical, padded Base64 of UTF-8.
pub fn decode_value(raw: &[u8]) -> Option<Cow<'_, str>> {
    decode_visible(std::str::from_utf8(raw).ok().filter(|value| value.bytes().all(is_field_byte))?)
}

/// As [`decode_value`], of what is known to hold nothing but visible ASCII, spaces and tabs.
pub(crate) fn decode_visible(value: &str) -> Option<Cow<'_, str>> {
    if !is_marked(value) {
        return Some(Cow::Borrowed(value));
    }
    let encoded = value.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
}

/// The header value that stands for a string. The empty string is encoded too: an empty header reads as
/// an absent one.
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let is_safe = !value.is_empty()
        && value.bytes().all(is_field_byte)
        && !value.starts_with([' ', '\t'])
        && !value.ends_with([' ', '\t'])
        && !is_marked(value);
    if is_safe {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)))
}

/// Whether a value looks encoded. True for `=?base64?=` too, whose marks overlap: readers disagree about
/// it, so it is never sent and never taken.
fn is_marked(value: &str) -> bool {
    value.starts_with(PREFIX) && value.ends_with(SUFFIX)
}

/// Whether a token of HTTP may hold the character (RFC 9110, 5.6.2).
pub(crate) fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn is_field_byte(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_specification_hold() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("file:///projects/my app/config.json", "file:///projects/my app/config.json"),
            ("a\tb", "a\tb"),
            ("", "=?base64??="),
            ("\ta", "=?base64?CWE=?="),
            ("\u{7f}", "=?base64?fw==?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("=?BASE64?eA==?=", "=?BASE64?eA==?="),
            ("=?base64?eA==", "=?base64?eA=="),
        ] {
            assert_eq!(encode_value(value), header);
            assert_eq!(decode_value(header.as_bytes()).as_deref(), Some(value));
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for raw in [
            &b"caf\xc3\xa9"[..],
            b"\xff",
            b"a\0b",
            b"a\x7f",
            b"a\r\nb",
            b"=?base64?=",
            b"=?base64?eA?=",    // no padding
            b"=?base64?eA=?=",   // too little
            b"=?base64?eA===?=", // too much
            b"=?base64?eB==?=",  // bits set that no encoder sets
            b"=?base64?e A=?=",
            b"=?base64?_-8=?=", // the URL alphabet
            b"=?base64?\xc3\xa9?=",
            b"=?base64?/w==?=", // not UTF-8
            b"=?base64?eA==?=?=",
        ] {
            assert_eq!(decode_value(raw), None, "{}", raw.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value in prop_oneof![any::<String>(), "[ -~\t]{0,20}"]) {
            let header = encode_value(&value);
            prop_assert!(header.bytes().all(is_field_byte) && header.trim_ascii() == header);
            let decoded = decode_value(header.as_bytes());
            prop_assert_eq!(decoded.as_deref(), Some(value.as_str()));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(value) = decode_value(&raw) {
                prop_assert_eq!(value.as_bytes(), &raw); // what is marked does not come up by chance
            }
        }
    }
}

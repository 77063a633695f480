//! JSON that parsers of clients refuse, wherever in a message it stands.

use memchr::{memchr, memchr2};

/// Digits of a number beyond which Python's SDKs refuse the message.
const DIGITS_MAX: usize = 4300;

/// Why clients would refuse any message with this JSON in it. `None`: they read it.
pub(super) fn fault(json: &[u8]) -> Option<&'static str> {
    let mut rest = json;
    while let Some(quote) = memchr(b'"', rest) {
        if has_long_number(&rest[..quote]) {
            return Some("must not hold a number of so many digits");
        }
        rest = &rest[quote + 1..];
        while let Some(at) = memchr2(b'"', b'\\', rest) {
            let is_end = rest[at] == b'"';
            rest = &rest[at + 1..];
            if is_end {
                break;
            }
            let Some(after) = after_escape(rest) else {
                return Some("must not hold half of a surrogate pair");
            };
            rest = after;
        }
    }
    has_long_number(rest).then_some("must not hold a number of so many digits")
}

fn has_long_number(between: &[u8]) -> bool {
    between.len() > DIGITS_MAX
        && between.split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() > DIGITS_MAX)
}

/// What comes after an escape, which begins after its backslash. `None`: it is of half a surrogate pair.
fn after_escape(text: &[u8]) -> Option<&[u8]> {
    match unit(text) {
        Some(0xD800..0xDC00) => {
            let low = text.get(5..)?.strip_prefix(b"\\")?;
            matches!(unit(low)?, 0xDC00..0xE000).then(|| low.get(5..))?
        }
        Some(0xDC00..0xE000) => None,
        Some(_) => text.get(5..),
        None => text.get(1..),
    }
}

/// The unit of UTF-16 that `uXXXX` stands for.
fn unit(escape: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(escape.strip_prefix(b"u")?.get(..4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_unicode_is_not_read() {
        for fine in [
            r#"{"a":"b"}"#,
            r#"["\ud83d\ude00","\\ud800","\u0041\"\n","\uFFFF","é"]"#,
            r#""""#,
            r#"{"\uD83D\uDE00":1}"#,
        ] {
            assert_eq!(fault(fine.as_bytes()), None, "{fine}");
        }
        for half in [
            r#""\ud800""#,
            r#"{"a":["\uDC00"]}"#,
            r#"{"\ud800":1}"#,
            r#""\ud800\n""#,
            r#""\ud800\ud800\udc00""#,
            r#""\ud800x\udc00""#,
            r#""\\\ud800""#,
            r#""\ud800\u0041""#,
        ] {
            assert!(fault(half.as_bytes()).is_some_and(|why| why.contains("surrogate")), "{half}");
        }
    }

    #[test]
    fn numbers_have_as_many_digits_as_are_read() {
        let number = |digits: usize| "1".repeat(digits);
        for fine in [number(4300), format!("[{0},\"{1}\",{0}.5e5]", number(4000), number(5000))] {
            assert_eq!(fault(fine.as_bytes()), None);
        }
        for long in [number(4301), format!("{{\"a\":-{}}}", number(4301)), format!("[{},\"\"]", number(5000))]
        {
            assert!(fault(long.as_bytes()).is_some_and(|why| why.contains("digits")));
        }
    }
}

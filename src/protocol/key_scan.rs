//! Whether one of some keys may stand in a JSON text: told by one look at its bytes, so that most texts need no reader.
//!
//! Deliberately not here: where the keys stand. Invariant: where this says no, no reader finds one, however it is escaped.

use aho_corasick::packed::Searcher;

/// What an escape of a character of ASCII begins with.
const ESCAPE: &str = "\\u00";

/// Looks for some keys.
#[derive(Debug)]
pub(super) struct KeyScan {
    /// `None` on machines without the instructions for it: there every text may have a key.
    searcher: Option<Searcher>,
}

impl KeyScan {
    /// For keys of letters and hyphens, or parts of keys, with or without their quotes.
    pub(super) fn new(keys: &[&str]) -> Self {
        // The escape comes first, so that its number is known.
        Self { searcher: Searcher::new([ESCAPE].iter().chain(keys)) }
    }

    /// Whether a key, or what may be an escaped one, is in `text`.
    pub(super) fn may_be_in(&self, text: &[u8]) -> bool {
        let Some(searcher) = &self.searcher else { return true };
        searcher.find_iter(text).any(|found| found.pattern().as_usize() > 0 || is_of_key(text, found.end()))
    }
}

/// Whether the escape whose digits are here is of a letter or a hyphen, as nobody writes them but who hides a key, or of
/// a NUL, which some readers drop.
fn is_of_key(text: &[u8], digits: usize) -> bool {
    let digits = text.get(digits..digits + 2).and_then(|digits| std::str::from_utf8(digits).ok());
    let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    code.is_some_and(|code| code.is_ascii_alphabetic() || matches!(code, b'-' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_keys_however_they_are_written() {
        let scan = KeyScan::new(&["\"uri\"", "x-key"]);
        let filler = "y".repeat(100);
        for (text, expected) in [
            ("", false),
            (r#"{"uri":1}"#, true),
            (r#"{"uris":1,"text":"a uri"}"#, false),
            (r#"{"ax-keyb":1}"#, true),
            (r#"{"\u0075ri":1}"#, true),
            (r#"{"x\u002dkey":1}"#, true),
            (r#"{"u\u0000ri":1}"#, true),
            (r#"{"x":"\u003c\u00e9\u0031"}"#, false),
            (r#"{"x":"\u003c\u0041"}"#, true),
            ("\\u00", false),
            ("\\u007", false),
            ("\\u00é", false),
        ] {
            for text in [text.to_owned(), format!("{filler}{text}"), format!("{filler}{text}{filler}")] {
                assert_eq!(scan.may_be_in(text.as_bytes()), expected, "{text}");
            }
        }
    }
}

//! JSON as clients keep it: with `//` and `/* */` comments and commas after the last element.

use serde_json::Value;

/// Why a text is no JSON. Shows nothing of the text, which may hold secrets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) what: String,
}

/// Reads `text`; places are those in `text`.
pub(super) fn parse(text: &str) -> Result<Value, Malformed> {
    serde_json::from_str(&plain(text)).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = error.to_string();
        // serde_json ends with the place, which is said in another way.
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        Malformed { line, column, what }
    })
}

/// The same text with spaces in the place of comments and superfluous commas.
fn plain(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    let mut comma = None;
    // What stood before, of what counts.
    let mut last = b'{';
    while let Some(&byte) = bytes.get(at) {
        let end = match (byte, bytes.get(at + 1)) {
            (b'"', _) => {
                comma = None;
                end_of_string(&bytes, at)
            }
            (b'/', Some(b'/')) => blank(&mut bytes, at, |rest| rest.iter().position(|byte| *byte == b'\n')),
            (b'/', Some(b'*')) => blank(&mut bytes, at, |rest| {
                rest[2..].windows(2).position(|two| two == b"*/").map(|length| length + 4)
            }),
            (b',', _) => {
                comma = Some(at).filter(|_| !b"{[,:".contains(&last));
                at + 1
            }
            (b'}' | b']', _) => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
                at + 1
            }
            (byte, _) => {
                if !byte.is_ascii_whitespace() {
                    comma = None;
                }
                at + 1
            }
        };
        if !bytes[at].is_ascii_whitespace() {
            last = bytes[at];
        }
        at = end;
    }
    // Whole characters were replaced by as many spaces as they have bytes.
    String::from_utf8(bytes).unwrap_or_default()
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Blanks what begins at `start`, but for newlines, and returns where it ends; without an end it goes to the end.
fn blank(bytes: &mut [u8], start: usize, length: impl FnOnce(&[u8]) -> Option<usize>) -> usize {
    let end = length(&bytes[start..]).map_or(bytes.len(), |length| start + length);
    for byte in &mut bytes[start..end] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_last_commas_do_not_count() {
        for (text, expected) in [
            ("{}", json!({})),
            ("// first\n{\"a\": 1, // one\n/* b, */ \"c\": [1, 2,],}", json!({ "a": 1, "c": [1, 2] })),
            (
                r#"{"url": "http://host/*a*/", "b": "\"//,}"}"#,
                json!({ "url": "http://host/*a*/", "b": "\"//,}" }),
            ),
            ("{\"a\": [1 /* ä */ , /* ] */ ]}", json!({ "a": [1] })),
            ("{} // end", json!({})),
        ] {
            assert_eq!(parse(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn an_error_says_where_and_shows_nothing() {
        for (text, place) in [
            ("{\"a\": hunter2}", (1, 7)),
            ("{\n\"a\": /* ä */ 1 \"hunter2\"}", (2, 17)),
            ("{,}", (1, 2)),
            ("[1,,]", (1, 4)),
            ("{\"a\": \"hunter2", (1, 14)),
            ("/* hunter2", (1, 10)),
            ("{\"a\\", (1, 4)),
            ("", (1, 0)),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.line, error.column), place, "{text}: {error:?}");
            assert!(!error.what.contains("hunter2"), "{text}: {error:?}");
        }
    }
}

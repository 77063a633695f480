//! Texts of servers as operators may be shown them: cut, escaped as logs are, and without what may be a secret.

use std::borrow::Cow;
use std::cmp::Reverse;

use memchr::memmem;

use protocol::error::{MASK, without_secrets};
use protocol::text::one_line;

/// So much of a server's text is told.
const TOLD_CHARS_MAX: usize = 200;
/// Shorter secrets are not looked for.
const MASKED_BYTES_MIN: usize = 4;

/// A server's text: cut, one line, without the query and the user of a URL, and without credentials.
pub(crate) fn told(text: &str) -> Box<str> {
    // Much more than is told is not looked at.
    plain(&without_secrets(beginning(text, 4 * TOLD_CHARS_MAX)))
}

/// A text without these secrets, of which each line counts by itself. Very short ones could be
/// anything.
pub(crate) fn masked<'l, 's>(text: &'l [u8], secrets: impl Iterator<Item = &'s [u8]>) -> Cow<'l, [u8]> {
    let lines = secrets.flat_map(|secret| secret.split(|byte| *byte == b'\n'));
    let mut parts: Vec<&[u8]> =
        lines.map(<[u8]>::trim_ascii).filter(|part| part.len() >= MASKED_BYTES_MIN).collect();
    // One may be the beginning of another.
    parts.sort_by_key(|part| Reverse(part.len()));
    let mut masked = Cow::Borrowed(text);
    for part in parts {
        if let Some(without) = without(&masked, part) {
            masked = Cow::Owned(without);
        }
    }
    masked
}

/// A text with a mask wherever this part stood. `None`: it is not in it.
fn without(text: &[u8], part: &[u8]) -> Option<Vec<u8>> {
    let mut found = memmem::find_iter(text, part).peekable();
    found.peek()?;
    let (mut masked, mut rest) = (Vec::with_capacity(text.len()), 0);
    for at in found {
        masked.extend_from_slice(&text[rest..at]);
        masked.extend_from_slice(MASK.as_bytes());
        rest = at + part.len();
    }
    masked.extend_from_slice(&text[rest..]);
    Some(masked)
}

/// A text that has no secret: cut and escaped.
pub(crate) fn plain(text: &str) -> Box<str> {
    one_line(text, TOLD_CHARS_MAX).into()
}

fn beginning(text: &str, chars_max: usize) -> &str {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_shows_no_secret_and_does_nothing() {
        for (text, expected) in [
            ("database is down", "database is down"),
            (
                "fetch of https://ada:key@db.example/a?token=s3cret failed",
                "fetch of https://db.example/a?… failed",
            ),
            ("GET /a?key=s3cret", "GET /a?…"),
            ("really? yes", "really? yes"),
            ("bad Authorization: Bearer s3cret here", "bad Authorization: Bearer *** here"),
            ("bearer s3cret", "bearer ***"),
            ("password: s3cret, token=s3cret", "password: ***, token=***"),
            ("a\nb\u{1b}[31m\u{202e}", "a b\\u{1b}[31m\\u{202e}"),
        ] {
            assert_eq!(&*told(text), expected, "{text}");
        }
        assert_eq!(told(&"x".repeat(5000)).chars().count(), TOLD_CHARS_MAX + 1);
    }

    #[test]
    fn a_line_shows_no_secret() {
        let secrets = ["hunter2", "hunter2-long", "-----\nabcdefgh\n", "abc", ""];
        for (line, expected) in [
            ("key=hunter2, again hunter2", "key=***, again ***"),
            ("hunter2-longer", "***er"),
            ("abcdefgh abc", "*** abc"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(
                masked(line.as_bytes(), secrets.iter().map(|secret| secret.as_bytes())).as_ref(),
                expected.as_bytes(),
                "{line}"
            );
        }
    }
}

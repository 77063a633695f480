//! A line that a child wrote, as it may stand in the log.

use std::borrow::Cow;
use std::cmp::Reverse;

use memchr::memmem;

use crate::telemetry::logs::may_be_logged;

/// Stands for a secret.
const MASK: &[u8] = b"***";
/// Shorter secrets are not looked for.
const MASKED_BYTES_MIN: usize = 4;
/// How much of a line is logged.
const LOGGED_CHARS_MAX: usize = 1024;

/// A line of a child without the secrets of its environment, of which each line counts by itself. Very short ones could be
/// anything.
pub(super) fn masked<'l, 's>(line: &'l [u8], secrets: impl Iterator<Item = &'s [u8]>) -> Cow<'l, [u8]> {
    let lines = secrets.flat_map(|secret| secret.split(|byte| *byte == b'\n'));
    let mut parts: Vec<&[u8]> =
        lines.map(<[u8]>::trim_ascii).filter(|part| part.len() >= MASKED_BYTES_MIN).collect();
    // One may be the beginning of another.
    parts.sort_by_key(|part| Reverse(part.len()));
    let mut masked = Cow::Borrowed(line);
    for part in parts {
        while let Some(at) = memmem::find(&masked, part) {
            let _ = masked.to_mut().splice(at..at + part.len(), MASK.iter().copied());
        }
    }
    masked
}

/// A line of a child as it may stand in the log: cut, and without what would do more than be read.
pub(super) fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut clean = String::with_capacity(text.len().min(LOGGED_CHARS_MAX));
    for char in text.chars().take(LOGGED_CHARS_MAX) {
        if may_be_logged(char) {
            clean.push(char);
        } else {
            clean.extend(char.escape_default());
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_line_does_nothing_to_the_log() {
        assert_eq!(clean("ok ä\u{1b}[31m\t\u{202e}x".as_bytes()), "ok ä\\u{1b}[31m\\t\\u{202e}x");
        assert_eq!(clean(b"\xff"), "\u{fffd}");
        assert_eq!(clean(&[b'x'; 5000]).len(), LOGGED_CHARS_MAX);
    }
}

//! A line that a child wrote, as it may stand in the log.

use crate::telemetry::logs::may_be_logged;

/// How much of a line is logged.
const LOGGED_CHARS_MAX: usize = 1024;

/// A line of a child as it may stand in the log: cut, and without what would do more than be read.
pub(super) fn clean(text: &str) -> String {
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
    fn a_line_does_nothing_to_the_log() {
        assert_eq!(clean("ok ä\u{1b}[31m\t\u{202e}x"), "ok ä\\u{1b}[31m\\t\\u{202e}x");
        assert_eq!(clean(&"x".repeat(5000)).len(), LOGGED_CHARS_MAX);
    }
}

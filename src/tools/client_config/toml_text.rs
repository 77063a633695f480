//! TOML and its comments from what strangers wrote: nothing ends a string or a comment too early, and nothing in either
//! is invisible.

use std::fmt::Write as _;

use super::sensitive::looks_like_secret;
use protocol::text::{fit, is_seen, shown};

/// Columns of a comment, without what stands before it.
const COMMENT_COLUMNS: usize = 100;
/// Columns of a name or a text that is shown in a comment.
const QUOTED_COLUMNS: usize = 60;

/// A value. What looks like a variable of the configuration is none.
pub fn string(text: &str) -> String {
    literal(&escaped(text))
}

/// A text in which nothing is a variable of the configuration.
pub(super) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

/// A value in which `${NAME:-default}` is a variable of the configuration.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_seen(c) => out.push(c),
            // Writing to a string cannot fail.
            c => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Values.
pub fn array<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(string).collect();
    format!("[{}]", texts.join(", "))
}

/// A key, quoted where it has to be.
pub fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_bare { name.to_owned() } else { literal(name) }
}

/// Lines of a comment, each with its `#`; the first line after `mark`, the others below its text.
pub(super) fn comment(mark: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = mark.to_owned();
    let indent = " ".repeat(mark.len());
    for word in shown(text).split(' ').filter(|word| !word.is_empty()) {
        if line.len() > mark.len() && line.chars().count() + word.chars().count() > COMMENT_COLUMNS {
            let _ = writeln!(out, "# {}", line.trim_end());
            line.clone_from(&indent);
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(out, "{}", format!("# {line}").trim_end());
    out
}

/// A name or another text of a stranger, to be named in a comment. It is not shown where it may be a secret itself.
pub(super) fn quoted(text: &str) -> String {
    if looks_like_secret(text) {
        return "(not shown: it may be a secret)".to_owned();
    }
    format!("`{}`", fit(&shown(text), QUOTED_COLUMNS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_comes_back_as_it_was() {
        for text in [
            "",
            "a",
            "a\"b\\c",
            "two\nlines\r\t",
            "\u{1b}[31m",
            "\u{202e}ä天",
            "\u{0}\u{7f}\u{10ffff}",
            "'''",
        ] {
            let written = format!("{} = {}", key("k"), string(text));
            let table: toml::Table = toml::from_str(&written).expect(&written);
            assert_eq!(table["k"].as_str(), Some(text), "{written}");
            assert!(!string(text).contains(['\n', '\u{1b}', '\u{202e}']));
            let written = format!("{} = 1", key(text));
            let table: toml::Table = toml::from_str(&written).expect(&written);
            assert_eq!(table.keys().next().map(String::as_str), Some(text));
        }
    }

    #[test]
    fn a_comment_stays_one() {
        let text = format!("first\nsecond \u{1b}[31m {}", "word ".repeat(40));
        let comment = comment("- ", &text);
        assert!(comment.lines().all(|line| line.starts_with('#')), "{comment}");
        assert!(comment.lines().all(|line| line.chars().count() <= 110), "{comment}");
        assert!(comment.lines().count() > 2 && !comment.contains('\u{1b}'), "{comment}");
        toml::from_str::<toml::Table>(&comment).expect("nothing but a comment");
        assert_eq!(super::comment("", ""), "#\n");
    }
}

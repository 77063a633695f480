//! Text of strangers, made fit for a terminal: nothing in it moves the cursor, changes colours, hides or turns around
//! what stands beside it. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// More than any picture and any letter with its marks takes, by columns.
const COLUMN_BYTES_MAX: usize = 32;
/// What stands for what did not fit.
const ELLIPSIS: &str = "…";
/// Zero width joiner.
const JOINER: char = '\u{200d}';
/// A picture with its shade and the mark that it is to be drawn in colours.
const PICTURE_CHARS_MAX: usize = 3;

/// `text` on one line: what a terminal might obey or nobody could see is spelled out, as `\u{1b}`.
pub fn shown(text: &str) -> String {
    escaped(text, |_| None, spelled_out)
}

/// The same for text of several lines, which stay lines.
pub fn shown_lines(text: &str) -> String {
    let of_lines = |c| match c {
        '\n' => Some("\n"),
        '\t' => Some("    "),
        '\r' => Some(""),
        _ => None,
    };
    escaped(text, of_lines, spelled_out)
}

/// As [`shown`] for a log: what ends a line is a blank, and what goes beyond so many characters is left out, with a mark.
pub fn one_line(text: &str, chars_max: usize) -> String {
    let text = text.trim();
    let of_line = |c| matches!(c, '\n' | '\r' | '\t').then_some(" ");
    let (mut line, mut room) = (String::new(), chars_max);
    for (at, c) in text.char_indices() {
        let from = line.len();
        push_escaped(text, at, c, of_line, spelled_out, &mut line);
        let taken = line[from..].chars().count();
        if taken > room {
            line.truncate(from);
            line.push_str(ELLIPSIS);
            break;
        }
        room -= taken;
    }
    line
}

/// The first of these names, and the number of the others, as they stand in a sentence.
pub fn first_names(names: &[impl AsRef<str>], shown_max: usize) -> String {
    let shown: Vec<&str> = names.iter().take(shown_max).map(AsRef::as_ref).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// JSON for people, of several lines, as [`shown_json`] gives it.
pub fn shown_value(value: &serde_json::Value) -> String {
    shown_json(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// JSON text, which stays the same JSON: what stands in its strings and a terminal might obey is escaped.
pub fn shown_json(text: &str) -> String {
    let of_lines = |c| (c == '\n').then_some("\n");
    escaped(text, of_lines, |c, shown| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

/// How many columns `text` takes, as [`shown`] gives it.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// As much of `text` as fits into so many columns; what was left out is marked.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    let bytes_max = columns.saturating_mul(COLUMN_BYTES_MAX);
    if text.len() <= bytes_max && text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    let mut left = columns.saturating_sub(ELLIPSIS.width());
    for cluster in text.graphemes(true) {
        let wide = cluster.width();
        if wide > left || kept.len() + cluster.len() > bytes_max {
            break;
        }
        left -= wide;
        kept.push_str(cluster);
    }
    if columns > 0 {
        kept.push_str(ELLIPSIS);
    }
    Cow::Owned(kept)
}

/// `text` in lines of at most so many columns, cut between words where that can be done. Its own lines stay lines.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for given in text.lines() {
        let indent: String = given.chars().take_while(|c| *c == ' ').take(columns / 2).collect();
        let mut line = indent.clone();
        let mut is_empty = true;
        for word in given.split_whitespace() {
            let mut word = word;
            if !is_empty && line.width() + 1 + word.width() > columns {
                lines.push(std::mem::replace(&mut line, indent.clone()));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            loop {
                let at = room(word, columns - line.width());
                if at == word.len() {
                    break;
                }
                let (head, tail) = word.split_at(at);
                line.push_str(head);
                lines.push(std::mem::replace(&mut line, indent.clone()));
                word = tail;
            }
            line.push_str(word);
            is_empty = false;
        }
        lines.push(if is_empty { String::new() } else { line });
    }
    lines
}

/// How many bytes of `text` fit into so many columns; at least what a person takes for its first character.
fn room(text: &str, columns: usize) -> usize {
    let mut left = columns;
    for (at, cluster) in text.grapheme_indices(true) {
        let wide = cluster.width();
        if wide > left && at > 0 {
            return at;
        }
        left = left.saturating_sub(wide);
    }
    text.len()
}

/// `text`, of which some characters are written in `another` way, and `escape` writes what cannot be seen.
fn escaped(
    text: &str,
    another: impl Fn(char) -> Option<&'static str>,
    escape: impl Fn(char, &mut String),
) -> String {
    let mut shown = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        push_escaped(text, at, c, &another, &escape, &mut shown);
    }
    shown
}

/// Writes the character that stands at `at`.
fn push_escaped(
    text: &str,
    at: usize,
    c: char,
    another: impl Fn(char) -> Option<&'static str>,
    escape: impl Fn(char, &mut String),
    shown: &mut String,
) {
    match another(c) {
        Some(written) => shown.push_str(written),
        None if is_seen(c) || is_joint(text, at) => shown.push(c),
        None => escape(c, shown),
    }
}

fn spelled_out(c: char, shown: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
}

/// Whether a joiner stands at `at` that makes one picture of two, as in families: there it can be seen.
fn is_joint(text: &str, at: usize) -> bool {
    let Some((before, after)) = text.split_at_checked(at) else { return false };
    let Some(after) = after.strip_prefix(JOINER) else { return false };
    // What makes a picture coloured stands between it and the joiner.
    let is_shade = |c: &char| matches!(c, '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
    let before = before.chars().rev().take(PICTURE_CHARS_MAX).find(|c| !is_shade(c));
    before.is_some_and(is_picture) && after.chars().next().is_some_and(is_picture)
}

/// Whether `c` is of the blocks of pictographs that joiners join, and no letter of a flag and no shade.
fn is_picture(c: char) -> bool {
    matches!(c,
        '\u{2194}' | '\u{2195}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}'
        | '\u{1f300}'..='\u{1f3fa}' | '\u{1f400}'..='\u{1faff}')
}

/// Whether `c` has a shape of its own. Controls have none, and neither has what Unicode calls format characters, separators
/// of lines, tags and blank letters, or what it tells readers to ignore. A picture's own selector counts as seen.
pub fn is_seen(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}'
            | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        for (text, expected) in [
            ("forecast", "forecast"),
            ("8 to 16 °C – naïve 天気 👍", "8 to 16 °C – naïve 天気 👍"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("a\u{9b}2Jb", "a\\u{9b}2Jb"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("a\u{200b}b\u{e0041}", "a\\u{200b}b\\u{e0041}"),
            ("two\nlines\r\t", "two\\u{a}lines\\u{d}\\u{9}"),
            ("👩\u{200d}🔬👩🏽\u{200d}❤️\u{200d}👨", "👩\u{200d}🔬👩🏽\u{200d}❤️\u{200d}👨"),
            ("👩\u{200d}", "👩\\u{200d}"),
            ("\u{200d}👩", "\\u{200d}👩"),
            ("a\u{200d}👩\u{200d}b", "a\\u{200d}👩\\u{200d}b"),
            ("👩\u{200d}\u{200d}🔬", "👩\\u{200d}\\u{200d}🔬"),
            ("क\u{94d}\u{200d}ष", "क\u{94d}\\u{200d}ष"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
        assert_eq!(shown_lines("a\r\nb\tc\u{1b}"), "a\nb    c\\u{1b}");
    }

    #[test]
    fn a_text_for_a_log_is_one_line_of_bounded_length() {
        for (text, chars_max, expected) in [
            (" a\nb\tc\r", 8, "a b c"),
            ("a\u{202e}b\u{2066}\u{200f}", 40, "a\\u{202e}b\\u{2066}\\u{200f}"),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcdef…"),
            ("abc\u{1b}", 6, "abc…"),
            ("天気予報", 3, "天気予…"),
            ("", 0, ""),
        ] {
            assert_eq!(one_line(text, chars_max), expected, "{text:?}");
        }
    }

    #[test]
    fn the_first_names_stand_for_all() {
        for (names, expected) in
            [(&[][..], ""), (&["a"], "a"), (&["a", "b"], "a, b"), (&["a", "b", "c"], "a, b and 1 more")]
        {
            assert_eq!(first_names(names, 2), expected);
        }
    }

    #[test]
    fn long_lines_are_cut_between_words() {
        for (text, columns, expected) in [
            ("one two three", 8, vec!["one two", "three"]),
            ("one\n\n  two three four", 9, vec!["one", "", "  two", "  three", "  four"]),
            ("abcdefghijklm no", 8, vec!["abcdefgh", "ijklm no"]),
            ("天気予報天気 x", 8, vec!["天気予報", "天気 x"]),
            ("天気", 1, vec!["天", "気"]),
            ("abcdefg👩\u{200d}🔬👩\u{200d}🔬", 9, vec!["abcdefg👩\u{200d}🔬", "👩\u{200d}🔬"]),
            ("", 8, vec![]),
        ] {
            assert_eq!(wrapped(text, columns), expected, "{text}");
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a\u{202e}": ["\u{1b}[2J\u{9b}", "\u{e0041}", "天気\n", "\u{200d}👩\u{200d}🔬"]});
        let shown = shown_value(&value);
        assert_eq!(shown_lines(&shown), shown);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn texts_are_cut_by_the_columns_they_take() {
        for (text, columns, expected) in [
            ("forecast", 8, "forecast"),
            ("forecast", 7, "foreca…"),
            ("天気予報", 8, "天気予報"),
            ("天気予報", 7, "天気予…"),
            ("天気予報", 6, "天気…"),
            ("👩\u{200d}🔬👩\u{200d}🔬", 4, "👩\u{200d}🔬👩\u{200d}🔬"),
            ("👩\u{200d}🔬👩\u{200d}🔬", 3, "👩\u{200d}🔬…"),
            ("👩\u{200d}🔬👩\u{200d}🔬", 2, "…"),
            ("forecast", 1, "…"),
            ("forecast", 0, ""),
        ] {
            assert_eq!(fit(text, columns), expected, "{text} in {columns}");
        }
        let marks = format!("e{}", "\u{301}".repeat(1000));
        for text in [&*marks, &marks.repeat(5)] {
            assert!(fit(text, 4).len() <= 4 * COLUMN_BYTES_MAX + ELLIPSIS.len());
        }
    }

    #[test]
    fn a_word_of_any_length_is_cut_in_one_go() {
        let lines = wrapped(&"x".repeat(8 << 20), 80);
        assert_eq!(
            (lines.len(), lines.iter().map(String::len).max()),
            ((8_usize << 20).div_ceil(80), Some(80))
        );
    }
}

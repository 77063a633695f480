//! A definition for people: one line for each value, what changed between two, and nothing that a terminal obeys.

use std::fmt::Write as _;

use protocol::json::{JsonKind, Scratch, Value};

const DEPTH_MAX: usize = 1100;
/// Lines that are compared one by one; of longer differences all old lines stand before all new ones.
const COMPARED_MAX: usize = 4_000_000;
/// Lines of context around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffLine {
    /// It is in both.
    Same(String),
    /// It is in the old one.
    Old(String),
    /// It is in the new one.
    New(String),
    /// Lines that are in both are left out.
    Skipped(usize),
}

/// The lines of a canonical form, as they may be shown.
pub fn lines(canonical: &str) -> Vec<String> {
    let mut scratch = Scratch::default();
    let Ok(document) = scratch.index(canonical.as_bytes(), DEPTH_MAX) else {
        return vec![printable(canonical)];
    };
    let mut text = String::new();
    write(document.root(), 0, &mut text);
    text.lines().map(String::from).collect()
}

/// Changes to `old` that lead to `new`.
pub fn difference(old: &[String], new: &[String]) -> Vec<DiffLine> {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_middle, tail) = old_rest.split_at(old_rest.len() - end);
    let new_middle = &new_rest[..new_rest.len() - end];
    let mut lines: Vec<DiffLine> = old[..start].iter().cloned().map(DiffLine::Same).collect();
    middle(old_middle, new_middle, &mut lines);
    lines.extend(tail.iter().cloned().map(DiffLine::Same));
    shortened(lines)
}

/// `text` with everything spelled out that is not a letter, a digit, a blank or printable ASCII: control characters,
/// marks of direction, characters without width.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        // Letters that are blank all the same.
        let is_blank = matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
        if c == ' ' || c.is_ascii_graphic() || (c.is_alphanumeric() && !is_blank) {
            shown.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
    }
    shown
}

/// The first member that is another one in `new` than in `old`, as its keys with dots between. Empty: it is the whole.
pub(crate) fn first_difference(old: &str, new: &str) -> String {
    let (mut old_scratch, mut new_scratch) = (Scratch::default(), Scratch::default());
    let old = old_scratch.index(old.as_bytes(), DEPTH_MAX);
    let new = new_scratch.index(new.as_bytes(), DEPTH_MAX);
    let (Ok(old), Ok(new)) = (old, new) else { return String::new() };
    let (mut old, mut new) = (old.root(), new.root());
    let mut place = String::new();
    while let Some((step, below)) = step(old, new) {
        if !place.is_empty() && !step.starts_with('[') {
            place.push('.');
        }
        place.push_str(&step);
        let Some(both) = below else { break };
        (old, new) = both;
    }
    place
}

/// The first member that is not the same in both, and what it is in each, where both have it.
fn step<'a>(old: Value<'a>, new: Value<'a>) -> Option<(String, Option<(Value<'a>, Value<'a>)>)> {
    match (old.kind(), new.kind()) {
        (JsonKind::Object, JsonKind::Object) => {
            let of_old = old.members().find_map(|(key, value)| match new.get(&key) {
                Some(other) if other.raw() == value.raw() => None,
                other => Some((printable(&key), other.map(|other| (value, other)))),
            });
            of_old.or_else(|| {
                let (key, _) = new.members().find(|(key, _)| old.get(key).is_none())?;
                Some((printable(&key), None))
            })
        }
        (JsonKind::Array, JsonKind::Array) => {
            let (mut olds, mut news) = (old.items(), new.items());
            (0..).find_map(|index| match (olds.next(), news.next()) {
                (Some(one), Some(other)) if one.raw() == other.raw() => None,
                (Some(one), Some(other)) => Some(Some((format!("[{index}]"), Some((one, other))))),
                (None, None) => Some(None),
                _ => Some(Some((format!("[{index}]"), None))),
            })?
        }
        _ => None,
    }
}

fn write(value: Value<'_>, depth: usize, into: &mut String) {
    let raw = |value: Value<'_>| printable(&String::from_utf8_lossy(value.raw()));
    let (open, close) = match value.kind() {
        JsonKind::Object => ('{', '}'),
        JsonKind::Array => ('[', ']'),
        _ => return into.push_str(&raw(value)),
    };
    into.push(open);
    let before = into.len();
    for (key, member) in value.entries() {
        let key = value.text().get(key.span).unwrap_or_default();
        break_line(into, depth + 1);
        into.push_str(&printable(&String::from_utf8_lossy(key)));
        into.push_str(": ");
        write(member, depth + 1, into);
        into.push(',');
    }
    for item in value.items() {
        break_line(into, depth + 1);
        write(item, depth + 1, into);
        into.push(',');
    }
    if into.len() > before {
        into.pop();
        break_line(into, depth);
    }
    into.push(close);
}

fn break_line(into: &mut String, depth: usize) {
    into.push('\n');
    // Deeper ones would only be further to the right.
    into.push_str(&"  ".repeat(depth.min(40)));
}

/// By the longest common subsequence.
fn middle(old: &[String], new: &[String], lines: &mut Vec<DiffLine>) {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > COMPARED_MAX {
        lines.extend(old.iter().cloned().map(DiffLine::Old));
        lines.extend(new.iter().cloned().map(DiffLine::New));
        return;
    }
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for (row, one) in old.iter().enumerate().rev() {
        for (column, other) in new.iter().enumerate().rev() {
            common[row * width + column] = if one == other {
                common[(row + 1) * width + column + 1] + 1
            } else {
                common[(row + 1) * width + column].max(common[row * width + column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < old.len() || column < new.len() {
        let is_both = row < old.len() && column < new.len();
        if is_both && old[row] == new[column] {
            lines.push(DiffLine::Same(old[row].clone()));
            (row, column) = (row + 1, column + 1);
        } else if column == new.len()
            || (is_both && common[(row + 1) * width + column] >= common[row * width + column + 1])
        {
            lines.push(DiffLine::Old(old[row].clone()));
            row += 1;
        } else {
            lines.push(DiffLine::New(new[column].clone()));
            column += 1;
        }
    }
}

fn shortened(lines: Vec<DiffLine>) -> Vec<DiffLine> {
    let is_near = |at: usize| {
        let near = lines[at.saturating_sub(CONTEXT)..lines.len().min(at + CONTEXT + 1)].iter();
        near.into_iter().any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let near: Vec<bool> = (0..lines.len()).map(is_near).collect();
    let mut shown = Vec::new();
    for (line, is_near) in lines.into_iter().zip(near) {
        match (is_near, shown.last_mut()) {
            (true, _) => shown.push(line),
            (false, Some(DiffLine::Skipped(count))) => *count += 1,
            (false, _) => shown.push(DiffLine::Skipped(1)),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_has_a_place() {
        for (old, new, expected) in [
            (r#"{"a":1,"b":{"c":[1,{"d":2}]}}"#, r#"{"a":1,"b":{"c":[1,{"d":3}]}}"#, "b.c[1].d"),
            (r#"{"a":1}"#, r#"{"a":1,"z\u0007":2}"#, "z\\u{7}"),
            (r#"{"a":{"x":1}}"#, r#"{"a":{}}"#, "a.x"),
            (r#"{"a":[1]}"#, r#"{"a":[1,2]}"#, "a[1]"),
            (r#"{"a":[1]}"#, r#"{"a":{}}"#, "a"),
            ("1", "2", ""),
            (r#"{"a":1}"#, r#"{"a":1}"#, ""),
        ] {
            assert_eq!(first_difference(old, new), expected, "{old} {new}");
        }
    }

    fn texts(lines: &[DiffLine]) -> Vec<String> {
        let text = |line: &DiffLine| match line {
            DiffLine::Same(line) => format!(" {line}"),
            DiffLine::Old(line) => format!("-{line}"),
            DiffLine::New(line) => format!("+{line}"),
            DiffLine::Skipped(count) => format!("@{count}"),
        };
        lines.iter().map(text).collect()
    }

    #[test]
    fn a_definition_has_a_line_for_each_value() {
        assert_eq!(
            lines(r#"{"a":[1,{}],"b":[],"c":{"d":null}}"#),
            [
                "{",
                r#"  "a": ["#,
                "    1,",
                "    {}",
                "  ],",
                r#"  "b": [],"#,
                r#"  "c": {"#,
                r#"    "d": null"#,
                "  }",
                "}"
            ]
        );
    }

    #[test]
    fn only_what_changed_is_shown_with_its_surroundings() {
        let list = |words: &str| words.split(' ').map(String::from).collect::<Vec<_>>();
        for (old, new, expected) in [
            ("a b c", "a x c", vec![" a", "-b", "+x", " c"]),
            ("a b", "a b c", vec![" a", " b", "+c"]),
            ("a b c d", "b d e", vec!["-a", " b", "-c", " d", "+e"]),
            (
                "1 2 3 4 5 a 6 7 8 9",
                "1 2 3 4 5 6 7 8 9",
                vec!["@2", " 3", " 4", " 5", "-a", " 6", " 7", " 8", "@1"],
            ),
            ("a a", "a a", vec!["@2"]),
        ] {
            assert_eq!(texts(&difference(&list(old), &list(new))), expected, "{old} | {new}");
        }
    }

    #[test]
    fn a_long_difference_is_not_compared_line_by_line() {
        let many = |word: &str| (0..2500).map(|number| format!("{word}{number}")).collect::<Vec<_>>();
        let lines = difference(&many("a"), &many("b"));
        assert_eq!(lines.len(), 5000);
        assert!(lines[..2500].iter().all(|line| matches!(line, DiffLine::Old(_))));
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        for (text, shown) in [
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
            ("\u{9b}31m\u{7f}\r\n", r"\u{9b}31m\u{7f}\u{d}\u{a}"),
            ("a\u{202e}b\u{2066}\u{200b}\u{feff}\u{e0041}", r"a\u{202e}b\u{2066}\u{200b}\u{feff}\u{e0041}"),
            ("\u{3164}x\u{2028}", r"\u{3164}x\u{2028}"),
            ("höher 東京 \"q\" \\n", "höher 東京 \"q\" \\n"),
        ] {
            assert_eq!(printable(text), shown);
        }
        let line = lines("\"\u{1b}]0;x\u{7}\"").concat();
        assert!(!line.contains('\u{1b}') && line.contains("\\u{1b}"), "{line}");
    }
}

//! HTML that is put together from markup of our own and texts of strangers.
//!
//! Invariant: markup is `'static`, so no value gets in but through `escaped`. There, nothing is left that ends an element
//! or an attribute, and what nobody could see or what turns around its neighbours is spelled out, as `\u{202e}`.

use std::fmt::Write as _;

use super::target::PageTarget;

/// Names of clients and people.
pub(super) const NAME_CHARS_MAX: usize = 64;
/// Hosts, addresses, scopes, sentences.
pub(super) const LINE_CHARS_MAX: usize = 200;
/// On one letter; more would cover the lines around it.
const MARKS_MAX: usize = 2;
/// Stands for a name that is empty.
pub(super) const NO_NAME: &str = "(no name)";
/// Stands for what did not fit.
const ELLIPSIS: char = '…';

/// A part of a page.
#[derive(Debug, Default)]
pub(super) struct Markup {
    text: String,
}

impl Markup {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Only markup.
    pub(super) fn of(markup: &'static str) -> Self {
        Self { text: markup.to_owned() }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds markup of our own.
    pub(super) fn add(&mut self, markup: &'static str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Adds another part.
    pub(super) fn part(&mut self, part: &Self) -> &mut Self {
        self.text.push_str(&part.text);
        self
    }

    /// Adds the name of a client or a person, or `otherwise` if nothing of it is left.
    pub(super) fn name(&mut self, name: &str, otherwise: &'static str) -> &mut Self {
        let name = if name.trim().is_empty() { otherwise } else { name };
        self.isolated("<bdi>", name, NAME_CHARS_MAX, "</bdi>")
    }

    /// Adds a host, a sentence of somebody.
    pub(super) fn value(&mut self, value: &str) -> &mut Self {
        self.isolated("<bdi>", value, LINE_CHARS_MAX, "</bdi>")
    }

    /// Adds an address, a scope, an id.
    pub(super) fn code(&mut self, value: &str) -> &mut Self {
        self.isolated("<code dir=\"ltr\">", value, LINE_CHARS_MAX, "</code>")
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
        self
    }

    /// Adds a text where no element may stand, as in a title.
    pub(super) fn bare(&mut self, text: &str) -> &mut Self {
        escaped(text, LINE_CHARS_MAX, &mut self.text);
        self
    }

    /// Adds a field that is not shown. Its value is whole, and is sealed or an id of ours.
    pub(super) fn hidden(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.add("<input type=\"hidden\" name=\"")
            .add(name)
            .add("\"")
            .attribute(" value=\"", value)
            .add(">\n")
    }

    /// Adds an attribute with the whole of a value: `opening` is its name and the quotation mark.
    pub(super) fn attribute(&mut self, opening: &'static str, value: &str) -> &mut Self {
        self.add(opening);
        escaped(value, usize::MAX, &mut self.text);
        self.add("\"")
    }

    /// Opens a link, whose text and end follow.
    pub(super) fn link(&mut self, target: &PageTarget) -> &mut Self {
        self.add("<a class=\"go\"").attribute(" href=\"", target.url()).add(">")
    }

    fn isolated(
        &mut self,
        open: &'static str,
        value: &str,
        chars_max: usize,
        close: &'static str,
    ) -> &mut Self {
        self.add(open);
        escaped(value, chars_max, &mut self.text);
        self.add(close)
    }
}

/// Writes `text` on one line, at most so many characters of it and a mark for the rest.
fn escaped(text: &str, chars_max: usize, out: &mut String) {
    let (mut room, mut marks) = (chars_max, 0);
    for c in text.trim().chars() {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        let is_plain = is_seen(c) && marks <= MARKS_MAX;
        let chars = if is_plain { 1 } else { r"\u{}".len() + hexadecimal_digits(c) };
        if chars > room {
            out.push(ELLIPSIS);
            return;
        }
        room -= chars;
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_plain => out.push(c),
            // Writing to a string cannot fail.
            c => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
        }
    }
}

/// Whether `c` is drawn above or below the letter before it, in scripts that never heap them.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}'
        | '\u{fe20}'..='\u{fe2f}')
}

fn hexadecimal_digits(c: char) -> usize {
    let bits = u32::BITS - (u32::from(c) | 1).leading_zeros();
    bits.div_ceil(4) as usize
}

/// Whether `c` has a shape of its own, or is the one blank that browsers make one of several. Controls have none, and
/// neither have format characters, tags, blank letters and what Unicode tells readers to ignore.
pub(super) fn is_seen(c: char) -> bool {
    (c == ' ' || !c.is_whitespace())
        && !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{890}' | '\u{891}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, chars_max: usize) -> String {
        let mut out = String::new();
        escaped(text, chars_max, &mut out);
        out
    }

    #[test]
    fn nothing_is_left_that_a_browser_obeys_or_nobody_sees() {
        for (text, expected) in [
            ("Claude Code", "Claude Code"),
            (" naïve 天気 👍 ", "naïve 天気 👍"),
            ("</form><script>", "&lt;/form&gt;&lt;script&gt;"),
            ("\" onclick='x' &amp;", "&quot; onclick=&#39;x&#39; &amp;amp;"),
            ("abc\u{202e}exe\u{2066}", "abc\\u{202e}exe\\u{2066}"),
            ("Cl\u{200b}aude\u{feff}x", "Cl\\u{200b}aude\\u{feff}x"),
            ("two\nlines\r\t\0x", "two\\u{a}lines\\u{d}\\u{9}\\u{0}x"),
            ("a\u{a0}\u{3000}\u{2800}b", "a\\u{a0}\\u{3000}\\u{2800}b"),
            ("\u{e0041}x", "\\u{e0041}x"),
            ("a\u{890}\u{110bd}\u{13430}b", "a\\u{890}\\u{110bd}\\u{13430}b"),
            ("e\u{302}\u{301}\u{303}\u{304}e\u{301}", "e\u{302}\u{301}\\u{303}\\u{304}e\u{301}"),
        ] {
            assert_eq!(shown(text, 100), expected, "{text:?}");
        }
    }

    #[test]
    fn lengths_are_those_that_are_seen() {
        for (text, chars_max, expected) in [
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcdef…"),
            ("<<<<", 3, "&lt;&lt;&lt;…"),
            ("ab\u{202e}c", 10, "ab\\u{202e}…"),
            ("ab\u{202e}c", 9, "ab…"),
            ("天気予報", 3, "天気予…"),
            ("", 0, ""),
        ] {
            assert_eq!(shown(text, chars_max), expected, "{text:?}");
        }
        for text in ["\u{202e}", "\0", "\u{e0041}", "\u{10ffff}", "W"].map(|one| one.repeat(5000)) {
            let chars = shown(&text, 64).chars().count();
            assert!((50..=65).contains(&chars), "{chars}");
        }
    }
}

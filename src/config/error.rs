//! What is wrong with a configuration, shown the way a compiler would.
//!
//! Every finding knows the bytes it is about, so that it can be printed with file, line, column, the line itself and
//! a caret. Nothing is printed here. Lines are shown as they are, but for characters that a terminal might obey or nobody
//! could see, and for what may be a secret, which is masked: `outline.rs` says what. The names of keys never are.

use std::fmt;
use std::ops::Range;

use protocol::text::{is_seen, shown as plain};

use super::outline::{Mask, Outline};
use super::source::ConfigSource;

/// Characters of a line that are shown, so that a file without newlines cannot flood the terminal.
const LINE_CHARS_MAX: usize = 160;

/// One finding about the text of a configuration: an error, or a warning of what is allowed but probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    kind: &'static str,
    /// What is wrong or odd, and what to do about it.
    pub message: String,
    /// The bytes of the text that it is about.
    pub span: Range<usize>,
    /// What to write instead, where that is known; shown beside the caret.
    pub suggestion: Option<String>,
    mask: Mask,
}

/// Everything that is wrong with a configuration, in the order of the text. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<Diagnostic>);

impl ConfigErrors {
    pub(super) fn new(mut errors: Vec<Diagnostic>) -> Self {
        errors.sort_by_key(|error| error.span.start);
        // What is wrong with a default is found in each upstream.
        errors.dedup();
        Self(errors)
    }

    /// The errors, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }

    /// All errors as text for a terminal, each with its file.
    pub fn render_in(&self, source: &ConfigSource) -> String {
        self.iter().map(|error| source.render(error)).collect::<Vec<_>>().join("\n")
    }

    /// All errors as text for a terminal, each with `source_name:line:column`, the line and a caret.
    ///
    /// `text` must be what was parsed; with another text the carets are off.
    pub fn render(&self, source_name: &str, text: &str) -> String {
        let outline = Outline::of(text);
        self.iter().map(|error| error.render(source_name, text, &outline)).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<&str> = self.iter().map(|error| error.message.as_str()).collect();
        write!(f, "{}", messages.join("; "))
    }
}

impl std::error::Error for ConfigErrors {}

impl Diagnostic {
    pub(super) fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { kind: "error", message: message.into(), span, suggestion: None, mask: Mask::Nothing }
    }

    pub(super) fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self::error(span, message).as_warning()
    }

    /// The same, but it is no error.
    #[must_use]
    pub fn as_warning(self) -> Self {
        Self { kind: "warning", ..self }
    }

    /// The same, so much further on.
    pub(super) fn moved(self, by: usize) -> Self {
        Self { span: self.span.start + by..self.span.end + by, ..self }
    }

    /// The same, so much further up.
    pub(super) fn moved_back(self, by: usize) -> Self {
        Self { span: self.span.start.saturating_sub(by)..self.span.end.saturating_sub(by), ..self }
    }

    pub(super) fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }

    /// The line may show a secret.
    pub(super) fn secret(self) -> Self {
        Self { mask: Mask::Values, ..self }
    }

    /// The span is a secret.
    pub(super) fn of_secret(self) -> Self {
        Self { mask: Mask::Span, ..self }
    }

    /// The span is no secret, but the rest of the line may show one.
    pub(super) fn beside_secret(self) -> Self {
        Self { mask: Mask::Beside, ..self }
    }

    /// The span is a key that nobody knows: neither does anybody know what it stands for.
    pub(super) fn of_unknown_key(self) -> Self {
        Self { mask: Mask::Line, ..self }
    }

    /// The finding as text for a terminal, in the form of [`ConfigErrors::render`].
    pub(super) fn render(&self, source_name: &str, text: &str, outline: &Outline) -> String {
        let start = text.floor_char_boundary(self.span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let end = text.floor_char_boundary(self.span.end.clamp(start, line_end));

        let line_number = text[..start].matches('\n').count() + 1;
        let number = line_number.to_string();
        let line = text[line_start..line_end].trim_end();
        let hidden = outline.masked(text, &(line_start..line_start + line.len()), &(start..end), self.mask);
        // Behind what ends the line, there is nothing to point at.
        let cut = if outline.ends_lines() { hidden.iter().position(|hidden| *hidden) } else { None };
        let column = text[line_start..start].chars().count();
        let marked = text[start..end].trim_end().chars().count();
        let (shown_column, marked) = match cut.map(|cut| line[..cut].chars().count()) {
            Some(last) => (column.min(last), marked.min((last + 1).saturating_sub(column))),
            None => (column, marked),
        };

        // Of a line that is too long, what is shown begins shortly before the span.
        let skipped =
            if shown_column + marked > LINE_CHARS_MAX { shown_column.saturating_sub(40) } else { 0 };
        let shown: String = line[..cut.unwrap_or(line.len())]
            .char_indices()
            .skip(skipped)
            .take(LINE_CHARS_MAX)
            .map(|(at, character)| match character {
                _ if hidden[at] => '*',
                '\t' => ' ',
                other if !is_seen(other) => char::REPLACEMENT_CHARACTER,
                other => other,
            })
            .chain(cut.map(|_| '…'))
            .collect();

        let gutter = " ".repeat(number.len());
        let indent = " ".repeat(shown_column - skipped);
        let carets = "^".repeat(marked.clamp(1, LINE_CHARS_MAX));
        let suggestion = self.suggestion.as_ref().map(|text| format!(" {}", plain(text))).unwrap_or_default();
        let (source_name, kind, message) = (plain(source_name), self.kind, plain(&self.message));
        format!(
            "{source_name}:{number}:{}: {kind}: {message}\n\
             {gutter} |\n\
             {number} | {shown}\n\
             {gutter} | {indent}{carets}{suggestion}\n",
            shown_column + 1
        )
    }
}

/// The valid name nearest to `written`, as a suggestion, if one is near enough to be meant.
pub fn nearest<'a>(written: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let distance_max = written.chars().count() / 3;
    valid
        .into_iter()
        .map(|name| (strsim::osa_distance(written, name), name))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| format!("did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_fits_any_span() {
        let long = format!("path = '{}x'", "é".repeat(500));
        let cases: &[(&str, Range<usize>, &str)] = &[
            ("", 0..0, "f:1:1: error: m\n  |\n1 | \n  | ^\n"),
            ("", 7..9, "f:1:1: error: m\n  |\n1 | \n  | ^\n"),
            ("a = 1\n", 6..6, "f:2:1: error: m\n  |\n2 | \n  | ^\n"),
            ("a = 1\r\nb=2\n", 0..5, "f:1:1: error: m\n  |\n1 | a = 1\n  | ^^^^^\n"),
            ("\t'ä' = 1\nb=2", 1..5, "f:1:2: error: m\n  |\n1 |  'ä' = 1\n  |  ^^^\n"),
            ("a = [\n1,\n]", 4..10, "f:1:5: error: m\n  |\n1 | a = [\n  |     ^\n"),
            ("path = \"\u{200b}\"", 0..1, "f:1:1: error: m\n  |\n1 | path = \"\u{fffd}\"\n  | ^\n"),
            ("\u{1b}[2J", 0..1, "f:1:1: error: m\n  |\n1 | …\n  | ^\n"),
        ];
        for (text, span, expected) in cases {
            let errors = ConfigErrors::new(vec![Diagnostic::error(span.clone(), "m")]);
            assert_eq!(errors.render("f", text), *expected, "{text:?} {span:?}");
        }
        let errors = ConfigErrors::new(vec![Diagnostic::error(1008..1009, "m")]);
        let rendered = errors.render("f", &long);
        assert!(
            rendered.ends_with(&format!("1 | {}x'\n  | {}^\n", "é".repeat(40), " ".repeat(40))),
            "{rendered}"
        );
    }

    #[test]
    fn a_secret_is_masked() {
        for (text, span, expected) in [
            ("k = \"abc\" # c", 4..9, "k = ***** #**"),
            (r#"t = { a = "b\"c", d = 'e', f = 1 }"#, 0..1, r#"t = { a = "****", d = '*', f = 1 }"#),
            ("x-token = 5", 0..7, "x-token = *"),
            ("\"x token\" = \"abc\"", 0..9, "\"x token\" = \"***\""),
            ("bearer.tokn = 'abc'", 7..11, "bearer.tokn = '***'"),
            ("env = { \"a\" = 12, B = \"c\" }", 14..16, "env = { \"a\" = **, B = \"*\" }"),
            ("[upstream.up.bearer]", 0..20, "[upstream.up.bearer]"),
            ("key = [\"a\"]", 6..11, "key = [\"*\"]"),
            ("key = { env = 5, b-c = \"de\" }", 6..30, "key = { env = *, b-c = \"**\" }"),
        ] {
            let errors = ConfigErrors::new(vec![Diagnostic::error(span, "m").secret()]);
            let rendered = errors.render("f", text);
            assert!(rendered.contains(&format!("1 | {expected}\n")), "{rendered}");
        }
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let valid = ["address", "path", "auth"];
        assert_eq!(nearest("adress", valid).as_deref(), Some("did you mean `address`?"));
        assert_eq!(nearest("paht", valid).as_deref(), Some("did you mean `path`?"));
        assert_eq!(nearest("colour", valid), None);
        assert_eq!(nearest("x", ["a"]), None);
        assert_eq!(nearest("", valid), None);
    }
}

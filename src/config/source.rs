//! The text of a configuration, which may be in several files: one that is named on the command line, and those that it
//! includes. They are read as one text, those that are included after the other, so that a place in it is one number; what
//! is shown to people has the file and its own lines.

use std::ops::Range;
use std::sync::OnceLock;

use time::OffsetDateTime;
use toml::de::{DeTable, DeValue};

use super::error::Diagnostic;
use super::findings::Node;
use super::outline::{Outline, is_program};
use super::table::Table;
use super::{ApiKey, Config};

/// Keys of clients that expire sooner get a warning.
const KEY_WARNING_S: u64 = 14 * 24 * 3600;

/// Files that are read as one text.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    text: String,
    /// The name of each, and where it begins; the first begins at 0.
    files: Vec<(String, usize)>,
    /// Where each begins, and what of it may be shown, once it is asked for.
    outlines: OnceLock<Vec<(usize, Outline)>>,
}

impl ConfigSource {
    /// The file that is named on the command line. Its name is for people.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { text: text.into(), files: vec![(name.into(), 0)], outlines: OnceLock::new() }
    }

    /// The paths that the first file includes, of files or with `*` in the last part, each with its line.
    pub fn includes(&self) -> Vec<(String, usize)> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        match root.get_ref().get("include").map(toml::Spanned::get_ref) {
            Some(DeValue::Array(paths)) => {
                let line = |at: usize| self.text[..at].matches('\n').count() + 1;
                let path =
                    |path: &Node<'_>| Some((path.get_ref().as_str()?.to_owned(), line(path.span().start)));
                paths.iter().filter_map(path).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Adds a file that is included.
    pub fn include(&mut self, name: impl Into<String>, text: &str) {
        self.outlines.take();
        self.text.push('\n');
        self.files.push((name.into(), self.text.len()));
        self.text.push_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    }

    /// All of it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Files that are included and do not begin with a section. What they hold is not shown: it may be a key, or a token.
    pub(super) fn misplaced(&self) -> Vec<Diagnostic> {
        let included = self.files.iter().skip(1).filter_map(|(_, begin)| {
            let begins = first_line(&self.text[self.range_of(*begin)])?;
            let span = begin + begins.start..begin + begins.end;
            let message = "a file that is included begins with a [section]: what stands before the first one belongs into \
                           the file that includes it";
            Some(Diagnostic::error(span, message).of_secret())
        });
        included.collect()
    }

    /// The ranges of the files in the text.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.files.iter().map(|(_, begin)| self.range_of(*begin))
    }

    /// The file and the line of a place.
    pub(super) fn line_of(&self, span: &Range<usize>) -> String {
        let (name, begin) = self.file_of(span);
        let text = &self.text[begin..self.text.floor_char_boundary(span.start)];
        format!("{name}:{}", text.matches('\n').count() + 1)
    }

    /// A finding as text for a terminal: the file, the line and a caret.
    pub fn render(&self, finding: &Diagnostic) -> String {
        let (name, begin) = self.file_of(&finding.span);
        let text = &self.text[self.range_of(begin)];
        let outlines = self.outlines.get_or_init(|| {
            self.ranges().map(|range| (range.start, Outline::of(&self.text[range]))).collect()
        });
        match outlines.iter().find(|(of, _)| *of == begin) {
            Some((_, outline)) => finding.clone().moved_back(begin).render(name, text, outline),
            None => String::new(),
        }
    }

    /// A warning about the `command` of an upstream, at its place.
    pub fn warning_of_command(&self, upstream: &str, message: impl Into<String>) -> Diagnostic {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let root = Table::new(root.get_ref(), &root.span());
        let command = root.table("upstream").table(upstream).get("command");
        let program = command.and_then(|words| words.get_ref().as_array()?.first()).or(command);
        let mut message = message.into();
        // What follows the program in one string may be a password.
        let word = program.and_then(|program| program.get_ref().as_str()).filter(|word| !is_program(word));
        if let Some((word, (begin, _))) = word.and_then(|word| Some((word, word.split_once(' ')?))) {
            message = message.replace(word, &format!("{begin} …"));
        }
        Diagnostic::warning(program.map(toml::Spanned::span).unwrap_or_default(), message)
    }

    /// A warning for each API key that has expired, or soon does.
    pub fn warnings_of_keys(&self, config: &Config, now_s: u64) -> Vec<Diagnostic> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let tables = Table::new(root.get_ref(), &root.span()).tables("api_key");
        let warning = |(key, table): (&ApiKey, &Table<'_>)| {
            let (ends_s, node) = (key.expires_s?, table.get("expires")?);
            let day = OffsetDateTime::from_unix_timestamp(ends_s.try_into().ok()?).ok()?.date();
            let (how, what) = match ends_s.checked_sub(now_s) {
                None | Some(0) => ("expired", "whoever calls with it is refused"),
                Some(left_s) if left_s < KEY_WARNING_S => ("expires", "`trunkline key NAME` makes another"),
                Some(_) => return None,
            };
            let message = format!("the key `{}` {how} on {day}: {what}", key.name);
            Some(Diagnostic::warning(node.span(), message).beside_secret())
        };
        config.api_keys.iter().zip(&tables).filter_map(warning).collect()
    }

    /// The file of a place, and where it begins.
    fn file_of(&self, span: &Range<usize>) -> (&str, usize) {
        let file = self.files.iter().rfind(|(_, begin)| *begin <= span.start);
        file.map_or(("", 0), |(name, begin)| (name, *begin))
    }

    fn range_of(&self, begin: usize) -> Range<usize> {
        let next = self.files.iter().map(|(_, begin)| *begin).find(|next| *next > begin);
        begin..next.map_or(self.text.len(), |next| next - 1)
    }
}

/// Where the first line is that says something, unless it begins a section.
fn first_line(text: &str) -> Option<Range<usize>> {
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let said = line.trim();
        if !said.is_empty() && !said.starts_with('#') {
            let start = begin + line.len() - line.trim_start().len();
            return (!said.starts_with('[')).then(|| start..start + said.len());
        }
        begin += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_files() -> ConfigSource {
        let mut source = ConfigSource::new("a.toml", "include = [\"conf.d/*.toml\", 7]\n[listener]\n");
        source.include("b.toml", "# b\n\nworkers = 4\n");
        source
    }

    #[test]
    fn a_place_is_shown_in_its_own_file() {
        let source = two_files();
        assert_eq!(source.includes(), [("conf.d/*.toml".to_owned(), 1)]);
        let errors = source.misplaced();
        assert_eq!(errors.len(), 1);
        assert!(source.render(&errors[0]).starts_with("b.toml:3:1: error: a file that is included"));
        let begin = source.text().find("[listener]").unwrap();
        assert!(
            source.render(&Diagnostic::error(begin..begin + 10, "m")).starts_with("a.toml:2:1: error: m\n")
        );
        let ranges: Vec<&str> = source.ranges().map(|range| &source.text()[range]).collect();
        assert_eq!(ranges, ["include = [\"conf.d/*.toml\", 7]\n[listener]\n", "# b\n\nworkers = 4\n"]);
    }

    #[test]
    fn what_begins_with_a_section_is_a_file_to_include() {
        for text in ["", "# c\n", "\n[upstream.a]\nurl = 1", "[[rule]]"] {
            assert_eq!(first_line(text), None, "{text:?}");
        }
        assert_eq!(first_line("# c\n  a = 1\n"), Some(6..11));
    }
}

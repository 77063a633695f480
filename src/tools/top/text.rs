//! Lines of text as a terminal of some width shows them: headings, facts with names, and what is broken into lines.

use ratatui::text::{Line, Span};

use super::palette::{Look, Palette};
use super::spark::curve;
use super::table::padded;
use crate::admin_client::figures::period;
use protocol::text::{fit, shown, wrapped};

/// Columns of names.
pub(super) const NAMES: usize = 14;
/// Narrower terminals show names above what is said.
pub(super) const NARROW: usize = 40;

/// Lines as they are written, for a terminal so wide.
pub(super) struct StyledText {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) width: usize,
    pub(super) palette: Palette,
}

impl StyledText {
    pub(super) fn title(&mut self, text: &str) {
        self.line(text, Look::Strong);
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.blank();
        self.line(text, Look::Faint);
    }

    pub(super) fn blank(&mut self) {
        self.lines.push(Line::default());
    }

    pub(super) fn fact(&mut self, name: &str, what: &str) {
        self.fact_in(name, what, Look::Plain);
    }

    pub(super) fn fact_in(&mut self, name: &str, what: &str, look: Look) {
        let faint = self.palette.style(Look::Faint);
        let style = self.palette.style(look);
        if self.width < NARROW {
            if !name.is_empty() {
                self.lines.push(Line::styled(fit(name, self.width).into_owned(), faint));
            }
            for line in lines_of(what, self.width.saturating_sub(1)) {
                self.lines.push(Line::styled(format!(" {line}"), style));
            }
            return;
        }
        for (at, line) in lines_of(what, self.width - NAMES - 1).into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            let name = Span::styled(padded(name, NAMES, false), faint);
            self.lines.push(Line::from(vec![name, Span::raw(" "), Span::styled(line, style)]));
        }
    }

    pub(super) fn marked(&mut self, mark: &str, look: Look, text: &str) {
        let mark = Span::styled(padded(mark, 9, false), self.palette.style(look));
        let room = self.width.saturating_sub(10);
        self.lines.push(Line::from(vec![mark, Span::raw(" "), Span::raw(fit(text, room).into_owned())]));
    }

    pub(super) fn line(&mut self, text: &str, look: Look) {
        let style = self.palette.style(look);
        self.lines.extend(lines_of(text, self.width).into_iter().map(|line| Line::styled(line, style)));
    }
}

/// A curve with a label of so many columns before each of its rows.
pub(super) fn labelled<const ROWS: usize>(
    labels: [(String, Look); ROWS],
    label_columns: usize,
    values: &[Option<f64>],
    columns: usize,
    palette: Palette,
) -> impl Iterator<Item = [Span<'static>; 3]> {
    labels.into_iter().zip(curve(values, columns, ROWS)).map(move |((label, look), line)| {
        let label = Span::styled(padded(&label, label_columns, false), palette.style(look));
        [label, Span::raw(" "), Span::styled(line, palette.style(Look::Curve))]
    })
}

/// The time that so many values are of.
pub(super) fn time_of(values: usize, interval_s: Option<f64>) -> String {
    let seconds = |interval_s: f64| interval_s * f64::from(u32::try_from(values).unwrap_or_default());
    interval_s.map(|interval_s| format!("in {}", period(seconds(interval_s)))).unwrap_or_default()
}

/// A stranger's text in lines of at most so many columns; at least one.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    let lines = wrapped(&shown(text), width);
    if lines.is_empty() { vec![String::new()] } else { lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_between_words_and_lose_nothing() {
        for (text, width, expected) in [
            ("", 5, vec![""]),
            ("one two three", 7, vec!["one two", "three"]),
            ("abcdefghij", 4, vec!["abcd", "efgh", "ij"]),
            ("ab abcdefgh", 4, vec!["ab", "abcd", "efgh"]),
            ("天気予報", 4, vec!["天気", "予報"]),
            ("天気", 1, vec!["天", "気"]),
            ("a\nb", 40, vec!["a\\u{a}b"]),
        ] {
            assert_eq!(lines_of(text, width), expected, "{text} in {width}");
        }
    }
}

//! Tables that fit into any width: what matters most stays, and grows where there is room. Pure.

use std::cmp::Ordering;

use ratatui::text::{Line, Span};

use super::palette::{Look, Palette};
use super::spark::curve;
use protocol::text::{columns, fit, shown};

/// A table is this wide at least for columns to stand well apart.
const WIDE: usize = 60;
/// A mark and a short word, as most are.
const MARK_COLUMNS: usize = 10;

/// A column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// Columns of the terminal that it takes at least.
    pub(super) least: usize,
    /// And at most, if there is room and something to show.
    pub(super) most: usize,
    /// Numbers stand at the right.
    pub(super) is_number: bool,
    /// Columns with a higher one go first where there is no room.
    pub(super) rank: u8,
    /// Whether one can sort by it.
    pub(super) is_sortable: bool,
    pub(super) kind: ColumnKind,
}

/// How a column takes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// A mark and a word, of which the mark alone will do where there is little room.
    Mark,
    /// It is worth a third of the width before other columns come in.
    Name,
    Other,
}

/// What stands in a place of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableCell {
    Text(String, Look),
    /// Over time, oldest first.
    Curve(Vec<Option<f64>>),
}

impl TableCell {
    /// Of a stranger.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(shown(text), Look::Plain)
    }

    fn width(&self) -> usize {
        match self {
            Self::Text(text, _) => columns(text),
            Self::Curve(values) => values.len(),
        }
    }
}

/// What a row is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum By {
    /// The largest first.
    Number(f64),
    /// From A to Z.
    Text(String),
}

impl By {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => b.total_cmp(a),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// What it is about, as strangers call it.
    pub(super) id: String,
    /// As many as there are columns.
    pub(super) cells: Vec<(TableCell, By)>,
}

/// Rows sorted by a column, or as they came.
pub(super) fn sort(rows: &mut [Row], by: Option<usize>, is_reversed: bool) {
    if let Some(at) = by {
        rows.sort_by(|a, b| match (a.cells.get(at), b.cells.get(at)) {
            (Some((_, a)), Some((_, b))) if is_reversed => b.cmp(a),
            (Some((_, a)), Some((_, b))) => a.cmp(b),
            _ => Ordering::Equal,
        });
    } else if is_reversed {
        rows.reverse();
    }
}

/// Which columns there is room for, and how wide they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    shown: Vec<(usize, usize)>,
    gap: usize,
}

/// What fits into `width`, by the rows that there are.
pub(super) fn plan(all: &[Column], rows: &[Row], width: usize) -> Plan {
    let gap = if width < WIDE { 1 } else { 2 };
    let widest = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(at));
        cells.map(|(cell, _)| cell.width()).max().unwrap_or_default()
    };
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| all[*at].rank);
    let mut shown: Vec<(usize, usize)> = Vec::new();
    let mut used = 0;
    for at in order {
        let column = &all[at];
        let least = match column.kind {
            ColumnKind::Name => widest(at).clamp(column.least, column.most.min(width / 3).max(column.least)),
            ColumnKind::Mark if width >= WIDE => {
                widest(at).clamp(MARK_COLUMNS.min(column.most), column.most.min(width / 3))
            }
            ColumnKind::Mark | ColumnKind::Other => column.least,
        };
        let space = if shown.is_empty() { 0 } else { gap };
        if !shown.is_empty() && used + space + least > width {
            break;
        }
        shown.push((at, least));
        used += space + least;
    }
    shown.sort_by_key(|(at, _)| all[*at].kind != ColumnKind::Name);
    for (at, taken) in &mut shown {
        let wanted = all[*at].most.min(widest(*at));
        let more = wanted.saturating_sub(*taken).min(width.saturating_sub(used));
        // Half a word says less than the mark alone.
        if all[*at].kind == ColumnKind::Mark && *taken + more < wanted {
            continue;
        }
        *taken += more;
        used += more;
    }
    shown.sort_unstable();
    Plan { shown, gap }
}

impl Plan {
    /// The line of heads; what the table is sorted by is marked.
    pub(super) fn heads(
        &self,
        all: &[Column],
        by: Option<usize>,
        is_reversed: bool,
        palette: Palette,
    ) -> Line<'static> {
        let mark = if is_reversed { "▲" } else { "▼" };
        let span = |(at, column): (usize, &Column)| {
            let text = match by {
                Some(by) if by == at && self.width(at) > columns(column.head) => {
                    format!("{}{mark}", column.head)
                }
                Some(by) if by == at => mark.to_owned(),
                _ => column.head.to_owned(),
            };
            let look = if by == Some(at) { Look::Strong } else { Look::Faint };
            (text, look, column.is_number)
        };
        self.line(|at| all.get(at).map(|column| span((at, column))).unwrap_or_default(), palette)
    }

    /// The line of a row.
    pub(super) fn row(&self, all: &[Column], row: &Row, palette: Palette) -> Line<'static> {
        let cell = |at: usize| match row.cells.get(at) {
            Some((TableCell::Text(text, look), _))
                if all.get(at).is_some_and(|column| column.kind == ColumnKind::Mark) =>
            {
                let has_no_word = columns(text) > self.width(at) && self.width(at) < MARK_COLUMNS;
                (if has_no_word { text.chars().take(1).collect() } else { text.clone() }, *look, false)
            }
            Some((TableCell::Text(text, look), _)) => {
                (text.clone(), *look, all.get(at).is_some_and(|column| column.is_number))
            }
            Some((TableCell::Curve(values), _)) => {
                (curve(values, self.width(at), 1).pop().unwrap_or_default(), Look::Curve, false)
            }
            None => (String::new(), Look::Plain, false),
        };
        self.line(cell, palette)
    }

    fn width(&self, at: usize) -> usize {
        self.shown.iter().find(|(shown, _)| *shown == at).map_or(0, |(_, width)| *width)
    }

    fn line(&self, cell: impl Fn(usize) -> (String, Look, bool), palette: Palette) -> Line<'static> {
        let mut spans = Vec::with_capacity(self.shown.len() * 2);
        for (at, width) in &self.shown {
            if !spans.is_empty() {
                spans.push(Span::raw(" ".repeat(self.gap)));
            }
            let (text, look, is_number) = cell(*at);
            spans.push(Span::styled(padded(&text, *width, is_number), palette.style(look)));
        }
        Line::from(spans)
    }
}

/// `text` cut or filled to so many columns.
pub(super) fn padded(text: &str, width: usize, is_right: bool) -> String {
    let text = fit(text, width);
    let space = " ".repeat(width.saturating_sub(columns(&text)));
    if is_right { space + &text } else { text.into_owned() + &space }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column {
            head: "S",
            least: 1,
            most: 7,
            is_number: false,
            rank: 0,
            is_sortable: true,
            kind: ColumnKind::Mark,
        },
        Column {
            head: "NAME",
            least: 6,
            most: 30,
            is_number: false,
            rank: 0,
            is_sortable: true,
            kind: ColumnKind::Name,
        },
        Column {
            head: "RATE",
            least: 6,
            most: 6,
            is_number: true,
            rank: 1,
            is_sortable: true,
            kind: ColumnKind::Other,
        },
        Column {
            head: "",
            least: 8,
            most: 60,
            is_number: false,
            rank: 2,
            is_sortable: false,
            kind: ColumnKind::Other,
        },
    ];

    fn row(name: &str, rate: f64) -> Row {
        let number = |text: &str| (TableCell::text(text), By::Number(rate));
        let cells = vec![
            (TableCell::Text("● up".to_owned(), Look::Good), By::Number(0.0)),
            (TableCell::text(name), By::Text(name.to_owned())),
            number(&rate.to_string()),
            (TableCell::Curve(vec![Some(rate); 20]), By::Number(0.0)),
        ];
        Row { id: name.to_owned(), cells }
    }

    fn drawn(width: usize) -> Vec<String> {
        let rows = [row("weather", 1.5), row("天気-very-long-name-of-a-server", 12.0)];
        let plan = plan(&COLUMNS, &rows, width);
        let palette = Palette::new(false);
        let heads = plan.heads(&COLUMNS, Some(2), false, palette);
        std::iter::once(heads)
            .chain(rows.iter().map(|row| plan.row(&COLUMNS, row, palette)))
            .map(|line| line.to_string())
            .collect()
    }

    #[test]
    fn every_width_is_kept_and_the_name_stays() {
        for width in 0..140 {
            for line in drawn(width) {
                assert!(columns(&line) <= width.max(1), "{width}: {line:?}");
            }
        }
        assert_eq!(drawn(20)[1], "● weather        1.5", "{:?}", drawn(20));
        assert!(drawn(100)[1].contains("● up") && drawn(100)[1].contains('█'), "{:?}", drawn(100));
    }

    #[test]
    fn a_state_of_several_words_is_shown_where_there_is_room() {
        let state = |name: &str, width: usize| {
            let mut row = row(name, 1.5);
            row.cells[0].0 = TableCell::Text("✗ refuses our credentials".to_owned(), Look::Bad);
            let mut columns = COLUMNS;
            columns[0].most = 40;
            let rows = [row];
            plan(&columns, &rows, width).row(&columns, &rows[0], Palette::new(false)).to_string()
        };
        for (name, width, expected) in [
            ("weather", 30, "✗ weather "),
            ("weather", 60, "✗ refuses our credentials  weather "),
            ("weather-of-all-cities-of-the-world", 60, "✗ refuses our crede…  weather-of-all-citi…  "),
        ] {
            assert!(state(name, width).starts_with(expected), "{}", state(name, width));
        }
    }

    #[test]
    fn numbers_are_sorted_from_the_largest_and_words_from_a() {
        let ids = |by, is_reversed| {
            let mut rows = [row("b", 1.0), row("a", 2.0), row("c", f64::NAN)];
            sort(&mut rows, by, is_reversed);
            rows.map(|row| row.id).concat()
        };
        assert_eq!(ids(Some(2), false), "cab");
        assert_eq!(ids(Some(2), true), "bac");
        assert_eq!(ids(Some(1), false), "abc");
        assert_eq!(ids(None, false), "bac");
        assert_eq!(ids(Some(99), false), "bac");
    }
}

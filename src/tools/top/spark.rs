//! Small curves, of block characters. Pure.

const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A value that is not known.
const GAP: char = ' ';
/// The lowest mark of a value that is 0.
const ZERO: char = '▁';

/// The latest `columns` values as `rows` lines, top line first. The highest value fills all rows.
pub(super) fn curve(values: &[Option<f64>], columns: usize, rows: usize) -> Vec<String> {
    let latest = &values[values.len().saturating_sub(columns)..];
    let highest = highest(latest);
    let space = columns - latest.len();
    let line = |from_bottom: usize| {
        let mark = |value: &Option<f64>| value.map_or(GAP, |value| mark(value, highest, from_bottom, rows));
        std::iter::repeat_n(GAP, space).chain(latest.iter().map(mark)).collect()
    };
    (0..rows).rev().map(line).collect()
}

/// The highest value.
pub(super) fn highest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().copied().fold(0.0, f64::max)
}

fn mark(value: f64, highest: f64, from_bottom: usize, rows: usize) -> char {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the rows of a terminal"
    )]
    let filled = if highest > 0.0 {
        ((value / highest).clamp(0.0, 1.0) * (rows * EIGHTHS.len()) as f64).round() as usize
    } else {
        0
    };
    let here = filled.saturating_sub(from_bottom * EIGHTHS.len());
    match here {
        // What is little is not nothing.
        0 if from_bottom == 0 => ZERO,
        0 => GAP,
        here => EIGHTHS[here.min(EIGHTHS.len()) - 1],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_fills_the_rows_and_the_latest_is_at_the_right() {
        let values = [Some(0.0), None, Some(1.0), Some(4.0), Some(8.0)];
        assert_eq!(curve(&values, 7, 1), ["  ▁ ▁▄█"]);
        assert_eq!(curve(&values, 2, 1), ["▄█"]);
        assert_eq!(curve(&values, 5, 2), ["    █", "▁ ▂██"]);
        assert_eq!(curve(&[Some(0.0); 3], 3, 1), ["▁▁▁"]);
        assert_eq!(curve(&[], 2, 1), ["  "]);
        assert_eq!(curve(&values, 0, 1), [""]);
        assert!(curve(&values, 3, 0).is_empty());
        assert_eq!(curve(&[Some(f64::MAX), Some(-1.0)], 2, 1), ["█▁"]);
    }
}

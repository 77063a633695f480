//! Handles that are made when they are first used and found by number afterwards: no lock, no lookup by label.

use std::sync::OnceLock;

/// A table of handles. Rows take up memory when something in them is first used.
#[derive(Debug)]
pub(crate) struct Cells<T> {
    rows: Box<[OnceLock<CellRow<T>>]>,
    width: usize,
}

type CellRow<T> = Box<[OnceLock<T>]>;

impl<T> Cells<T> {
    pub(crate) fn new(rows: usize, width: usize) -> Self {
        Self { rows: (0..rows).map(|_| OnceLock::new()).collect(), width }
    }

    /// The handle at this place, made if nobody used it before; `None` beyond the table.
    pub(crate) fn get(&self, row: usize, column: usize, make: impl FnOnce() -> T) -> Option<&T> {
        let row = self.rows.get(row)?.get_or_init(|| (0..self.width).map(|_| OnceLock::new()).collect());
        Some(row.get(column)?.get_or_init(make))
    }

    /// The handle at this place, if somebody used it before.
    pub(crate) fn find(&self, row: usize, column: usize) -> Option<&T> {
        self.rows.get(row)?.get()?.get(column)?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_made_once() {
        let cells = Cells::new(2, 3);
        assert_eq!((cells.find(1, 2), cells.find(9, 9)), (None, None));
        assert_eq!((cells.get(1, 2, || 7), cells.find(1, 2)), (Some(&7), Some(&7)));
        assert_eq!(cells.get(1, 2, || 8), Some(&7));
        assert_eq!(cells.get(0, 2, || 9), Some(&9));
        assert_eq!(cells.get(2, 0, || 1), None);
        assert_eq!(cells.get(0, 3, || 1), None);
    }
}

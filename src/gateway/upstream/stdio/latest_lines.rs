//! The latest lines that one process wrote on standard error, for whoever asks why it ended.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;

/// Lines that are kept.
const LINES_MAX: usize = 5;
/// So much of each.
const LINE_BYTES_MAX: usize = 4096;

pub(super) type Lines = VecDeque<Box<[u8]>>;

#[derive(Debug, Default)]
pub(super) struct LatestLines(RefCell<Lines>);

impl LatestLines {
    pub(super) fn add(&self, lines: &[Bytes]) {
        let mut latest = self.0.borrow_mut();
        for line in lines.iter().map(|line| line.trim_ascii()).filter(|line| !line.is_empty()) {
            if latest.len() >= LINES_MAX {
                latest.pop_front();
            }
            latest.push_back(line[..line.len().min(LINE_BYTES_MAX)].into());
        }
    }

    pub(super) fn take(&self) -> Lines {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_none_that_is_empty() {
        let latest = LatestLines::default();
        let long = vec![b'x'; 2 * LINE_BYTES_MAX];
        latest.add(&[Bytes::from_static(b"0"), Bytes::from_static(b" \r\n"), Bytes::from(long)]);
        for line in ["2", "3", "4", "5\r\n"] {
            latest.add(&[Bytes::from_static(line.as_bytes())]);
        }
        let lines: Vec<usize> = latest.take().iter().map(|line| line.len()).collect();
        assert_eq!(lines, [LINE_BYTES_MAX, 1, 1, 1, 1]);
        assert!(latest.take().is_empty());
    }
}

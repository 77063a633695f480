//! The room that is left: for records by number, and for bytes in a file that may not grow on.
//!
//! A database of pages needs free ones to change anything, deletions included. While the file may double, there is
//! room. Once it may not, what is used of it is measured, a quarter is kept back, and the rest is counted at three times
//! the bytes that are to go in, which is the worst of half-empty pages. It is measured again after some have come or gone.
//!
//! Pure: a caller brings the measures.

use crate::limits::Limits;

/// So many bytes come or go before the file is measured again.
const REMEASURE_BYTES: u64 = 64 * 1024;
/// Bytes of pages for one byte of records, at worst.
const PAGES_BY_BYTE: u64 = 3;

/// The room of one file.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    limits: Limits,
    measured: Option<Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    file_bytes: u64,
    live_bytes: u64,
    live_bytes_max: u64,
}

/// The answer of [`Room::for_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Yes,
    No,
    /// [`Room::measure`] has to be called first.
    Unknown,
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, measured: None }
    }

    /// True if a store of `records` is within the bound.
    pub(crate) fn for_records(&self, records: u64) -> bool {
        records <= self.limits.records_max
    }

    /// The answer if a file of `file_bytes`, with `live_bytes` of records, has room for `more_bytes`.
    pub(crate) fn for_bytes(&self, file_bytes: u64, live_bytes: u64, more_bytes: u64) -> Fit {
        if file_bytes.saturating_mul(2) <= self.limits.file_bytes_max {
            return Fit::Yes;
        }
        let Some(measured) = self.measured.filter(|measured| measured.file_bytes == file_bytes) else {
            return Fit::Unknown;
        };
        if live_bytes.saturating_add(more_bytes) <= measured.live_bytes_max {
            Fit::Yes
        } else if live_bytes.abs_diff(measured.live_bytes) >= REMEASURE_BYTES {
            Fit::Unknown
        } else {
            Fit::No
        }
    }

    /// Notes that `used_bytes` of the pages of a file are in use while it has `live_bytes` of records.
    pub(crate) fn measure(&mut self, file_bytes: u64, used_bytes: u64, live_bytes: u64) {
        let free = (file_bytes / 4 * 3).saturating_sub(used_bytes);
        let live_bytes_max = live_bytes.saturating_add(free / PAGES_BY_BYTE);
        self.measured = Some(Measured { file_bytes, live_bytes, live_bytes_max });
    }

    /// The text of [`Fit::No`].
    pub(crate) fn text_of_bytes(&self) -> String {
        format!("its file may have {} bytes", self.limits.file_bytes_max)
    }

    /// The text for one record too many.
    pub(crate) fn text_of_records(&self) -> String {
        format!("it may have {} records", self.limits.records_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn room() -> Room {
        Room::new(Limits { records_max: 10, file_bytes_max: 8 * MIB, queue_max: 1 })
    }

    #[test]
    fn a_file_that_may_double_has_room() {
        let room = room();
        assert_eq!(room.for_bytes(4 * MIB, 3 * MIB, 64 * 1024), Fit::Yes);
        assert_eq!(room.for_bytes(4 * MIB + 1, 3 * MIB, 64 * 1024), Fit::Unknown);
        assert!(room.for_records(10) && !room.for_records(11));
    }

    #[test]
    fn a_file_that_may_not_double_is_filled_to_three_quarters() {
        let mut room = room();
        room.measure(6 * MIB, 3 * MIB, 2 * MIB);
        assert_eq!(room.for_bytes(6 * MIB, 2 * MIB, MIB / 2), Fit::Yes);
        assert_eq!(room.for_bytes(6 * MIB, 2 * MIB, MIB / 2 + 1), Fit::No);
        assert_eq!(room.for_bytes(6 * MIB, 2 * MIB + MIB / 2, 1), Fit::Unknown, "it is measured again");
        assert_eq!(room.for_bytes(7 * MIB, 2 * MIB, 1), Fit::Unknown, "of another size");
        room.measure(6 * MIB, 5 * MIB, 4 * MIB);
        assert_eq!(room.for_bytes(6 * MIB, 4 * MIB, 1), Fit::No);
        assert_eq!(room.for_bytes(6 * MIB, 3 * MIB, 1), Fit::Yes, "after deletions");
    }
}

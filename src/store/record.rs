//! Records: bytes that mean nothing here, with the second until which they exist.
//!
//! Invariants: a value has at most [`VALUE_BYTES_MAX`] bytes, and is in no `Debug`.

use std::fmt;

/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// The end of a record that never ends.
pub const NEVER_S: u64 = u64::MAX;

/// A record as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The number that the commit gave it. No other state of any record ever has it.
    pub generation: u64,
    /// At most [`VALUE_BYTES_MAX`].
    pub value: Vec<u8>,
    /// The last Unix second in which it exists; [`NEVER_S`] without end.
    pub until_s: u64,
}

/// A record as a commit brings it: its generation comes from the store.
#[derive(Clone, PartialEq, Eq)]
pub struct NewRecord {
    value: Vec<u8>,
    until_s: u64,
}

/// A value is longer than [`VALUE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record has {0} bytes, more than {VALUE_BYTES_MAX}")]
pub struct ValueTooLong(pub usize);

impl NewRecord {
    /// A record that exists up to and including the Unix second `until_s`; [`NEVER_S`] without end.
    pub fn new(value: Vec<u8>, until_s: u64) -> Result<Self, ValueTooLong> {
        if value.len() > VALUE_BYTES_MAX {
            Err(ValueTooLong(value.len()))
        } else {
            Ok(Self { value, until_s })
        }
    }

    /// The bytes to be kept.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The last Unix second in which it exists.
    pub fn until_s(&self) -> u64 {
        self.until_s
    }

    /// The record that it becomes.
    pub fn with_generation(self, generation: u64) -> Record {
        Record { generation, value: self.value, until_s: self.until_s }
    }
}

impl Record {
    /// True while its time is not over, in the Unix second `now_s`.
    pub fn exists(&self, now_s: u64) -> bool {
        now_s <= self.until_s
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { generation, value, until_s } = self;
        write!(formatter, "Record({generation}, {} bytes, until {until_s})", value.len())
    }
}

impl fmt::Debug for NewRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NewRecord({} bytes, until {})", self.value.len(), self.until_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_a_bound_and_is_not_shown() {
        let record = NewRecord::new(vec![b'x'; VALUE_BYTES_MAX], 5).expect("short enough");
        assert_eq!(format!("{record:?}"), "NewRecord(65536 bytes, until 5)");
        let kept = record.with_generation(3);
        assert_eq!(format!("{kept:?}"), "Record(3, 65536 bytes, until 5)");
        assert!(kept.exists(5) && !kept.exists(6));
        assert_eq!(NewRecord::new(vec![0; VALUE_BYTES_MAX + 1], 5), Err(ValueTooLong(VALUE_BYTES_MAX + 1)));
    }
}

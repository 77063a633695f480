//! The tables in the file: records by name, names by the second in which they end, and counters.
//!
//! A record is its generation and its last second, eight bytes each, and its value. A record without end stands in no
//! order of ends. Two counters move only up: the last generation that was given, and the number of commits, which tells
//! after a failure whether the last of them came through.
//!
//! Invariants: what is read here is checked, and what does not fit is damage, not a panic.

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};

use crate::error::StoreError;
use crate::fault::Fault;
use crate::record::{NEVER_S, NewRecord, Record, VALUE_BYTES_MAX};

/// The version of what is described above.
pub(crate) const VERSION: u64 = 1;

pub(crate) const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
pub(crate) const ENDS: TableDefinition<'_, (u64, &str), ()> = TableDefinition::new("ends");
pub(crate) const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// The key of [`VERSION`].
pub(crate) const VERSION_KEY: &str = "version";
/// The key of the last generation.
pub(crate) const GENERATION_KEY: &str = "generation";
/// The key of the number of commits.
pub(crate) const COMMITS_KEY: &str = "commits";

const HEAD_BYTES: usize = 16;

/// All tables, open to be changed.
pub(crate) struct Tables<'t> {
    pub(crate) records: Table<'t, &'static str, &'static [u8]>,
    pub(crate) ends: Table<'t, (u64, &'static str), ()>,
    pub(crate) counters: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub(crate) fn open(transaction: &'t WriteTransaction) -> Result<Self, Fault> {
        Ok(Self {
            records: transaction.open_table(RECORDS)?,
            ends: transaction.open_table(ENDS)?,
            counters: transaction.open_table(COUNTERS)?,
        })
    }

    /// The record of this name, whether or not its time is over.
    pub(crate) fn get(&self, name: &str) -> Result<Option<StoredHead>, Fault> {
        let found = self.records.get(name)?;
        Ok(found.map(|bytes| StoredHead::read(name, bytes.value())).transpose()?)
    }

    /// Puts a record in the place of `before`.
    pub(crate) fn put(
        &mut self,
        name: &str,
        before: Option<&StoredHead>,
        generation: u64,
        record: &NewRecord,
    ) -> Result<(), Fault> {
        let until_s = record.until_s();
        if let Some(before) = before.filter(|before| before.until_s != until_s && before.until_s != NEVER_S) {
            self.ends.remove((before.until_s, name))?;
        }
        if until_s != NEVER_S && before.is_none_or(|before| before.until_s != until_s) {
            self.ends.insert((until_s, name), ())?;
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + record.value().len());
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&until_s.to_be_bytes());
        bytes.extend_from_slice(record.value());
        self.records.insert(name, bytes.as_slice())?;
        Ok(())
    }

    /// Ends a record.
    pub(crate) fn remove(&mut self, name: &str, before: &StoredHead) -> Result<(), Fault> {
        if before.until_s != NEVER_S {
            self.ends.remove((before.until_s, name))?;
        }
        self.records.remove(name)?;
        Ok(())
    }
}

/// All of a stored record but its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredHead {
    pub(crate) generation: u64,
    pub(crate) until_s: u64,
    pub(crate) value_bytes: usize,
}

impl StoredHead {
    /// Reads the bytes of the record of this name.
    pub(crate) fn read(name: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let split = bytes.split_first_chunk().and_then(|(generation, rest)| {
            let (until_s, value) = rest.split_first_chunk()?;
            Some(Self {
                generation: u64::from_be_bytes(*generation),
                until_s: u64::from_be_bytes(*until_s),
                value_bytes: value.len(),
            })
        });
        split
            .filter(|head| head.value_bytes <= VALUE_BYTES_MAX)
            .ok_or_else(|| StoreError::Damaged(format!("record {name:?} has {} bytes", bytes.len())))
    }

    pub(crate) fn exists(&self, now_s: u64) -> bool {
        now_s <= self.until_s
    }
}

/// Reads the bytes of the record of this name.
pub(crate) fn record(name: &str, bytes: &[u8]) -> Result<Record, StoreError> {
    let StoredHead { generation, until_s, .. } = StoredHead::read(name, bytes)?;
    Ok(Record { generation, value: bytes.get(HEAD_BYTES..).unwrap_or_default().to_vec(), until_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_record_are_damage() {
        for length in [0, 15, HEAD_BYTES + VALUE_BYTES_MAX + 1] {
            assert!(matches!(record("a/b", &vec![0; length]), Err(StoreError::Damaged(_))), "{length}");
        }
        assert_eq!(record("a/b", &[0; HEAD_BYTES]).map(|record| record.value.len()), Ok(0));
    }
}

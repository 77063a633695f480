//! The ledger of a file: its counters, and the records by kind. It is made from the file when that is opened, and follows
//! each transaction that came through.

use std::collections::BTreeMap;

use redb::{Database, ReadableDatabase as _, ReadableTable as _};

use crate::error::StoreError;
use crate::fault::Fault;
use crate::limits::KindSize;
use crate::name::kind_of;
use crate::table::{COMMITS_KEY, COUNTERS, GENERATION_KEY, RECORDS, StoredHead, VERSION, VERSION_KEY};

/// A generation has at most 53 bits: Lua's numbers, which Redis counts in, are exact up to there.
const GENERATION_MAX: u64 = (1 << 53) - 1;
/// So many generations a second may be given before a file that is set back could give one again.
const GENERATIONS_BY_SECOND: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// The last that was given.
    pub(crate) generation: u64,
    /// The number of transactions.
    pub(crate) commits: u64,
    pub(crate) kinds: BTreeMap<String, KindSize>,
    records: u64,
    bytes: u64,
}

impl Ledger {
    /// Reads the whole file. Each record in it is looked at.
    pub(crate) fn read(database: &Database) -> Result<Self, Fault> {
        let mut ledger = Self::default();
        let transaction = database.begin_read()?;
        let counters = transaction.open_table(COUNTERS)?;
        let counter = |key| -> Result<u64, Fault> {
            let found = counters.get(key)?;
            Ok(found.map_or(0, |value| value.value()))
        };
        let version = counter(VERSION_KEY)?;
        if version != VERSION {
            let text = format!("it is of version {version}, and this is {VERSION}");
            return Err(StoreError::OtherVersion(text).into());
        }
        (ledger.generation, ledger.commits) = (counter(GENERATION_KEY)?, counter(COMMITS_KEY)?);
        let records = transaction.open_table(RECORDS)?;
        for entry in records.iter()? {
            let (name, bytes) = entry?;
            let head = StoredHead::read(name.value(), bytes.value())?;
            if head.generation > ledger.generation {
                let text = format!("record {:?} has a generation that was not given", name.value());
                return Err(StoreError::Damaged(text).into());
            }
            ledger.add(name.value(), head.value_bytes);
        }
        Ok(ledger)
    }

    /// The least that the last generation has to be for a file that is opened at `now_s`.
    ///
    /// A file that was set back would give generations again that were given after the back-up was made. By the clock it is
    /// beyond all of them.
    pub(crate) fn generation_floor(now_s: u64) -> u64 {
        now_s.saturating_mul(GENERATIONS_BY_SECOND).min(GENERATION_MAX >> 1)
    }

    pub(crate) fn next_generation(&mut self) -> Result<u64, StoreError> {
        if self.generation >= GENERATION_MAX {
            return Err(StoreError::Full("it has given all generations".to_owned()));
        }
        self.generation += 1;
        Ok(self.generation)
    }

    /// A record of so many bytes has come.
    pub(crate) fn add(&mut self, name: &str, value_bytes: usize) {
        let bytes = size(name, value_bytes);
        let kind = match self.kinds.get_mut(kind_of(name)) {
            Some(kind) => kind,
            None => self.kinds.entry(kind_of(name).to_owned()).or_default(),
        };
        kind.records += 1;
        kind.bytes += bytes;
        self.records += 1;
        self.bytes += bytes;
    }

    /// A record of so many bytes has gone.
    pub(crate) fn subtract(&mut self, name: &str, value_bytes: usize) {
        let bytes = size(name, value_bytes);
        if let Some(kind) = self.kinds.get_mut(kind_of(name)) {
            kind.records = kind.records.saturating_sub(1);
            kind.bytes = kind.bytes.saturating_sub(bytes);
            if kind.records == 0 {
                self.kinds.remove(kind_of(name));
            }
        }
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn size(name: &str, value_bytes: usize) -> u64 {
    (name.len() + value_bytes) as u64
}

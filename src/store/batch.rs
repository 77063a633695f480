//! One transaction for all commits that wait: each is judged by what those before it in the batch have done.
//!
//! Invariants: a commit that is in conflict, or for which there is no room, changes nothing. Nothing is answered before
//! the transaction came through.

use redb::{Database, ReadableTable as _, WriteTransaction};

use crate::change::{Change, Changes, Expected, Outcome};
use crate::error::StoreError;
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::room::{Fit, Room};
use crate::table::{COMMITS_KEY, GENERATION_KEY, StoredHead, Tables};

/// The most records that one sweep removes.
pub(crate) const SWEEP_MAX: usize = 256;

/// A part of a batch.
#[derive(Debug)]
pub(crate) enum Task {
    Commit { changes: Changes, now_s: u64 },
    Sweep { now_s: u64 },
}

impl Task {
    /// The bytes that it holds while it waits.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Commit { changes, .. } => changes.bytes(),
            Self::Sweep { .. } => 0,
        }
    }
}

/// The end of one sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// The records that it removed.
    pub removed: usize,
    /// More are there to be removed.
    pub has_more: bool,
}

/// The end of a part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Outcome(Outcome),
    Swept(Swept),
    Refused(StoreError),
}

/// A batch that was judged.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) verdicts: Vec<Verdict>,
    /// The ledger once the transaction has come through.
    pub(crate) ledger: Ledger,
}

/// A transaction in which all is done, and nothing lasts yet.
pub(crate) struct Begun {
    transaction: WriteTransaction,
    is_changed: bool,
}

impl Begun {
    /// Makes it last. After a failure it is not known whether it does.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        if self.is_changed { Ok(self.transaction.commit()?) } else { Ok(self.transaction.abort()?) }
    }
}

/// The surroundings of a batch.
pub(crate) struct Desk<'d> {
    pub(crate) ledger: &'d Ledger,
    pub(crate) room: &'d mut Room,
    pub(crate) file_bytes: u64,
    /// The disk has just refused to give more room.
    pub(crate) is_disk_full: bool,
}

/// Does all that `tasks` say, in their order. After a failure nothing of it lasts.
pub(crate) fn begin<'t>(
    database: &Database,
    desk: &mut Desk<'_>,
    tasks: impl Iterator<Item = &'t Task>,
) -> Result<(Begun, Judged), Fault> {
    let transaction = database.begin_write()?;
    let mut ledger = desk.ledger.clone();
    let mut verdicts = Vec::new();
    let is_changed = {
        let mut sheet = Sheet {
            transaction: &transaction,
            tables: Tables::open(&transaction)?,
            ledger: &mut ledger,
            room: &mut *desk.room,
            file_bytes: desk.file_bytes,
            is_disk_full: desk.is_disk_full,
            is_changed: false,
        };
        for task in tasks {
            verdicts.push(match task {
                Task::Commit { changes, now_s } => sheet.commit(changes.as_slice(), *now_s)?,
                Task::Sweep { now_s } => sheet.sweep(*now_s)?,
            });
        }
        if sheet.is_changed {
            sheet.ledger.commits += 1;
            sheet.tables.counters.insert(GENERATION_KEY, sheet.ledger.generation)?;
            sheet.tables.counters.insert(COMMITS_KEY, sheet.ledger.commits)?;
        }
        sheet.is_changed
    };
    Ok((Begun { transaction, is_changed }, Judged { verdicts, ledger }))
}

/// An open transaction.
struct Sheet<'s> {
    transaction: &'s WriteTransaction,
    tables: Tables<'s>,
    ledger: &'s mut Ledger,
    room: &'s mut Room,
    file_bytes: u64,
    is_disk_full: bool,
    is_changed: bool,
}

impl Sheet<'_> {
    fn commit(&mut self, changes: &[Change], now_s: u64) -> Result<Verdict, Fault> {
        let mut heads = Vec::with_capacity(changes.len());
        for change in changes {
            let head = self.tables.get(change.name.as_str())?;
            let is_as_expected = match (change.expected, head.filter(|head| head.exists(now_s))) {
                (Expected::Absent, None) => true,
                (Expected::Generation(expected), Some(head)) => head.generation == expected,
                _ => false,
            };
            if !is_as_expected {
                return Ok(Verdict::Outcome(Outcome::Conflict));
            }
            heads.push(head);
        }
        if let Err(refusal) = self.check_room(changes, &heads)? {
            return Ok(Verdict::Refused(refusal));
        }
        let mut generations = Vec::with_capacity(changes.len());
        for (change, head) in changes.iter().zip(&heads) {
            generations.push(self.apply(change, head.as_ref())?);
        }
        Ok(Verdict::Outcome(Outcome::Committed(generations)))
    }

    fn check_room(
        &mut self,
        changes: &[Change],
        heads: &[Option<StoredHead>],
    ) -> Result<Result<(), StoreError>, Fault> {
        let (mut created, mut removed, mut bytes_before, mut bytes_after) = (0, 0, 0, 0);
        for (change, head) in changes.iter().zip(heads) {
            created += u64::from(head.is_none() && change.to.is_some());
            removed += u64::from(head.is_some() && change.to.is_none());
            bytes_before += head.map_or(0, |head| change.name.as_str().len() + head.value_bytes);
            bytes_after += change.to.as_ref().map_or(0, |to| change.name.as_str().len() + to.value().len());
        }
        let records = (self.ledger.records() + created).saturating_sub(removed);
        if created > removed && !self.room.for_records(records) {
            return Ok(Err(StoreError::Full(self.room.text_of_records())));
        }
        let more_bytes = bytes_after.saturating_sub(bytes_before) as u64;
        if more_bytes == 0 {
            return Ok(Ok(()));
        }
        if self.is_disk_full {
            return Ok(Err(StoreError::Full("the disk is full".to_owned())));
        }
        let mut fit = self.room.for_bytes(self.file_bytes, self.ledger.bytes(), more_bytes);
        if fit == Fit::Unknown {
            self.measure()?;
            fit = self.room.for_bytes(self.file_bytes, self.ledger.bytes(), more_bytes);
        }
        Ok(if fit == Fit::Yes { Ok(()) } else { Err(StoreError::Full(self.room.text_of_bytes())) })
    }

    /// Looks at the tree of pages, whole.
    fn measure(&mut self) -> Result<(), Fault> {
        let stats = self.transaction.stats()?;
        let used_bytes = stats.allocated_pages().saturating_mul(stats.page_size() as u64);
        self.room.measure(self.file_bytes, used_bytes, self.ledger.bytes());
        Ok(())
    }

    fn apply(&mut self, change: &Change, head: Option<&StoredHead>) -> Result<Option<u64>, Fault> {
        let name = change.name.as_str();
        if let Some(head) = head {
            self.ledger.subtract(name, head.value_bytes);
        }
        self.is_changed |= head.is_some() || change.to.is_some();
        match (&change.to, head) {
            (Some(to), head) => {
                let generation = self.ledger.next_generation()?;
                self.tables.put(name, head, generation, to)?;
                self.ledger.add(name, to.value().len());
                Ok(Some(generation))
            }
            (None, Some(head)) => {
                self.tables.remove(name, head)?;
                Ok(None)
            }
            (None, None) => Ok(None),
        }
    }

    fn sweep(&mut self, now_s: u64) -> Result<Verdict, Fault> {
        let mut over = Vec::new();
        let mut has_more = false;
        for entry in self.tables.ends.range::<(u64, &str)>(..(now_s, ""))? {
            let (key, ()) = entry.map(|(key, value)| (key, value.value()))?;
            if over.len() == SWEEP_MAX {
                has_more = true;
                break;
            }
            let (until_s, name) = key.value();
            over.push((until_s, name.to_owned()));
        }
        for (until_s, name) in &over {
            match self.tables.get(name)? {
                Some(head) if head.until_s == *until_s => {
                    self.tables.remove(name, &head)?;
                    self.ledger.subtract(name, head.value_bytes);
                }
                _ => {
                    self.tables.ends.remove((*until_s, name.as_str()))?;
                }
            }
        }
        self.is_changed |= !over.is_empty();
        Ok(Verdict::Swept(Swept { removed: over.len(), has_more }))
    }
}

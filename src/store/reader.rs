//! The thread that reads, so that no thread of a runtime waits for the disk. It does not wait for the one that writes.
//!
//! Invariants: a read sees all commits that were answered before it was asked for, and each commit whole or not at all. A
//! record whose time is over is not seen.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use redb::{Database, ReadableDatabase as _};

use crate::answer::Reply;
use crate::error::StoreError;
use crate::fault::{Fault, caught};
use crate::name::Name;
use crate::record::Record;
use crate::shared::Shared;
use crate::table::{RECORDS, StoredHead, record};
use crate::writer::Work;

/// The most records that one page looks at.
pub const PAGE_RECORDS_MAX: usize = 1000;
/// The bytes of values at which a page ends.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Records of one prefix, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Those whose time is not over. A page that is not the last can have few, or none.
    pub records: Vec<(Name, Record)>,
    /// The name after which the next page begins; `None`: this was the last.
    pub next: Option<Name>,
}

/// The work of the thread.
#[derive(Debug)]
pub(crate) enum Ask {
    Read { name: Name, now_s: u64, reply: Reply<Option<Record>> },
    List { from: Listed, reply: Reply<Page> },
    Close,
}

/// A question for a page.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) prefix: String,
    pub(crate) after: Option<Name>,
    pub(crate) count_max: usize,
    pub(crate) now_s: u64,
}

pub(crate) struct Reader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) asks: Receiver<Ask>,
    pub(crate) writer: SyncSender<Work>,
}

impl Reader {
    /// Works until it is told to close, or until the last sender is gone.
    pub(crate) fn run(self) {
        for ask in &self.asks {
            match ask {
                Ask::Read { name, now_s, reply } => {
                    let _ = reply.send(self.answer(|database| read(database, &name, now_s)));
                }
                Ask::List { from, reply } => {
                    let _ = reply.send(self.answer(|database| list(database, &from)));
                }
                Ask::Close => break,
            }
        }
    }

    fn answer<T>(&self, work: impl Fn(&Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        let mut is_of_database = false;
        let answer = self.shared.with(|database| {
            is_of_database = true;
            caught(|| work(database))
        });
        if is_of_database && answer.is_err() {
            self.shared.is_faulty.store(true, Ordering::Release);
            // If too much waits, the writer looks after that.
            let _ = self.writer.try_send(Work::Mend);
        }
        Ok(answer?)
    }
}

fn read(database: &Database, name: &Name, now_s: u64) -> Result<Option<Record>, Fault> {
    let table = database.begin_read()?.open_table(RECORDS)?;
    let found = table.get_owned(name.as_str())?;
    let found = found.map(|bytes| record(name.as_str(), bytes.value())).transpose()?;
    Ok(found.filter(|record| record.exists(now_s)))
}

fn list(database: &Database, from: &Listed) -> Result<Page, Fault> {
    let table = database.begin_read()?.open_table(RECORDS)?;
    let prefix = from.prefix.as_str();
    let start = match from.after.as_ref().map(Name::as_str) {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut page = Page::default();
    let (mut looked_at, mut bytes) = (0, 0);
    for entry in table.range_owned::<&str>((start, Bound::Unbounded))? {
        let (name, stored) = entry?;
        let (name, stored) = (name.value(), stored.value());
        if !name.starts_with(prefix) {
            page.next = None;
            return Ok(page);
        }
        if looked_at >= from.count_max.clamp(1, PAGE_RECORDS_MAX) || bytes >= PAGE_BYTES_MAX {
            return Ok(page);
        }
        let known = Name::new(name).map_err(|error| StoreError::Damaged(error.to_string()))?;
        page.next = Some(known.clone());
        looked_at += 1;
        if StoredHead::read(name, stored)?.exists(from.now_s) {
            bytes += stored.len();
            page.records.push((known, record(name, stored)?));
        }
    }
    page.next = None;
    Ok(page)
}

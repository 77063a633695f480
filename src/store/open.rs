//! The way to an open database: a new file, one that was closed, or one that a failure has left.
//!
//! Invariants: every page of a file is compared with its checksum before anything of it is used, and every record is
//! looked at. No file that is there is replaced by an empty one.

use redb::{Database, ReadableDatabase as _, ReadableTable as _};

use crate::error::StoreError;
use crate::fault::{Fault, caught};
use crate::file::{Place, StoreFile};
use crate::ledger::Ledger;
use crate::table::{COUNTERS, ENDS, RECORDS, Tables, VERSION, VERSION_KEY};

/// Memory for pages, in bytes. Records are small and their file is read by the system ahead.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// Opens the file at `place`, or makes one where there is none.
pub(crate) fn open_or_make(place: &Place) -> Result<(Database, Ledger), StoreError> {
    let database = match place.open()? {
        Some(file) => open_file(file)?,
        None => make(place, |_| Ok(()))?,
    };
    place.discard_new();
    let ledger = caught(|| Ledger::read(&database))?;
    Ok((database, ledger))
}

/// Opens the file again after a failure. The database of before has to be gone.
pub(crate) fn open_again(place: &Place) -> Result<(Database, Ledger), StoreError> {
    let (database, ledger) = open_as_it_is(place)?;
    // The pages that the last commit gave up are free after the next one alone. On a full disk there may be no others for a
    // change, which would then fail for ever.
    if caught(|| Ok(database.begin_write()?.commit()?)).is_ok() {
        return Ok((database, ledger));
    }
    drop(database);
    open_as_it_is(place)
}

fn open_as_it_is(place: &Place) -> Result<(Database, Ledger), StoreError> {
    let file = place.open()?.ok_or_else(|| StoreError::Io("the file is gone".to_owned()))?;
    let database = open_file(file)?;
    let ledger = caught(|| Ledger::read(&database))?;
    Ok((database, ledger))
}

/// Makes a store with what `fill` puts into it. Until it is whole, there is no file of its name.
fn make(
    place: &Place,
    fill: impl FnOnce(&mut Tables<'_>) -> Result<(), Fault>,
) -> Result<Database, StoreError> {
    let database = open_file(place.open_new()?)?;
    let filled = || -> Result<(), Fault> {
        let transaction = database.begin_write()?;
        {
            let mut tables = Tables::open(&transaction)?;
            tables.counters.insert(VERSION_KEY, VERSION)?;
            fill(&mut tables)?;
        }
        Ok(transaction.commit()?)
    };
    caught(filled)?;
    place.settle()?;
    Ok(database)
}

/// Makes a store at `place` of all that `database` has at this moment.
pub(crate) fn copy(database: &Database, place: &Place) -> Result<(), StoreError> {
    let copied = make(place, |tables| {
        let now = database.begin_read()?;
        for entry in now.open_table(COUNTERS)?.iter()? {
            let (key, count) = entry?;
            tables.counters.insert(key.value(), count.value())?;
        }
        for entry in now.open_table(RECORDS)?.iter()? {
            let (name, bytes) = entry?;
            tables.records.insert(name.value(), bytes.value())?;
        }
        for entry in now.open_table(ENDS)?.iter()? {
            let (end, ()) = entry.map(|(end, value)| (end, value.value()))?;
            tables.ends.insert(end.value(), ())?;
        }
        Ok(())
    });
    if copied.is_err() {
        place.discard_new();
    }
    Ok(caught(|| Ok(copied?.close()?))?)
}

fn open_file(file: StoreFile) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    Ok(caught(|| Ok(builder.create_with_backend(file)?))?)
}

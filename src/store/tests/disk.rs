//! Disks that are full, that fail and that lie: nothing is told that the disk does not have, and the store goes on.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::setup::{Folder, LIMITS, commit, create, created, name, read, record, value};
use crate::cases::NOW_S;
use crate::file::Faults;
use crate::{Change, Changes, Limits, Outcome, Store, StoreError};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// The present fault of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// It confirms nothing; with `is_lost`, what is written meanwhile is lost. Once.
    Sync { code: i32, is_lost: bool },
    /// The next write is done by half, and fails.
    HalfWrite { code: i32 },
    /// No file grows.
    Resize { code: i32 },
    /// Nothing can be read.
    Read { code: i32 },
}

#[derive(Debug, Default)]
struct Disk(Mutex<Fault>);

impl Disk {
    fn set(&self, fault: Fault) {
        *self.0.lock() = fault;
    }

    fn get(&self) -> Fault {
        *self.0.lock()
    }
}

fn failed(code: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(code))
}

impl Faults for Disk {
    fn before_read(&self) -> io::Result<()> {
        if let Fault::Read { code } = self.get() { failed(code) } else { Ok(()) }
    }

    fn before_resize(&self, _bytes: u64) -> io::Result<()> {
        if let Fault::Resize { code } = self.get() { failed(code) } else { Ok(()) }
    }

    fn before_sync(&self) -> io::Result<()> {
        if let Fault::Sync { code, .. } = self.get() {
            self.set(Fault::None);
            return failed(code);
        }
        Ok(())
    }

    fn write(&self, _offset: u64, data: &[u8], write: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.get() {
            Fault::Sync { is_lost: true, .. } => Ok(()),
            Fault::HalfWrite { code } => {
                self.set(Fault::None);
                write(&data[..data.len() / 2])?;
                failed(code)
            }
            _ => write(data),
        }
    }
}

fn store_on(disk: &Arc<Disk>, folder: &Folder) -> Store {
    let store = folder.open_faulty(disk, LIMITS).expect("a store");
    create(&store, "grant/old", b"old").expect("created");
    store
}

/// Replaces the value of `grant/old`.
fn replace(store: &Store, to: &[u8]) -> Result<Outcome, StoreError> {
    let generation = read(store, "grant/old").expect("read").expect("a record").generation;
    commit(store, Changes::one(Change::replace(name("grant/old"), generation, record(to))))
}

#[test]
fn after_a_failed_confirmation_the_disk_is_asked_for_what_it_has() {
    for is_lost in [false, true] {
        let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
        let store = store_on(&disk, &folder);
        disk.set(Fault::Sync { code: EIO, is_lost });
        let ended = replace(&store, b"new");
        let after = value(&store, "grant/old").expect("a record");
        if is_lost {
            assert!(matches!(ended, Err(StoreError::Io(_))), "{ended:?}");
            assert_eq!(after, b"old");
        } else {
            // It has been read again, and confirmed.
            assert!(matches!(ended, Ok(Outcome::Committed(_))), "{ended:?}");
            assert_eq!(after, b"new");
        }
        assert_eq!((store.sizes().reopened, store.failure()), (1, None));
        assert!(matches!(replace(&store, b"next"), Ok(Outcome::Committed(_))), "it goes on");
        drop(store);
        assert_eq!(value(&folder.open(), "grant/old").as_deref(), Some(&b"next"[..]));
    }
}

#[test]
fn a_write_that_fails_half_way_changes_nothing() {
    for (code, expected) in [(EIO, "disk failed"), (ENOSPC, "no room"), (EROFS, "cannot be written")] {
        let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
        let store = store_on(&disk, &folder);
        disk.set(Fault::HalfWrite { code });
        let ended = create(&store, "grant/new", b"new");
        assert!(ended.as_ref().is_err_and(|error| error.to_string().contains(expected)), "{code}: {ended:?}");
        assert_eq!(value(&store, "grant/new"), None);
        assert_eq!(value(&store, "grant/old").as_deref(), Some(&b"old"[..]));
        assert!(matches!(replace(&store, b"neu"), Ok(Outcome::Committed(_))), "it goes on");
    }
}

#[test]
fn on_a_full_disk_the_rest_goes_on_and_all_does_once_there_is_room() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = store_on(&disk, &folder);
    let big = |number: u32| create(&store, &format!("big/{number}"), &vec![b'x'; 20_000]);
    for number in 0..40 {
        big(number).expect("created");
    }
    disk.set(Fault::Resize { code: ENOSPC });
    let number = (40..200).find(|number| match big(*number) {
        Ok(_) => false,
        Err(StoreError::Full(_)) => true,
        Err(other) => panic!("{other:?}"),
    });
    let number = number.expect("the file cannot grow");
    // Reads, deletions and changes that need no more go on, and so do they beside one that does.
    assert_eq!(value(&store, "grant/old").as_deref(), Some(&b"old"[..]));
    let neu = replace(&store, b"neu");
    assert!(matches!(neu, Ok(Outcome::Committed(_))), "{number} {neu:?} {:?}", store.sizes());
    let more = store.commit(created("big/more", &vec![b'x'; 60_000]), NOW_S);
    let same = replace(&store, b"nov");
    assert!(matches!(more.wait(), Err(StoreError::Full(_))));
    assert!(matches!(same, Ok(Outcome::Committed(_))));
    let generation = read(&store, "big/1").expect("read").expect("a record").generation;
    let deleted = commit(&store, Changes::one(Change::delete(name("big/1"), generation)));
    assert_eq!(deleted, Ok(Outcome::Committed(vec![None])));
    disk.set(Fault::None);
    eventually(|| big(number).is_ok());
    create(&store, "big/more", &vec![b'x'; 60_000]).expect("there is room");
}

#[test]
fn on_a_full_disk_records_of_people_can_be_replaced_and_deleted() {
    for value_bytes in [900, 3_000, 9_000] {
        let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
        let store = store_on(&disk, &folder);
        let count = (0..100_000_usize).find(|number| {
            // The smallest files have not a page to spare.
            if store.sizes().file_bytes > 256 * 1024 {
                disk.set(Fault::Resize { code: ENOSPC });
            }
            match create(&store, &format!("grant/{number}"), &vec![b'x'; value_bytes]) {
                Ok(_) => false,
                Err(StoreError::Full(_)) => true,
                Err(other) => panic!("{other:?}"),
            }
        });
        let count = count.expect("the file cannot grow");
        let before = store.sizes();
        for number in (0..count).step_by(count.div_ceil(20)) {
            let at = format!("grant/{number}");
            let generation = read(&store, &at).expect("read").expect("a record").generation;
            let same = Change::replace(name(&at), generation, record(&vec![b'y'; value_bytes]));
            let replaced = commit(&store, Changes::one(same));
            assert!(
                matches!(replaced, Ok(Outcome::Committed(_))),
                "{at} of {count} {before:?} {replaced:?} {:?}",
                store.sizes()
            );
        }
        for number in (0..count).step_by(count.div_ceil(20)) {
            let at = format!("grant/{number}");
            let generation = read(&store, &at).expect("read").expect("a record").generation;
            let deleted = commit(&store, Changes::one(Change::delete(name(&at), generation)));
            assert_eq!(deleted, Ok(Outcome::Committed(vec![None])), "{at} of {count} {:?}", store.sizes());
        }
    }
}

#[test]
fn a_file_that_cannot_be_opened_again_is_tried_until_it_can() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = store_on(&disk, &folder);
    for number in 0..300 {
        create(&store, &format!("big/{number}"), &vec![b'x'; 30_000]).expect("created");
    }
    disk.set(Fault::Read { code: EIO });
    // The cache has some of them.
    let failed = (0..300).find_map(|number| read(&store, &format!("big/{number}")).err());
    assert!(matches!(failed, Some(StoreError::Io(_))), "{failed:?}");
    eventually(|| store.failure().is_some());
    assert!(matches!(create(&store, "grant/new", b"x"), Err(StoreError::Io(_))));
    assert!(matches!(read(&store, "grant/old"), Err(StoreError::Io(_))));
    disk.set(Fault::None);
    eventually(|| store.failure().is_none());
    assert_eq!(value(&store, "grant/old").as_deref(), Some(&b"old"[..]));
    create(&store, "grant/new", b"x").expect("it goes on");
    assert_eq!(store.sizes().records(), 302);
}

#[test]
fn a_file_that_is_damaged_while_it_is_open_stays_closed() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = store_on(&disk, &folder);
    std::fs::write(folder.path(), b"something else").expect("damaged");
    disk.set(Fault::HalfWrite { code: EIO });
    replace(&store, b"new").expect_err("it is damaged");
    let failure = store.failure().expect("it is known");
    assert!(matches!(failure, StoreError::Damaged(_)), "{failure:?}");
    assert_eq!(read(&store, "grant/old"), Err(failure.clone()));
    assert_eq!(create(&store, "grant/new", b"x"), Err(failure));
}

#[test]
fn a_file_at_its_bound_is_full_and_has_room_after_deletions() {
    let folder = Folder::new();
    let file_bytes_max = 2 * 1024 * 1024;
    let store = Store::open(&folder.path(), NOW_S, Limits { file_bytes_max, ..LIMITS }).expect("a store");
    let count =
        (0..10_000).find(|number| match create(&store, &format!("grant/{number}"), &vec![b'x'; 900]) {
            Ok(_) => false,
            Err(StoreError::Full(_)) => true,
            Err(other) => panic!("{other:?}"),
        });
    let count = count.expect("it is full");
    assert!(count > 400, "a file of {file_bytes_max} bytes holds {count} records of 900");
    for number in 0..count {
        let at = format!("grant/{number}");
        let generation = read(&store, &at).expect("read").expect("a record").generation;
        let same = Change::replace(name(&at), generation, record(&[b'y'; 900]));
        assert!(matches!(commit(&store, Changes::one(same)), Ok(Outcome::Committed(_))), "{at}");
    }
    for number in 0..count {
        let at = format!("grant/{number}");
        let generation = read(&store, &at).expect("read").expect("a record").generation;
        let deleted = commit(&store, Changes::one(Change::delete(name(&at), generation)));
        assert_eq!(deleted, Ok(Outcome::Committed(vec![None])), "{at}");
        assert!(store.sizes().file_bytes <= file_bytes_max);
    }
    for number in 0..count / 2 {
        create(&store, &format!("again/{number}"), &vec![b'x'; 900]).expect("there is room");
    }
    assert_eq!(store.sizes().reopened, 0, "the bound was not run into");
}

#[test]
fn a_file_without_much_in_it_is_made_smaller() {
    let folder = Folder::new();
    let store = folder.open();
    for number in 0..400 {
        create(&store, &format!("grant/{number:03}"), &vec![b'x'; 20_000]).expect("created");
    }
    let full = store.sizes().file_bytes;
    for number in 0..400 {
        if number % 40 != 39 {
            let at = format!("grant/{number:03}");
            let generation = read(&store, &at).expect("read").expect("a record").generation;
            commit(&store, Changes::one(Change::delete(name(&at), generation))).expect("deleted");
        }
    }
    assert_eq!(store.compact().wait(), Ok(true));
    let small = store.sizes().file_bytes;
    assert!(small * 4 < full, "{small} bytes after {full}");
    assert_eq!(std::fs::metadata(folder.path()).expect("a file").len(), small);
    for number in (39..400).step_by(40) {
        assert_eq!(value(&store, &format!("grant/{number:03}")), Some(vec![b'x'; 20_000]));
    }
    create(&store, "grant/new", b"x").expect("it goes on");
}

/// Waits until it is so.
fn eventually(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it did not come about");
        std::thread::yield_now();
    }
}

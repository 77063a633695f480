//! Records of one store, as its callers see them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::setup::{Folder, LIMITS, commit, create, created, name, read, record, value};
use crate::cases::{self, NOW_S};
use crate::{Change, Changes, KindSize, Limits, NewRecord, Outcome, Store, StoreError};

#[test]
fn a_store_passes_all_cases() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut folders = Vec::new();
    runtime.block_on(cases::run_all(async || {
        let folder = Folder::new();
        let store = folder.open();
        folders.push(folder);
        store
    }));
}

#[test]
fn records_outlive_the_store() {
    let folder = Folder::new();
    let store = folder.open();
    let generation = create(&store, "grant/1", b"one").expect("created");
    create(&store, "account/1", b"two").expect("created");
    let before = read(&store, "grant/1");
    store.close();
    assert_eq!(read(&store, "grant/1"), Err(StoreError::Closed));
    assert_eq!(commit(&store, created("grant/2", b"")), Err(StoreError::Closed));
    let store = folder.open();
    assert_eq!(read(&store, "grant/1"), before);
    assert_eq!(value(&store, "account/1").as_deref(), Some(&b"two"[..]));
    let next = create(&store, "grant/2", b"three").expect("created");
    assert!(next > generation, "{next} after {generation}");
}

#[test]
fn a_file_that_is_set_back_gives_no_generation_again() {
    let folder = Folder::new();
    folder.open().close();
    let copy = std::fs::read(folder.path()).expect("a copy");
    let store = folder.open();
    let given = create(&store, "grant/1", b"one").expect("created");
    drop(store);
    std::fs::write(folder.path(), copy).expect("set back");
    let store = Store::open(&folder.path(), NOW_S + 1, LIMITS).expect("a store");
    assert_eq!(value(&store, "grant/1"), None);
    let next = create(&store, "grant/1", b"other").expect("created");
    assert!(next > given, "{next} after {given}");
}

#[test]
fn the_size_is_counted_by_kind_and_found_again() {
    let folder = Folder::new();
    let store = folder.open();
    create(&store, "grant/1", b"12345").expect("created");
    let generation = create(&store, "grant/2", b"123").expect("created");
    create(&store, "account/1", b"").expect("created");
    let longer = Change::replace(name("grant/2"), generation, record(b"1234"));
    assert!(matches!(commit(&store, Changes::one(longer)), Ok(Outcome::Committed(_))));
    assert_eq!(commit(&store, created("grant/1", b"")), Ok(Outcome::Conflict));
    let sizes = store.sizes();
    let expected = [
        ("account".to_owned(), KindSize { records: 1, bytes: 9 }),
        ("grant".to_owned(), KindSize { records: 2, bytes: 7 + 5 + 7 + 4 }),
    ];
    assert_eq!(sizes.kinds, expected.clone().into());
    assert_eq!((sizes.records(), sizes.commits, sizes.conflicts, sizes.reopened), (3, 4, 1, 0));
    assert_eq!(sizes.file_bytes, std::fs::metadata(folder.path()).expect("a file").len());
    drop(store);
    let store = folder.open();
    assert_eq!(store.sizes().kinds, expected.into());
}

#[test]
fn a_sweep_is_bounded() {
    let folder = Folder::new();
    let store = folder.open();
    let ending = |until_s: u64| NewRecord::new(vec![1], until_s).expect("short");
    for number in 0..600 {
        let change = Change::create(name(&format!("code/{number}")), ending(NOW_S + number / 10));
        assert!(matches!(commit(&store, Changes::one(change)), Ok(Outcome::Committed(_))));
    }
    let swept = store.sweep(NOW_S + 50).wait().expect("swept");
    assert_eq!((swept.removed, swept.has_more), (256, true));
    let swept = store.sweep(NOW_S + 50).wait().expect("swept");
    assert_eq!((swept.removed, swept.has_more), (500 - 256, false));
    assert_eq!(store.sweep(NOW_S + 50).wait().expect("swept").removed, 0);
    assert_eq!(store.sizes().records(), 100);
}

#[test]
fn a_page_ends_with_its_bytes() {
    let folder = Folder::new();
    let store = folder.open();
    for number in 0..40 {
        create(&store, &format!("big/{number:02}"), &vec![b'x'; 64 * 1024]).expect("created");
    }
    let (mut pages, mut records, mut after) = (0, 0, None);
    loop {
        let page = store.list("big/", after, 1000, NOW_S).wait().expect("a page");
        pages += 1;
        records += page.records.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, records), (3, 40));
}

#[test]
fn one_record_too_many_is_refused_and_the_rest_goes_on() {
    let folder = Folder::new();
    let store = Store::open(&folder.path(), NOW_S, Limits { records_max: 3, ..LIMITS }).expect("a store");
    let mut generation = 0;
    for number in 0..3 {
        generation = create(&store, &format!("grant/{number}"), b"x").expect("room");
    }
    let refused = create(&store, "grant/3", b"x");
    assert_eq!(refused, Err(StoreError::Full("it may have 3 records".to_owned())));
    // Another in the place of one is no more than before.
    let moved =
        vec![Change::delete(name("grant/2"), generation), Change::create(name("grant/3"), record(b"x"))];
    assert!(matches!(commit(&store, Changes::new(moved).expect("two")), Ok(Outcome::Committed(_))));
    assert_eq!(store.sizes().records(), 3);
    let generation = read(&store, "grant/3").expect("read").expect("a record").generation;
    let deleted = commit(&store, Changes::one(Change::delete(name("grant/3"), generation)));
    assert_eq!(deleted, Ok(Outcome::Committed(vec![None])));
    create(&store, "grant/4", b"x").expect("room again");
}

#[test]
fn a_copy_is_a_store_of_one_moment() {
    let folder = Folder::new();
    let store = folder.open();
    let ending = NewRecord::new(vec![1], NOW_S + 5).expect("short");
    commit(&store, Changes::one(Change::create(name("code/1"), ending))).expect("created");
    for number in 0..200 {
        create(&store, &format!("grant/{number}"), &vec![b'x'; 3000]).expect("created");
    }
    let (path, is_over) = (folder.path().with_extension("copy"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Pairs that are changed together, while the copy is made.
        let (store, is_over) = (&store, &is_over);
        scope.spawn(move || {
            for number in 0.. {
                let pair = ["left", "right"]
                    .map(|side| Change::create(name(&format!("{side}/{number}")), record(b"x")));
                commit(store, Changes::new(pair.to_vec()).expect("two")).expect("created");
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let bytes = store.copy_to(&path);
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(bytes, Ok(std::fs::metadata(&path).expect("a copy").len()));
    });
    let again = store.copy_to(&path).expect_err("it is there").to_string();
    assert!(again.contains("which a copy does not replace"), "{again}");
    let copy = Store::open(&path, NOW_S, LIMITS).expect("a store");
    let kinds = copy.sizes().kinds;
    assert_eq!(kinds["grant"].records, 200);
    assert_eq!(kinds.get("left").map(|kind| kind.records), kinds.get("right").map(|kind| kind.records));
    assert_eq!(read(&copy, "grant/7"), read(&store, "grant/7"));
    assert_eq!(copy.sweep(NOW_S + 6).wait().expect("swept").removed, 1);
    create(&copy, "grant/new", b"x").expect("it can be used");
}

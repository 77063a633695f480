//! The file: who may read it, who has it open, and files that are no store.

use std::os::unix::fs::PermissionsExt as _;

use super::setup::{Folder, LIMITS, create, value};
use crate::cases::NOW_S;
use crate::{Store, StoreError};

#[test]
fn the_file_is_for_its_user_alone() {
    let folder = Folder::new();
    let mode = || std::fs::metadata(folder.path()).expect("a file").permissions().mode() & 0o7777;
    folder.open().close();
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o664)).expect("a mode");
    folder.open().close();
    assert_eq!(mode(), 0o600);
}

#[test]
fn one_process_has_it_open() {
    let folder = Folder::new();
    let store = folder.open();
    create(&store, "grant/1", b"x").expect("created");
    let error = folder.try_open().expect_err("it is locked");
    assert!(matches!(error, StoreError::InUse(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("in use by another process") && text.contains("store.redb"), "{text}");
    create(&store, "grant/2", b"x").expect("the first goes on");
    drop(store);
    assert!(folder.try_open().is_ok());
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left() {
    for bytes in [&b""[..], b"x", &vec![0; 200_000], b"[shared]\nurl = \"redis://\"\n"] {
        let folder = Folder::new();
        std::fs::write(folder.path(), bytes).expect("a file");
        let error = folder.try_open().expect_err("no store");
        assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
        assert!(error.to_string().contains("put a back-up in its place"), "{error}");
        assert_eq!(std::fs::read(folder.path()).expect("it is left"), bytes);
    }
}

#[test]
fn a_file_of_another_program_or_version_is_refused() {
    const OTHER: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("counters");
    for table in [Some(OTHER), None] {
        let folder = Folder::new();
        let database = redb::Database::create(folder.path()).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        if let Some(table) = table {
            transaction.open_table(table).expect("a table").insert("version", 2).expect("inserted");
        }
        transaction.commit().expect("committed");
        drop(database);
        let error = folder.try_open().expect_err("another");
        assert!(matches!(error, StoreError::OtherVersion(_)), "{error:?}");
    }
}

#[test]
fn a_link_is_not_followed() {
    let folder = Folder::new();
    let elsewhere = folder.path().with_extension("elsewhere");
    std::fs::write(&elsewhere, b"").expect("a file");
    std::os::unix::fs::symlink(&elsewhere, folder.path()).expect("a link");
    folder.try_open().expect_err("a link");
    assert_eq!(std::fs::read(&elsewhere).expect("it is left"), b"");
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let read_only =
        Store::open(std::path::Path::new("/sys/store.redb"), NOW_S, LIMITS).expect_err("not here");
    assert!(matches!(read_only, StoreError::ReadOnly(_)), "{read_only:?}");
    assert!(read_only.to_string().contains("/sys/store.redb"), "{read_only}");
    let none =
        Store::open(std::path::Path::new("/nonexistent/store.redb"), NOW_S, LIMITS).expect_err("no folder");
    assert!(matches!(none, StoreError::Io(_)), "{none:?}");
}

/// Each byte of the file matters, or none of the answers changes.
#[test]
fn damage_is_found_at_the_start() {
    let folder = Folder::new();
    let store = folder.open();
    for number in 0..20 {
        create(&store, &format!("grant/{number}"), &[b'v'; 700]).expect("created");
    }
    drop(store);
    let whole = std::fs::read(folder.path()).expect("a file");
    let (mut refused, step) = (0, whole.len() / 400);
    for at in (0..whole.len()).step_by(step) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        std::fs::write(folder.path(), damaged).expect("a file");
        match folder.try_open() {
            Err(StoreError::Damaged(_) | StoreError::OtherVersion(_)) => refused += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
            Ok(store) => {
                for number in 0..20 {
                    let value = value(&store, &format!("grant/{number}"));
                    assert_eq!(value.as_deref(), Some(&[b'v'; 700][..]), "byte {at}");
                }
            }
        }
    }
    assert!(refused > 20, "only {refused} were found");
    for length in [whole.len() / 2, whole.len() - 1, 4096, 100] {
        std::fs::write(folder.path(), &whole[..length]).expect("a file");
        let error = folder.try_open().expect_err("it is cut off");
        assert!(matches!(error, StoreError::Damaged(_)), "{length}: {error:?}");
    }
}

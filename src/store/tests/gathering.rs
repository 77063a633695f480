//! Commits of many share one confirmation of the disk.

use std::io;
use std::sync::{Arc, Barrier};

use parking_lot::{Condvar, Mutex};

use super::setup::{Folder, LIMITS, commit, create, created, name, record, value};
use crate::cases::NOW_S;
use crate::file::Faults;
use crate::{Change, Changes, Limits, Outcome, StoreError};

const CLIENTS: u8 = 64;

/// A disk that confirms nothing while the gate is closed.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn close(&self) {
        self.state.lock().is_closed = true;
    }

    fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }

    /// Waits until the store waits for the disk.
    fn wait_for_one(&self) {
        let mut state = self.state.lock();
        while state.waiting == 0 {
            self.changed.wait(&mut state);
        }
    }
}

impl Faults for Gate {
    fn before_sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.changed.notify_all();
        while state.is_closed {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        Ok(())
    }
}

#[test]
fn commits_that_wait_share_one_confirmation() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, LIMITS).expect("a store");
    let before = store.sizes();
    for round in 0..4 {
        gate.close();
        let first = store.commit(created(&format!("first/{round}"), b"x"), NOW_S);
        gate.wait_for_one();
        let all_wait = Barrier::new(usize::from(CLIENTS) + 1);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (store, all_wait) = (&store, &all_wait);
                scope.spawn(move || {
                    let answer = store.commit(created(&format!("grant/{round}-{client}"), b"value"), NOW_S);
                    all_wait.wait();
                    assert!(matches!(answer.wait(), Ok(Outcome::Committed(_))));
                });
            }
            all_wait.wait();
            gate.open();
        });
        first.wait().expect("committed");
    }
    let after = store.sizes();
    let (commits, fsyncs) = (after.commits - before.commits, after.fsyncs - before.fsyncs);
    assert_eq!(commits, 4 * (u64::from(CLIENTS) + 1));
    assert!(commits >= 20 * fsyncs, "{commits} commits, {fsyncs} confirmations");
}

#[test]
fn in_one_batch_one_of_many_wins() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, LIMITS).expect("a store");
    let generation = create(&store, "grant/1", b"0").expect("created");
    gate.close();
    let first = store.commit(created("first/1", b"x"), NOW_S);
    gate.wait_for_one();
    let answers = (1..=CLIENTS).map(|client| {
        let change = Change::replace(name("grant/1"), generation, record(&[client]));
        store.commit(Changes::one(change), NOW_S)
    });
    let answers = answers.collect::<Vec<_>>();
    gate.open();
    first.wait().expect("committed");
    let outcomes = answers.into_iter().map(|answer| answer.wait().expect("judged")).collect::<Vec<_>>();
    assert!(matches!(outcomes[0], Outcome::Committed(_)), "they are judged in their order");
    assert!(outcomes[1..].iter().all(|outcome| *outcome == Outcome::Conflict));
    assert_eq!(value(&store, "grant/1"), Some(vec![1]));
}

#[test]
fn nothing_is_answered_before_the_disk_has_confirmed_it() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, LIMITS).expect("a store");
    gate.close();
    let mut answer = store.commit(created("grant/1", b"x"), NOW_S);
    gate.wait_for_one();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut answer).poll(&mut context).is_pending());
    assert_eq!(value(&store, "grant/1"), None, "reads go on, and see nothing of it");
    gate.open();
    assert!(matches!(answer.wait(), Ok(Outcome::Committed(_))));
    assert_eq!(value(&store, "grant/1").as_deref(), Some(&b"x"[..]));
}

#[test]
fn more_than_may_wait_is_refused() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, Limits { queue_max: 4, ..LIMITS }).expect("a store");
    gate.close();
    let first = store.commit(created("first/1", b"x"), NOW_S);
    gate.wait_for_one();
    let answers = (0..6).map(|number| store.commit(created(&format!("grant/{number}"), b"x"), NOW_S));
    let answers = answers.collect::<Vec<_>>();
    gate.open();
    first.wait().expect("committed");
    let ends = answers.into_iter().map(|answer| answer.wait().err()).collect::<Vec<_>>();
    assert_eq!(ends, [None, None, None, None, Some(StoreError::Busy), Some(StoreError::Busy)]);
    create(&store, "grant/5", b"x").expect("there is room again");
}

#[test]
fn bytes_that_wait_have_a_bound_too() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, Limits { file_bytes_max: 1 << 30, ..LIMITS }).expect("a store");
    gate.close();
    let first = store.commit(created("first/1", b"x"), NOW_S);
    gate.wait_for_one();
    let big = vec![b'x'; crate::VALUE_BYTES_MAX];
    let answers = (0..300).map(|number| store.commit(created(&format!("big/{number}"), &big), NOW_S));
    let answers = answers.collect::<Vec<_>>();
    gate.open();
    first.wait().expect("committed");
    let refused = answers.into_iter().filter_map(|answer| answer.wait().err()).collect::<Vec<_>>();
    assert!(refused.len() > 40 && refused.iter().all(|error| *error == StoreError::Busy), "{refused:?}");
    assert!(matches!(commit(&store, created("grant/1", &big)), Ok(Outcome::Committed(_))));
}

#[test]
fn what_waits_when_the_store_is_closed_is_done() {
    let (folder, gate) = (Folder::new(), Arc::new(Gate::default()));
    let store = folder.open_faulty(&gate, LIMITS).expect("a store");
    gate.close();
    let first = store.commit(created("grant/0", b"x"), NOW_S);
    gate.wait_for_one();
    let second = store.commit(created("grant/1", b"x"), NOW_S);
    std::thread::scope(|scope| {
        scope.spawn(|| store.close());
        gate.open();
    });
    assert!(matches!(first.wait(), Ok(Outcome::Committed(_))));
    assert!(matches!(second.wait(), Ok(Outcome::Committed(_))));
    let store = folder.open();
    assert!(value(&store, "grant/0").is_some() && value(&store, "grant/1").is_some());
}

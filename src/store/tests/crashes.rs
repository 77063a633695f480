//! Ends of the process at each step, and losses of power: what was answered is there, and what was not is whole or absent.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};

use super::setup::{Folder, LIMITS, commit, name, open_faulty, read, record, value};
use crate::cases::NOW_S;
use crate::file::Faults;
use crate::{Change, Changes, Expected, Store};

/// The commits that are made, each of three records.
const ROUNDS: u64 = 4;
const CHANGED: [&str; 3] = ["grant/1", "account/1", "connection/1"];

/// Says in each of three records which commit this is, from the one after `from` on.
fn change_all(store: &Store, from: u64, answered: impl Fn(u64)) {
    for round in from + 1..=ROUNDS {
        let change = |at: &&str| Change {
            name: name(at),
            expected: read(store, at)
                .expect("read")
                .map_or(Expected::Absent, |record| Expected::Generation(record.generation)),
            // Long ones make the file grow.
            to: Some(record(&vec![
                u8::try_from(round).expect("few");
                9_000 * usize::try_from(round).expect("few")
            ])),
        };
        let changes = Changes::new(CHANGED.iter().map(change).collect()).expect("three");
        commit(store, changes).expect("committed");
        answered(round);
    }
}

/// The commit that all three records are of, after a crash in which `answered` was the last to be answered.
fn check_all(store: &Store, answered: u64, what: &str) -> u64 {
    let rounds = CHANGED.map(|at| value(store, at).map_or(0, |value| u64::from(value[0])));
    assert!(rounds.iter().all(|round| *round == rounds[0]), "{what}: {rounds:?}");
    assert!(
        (answered..=answered + 1).contains(&rounds[0]),
        "{what}: {} after {answered} were answered",
        rounds[0]
    );
    rounds[0]
}

/// Ends this process before the step that is due.
#[derive(Debug)]
struct Killer {
    steps: AtomicU64,
    last: u64,
    is_half: bool,
}

impl Killer {
    /// True: the step is due.
    fn is_due(&self) -> bool {
        self.steps.fetch_add(1, Ordering::SeqCst) == self.last
    }

    fn strike(&self) -> io::Result<()> {
        if self.is_due() { die() } else { Ok(()) }
    }
}

fn die() -> io::Result<()> {
    kill_process(getpid(), Signal::KILL)?;
    loop {
        std::thread::park();
    }
}

impl Faults for Killer {
    fn before_resize(&self, _bytes: u64) -> io::Result<()> {
        self.strike()
    }

    fn before_sync(&self) -> io::Result<()> {
        self.strike()
    }

    fn after_sync(&self) -> io::Result<()> {
        self.strike()
    }

    fn write(&self, _offset: u64, data: &[u8], write: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !self.is_due() {
            return write(data);
        }
        if self.is_half {
            write(&data[..data.len() / 2])?;
        }
        die()
    }
}

const CHILD: &str = "TRUNKLINE_STORE_CRASH";

/// A child works on a store and is killed; this one looks at the file, and works on with it.
#[test]
fn answered_commits_outlive_a_kill_at_each_step() {
    if let Some(job) = std::env::var_os(CHILD) {
        return be_killed(&PathBuf::from(job));
    }
    for is_half in [false, true] {
        let mut killed = 0;
        for last in 0.. {
            let folder = Folder::new();
            let job = folder.path().with_extension("job");
            std::fs::write(&job, format!("{last} {is_half}")).expect("a job");
            let child = Command::new(std::env::current_exe().expect("a program"))
                .args(["--exact", "tests::crashes::answered_commits_outlive_a_kill_at_each_step"])
                .env(CHILD, &job)
                .output()
                .expect("a child");
            let answered = answered_of(&job);
            let store = folder.open();
            let round = check_all(&store, answered, &format!("step {last}, half {is_half}"));
            change_all(&store, round, |_| {});
            assert_eq!(check_all(&store, ROUNDS, "after all"), ROUNDS);
            if child.status.success() {
                assert_eq!(answered, ROUNDS);
                break;
            }
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.status), Some(9), "{child:?}");
            killed += 1;
        }
        assert!(killed > 30, "only {killed} steps");
    }
}

fn answered_of(job: &Path) -> u64 {
    std::fs::read_to_string(job.with_extension("answered")).map_or(0, |text| text.parse().expect("a number"))
}

fn be_killed(job: &Path) {
    let text = std::fs::read_to_string(job).expect("a job");
    let (last, is_half) = text.split_once(' ').expect("two words");
    let killer = Killer {
        steps: AtomicU64::new(0),
        last: last.parse().expect("a number"),
        is_half: is_half == "true",
    };
    let store = open_faulty(&job.with_extension("redb"), Arc::new(killer), LIMITS).expect("a store");
    change_all(&store, 0, |round| {
        std::fs::write(job.with_extension("answered"), round.to_string()).expect("noted");
    });
    store.close();
}

/// A disk that remembers what it has not confirmed.
#[derive(Debug, Default)]
struct Disk {
    state: Mutex<DiskState>,
    answered: AtomicU64,
}

#[derive(Debug, Default)]
struct DiskState {
    /// The bytes that outlive a loss of power.
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// The moments at which power may be lost.
    moments: Vec<Moment>,
}

#[derive(Clone, Debug)]
enum Pending {
    Write(u64, Vec<u8>),
    Resize(u64),
}

#[derive(Debug)]
struct Moment {
    durable: Vec<u8>,
    pending: Vec<Pending>,
    answered: u64,
}

impl Disk {
    fn note(&self, change: impl FnOnce(&mut DiskState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let moment = Moment {
            durable: state.durable.clone(),
            pending: state.pending.clone(),
            answered: self.answered.load(Ordering::SeqCst),
        };
        state.moments.push(moment);
    }
}

impl Faults for Disk {
    fn before_resize(&self, bytes: u64) -> io::Result<()> {
        self.note(|state| state.pending.push(Pending::Resize(bytes)));
        Ok(())
    }

    fn after_sync(&self) -> io::Result<()> {
        self.note(|state| {
            for pending in std::mem::take(&mut state.pending) {
                apply(&mut state.durable, &pending, usize::MAX);
            }
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], write: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        write(data)?;
        self.note(|state| state.pending.push(Pending::Write(offset, data.to_vec())));
        Ok(())
    }
}

/// Does what was pending, of a write at most the first `bytes`.
fn apply(image: &mut Vec<u8>, pending: &Pending, bytes: usize) {
    match pending {
        Pending::Resize(length) => image.resize(usize::try_from(*length).expect("small"), 0),
        Pending::Write(offset, data) => {
            let offset = usize::try_from(*offset).expect("small");
            let data = &data[..data.len().min(bytes)];
            if image.len() < offset + data.len() {
                image.resize(offset + data.len(), 0);
            }
            image[offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

/// Of what was not confirmed, a loss of power leaves any part, in sectors of 512 bytes.
#[test]
fn answered_commits_outlive_a_loss_of_power() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    // A file that is just being made has no name yet.
    folder.open().close();
    disk.state.lock().durable = std::fs::read(folder.path()).expect("a file");
    let store = folder.open_faulty(&disk, LIMITS).expect("a store");
    change_all(&store, 0, |round| disk.answered.store(round, Ordering::SeqCst));
    store.close();
    let moments = std::mem::take(&mut disk.state.lock().moments);
    assert!(moments.len() > 30, "only {} moments", moments.len());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for (number, moment) in moments.iter().enumerate() {
        for attempt in 0..3 {
            let mut image = moment.durable.clone();
            for pending in &moment.pending {
                match next(4) {
                    0 => {}
                    1 => apply(&mut image, pending, 512 * usize::try_from(next(9)).expect("small")),
                    _ => apply(&mut image, pending, usize::MAX),
                }
            }
            let lost = Folder::new();
            std::fs::write(lost.path(), &image).expect("an image");
            let what = format!("moment {number}, attempt {attempt}");
            let store = lost.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
            check_all(&store, moment.answered, &what);
        }
    }
}

#[test]
fn a_file_that_was_being_made_is_in_nobodys_way() {
    for rest in [&b""[..], b"half", &vec![0; 300_000]] {
        let folder = Folder::new();
        let aside = folder.path().with_extension("redb.new");
        std::fs::write(&aside, rest).expect("a rest");
        let store = Store::open(&folder.path(), NOW_S, LIMITS).expect("a store");
        assert!(!aside.exists());
        change_all(&store, 0, |_| {});
    }
}

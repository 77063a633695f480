//! The thread that writes: it takes all commits that wait into one transaction, and makes the disk confirm it once.
//!
//! After any failure the file is closed, opened again and read from the disk, and nothing of before is trusted. The
//! number of commits in the file then tells whether the transaction came through. While the file cannot be opened, the
//! thread tries again each second; it does not where the file is damaged, which only an operator can mend.
//!
//! Invariants: an answer is sent after the disk has confirmed what it says, and each task gets one.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::answer::Reply;
use crate::batch::{self, Begun, Desk, Judged, Swept, Task, Verdict};
use crate::change::Outcome;
use crate::error::StoreError;
use crate::fault::{Fault, caught};
use crate::file::Place;
use crate::ledger::Ledger;
use crate::open::open_again;
use crate::room::Room;
use crate::shared::{Shared, State};

/// The pause between two attempts to open a file that has failed, and between two to use more of a full disk.
const AGAIN: Duration = Duration::from_secs(1);

/// The work of the thread.
#[derive(Debug)]
pub(crate) enum Work {
    Task(Task, TaskReply),
    /// Gives room back to the file system. The answer tells whether there was some.
    Compact(Reply<bool>),
    /// A read has failed.
    Mend,
    Close,
}

/// The way back to who gave a task.
#[derive(Debug)]
pub(crate) enum TaskReply {
    Commit(Reply<Outcome>),
    Sweep(Reply<Swept>),
}

impl TaskReply {
    /// Answers, if there is still somebody who waits.
    fn send(self, verdict: Result<Verdict, StoreError>) {
        match (self, verdict) {
            (Self::Commit(reply), Ok(Verdict::Outcome(outcome))) => drop(reply.send(Ok(outcome))),
            (Self::Sweep(reply), Ok(Verdict::Swept(swept))) => drop(reply.send(Ok(swept))),
            (Self::Commit(reply), Ok(Verdict::Refused(error)) | Err(error)) => drop(reply.send(Err(error))),
            (Self::Sweep(reply), Ok(Verdict::Refused(error)) | Err(error)) => drop(reply.send(Err(error))),
            // No task has the verdict of another kind.
            (Self::Commit(_), Ok(Verdict::Swept(_))) | (Self::Sweep(_), Ok(Verdict::Outcome(_))) => {}
        }
    }
}

/// A transaction that failed.
struct Failure {
    error: StoreError,
    /// All that it would have done, if it was begun to be made durable.
    judged: Option<Judged>,
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) place: Place,
    pub(crate) ledger: Ledger,
    pub(crate) room: Room,
    pub(crate) work: Receiver<Work>,
    /// The most parts of one batch.
    pub(crate) batch_max: usize,
    /// Since when the disk is full, as far as is known.
    pub(crate) disk_full: Option<Instant>,
}

/// The work that waited.
#[derive(Default)]
struct Gathered {
    tasks: Vec<(Task, TaskReply)>,
    compactions: Vec<Reply<bool>>,
    is_last: bool,
}

impl Writer {
    /// Works until it is told to close, or until the last sender is gone.
    pub(crate) fn run(mut self) {
        loop {
            let mut gathered = self.gather();
            if self.shared.is_faulty.load(Ordering::Acquire) || self.may_mend() {
                let _ = self.mend(StoreError::Io("a read has failed".to_owned()));
            }
            self.serve(mem::take(&mut gathered.tasks));
            for reply in gathered.compactions {
                let _ = reply.send(self.compact());
            }
            if gathered.is_last {
                break;
            }
        }
        // Dropped here, the database closes its file.
        *self.shared.state.write() = State::Failed(StoreError::Closed);
    }

    fn may_mend(&self) -> bool {
        !matches!(self.shared.failure(), None | Some(StoreError::Damaged(_) | StoreError::OtherVersion(_)))
    }

    /// Waits for work, and takes all there is.
    fn gather(&self) -> Gathered {
        let first = if self.may_mend() {
            self.work.recv_timeout(AGAIN)
        } else {
            self.work.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let first = match first {
            Ok(work) => work,
            Err(RecvTimeoutError::Timeout) => return Gathered::default(),
            Err(RecvTimeoutError::Disconnected) => return Gathered { is_last: true, ..Gathered::default() },
        };
        let mut gathered = Gathered::default();
        for work in std::iter::once(first).chain(self.work.try_iter().take(self.batch_max)) {
            match work {
                Work::Task(task, reply) => gathered.tasks.push((task, reply)),
                Work::Compact(reply) => gathered.compactions.push(reply),
                Work::Mend => {}
                Work::Close => {
                    gathered.is_last = true;
                    break;
                }
            }
        }
        gathered
    }

    fn serve(&mut self, tasks: Vec<(Task, TaskReply)>) {
        if tasks.is_empty() {
            return;
        }
        self.disk_full = self.disk_full.filter(|since| since.elapsed() < AGAIN);
        let mut done = self.attempt(&tasks);
        if matches!(done, Err(StoreError::Full(_))) {
            // Without those that need more room, the others may find enough: what the last commit gave up is free by now.
            self.disk_full.get_or_insert_with(Instant::now);
            done = self.attempt(&tasks);
        }
        let queued_bytes = tasks.iter().map(|(task, _)| task.bytes()).sum();
        self.shared.queued_bytes.fetch_sub(queued_bytes, Ordering::Relaxed);
        match done {
            Ok(verdicts) => {
                self.count(&verdicts);
                for ((_, reply), verdict) in tasks.into_iter().zip(verdicts) {
                    reply.send(Ok(verdict));
                }
            }
            Err(error) => {
                for (_, reply) in tasks {
                    reply.send(Err(error.clone()));
                }
            }
        }
    }

    /// One transaction. After a failure the file was opened again, if that is possible.
    fn attempt(&mut self, tasks: &[(Task, TaskReply)]) -> Result<Vec<Verdict>, StoreError> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        match self.transact(tasks) {
            Ok(judged) => {
                self.take_over(judged.ledger);
                Ok(judged.verdicts)
            }
            Err(Failure { error, judged }) => {
                let mended = self.mend(error.clone());
                match judged {
                    None => Err(error),
                    Some(judged) if mended.is_ok() && self.ledger.commits == judged.ledger.commits => {
                        Ok(judged.verdicts)
                    }
                    Some(_) if mended.is_ok() => Err(error),
                    Some(_) => Err(StoreError::Io(format!("it is not known what was written: {error}"))),
                }
            }
        }
    }

    fn transact(&mut self, tasks: &[(Task, TaskReply)]) -> Result<Judged, Failure> {
        let mut desk = Desk {
            ledger: &self.ledger,
            room: &mut self.room,
            file_bytes: self.shared.figures.bytes.load(Ordering::Relaxed),
            is_disk_full: self.disk_full.is_some(),
        };
        self.shared.with(|database| {
            let begun = caught(|| batch::begin(database, &mut desk, tasks.iter().map(|(task, _)| task)));
            let (begun, judged) = begun.map_err(|Fault(error)| Failure { error, judged: None })?;
            match caught(|| Begun::finish(begun)) {
                Ok(()) => Ok(judged),
                Err(Fault(error)) => Err(Failure { error, judged: Some(judged) }),
            }
        })
    }

    fn take_over(&mut self, ledger: Ledger) {
        if ledger != self.ledger {
            self.ledger = ledger;
            self.shared.kinds.lock().clone_from(&self.ledger.kinds);
        }
    }

    fn count(&self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            match verdict {
                Verdict::Outcome(Outcome::Committed(_)) => &self.shared.commits,
                Verdict::Outcome(Outcome::Conflict) => &self.shared.conflicts,
                Verdict::Swept(_) | Verdict::Refused(_) => continue,
            }
            .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes the file, and opens it again as if for the first time.
    fn mend(&mut self, cause: StoreError) -> Result<(), StoreError> {
        let mut state = self.shared.state.write();
        // The file can be locked again once the database of before is gone.
        *state = State::Failed(cause);
        self.shared.is_faulty.store(false, Ordering::Release);
        match open_again(&self.place) {
            Ok((database, mut ledger)) => {
                *state = State::Open(database);
                drop(state);
                self.shared.reopened.fetch_add(1, Ordering::Relaxed);
                // None of those that were given, in vain perhaps, is given again.
                ledger.generation = ledger.generation.max(self.ledger.generation);
                self.take_over(ledger);
                Ok(())
            }
            Err(error) => {
                let error = error.at(&self.place.path);
                *state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn compact(&mut self) -> Result<bool, StoreError> {
        let compacted = match &mut *self.shared.state.write() {
            State::Open(database) => caught(|| Ok(database.compact()?)),
            State::Failed(error) => return Err(error.clone()),
        };
        compacted.map_err(|Fault(error)| {
            let _ = self.mend(error.clone());
            error
        })
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { error, judged: None }
    }
}

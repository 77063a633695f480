//! The journal's file: one thread writes it, behind those who change sessions.
//!
//! A change is a line in a bounded channel; a full channel drops it and counts it, so that a slow disk never
//! delays a call. The writer hands lines to the kernel as they come and forces nothing to the disk: a stopped
//! process loses what was in the channel, a stopped machine also what the kernel had not written. At start,
//! and when it has grown to several times what it needs, the file is written anew and swapped in.
//!
//! A change that could not be written is still in memory, and the file is behind. From then on the writer tries, with
//! pauses, to put what memory has in the place of the file, so that what was lost is written as soon as there is room.
//! Memory is looked at once no change waits in the channel: one that is older than what was lost must not come after it.
//! Memory changes before its change is told, so that the file says in the end what memory does.
//!
//! Invariant: the file never exceeds [`JOURNAL_BYTES_MAX`]; beyond it changes are kept in memory only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tokio::sync::oneshot;

use super::journal::{JournalRecord, Replay};
use crate::clock::{self, now_s};
use crate::directory::open_own;
use crate::state_files::{StateFileFault, StateFileHealth};

pub(super) const JOURNAL_BYTES_MAX: u64 = 64 << 20;
/// A smaller journal is not worth writing anew.
const COMPACTED_BYTES_MIN: u64 = 1 << 20;
/// Growth after which a journal is written anew.
const GROWTH: u64 = 4;
/// Between two attempts, so that a journal full of what is needed is not written over and over.
const COMPACTION_PAUSE: Duration = Duration::from_secs(10);
/// Between two log lines about a journal that cannot be written.
const LOG_PAUSE: Duration = Duration::from_mins(1);
/// Between two attempts to write what the file lacks, at least; and ten times what an attempt takes.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
const CATCH_UP_PART: u32 = 10;
/// Between two attempts of any kind while there is more to keep than the file may hold: nothing but fewer sessions helps.
const TOO_LARGE_PAUSE: Duration = Duration::from_mins(1);
/// Changes that wait to be written.
const CHANNEL_LINES: usize = 16 << 10;
/// Lines are written together as far as they are there, up to this many bytes.
const BATCH_BYTES: usize = 64 << 10;

/// How long somebody waits at most for the writer.
const WRITTEN_PATIENCE: Duration = Duration::from_secs(1);

enum JournalMessage {
    Line(String),
    /// To be answered once all lines before it are written.
    Written(oneshot::Sender<()>),
    /// The pause is over: all that the file lacks is to be written now.
    CatchUp,
    Stop,
}

/// The health of the journal, for the writer and all who tell it changes.
#[derive(Debug)]
struct JournalHealth {
    lost: IntCounter,
    /// The channel was full since the writer last looked.
    has_overflowed: AtomicBool,
    writes: StateFileHealth,
}

impl JournalHealth {
    fn new(lost: IntCounter) -> Arc<Self> {
        Arc::new(Self { lost, has_overflowed: AtomicBool::new(false), writes: StateFileHealth::default() })
    }

    fn note_overflow(&self) {
        self.lost.inc();
        self.has_overflowed.store(true, Ordering::Release);
    }
}

/// Where changes are told; everybody's end of the channel.
#[derive(Debug)]
pub(super) struct JournalSender {
    sender: Option<SyncSender<JournalMessage>>,
    health: Arc<JournalHealth>,
}

impl JournalSender {
    /// A journal that keeps nothing.
    pub(super) fn none(lost: IntCounter) -> Self {
        Self { sender: None, health: JournalHealth::new(lost) }
    }

    /// The reason why the file is behind; `None`: it has everything, or there is none.
    pub(super) fn fault(&self) -> Option<StateFileFault> {
        self.health.writes.fault()
    }

    /// Tells the writer. Never waits.
    pub(super) fn write(&self, record: &JournalRecord<'_>) {
        if self.sender.is_none() {
            return;
        }
        match record.line() {
            Some(line) => self.write_line(line),
            // A line that is too long for the file is too long whenever it is written.
            None => self.health.lost.inc(),
        }
    }

    /// Tells the writer a line that is written already. Never waits.
    pub(super) fn write_line(&self, line: String) {
        let Some(sender) = &self.sender else { return };
        if sender.try_send(JournalMessage::Line(line)).is_err() {
            self.health.note_overflow();
        }
    }

    /// Asks the writer to write now what the file lacks.
    pub(super) fn catch_up(&self) {
        // A full channel has more to write than that.
        self.sender.as_ref().and_then(|sender| sender.try_send(JournalMessage::CatchUp).ok());
    }

    /// Waits until what was told before is with the kernel, so that the end of the process does not lose it. A writer
    /// that is slow or gone is not waited for.
    pub(super) async fn written(&self) {
        let Some(sender) = &self.sender else { return };
        let (answer, written) = oneshot::channel();
        if sender.try_send(JournalMessage::Written(answer)).is_ok() {
            let _ = tokio::time::timeout(WRITTEN_PATIENCE, written).await;
        }
    }

    /// Asks the writer to end once it has written what was told before. False if it cannot be asked.
    pub(super) fn stop(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.try_send(JournalMessage::Stop).is_ok())
    }
}

/// What writes the journal. Somebody must give it a thread.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    receiver: Receiver<JournalMessage>,
    path: PathBuf,
    file: File,
    bytes: u64,
    compact_at_bytes: u64,
    compacted: Instant,
    /// The last line may be incomplete.
    is_torn: bool,
    logged: Option<Instant>,
    /// The moment of the next attempt to write what the file lacks; `None`: it has everything.
    catch_up_at: Option<Instant>,
    health: Arc<JournalHealth>,
}

impl JournalWriter {
    /// Reads the journal at `path` and writes it anew.
    pub(super) fn open(
        path: &Path,
        now_s: u64,
        lost: IntCounter,
    ) -> io::Result<(JournalSender, Self, Replay)> {
        let mut fault = None;
        let (replay, file, bytes) = match compact(path, now_s) {
            Err(error) if is_full(&error) => {
                let path_shown = path.display();
                tracing::error!(%error, path = %path_shown, "the disk is full: the session journal goes on as it is");
                fault = Some(error);
                append_to(path, now_s)?
            }
            compacted => compacted?,
        };
        let (sender, receiver) = sync_channel(CHANNEL_LINES);
        let health = JournalHealth::new(lost);
        let mut writer = Self {
            receiver,
            path: path.to_owned(),
            file,
            bytes,
            compact_at_bytes: compact_at_bytes(bytes),
            compacted: clock::now(),
            is_torn: false,
            logged: None,
            catch_up_at: None,
            health: Arc::clone(&health),
        };
        if let Some(error) = fault {
            writer.fall_behind(error.to_string());
        }
        Ok((JournalSender { sender: Some(sender), health }, writer, replay))
    }

    /// Writes until it is told to stop. Blocks its thread. `memory` says what the file should.
    pub(super) fn run(mut self, memory: impl Fn() -> Option<Replay>) {
        let mut batch = String::new();
        loop {
            let next = match self.next() {
                Ok(first) => self.append_all(first, &mut batch),
                Err(RecvTimeoutError::Timeout) => {
                    self.catch_up(false, &memory);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.look_for_overflow();
            match next {
                Some(JournalMessage::Stop) => return,
                // Whoever asked may have left.
                Some(JournalMessage::Written(answer)) => drop(answer.send(())),
                // Those who ask have ended what makes changes.
                Some(JournalMessage::CatchUp) => self.catch_up(true, &memory),
                Some(JournalMessage::Line(_)) | None => {}
            }
        }
    }

    /// The next message, if one waits or comes before it is time to try again.
    fn next(&self) -> Result<JournalMessage, RecvTimeoutError> {
        let Some(at) = self.catch_up_at else {
            return self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        self.receiver.recv_timeout(at.saturating_duration_since(clock::now()))
    }

    /// Appends lines as far as they are there, and returns what comes after them.
    fn append_all(&mut self, first: JournalMessage, batch: &mut String) -> Option<JournalMessage> {
        let (mut lines, mut next) = (0, Some(first));
        while let Some(JournalMessage::Line(line)) = &next {
            batch.push_str(line);
            lines += 1;
            next = if batch.len() < BATCH_BYTES { self.receiver.try_recv().ok() } else { None };
        }
        if lines > 0 {
            self.append(batch, lines);
            batch.clear();
        }
        next
    }

    fn append(&mut self, batch: &str, lines: u64) {
        let is_large = self.bytes + batch.len() as u64 > self.compact_at_bytes;
        // A file that is behind is soon put in order from memory, unless that is too large.
        let pause = if self.catch_up_at.is_some() { TOO_LARGE_PAUSE } else { COMPACTION_PAUSE };
        let is_due = is_large && clock::since(self.compacted) >= pause;
        let result = if is_due { self.compact() } else { Ok(()) };
        if let Err(error) = result.and_then(|()| self.write(batch)) {
            self.health.lost.inc_by(lines);
            if self.logged.is_none_or(|logged| clock::since(logged) >= LOG_PAUSE) {
                self.logged = Some(clock::now());
                let path = self.path.display();
                tracing::error!(%error, %path, "cannot write the session journal; a restart will not know of the latest changes");
            }
            self.fall_behind(error.to_string());
        }
    }

    /// The file lacks something from now on, if it did not before.
    fn fall_behind(&mut self, reason: String) {
        self.catch_up_at.get_or_insert_with(|| clock::now() + CATCH_UP_PAUSE);
        self.health.writes.note_behind(reason, now_s());
    }

    /// Notices that the channel was full. The changes that waited in it then are older than what did not fit.
    fn look_for_overflow(&mut self) {
        if self.health.has_overflowed.swap(false, Ordering::AcqRel) {
            self.fall_behind("changes came faster than they were written".to_owned());
        }
    }

    /// Puts what memory has in the place of a file that lacks some of it, if it is time to. No change may wait.
    fn catch_up(&mut self, is_asked: bool, memory: impl Fn() -> Option<Replay>) {
        let started = clock::now();
        if self.catch_up_at.is_none_or(|at| started < at && !is_asked) {
            return;
        }
        let Some(remembered) = memory() else { return };
        let fits = remembered.lines().map(|line| line.len() as u64).sum::<u64>() <= JOURNAL_BYTES_MAX;
        let replaced = if fits { self.replace(&remembered) } else { Err(too_large()) };
        let pause_min = if fits { CATCH_UP_PAUSE } else { TOO_LARGE_PAUSE };
        let pause = pause_min.max(clock::since(started) * CATCH_UP_PART);
        self.catch_up_at = None;
        match replaced {
            Ok(()) => {
                self.health.writes.note_written();
                self.logged = None;
                let path = self.path.display();
                tracing::info!(%path, "the session journal was written anew, with what it lacked");
            }
            Err(error) => {
                self.fall_behind(error.to_string());
                self.catch_up_at = Some(clock::now() + pause);
            }
        }
    }

    fn replace(&mut self, remembered: &Replay) -> io::Result<()> {
        let (file, bytes) = put_in_place(&self.path, remembered)?;
        self.take_up(file, bytes);
        Ok(())
    }

    fn write(&mut self, batch: &str) -> io::Result<()> {
        // A line that broke off ends here, so that the next one does not break with it.
        let separator = if self.is_torn { "\n" } else { "" };
        let bytes = (separator.len() + batch.len()) as u64;
        if self.bytes + bytes > JOURNAL_BYTES_MAX {
            return Err(too_large());
        }
        self.is_torn = true;
        self.bytes += bytes;
        self.file.write_all(separator.as_bytes())?;
        self.file.write_all(batch.as_bytes())?;
        self.is_torn = false;
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        self.compacted = clock::now();
        let (_, file, bytes) = compact(&self.path, now_s())?;
        self.take_up(file, bytes);
        Ok(())
    }

    /// Goes on with a file that was written anew.
    fn take_up(&mut self, file: File, bytes: u64) {
        self.compacted = clock::now();
        self.file = file;
        self.bytes = bytes;
        self.compact_at_bytes = compact_at_bytes(bytes);
        self.is_torn = false;
    }
}

fn compact_at_bytes(needed_bytes: u64) -> u64 {
    (needed_bytes * GROWTH).clamp(COMPACTED_BYTES_MIN, JOURNAL_BYTES_MAX)
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "it has reached its largest size")
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Reads a journal and leaves it as it is.
fn append_to(path: &Path, now_s: u64) -> io::Result<(Replay, File, u64)> {
    let file = open_own(OpenOptions::new().append(true).read(true).create(true).mode(0o600), path)?;
    let bytes = file.metadata()?.len();
    let replay = Replay::read(BufReader::new((&file).take(2 * JOURNAL_BYTES_MAX)), now_s)?;
    Ok((replay, file, bytes))
}

/// Reads a journal and puts the shortest that says the same in its place. The old one stays until the new one
/// is on the disk.
fn compact(path: &Path, now_s: u64) -> io::Result<(Replay, File, u64)> {
    let replay = match open_own(OpenOptions::new().read(true), path) {
        Ok(file) => Replay::read(BufReader::new(file.take(2 * JOURNAL_BYTES_MAX)), now_s)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Replay::default(),
        Err(error) => return Err(error),
    };
    let (file, bytes) = put_in_place(path, &replay)?;
    Ok((replay, file, bytes))
}

/// Writes a journal that says this, and puts it in the place of the one that is there.
fn put_in_place(path: &Path, replay: &Replay) -> io::Result<(File, u64)> {
    let aside = path.with_extension("new");
    // What an earlier attempt left behind would keep its mode.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (file, bytes) = match write_anew(&aside, replay) {
        Ok(written) => written,
        Err(error) => {
            // What is left of it takes room that may be what is missing.
            let _ = fs::remove_file(&aside);
            return Err(error);
        }
    };
    fs::rename(&aside, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok((file, bytes))
}

fn write_anew(aside: &Path, replay: &Replay) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(aside)?;
    let mut bytes = 0;
    let mut lines = BufWriter::new(file);
    for line in replay.lines() {
        if bytes + line.len() as u64 > JOURNAL_BYTES_MAX {
            // Only a journal that somebody else made can be longer.
            break;
        }
        lines.write_all(line.as_bytes())?;
        bytes += line.len() as u64;
    }
    let file = lines.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::session::SessionId;
    use crate::session::journal::ReplayedSession;
    use crate::session::session_state::UpstreamSession;
    use protocol::level::Level;
    use protocol::version::LegacyVersion;

    fn counter() -> IntCounter {
        IntCounter::new("lost", "lost").expect("a counter")
    }

    fn ended(session: u128, expires_s: u64) -> JournalRecord<'static> {
        JournalRecord::Ended { session: SessionId(session), expires_s }
    }

    /// Writes as the thread would, and waits until it has.
    fn write(path: &Path, now_s: u64, records: impl IntoIterator<Item = JournalRecord<'static>>) -> Replay {
        let (journal, writer, replay) = JournalWriter::open(path, now_s, counter()).expect("a journal");
        let thread = std::thread::spawn(|| writer.run(|| None));
        records.into_iter().for_each(|record| journal.write(&record));
        assert!(journal.stop());
        thread.join().expect("the writer");
        assert_eq!(journal.health.lost.get(), 0);
        replay
    }

    #[test]
    fn what_was_written_is_read_back_and_what_expired_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        assert_eq!(write(&path, 0, [ended(1, 10), ended(2, 20)]), Replay::default());
        assert_eq!(fs::metadata(&path).expect("file").permissions().mode() & 0o777, 0o600);
        let replay = write(&path, 10, [ended(3, 30)]);
        assert_eq!(replay.revoked, [(SessionId(2), 20)].into());
        let text = fs::read_to_string(&path).expect("text");
        assert_eq!(text.lines().count(), 2, "it was not written anew: {text}");
        assert_eq!(write(&path, 0, []).revoked, [(SessionId(2), 20), (SessionId(3), 30)].into());
    }

    #[test]
    fn a_torn_end_does_not_tear_what_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        write(&path, 0, [ended(1, 10)]);
        let mut file = OpenOptions::new().append(true).open(&path).expect("file");
        file.write_all(b"garbage\n01234567 end").expect("written");
        let replay = write(&path, 0, [ended(2, 20)]);
        assert_eq!((replay.revoked.len(), replay.lines_skipped), (1, 2));
        let replay = write(&path, 0, []);
        assert_eq!((replay.revoked.len(), replay.lines_skipped), (2, 0));
    }

    #[test]
    fn a_journal_that_grew_is_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        writer.compacted = clock::now().checked_sub(COMPACTION_PAUSE).expect("a past");
        let line = ended(1, u64::MAX).line().expect("a line");
        let batch = line.repeat((1 << 20) / line.len());
        writer.append(&batch, 1);
        assert_eq!(fs::metadata(&path).expect("file").len(), batch.len() as u64);
        writer.append(&line, 1);
        assert_eq!(fs::metadata(&path).expect("file").len(), 2 * line.len() as u64);
        writer.append(&batch, 1);
        writer.append(&batch, 1);
        let grown = fs::metadata(&path).expect("file").len();
        assert!(grown > batch.len() as u64 * 2, "the pause was not kept: {grown}");
        assert_eq!(journal.health.lost.get(), 0);
    }

    #[test]
    fn a_full_journal_and_a_full_disk_lose_lines_and_count_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        writer.bytes = JOURNAL_BYTES_MAX - 1;
        writer.append("line\n", 3);
        assert_eq!(journal.health.lost.get(), 3);
        writer.bytes = 0;
        let file = std::mem::replace(
            &mut writer.file,
            OpenOptions::new().write(true).open("/dev/full").expect("it"),
        );
        writer.append("line\n", 2);
        assert_eq!(journal.health.lost.get(), 5);
        writer.file = file;
        writer.append("line\n", 1);
        assert_eq!(fs::read_to_string(&path).expect("text"), "\nline\n", "the torn line is not ended");
    }

    #[test]
    fn what_was_lost_is_written_once_there_is_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        assert_eq!(journal.fault(), None);
        writer.file = OpenOptions::new().write(true).open("/dev/full").expect("it");
        writer.append("line\n", 1);
        let memory = || Some(Replay { revoked: [(SessionId(7), u64::MAX)].into(), ..Replay::default() });
        writer.catch_up(false, memory);
        assert!(journal.fault().is_some(), "the pause was not kept");
        fs::create_dir(path.with_extension("new")).expect("no file can be written there");
        writer.catch_up(true, memory);
        assert!(journal.fault().is_some());
        fs::remove_dir(path.with_extension("new")).expect("there is room");
        writer.catch_up(true, memory);
        assert_eq!(journal.fault(), None);
        writer.append(&ended(8, u64::MAX).line().expect("a line"), 1);
        let (replay, ..) = append_to(&path, 0).expect("a journal");
        assert_eq!(replay.revoked.len(), 2, "{replay:?}");
    }

    #[test]
    fn a_channel_that_was_full_leaves_the_file_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        for _ in 0..=CHANNEL_LINES {
            journal.write(&ended(1, 1));
        }
        writer.look_for_overflow();
        assert!(journal.fault().is_some_and(|fault| fault.reason.contains("faster")));
        writer.catch_up(true, || Some(Replay::default()));
        assert_eq!(journal.fault(), None);
    }

    #[test]
    fn a_change_that_waits_does_not_undo_one_that_was_lost_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        for _ in 1..CHANNEL_LINES {
            journal.write(&ended(1, u64::MAX));
        }
        let session = SessionId(7);
        journal.write(&JournalRecord::Level { session, expires_s: u64::MAX, level: Level::Error });
        journal.write(&JournalRecord::Dropped { session });
        assert_eq!(journal.health.lost.get(), 1);
        writer.fall_behind("it is time to catch up".to_owned());
        writer.catch_up_at = Some(clock::now());
        let memory = || Some(Replay { revoked: [(SessionId(1), u64::MAX)].into(), ..Replay::default() });
        let thread = std::thread::spawn(move || writer.run(memory));
        while journal.fault().is_some() || journal.health.has_overflowed.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        while !journal.stop() {
            std::thread::yield_now();
        }
        thread.join().expect("the writer");
        let (replay, ..) = append_to(&path, 0).expect("a journal");
        assert_eq!(replay, memory().expect("memory"));
    }

    #[test]
    fn a_journal_that_would_be_too_large_is_tried_again_after_a_minute() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, mut writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        let upstream: Box<str> = "u".repeat(64 << 20).into();
        let opened = UpstreamSession::new(None, LegacyVersion::V2025_06_18);
        let upstreams = [(upstream, opened)].into();
        let live = ReplayedSession { expires_s: u64::MAX, upstreams, ..ReplayedSession::default() };
        writer.fall_behind("it is time to catch up".to_owned());
        let started = clock::now();
        let memory = Cell::new(Some(Replay { sessions: [(SessionId(7), live)].into(), ..Replay::default() }));
        writer.catch_up(true, || memory.take());
        assert!(journal.fault().is_some_and(|fault| fault.reason.contains("largest size")));
        assert!(writer.catch_up_at.is_some_and(|at| at >= started + TOO_LARGE_PAUSE));
    }

    #[test]
    fn nobody_waits_for_a_writer_that_does_not_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sessions.journal");
        let (journal, _writer, _) = JournalWriter::open(&path, 0, counter()).expect("a journal");
        for _ in 0..CHANNEL_LINES + 10 {
            journal.write(&ended(1, 1));
        }
        assert_eq!(journal.health.lost.get(), 10);
        assert!(!journal.stop());
    }
}

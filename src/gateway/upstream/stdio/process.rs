//! One child process: what it is sent, its words on standard error, and its end.
//!
//! Whatever it does – garbage, floods, silence, death – harms only its own calls. It is stopped as the protocol says:
//! its input is closed, then its process group is asked to end, then it is made to.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::time::{sleep, timeout};

use super::deaf::DeafWatch;
use super::latest_lines::LatestLines;
use super::output::Output;
use super::standard_error::tell;
use super::{Children, npx, program};
use crate::access::limit::shares::Share;
use crate::clock;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::fault::PROCESS_ENDED;
use crate::upstream::mux::host::Host;
use crate::upstream::mux::{MuxConnection, ReadHalf, WriteHalf};
use crate::upstream::start_state::Start;
use net::guardian::{self, Guarded};
use net::lines::discard;
use net::secret::Secret;
use protocol::splice::Segments;

/// How much is gathered into one write.
const WRITE_BYTES: usize = 64 * 1024;
/// How long the last words of a child are waited for that has ended, or can be written to no more.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause between two looks whether a child has read its first message.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// How often a child that is to end is looked at.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Why a child comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildEnd {
    /// Nobody needs it any more.
    Asked,
    /// It closed its output, or is gone.
    Closed,
    /// It wrote a line that is longer than a message may be, and does not end it.
    TooLong,
    /// It has not read what it was sent.
    Deaf,
    /// It has not answered anything within `start_timeout`.
    NeverUp,
}

impl ChildEnd {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "no longer needed",
            Self::Closed => "it ended",
            Self::TooLong => "its message is larger than reply_bytes_max and does not end",
            Self::Deaf => "it does not read its input",
            Self::NeverUp => "it has not answered anything within start_timeout",
        }
    }

    /// The kind of end, without the number of a status: several programs that end alike have it in common.
    pub(super) fn cause(self, status: Option<ExitStatus>) -> &'static str {
        match self {
            Self::Asked | Self::Closed => match status {
                Some(status) if status.signal().is_some() => "the process ended by a signal",
                Some(_) => "the process ended with an exit status",
                None => PROCESS_ENDED,
            },
            Self::TooLong => "the process wrote a message larger than reply_bytes_max",
            Self::Deaf => "the process does not read its input",
            Self::NeverUp => "the process has not answered within start_timeout",
        }
    }
}

/// A child that runs, with its place among all, and how far it is.
pub(super) struct RunningChild {
    pub(super) child: Guarded,
    pub(super) start: Start,
    pub(super) _places: (Share, Share),
}

pub(super) fn start(command: &config::CommandConfig, secrets: &[(String, Secret)]) -> io::Result<Guarded> {
    let environment = program::environment(command);
    let fetched = npx::fetched(command, &environment);
    let mut building = if let Some(fetched) = &fetched {
        let mut building = guardian::command(fetched.file.as_os_str())?;
        building.args(&fetched.args);
        building
    } else {
        let file = program::find(command).map_err(io::Error::other)?;
        let mut building = guardian::command(file.as_os_str())?;
        building.args(&command.args);
        building
    };
    building
        .env_clear()
        .envs(npx::with_folder(environment, fetched.as_ref()))
        .envs(secrets.iter().map(|(name, secret)| (name, OsStr::from_bytes(secret.expose()))));
    if let Some(directory) = &command.directory {
        building.current_dir(directory);
    }
    Guarded::spawn(&mut building)
}

pub(super) async fn run(
    children: Arc<Children>,
    host: Rc<Host>,
    started: RunningChild,
    write_half: WriteHalf,
    read_half: ReadHalf,
) {
    let RunningChild { mut child, start, _places } = started;
    let Some((stdin, mut stdout, stderr)) = child.streams() else { return };
    let since = clock::now();
    let counted = GaugeGuard::new(&children.series.running);
    let connection = read_half.connection().clone();
    let latest_lines = LatestLines::default();
    let mut telling = Box::pin(tell(&start, stderr, |lines: &[Bytes]| {
        latest_lines.add(lines);
        children.note_stderr(lines);
    }));
    let heard = Cell::new(0);
    let end = {
        let first = FirstInput::new(&stdin, &start);
        // Each is looked at when it is woken, as nearly always only one of the first two is.
        let mut ends: FuturesUnordered<LocalBoxFuture<'_, ChildEnd>> = FuturesUnordered::new();
        let watch = DeafWatch::new(&connection, &heard, children.response_timeout);
        let output = Output::new(&children, &host, &start, &heard, read_half);
        ends.push(Box::pin(output.read(&mut stdout)));
        ends.push(Box::pin(write(stdin, write_half, &first, watch)));
        ends.push(Box::pin(never_up(&start, &children, &connection)));
        ends.push(Box::pin(asked(&children, &host, &start, &connection)));
        ends.push(Box::pin(async {
            telling.as_mut().await;
            ChildEnd::Closed
        }));
        ends.push(Box::pin(async {
            let _ = child.wait().await;
            last_words(&connection).await;
            ChildEnd::Closed
        }));
        let end = ends.next().await.unwrap_or(ChildEnd::Closed);
        // It may have ended as soon as it had read that.
        first.look();
        children.note_unanswered(&connection, &start, end, since);
        end
        // Here its input is closed, and nobody waits for it any more.
    };
    let stopping = child.stop(children.command.stop_timeout);
    let status = tokio::select! {
        status = stopping => status,
        // Who cannot write does not end.
        () = discard(&mut stdout) => None,
        () = &mut telling => None,
    };
    // Its last words come before its end.
    let _ = telling.as_mut().now_or_never();
    drop(telling);
    drop(counted);
    children.note_end(&connection, &start, end, status, since, latest_lines.take());
}

/// Writes what is queued, as much at once as there is.
async fn write(
    mut stdin: ChildStdin,
    mut write_half: WriteHalf,
    first: &FirstInput<'_>,
    mut watch: DeafWatch<'_>,
) -> ChildEnd {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let mut next = match next(&mut write_half, &stdin, first, &mut watch).await {
            Ok(Some(message)) => Some(message),
            Ok(None) => return ChildEnd::Asked,
            Err(end) => return end,
        };
        while let Some(message) = next {
            message.iter().for_each(|piece| buffer.extend_from_slice(piece));
            buffer.push(b'\n');
            next = if buffer.len() < WRITE_BYTES { write_half.next_ready() } else { None };
        }
        let mut written = 0;
        while written < buffer.len() {
            match timeout(watch.patience(), stdin.write(&buffer[written..])).await {
                Ok(Ok(count)) if count > 0 => written += count,
                Ok(_) => {
                    // From now on others get another.
                    drop(write_half);
                    last_words(watch.connection()).await;
                    return ChildEnd::Closed;
                }
                Err(_) => return ChildEnd::Deaf,
            }
        }
        watch.note_written(written);
        if buffer.capacity() > 4 * WRITE_BYTES {
            buffer = Vec::new();
        }
        buffer.clear();
        first.note_written();
    }
}

/// The first input of a child, and how far it has read that.
struct FirstInput<'a> {
    start: &'a Start,
    progress: Cell<ReadProgress>,
    /// Its input, until it has read that.
    input: RefCell<Option<OwnedFd>>,
}

/// A child's progress in reading its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadProgress {
    NothingWritten,
    /// Not yet all of what was written first.
    Unread,
    /// All of that: from now on nobody looks.
    Read,
}

impl<'a> FirstInput<'a> {
    fn new(stdin: &ChildStdin, start: &'a Start) -> Self {
        let input = stdin.as_fd().try_clone_to_owned().ok();
        Self { start, progress: Cell::new(ReadProgress::NothingWritten), input: RefCell::new(input) }
    }

    fn note_written(&self) {
        if self.progress.get() == ReadProgress::NothingWritten {
            self.progress.set(ReadProgress::Unread);
        }
    }

    /// False while there is something that it has not read. Where the system does not say, it counts as read.
    fn look(&self) -> bool {
        if self.progress.get() == ReadProgress::Unread {
            let is_unread =
                |input: &OwnedFd| rustix::io::ioctl_fionread(input).is_ok_and(|unread| unread > 0);
            let mut input = self.input.borrow_mut();
            if input.as_ref().is_some_and(is_unread) {
                return false;
            }
            *input = None;
            self.progress.set(ReadProgress::Read);
            self.start.note_read();
        }
        true
    }
}

/// The next message to be written. Until the child has read the first, it is looked now and then whether it did; from then
/// on, less often, whether it reads at all.
async fn next(
    write_half: &mut WriteHalf,
    stdin: &ChildStdin,
    first: &FirstInput<'_>,
    watch: &mut DeafWatch<'_>,
) -> Result<Option<Segments>, ChildEnd> {
    while first.progress.get() == ReadProgress::Unread {
        if let Ok(next) = timeout(READ_INTERVAL, write_half.next()).await {
            return Ok(next);
        }
        if !first.look() && watch.is_deaf(stdin) {
            return Err(ChildEnd::Deaf);
        }
    }
    loop {
        tokio::select! {
            biased;
            next = write_half.next() => return Ok(next),
            () = watch.due() => {
                if watch.is_deaf(stdin) {
                    return Err(ChildEnd::Deaf);
                }
            }
        }
    }
}

/// Completes when a child has not answered anything for so long.
async fn never_up(start: &Start, children: &Children, connection: &MuxConnection) -> ChildEnd {
    let up = start.up();
    if timeout(children.start_timeout(), up.cancelled()).await.is_ok() {
        children.settled(connection, start).await;
        // It is up, and ends otherwise.
        std::future::pending::<()>().await;
    }
    ChildEnd::NeverUp
}

/// Waits for what a child has said before it ended; where a client is still to read it, for as long as that takes.
async fn last_words(connection: &MuxConnection) {
    loop {
        let stalls = connection.stalls();
        sleep(LAST_WORDS_TIMEOUT).await;
        let has_read_on = connection.stalls() == stalls && stalls.is_multiple_of(2);
        if has_read_on {
            return;
        }
    }
}

/// Completes when the child is to end.
async fn asked(children: &Children, host: &Host, start: &Start, connection: &MuxConnection) -> ChildEnd {
    tokio::select! {
        () = connection.closing() => {}
        () = host.cut() => {}
        () = unneeded(children, host, start, connection) => {}
    }
    // Before anybody hears of its end, and asks another.
    start.rest();
    ChildEnd::Asked
}

/// Completes when nobody needs the child any more.
async fn unneeded(children: &Children, host: &Host, start: &Start, connection: &MuxConnection) {
    let unused = async {
        // Those who wait for its start have not asked it anything yet.
        start.up().cancelled().await;
        loop {
            let idle = children.idle_timeout(host, connection);
            sleep((idle / 4).clamp(IDLE_INTERVAL, Duration::from_secs(10))).await;
            if connection.close_if_unused_for(idle, children.use_by_gateway()) {
                return;
            }
        }
    };
    let until_idle = async || {
        while !connection.close_if_uncalled() {
            sleep(IDLE_INTERVAL).await;
        }
    };
    tokio::select! {
        () = unused => {}
        () = host.leaving() => until_idle().await,
        // What is no longer configured ends its calls, as far as they end in time.
        () = children.retired() => {
            let _ = timeout(children.response_timeout, until_idle()).await;
        }
    }
}

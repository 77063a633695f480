//! Standard input, output and error: a thread each, because their reads and writes block.
//!
//! Lines are bounded in length and what waits to be written is bounded in bytes, so that a client that does not read
//! holds up its server and nothing else grows. What is told on standard error is dropped if nobody reads it.

use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::terminal;
use protocol::text::shown;

/// Lines read ahead.
const LINES_MAX: usize = 16;
/// Messages that may wait to be written.
const OUTPUT_MESSAGES_MAX: usize = 1024;
/// Remarks that may wait to be written.
const REMARKS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// Without its end; never empty.
    Whole(Bytes),
    /// Longer than is accepted; it was skipped.
    TooLong,
}

/// Reads lines of at most `bytes_max` from standard input, until its end.
pub(super) fn read(bytes_max: usize) -> io::Result<mpsc::Receiver<InputLine>> {
    let (sender, lines) = mpsc::channel(LINES_MAX);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut input = io::stdin().lock();
        while let Ok(Some(line)) = next_line(&mut input, bytes_max) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(lines)
}

/// The next line that is not blank.
fn next_line(input: &mut impl BufRead, bytes_max: usize) -> io::Result<Option<InputLine>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let is_end = buffer.is_empty();
        let newline = memchr::memchr(b'\n', buffer);
        let piece = buffer.get(..newline.unwrap_or(buffer.len())).unwrap_or_default();
        is_too_long |= line.len() + piece.len() > bytes_max;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(piece);
        }
        let consumed = newline.map_or(buffer.len(), |at| at + 1);
        input.consume(consumed);
        if is_too_long && (newline.is_some() || is_end) {
            return Ok(Some(InputLine::TooLong));
        }
        let is_blank = line.trim_ascii().is_empty();
        match (newline.is_some() || is_end, is_blank) {
            (true, false) => return Ok(Some(InputLine::Whole(Bytes::from(line)))),
            (true, true) if is_end => return Ok(None),
            (true, true) => line.clear(),
            (false, _) => {}
        }
    }
}

/// Messages on their way to standard output. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct OutputQueue {
    messages: mpsc::Sender<(Bytes, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
    room_bytes: u32,
}

impl OutputQueue {
    /// Starts writing, with at most `bytes_max` waiting. `closed` is cancelled when no more can be written, or all is
    /// written and every [`OutputQueue`] gone.
    pub(super) fn start(bytes_max: u32, closed: CancellationToken) -> io::Result<Self> {
        let (messages, mut waiting) = mpsc::channel::<(Bytes, OwnedSemaphorePermit)>(OUTPUT_MESSAGES_MAX);
        std::thread::Builder::new().name("stdout".into()).spawn(move || {
            let _closed = closed.drop_guard();
            let mut output = io::stdout().lock();
            while let Some((message, _room)) = waiting.blocking_recv() {
                let written = output.write_all(&message).and_then(|()| output.write_all(b"\n"));
                if written.and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { messages, room: Arc::new(Semaphore::new(bytes_max as usize)), room_bytes: bytes_max })
    }

    /// Writes a message as one line, once there is room for it. Nobody is told if standard output is closed: that
    /// ends everything.
    pub(super) async fn write(&self, message: Bytes) {
        let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX).min(self.room_bytes);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else { return };
        let _ = self.messages.send((on_one_line(message), room)).await;
    }

    /// Returns when nothing waits to be written.
    pub(super) async fn written(&self) {
        let _ = self.room.acquire_many(self.room_bytes).await;
    }
}

/// The message without line ends: in JSON they stand only where any white space may.
fn on_one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Returns when nobody can read standard output any more. Never, where the system cannot tell before something is
/// written, as for a file.
pub(super) async fn output_closed() {
    #[expect(deprecated, reason = "its successor is unsafe to call; standard output stays open all the time")]
    if let Ok(output) = AsyncFd::with_interest(io::stdout(), Interest::WRITABLE) {
        while let Ok(mut guard) = output.ready(Interest::WRITABLE).await {
            if guard.ready().is_write_closed() {
                return;
            }
            guard.clear_ready();
        }
    }
    std::future::pending::<()>().await;
}

/// Where remarks for the person at the terminal go: standard error.
#[derive(Clone, Debug)]
pub(super) struct StderrLog(SyncSender<String>);

impl StderrLog {
    pub(super) fn start() -> io::Result<Self> {
        let (sender, stderr_log) = sync_channel::<String>(REMARKS_MAX);
        std::thread::Builder::new().name("stderr".into()).spawn(move || {
            for remark in stderr_log {
                terminal::say(format_args!("trunkline: {}", shown(&remark)));
            }
        })?;
        Ok(Self(sender))
    }

    /// Writes a line, unless too many wait already.
    pub(super) fn say(&self, remark: impl Into<String>) {
        let _ = self.0.try_send(remark.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, bytes_max: usize, buffer_bytes: usize) -> Vec<InputLine> {
        let mut input = io::BufReader::with_capacity(buffer_bytes, text.as_bytes());
        std::iter::from_fn(|| next_line(&mut input, bytes_max).expect("memory can be read")).collect()
    }

    #[test]
    fn reads_lines_whatever_the_pieces() {
        let whole = |text: &'static str| InputLine::Whole(Bytes::from_static(text.as_bytes()));
        for buffer_bytes in 1..12 {
            for (text, expected) in [
                ("", vec![]),
                ("\n\r\n \n", vec![]),
                ("a\nb\n", vec![whole("a"), whole("b")]),
                ("a\n\nb", vec![whole("a"), whole("b")]),
                ("{}\r\nb", vec![whole("{}\r"), whole("b")]),
                ("12345\n123456\n12\n", vec![whole("12345"), InputLine::TooLong, whole("12")]),
                ("123456789", vec![InputLine::TooLong]),
                ("123456789\n", vec![InputLine::TooLong]),
            ] {
                assert_eq!(lines(text, 5, buffer_bytes), expected, "{text:?} by {buffer_bytes}");
            }
        }
    }

    #[test]
    fn line_ends_become_spaces() {
        for (message, line) in [("{}", "{}"), ("{\n\r\n\"a\\n\":1}", "{   \"a\\n\":1}")] {
            assert_eq!(on_one_line(Bytes::from_static(message.as_bytes())), line);
        }
    }
}

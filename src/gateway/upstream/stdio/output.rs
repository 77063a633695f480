//! What a child writes on standard output: a message a line.
//!
//! A line that cannot be kept or read fails the call that it answers, and no other: it is read to its end, and dropped.

use std::cell::Cell;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;

use super::process::ChildEnd;
use super::{Children, Serving};
use crate::access::limit::shares::Share;
use crate::upstream::mux::host::Host;
use crate::upstream::mux::passed_message::{NotKept, PassedMessage};
use crate::upstream::mux::unreadable::READ_INLINE_BYTES_MAX;
use crate::upstream::mux::{Disposition, ReadHalf, incoming_message, unreadable};
use crate::upstream::start_state::Start;
use net::lines::{LineBuffer, TooLong};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// So many lines are taken in before others have their turn.
const LINES_IN_A_ROW: usize = 128;

/// What some runtimes write before their first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The reader of one child's output.
pub(super) struct Output<'a> {
    children: &'a Children,
    host: &'a Host,
    start: &'a Start,
    /// How often anything was read.
    heard: &'a Cell<u64>,
    read_half: ReadHalf,
    bytes_max: usize,
    lines: LineBuffer,
    /// What has arrived of a long line.
    held: Option<Share>,
    skipping: Option<PassedMessage>,
    in_a_row: usize,
    /// It has answered.
    serving: Option<Serving>,
    /// Lines before its first answer that are no messages; of those the first is logged.
    banner_lines: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(
        children: &'a Children,
        host: &'a Host,
        start: &'a Start,
        heard: &'a Cell<u64>,
        read_half: ReadHalf,
    ) -> Self {
        let bytes_max = host.shared.limits().message_bytes_max;
        let lines = LineBuffer::default();
        Self {
            children,
            host,
            start,
            heard,
            read_half,
            bytes_max,
            lines,
            held: None,
            skipping: None,
            in_a_row: 0,
            serving: None,
            banner_lines: 0,
        }
    }

    /// Reads until the child comes to its end.
    pub(super) async fn read(mut self, stdout: &mut ChildStdout) -> ChildEnd {
        loop {
            self.lines.buffer.reserve(READ_BYTES);
            if !matches!(stdout.read_buf(&mut self.lines.buffer).await, Ok(count) if count > 0) {
                let rest = self.lines.rest();
                if self.skipping.is_none() && !rest.trim_ascii().is_empty() {
                    self.take_last(&rest).await;
                }
                return ChildEnd::Closed;
            }
            self.heard.set(self.heard.get() + 1);
            if let Err(end) = self.take_lines().await {
                return end;
            }
            if self.serving.is_none() && self.read_half.connection().has_answered() {
                self.start.succeed();
                self.serving = Some(self.children.note_answer());
            }
        }
    }

    /// Takes what has arrived.
    async fn take_lines(&mut self) -> Result<(), ChildEnd> {
        loop {
            if self.skipping.is_some() && !self.skip().await? {
                return Ok(());
            }
            match self.lines.next(self.bytes_max) {
                Ok(Some(line)) => self.take(&line).await,
                Ok(None) if self.count() => return Ok(()),
                Ok(None) => {
                    self.children.note_no_room();
                    self.skipping = Some(PassedMessage::new(NotKept::NoRoom));
                }
                Err(TooLong) => self.skipping = Some(PassedMessage::new(NotKept::TooLong)),
            }
            self.in_a_row += 1;
            if self.in_a_row >= LINES_IN_A_ROW {
                self.in_a_row = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Counts what has arrived of a long line. False: there is no room for it. Memory that a line needed is not kept after
    /// it.
    fn count(&mut self) -> bool {
        let waiting = self.lines.buffer.len();
        if waiting > READ_BYTES {
            let held = self.held.get_or_insert_with(|| self.read_half.connection().open_share());
            return held.grow_to(waiting).is_ok();
        }
        if self.held.take().is_some() {
            self.lines.compact();
        }
        true
    }

    /// Takes what has no end of a line. If that is no message, it was cut off.
    async fn take_last(&mut self, rest: &Bytes) {
        if self.offer(rest).await == Disposition::Garbage {
            self.children.note_garbage(rest, "the output ended within it");
        }
    }

    async fn take(&mut self, line: &Bytes) {
        let disposition = self.offer(line).await;
        if disposition != Disposition::Delivered {
            Box::pin(self.note(line, disposition)).await;
        }
    }

    /// Takes the messages of a batch, as if each had come by itself.
    #[cold]
    async fn take_batch(&mut self, line: &Bytes) {
        let depth_max = self.read_half.connection().json_depth_max();
        let messages = if line.len() <= READ_INLINE_BYTES_MAX {
            incoming_message::batch(line, depth_max)
        } else {
            let line = line.clone();
            self.host.compute(move || incoming_message::batch(&line, depth_max)).await
        };
        let Some(messages) = messages else { return self.note_no_object(line) };
        for message in messages {
            let message = line.slice(message);
            let disposition = self.offer(&message).await;
            self.note_message(&message, disposition).await;
        }
    }

    fn note_no_object(&mut self, line: &Bytes) {
        if self.is_in_banner() {
            self.children.series.invalid_lines.inc();
        } else {
            self.children.note_garbage(line, "it is no object");
        }
    }

    #[cold]
    async fn note(&mut self, line: &Bytes, disposition: Disposition) {
        if disposition == Disposition::Garbage && line.first() != Some(&b'{') {
            if line.first() == Some(&b'[') {
                return self.take_batch(line).await;
            }
            return self.note_no_object(line);
        }
        self.note_message(line, disposition).await;
    }

    async fn note_message(&mut self, line: &Bytes, disposition: Disposition) {
        match disposition {
            Disposition::Delivered => {}
            Disposition::Unasked => {
                self.children.series.invalid_lines.inc();
                tracing::debug!(
                    upstream = self.children.name,
                    "a message of a child process belongs to nobody"
                );
            }
            Disposition::Garbage => {
                let why = unreadable::refuse(self.host, self.read_half.connection(), line).await;
                self.children.note_garbage(line, &why);
            }
        }
    }

    /// True if one such line was logged that came before the first answer.
    fn is_in_banner(&mut self) -> bool {
        if self.serving.is_none() {
            self.banner_lines += 1;
        }
        self.serving.is_none() && self.banner_lines > 1
    }

    /// Nothing more is read while a client who has the child to itself takes less than it writes.
    async fn offer(&mut self, line: &Bytes) -> Disposition {
        let unmarked;
        let line = if line.first() == Some(&b'{') {
            line
        } else {
            let Some(rest) = without_mark(line) else { return Disposition::Garbage };
            unmarked = rest;
            &unmarked
        };
        let offered = match line.len() {
            ..=READ_INLINE_BYTES_MAX => self.read_half.offer(line),
            _ => Box::pin(self.read_half.offer_long(self.host, line)).await,
        };
        match offered {
            Some(taken) => taken,
            None => self.read_half.settle().await,
        }
    }

    /// Lets go of what is there of a line that is not kept. True at its end. A child that never ends it is of no use.
    #[cold]
    async fn skip(&mut self) -> Result<bool, ChildEnd> {
        let Some(skipped) = &mut self.skipping else { return Ok(true) };
        let (piece, is_end) = self.lines.pass();
        // The piece may be as long as a message: others have their turn meanwhile.
        let line = piece.strip_suffix(b"\n").unwrap_or(&piece);
        for (index, part) in line.chunks(READ_BYTES).enumerate() {
            if index > 0 {
                tokio::task::yield_now().await;
            }
            skipped.push(part);
        }
        drop(piece);
        self.held = None;
        if !is_end {
            let is_endless = skipped.is_endless(self.children.response_timeout);
            return if is_endless { Err(ChildEnd::TooLong) } else { Ok(false) };
        }
        let is_answer = skipped.fail(self.read_half.connection(), self.bytes_max);
        let (why, bytes) = (skipped.why(), skipped.bytes());
        self.skipping = None;
        self.children.series.invalid_lines.inc();
        if why == NotKept::TooLong {
            self.children.note_too_long(bytes, self.bytes_max, is_answer);
        }
        Ok(true)
    }
}

/// The object that follows a byte order mark.
#[cold]
fn without_mark(line: &Bytes) -> Option<Bytes> {
    line.strip_prefix(BYTE_ORDER_MARK)?.starts_with(b"{").then(|| line.slice(BYTE_ORDER_MARK.len()..))
}

//! The words of a child on standard error, in the log: line by line, but as one line what it says at once while it starts,
//! such as a banner.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;
use tokio::time::sleep;

use crate::upstream::start_state::Start;
use net::lines::LineBuffer;

/// Longer pieces of a line are logged by themselves.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Standard error is read this much at once, and no faster than with this pause.
const READ_BYTES: usize = 16 * 1024;
const READ_PAUSE: Duration = Duration::from_millis(10);
/// Lines without a longer pause than this between them were said at once.
const GATHER_PAUSE: Duration = Duration::from_millis(300);
/// So many lines are gathered, and so many bytes of them.
const GATHERED_LINES_MAX: usize = 64;
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Lines that were said at once. Dropped, they are logged.
struct GatheredLines<L: Fn(&[Bytes])> {
    lines: Vec<Bytes>,
    bytes: usize,
    log: L,
}

impl<L: Fn(&[Bytes])> GatheredLines<L> {
    fn add(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push(line);
        if self.lines.len() >= GATHERED_LINES_MAX || self.bytes >= GATHERED_BYTES_MAX {
            self.log();
        }
    }

    fn log(&mut self) {
        (self.log)(&self.lines);
        self.lines.clear();
        self.bytes = 0;
    }
}

impl<L: Fn(&[Bytes])> Drop for GatheredLines<L> {
    fn drop(&mut self) {
        self.log();
    }
}

/// Hands the lines of the child to `log`. Never completes; dropped, it hands over those that it holds.
pub(super) async fn tell(start: &Start, mut stderr: ChildStderr, log: impl Fn(&[Bytes])) {
    let up = start.up();
    let mut is_starting = true;
    let mut gathered = GatheredLines { lines: Vec::new(), bytes: 0, log };
    let mut lines = LineBuffer::default();
    loop {
        lines.buffer.reserve(READ_BYTES);
        // Lines that are there when it is up were said before.
        let count = tokio::select! {
            biased;
            count = stderr.read_buf(&mut lines.buffer) => count.unwrap_or(0),
            () = up.cancelled(), if is_starting => {
                is_starting = false;
                gathered.log();
                continue;
            }
            () = sleep(GATHER_PAUSE), if !gathered.lines.is_empty() => {
                gathered.log();
                continue;
            }
        };
        let is_open = count > 0;
        while let Ok(Some(line)) = lines.next(usize::MAX) {
            gathered.add(line);
            if !is_starting {
                gathered.log();
            }
        }
        if !is_open || lines.buffer.len() > LINE_BYTES_MAX {
            let rest = lines.rest();
            if !rest.is_empty() {
                gathered.add(rest);
            }
            gathered.log();
        }
        if !is_open {
            // A child may close it and go on.
            return std::future::pending().await;
        }
        if count >= READ_BYTES {
            // It says more than anybody reads: it waits, not the thread.
            sleep(READ_PAUSE).await;
        }
    }
}

//! Memory that all connections of a worker use, each for as long as it reads or writes, so that none holds any while it waits.
//!
//! Short messages that came whole lie beside each other in pieces of [`SHARED_BYTES`]. Whoever holds a part of one holds all of
//! its piece. A call may, because its exchange takes more memory than that; whatever outlives its call keeps a copy instead.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::stream::MaybeTls;
use tokio::io::{AsyncRead as _, ReadBuf};

/// What one read may bring.
const READ_BYTES_MAX: usize = 64 * 1024;
/// More memory for writing is not kept for the next message.
const SPARE_BYTES_MAX: usize = 64 * 1024;
/// Short messages share pieces of memory of this size.
const SHARED_BYTES: usize = 4 * 1024;
/// A longer message has memory of its own.
const SHORT_BYTES_MAX: usize = SHARED_BYTES / 2;

#[derive(Default)]
pub(crate) struct Buffers {
    read: Cell<Vec<u8>>,
    spare: Cell<Vec<u8>>,
    shared: Cell<BytesMut>,
}

impl Buffers {
    /// Lends memory to read into.
    pub(crate) fn reading<T>(&self, read: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut memory = self.take_read();
        let result = read(&mut memory);
        self.give_read(memory);
        result
    }

    /// Memory to read into, to be given back at once.
    pub(crate) fn take_read(&self) -> Vec<u8> {
        self.read.take()
    }

    /// Takes back memory to read into.
    pub(crate) fn give_read(&self, memory: Vec<u8>) {
        self.read.set(memory);
    }

    /// A copy of a message, for as long as its call.
    pub(crate) fn keep(&self, message: &[u8]) -> Bytes {
        if message.len() > SHORT_BYTES_MAX {
            return Bytes::copy_from_slice(message);
        }
        let mut shared = self.shared.take();
        // The same piece again, once nobody holds any of it.
        if !shared.try_reclaim(message.len()) {
            shared = BytesMut::with_capacity(SHARED_BYTES);
        }
        shared.extend_from_slice(message);
        let kept = shared.split().freeze();
        self.shared.set(shared);
        kept
    }

    /// Memory to write from; empty.
    pub(crate) fn take_spare(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// Takes back memory to write from, unless there is too much of it.
    pub(crate) fn give_spare(&self, mut memory: Vec<u8>) {
        if (1..=SPARE_BYTES_MAX).contains(&memory.capacity()) {
            memory.clear();
            self.spare.set(memory);
        }
    }
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").finish_non_exhaustive()
    }
}

/// What comes next on a stream, in this memory; empty at the end.
pub(crate) fn poll_read<'m>(
    stream: &mut MaybeTls,
    cx: &mut Context<'_>,
    memory: &'m mut Vec<u8>,
) -> Poll<io::Result<&'m [u8]>> {
    memory.resize(READ_BYTES_MAX, 0);
    let mut read = ReadBuf::new(memory);
    ready!(Pin::new(stream).poll_read(cx, &mut read))?;
    let count = read.filled().len();
    Poll::Ready(Ok(memory.get(..count).unwrap_or_default()))
}

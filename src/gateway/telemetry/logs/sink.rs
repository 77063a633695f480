//! Where lines go, and the thread that takes them there.
//!
//! Who logs puts whole lines into memory and goes on; one thread for each place writes them. A place that does not take
//! them, as a pipe that nobody reads or a disk that is full, holds up that thread and nobody else: what does not fit
//! into memory any more is left out and counted. Invariants: lines stay in order and whole; what waits is bounded.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock;

/// How long lines that are in no hurry wait for others.
const GATHER: Duration = Duration::from_millis(100);
/// Up to here.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// After a place could not be written to, for how long it is left alone.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(200);
/// How often it is told that lines were lost, at most.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Sink {
    queue: Mutex<LineQueue>,
    /// There is something to do for the thread.
    wanted: Condvar,
    /// All is written.
    written: Condvar,
}

#[derive(Debug)]
struct LineQueue {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_urgent: bool,
    /// Lines left out since this was last told.
    left_out: u64,
    /// What is to be written to from now on.
    replaced: Option<File>,
    is_writing: bool,
    is_closed: bool,
}

/// What is to happen to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPriority {
    Now,
    /// It may wait for others, and leaves some room for those that may not.
    Gather,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enqueued {
    Yes,
    Full,
    /// Nothing is taken here any more.
    Closed,
}

#[derive(Debug)]
pub(super) enum WriteFault<'e> {
    /// It cannot be written to. Told once until it can.
    Failed(&'e io::Error),
    /// So many lines are not in it, and it can be written to again.
    Lost(u64),
}

pub(super) struct Watcher {
    pub(super) count: fn(u64),
    pub(super) tell: Box<dyn Fn(WriteFault<'_>) + Send>,
}

impl Sink {
    /// Starts the thread. At most `bytes_max` bytes wait, and as many are on their way.
    pub(super) fn open(file: File, bytes_max: usize, watcher: Watcher) -> io::Result<Arc<Self>> {
        let sink = Arc::new(Self {
            queue: Mutex::new(LineQueue {
                bytes: Vec::new(),
                bytes_max,
                is_urgent: false,
                left_out: 0,
                replaced: None,
                is_writing: false,
                is_closed: false,
            }),
            wanted: Condvar::new(),
            written: Condvar::new(),
        });
        let writer = Writer {
            sink: Arc::clone(&sink),
            file,
            watcher,
            is_failing: false,
            is_torn: false,
            lost: 0,
            told: None,
        };
        std::thread::Builder::new().name("log".into()).spawn(|| writer.run())?;
        Ok(sink)
    }

    /// Takes a whole line, with its end.
    pub(super) fn push(&self, line: &[u8], priority: FlushPriority) -> Enqueued {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            return Enqueued::Closed;
        }
        let room = match priority {
            FlushPriority::Now => queue.bytes_max,
            FlushPriority::Gather => queue.bytes_max / 4 * 3,
        };
        if queue.bytes.len() + line.len() > room {
            queue.left_out += 1;
            return Enqueued::Full;
        }
        let (had, was_urgent) = (queue.bytes.len(), queue.is_urgent);
        queue.bytes.extend_from_slice(line);
        queue.is_urgent |= priority == FlushPriority::Now || queue.bytes.len() >= GATHERED_BYTES_MAX;
        if had == 0 || (queue.is_urgent && !was_urgent) {
            self.wanted.notify_one();
        }
        Enqueued::Yes
    }

    pub(super) fn set_bytes_max(&self, bytes_max: usize) {
        self.queue.lock().bytes_max = bytes_max;
    }

    /// From the next line on `file` is written to.
    pub(super) fn replace(&self, file: File) {
        self.queue.lock().replaced = Some(file);
        self.wanted.notify_one();
    }

    /// Takes no more lines; the thread ends when all are written.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.wanted.notify_one();
    }

    /// Waits until all is written, but not beyond `deadline`.
    pub(super) fn wait_written(&self, deadline: Instant) {
        let mut queue = self.queue.lock();
        queue.is_urgent = true;
        self.wanted.notify_one();
        let patience = deadline.saturating_duration_since(clock::now());
        let is_busy = |queue: &mut LineQueue| queue.is_writing || !queue.bytes.is_empty();
        self.written.wait_while_for(&mut queue, is_busy, patience);
    }
}

struct Writer {
    sink: Arc<Sink>,
    file: File,
    watcher: Watcher,
    is_failing: bool,
    /// What was written last is the beginning of a line.
    is_torn: bool,
    /// Lines not told of yet.
    lost: u64,
    told: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        let mut batch = Vec::new();
        while self.next(&mut batch) {
            self.write(&batch);
            batch.clear();
            batch.shrink_to(GATHERED_BYTES_MAX);
            self.tell_lost();
            if self.is_failing {
                std::thread::sleep(PAUSE_AFTER_ERROR);
            }
        }
    }

    /// Waits for lines. False: there will be none.
    fn next(&mut self, batch: &mut Vec<u8>) -> bool {
        let sink = Arc::clone(&self.sink);
        let mut queue = sink.queue.lock();
        queue.is_writing = false;
        if queue.bytes.is_empty() {
            sink.written.notify_all();
        }
        let is_idle =
            |queue: &mut LineQueue| queue.bytes.is_empty() && queue.replaced.is_none() && !queue.is_closed;
        sink.wanted.wait_while(&mut queue, is_idle);
        let may_wait =
            |queue: &mut LineQueue| !queue.is_urgent && queue.replaced.is_none() && !queue.is_closed;
        sink.wanted.wait_while_for(&mut queue, may_wait, GATHER);
        std::mem::swap(&mut queue.bytes, batch);
        queue.is_urgent = false;
        queue.is_writing = !batch.is_empty();
        self.lost += std::mem::take(&mut queue.left_out);
        let is_over = queue.is_closed && batch.is_empty();
        if let Some(file) = queue.replaced.take() {
            (self.file, self.is_torn) = (file, false);
        }
        !is_over
    }

    fn write(&mut self, batch: &[u8]) {
        if batch.is_empty() {
            return;
        }
        let mut done = 0;
        let result = if self.is_torn { self.write_all(b"\n", &mut 0) } else { Ok(()) };
        let result = result.and_then(|()| self.write_all(batch, &mut done));
        if done > 0 {
            self.is_torn = batch[done - 1] != b'\n';
        }
        let Err(error) = result else {
            self.is_failing = false;
            return;
        };
        let lost = memchr::memchr_iter(b'\n', &batch[done..]).count() as u64;
        (self.watcher.count)(lost);
        self.lost += lost;
        if !std::mem::replace(&mut self.is_failing, true) {
            (self.watcher.tell)(WriteFault::Failed(&error));
        }
    }

    fn write_all(&mut self, bytes: &[u8], done: &mut usize) -> io::Result<()> {
        while *done < bytes.len() {
            match self.file.write(&bytes[*done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => *done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that has the same terminal or pipe may have made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell_lost(&mut self) {
        let is_soon = self.told.is_some_and(|told| clock::since(told) < TELL_INTERVAL);
        if self.lost > 0 && !self.is_failing && !is_soon {
            self.told = Some(clock::now());
            (self.watcher.tell)(WriteFault::Lost(std::mem::take(&mut self.lost)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn deadline() -> Instant {
        clock::now() + SOON
    }

    /// A sink, the other end of its pipe, and what its thread tells.
    fn piped(bytes_max: usize) -> (Arc<Sink>, io::PipeReader, mpsc::Receiver<Option<u64>>) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let (tell, told) = mpsc::channel();
        let tell = Box::new(move |fault: WriteFault<'_>| {
            let _ = tell.send(if let WriteFault::Lost(lines) = fault { Some(lines) } else { None });
        });
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        let sink = Sink::open(file, bytes_max, Watcher { count: |_| {}, tell }).expect("a thread");
        (sink, reader, told)
    }

    #[test]
    fn writes_lines_in_order_and_all_before_the_end() {
        let (sink, mut reader, _told) = piped(1 << 20);
        for number in 0..1000 {
            let priority = if number % 3 == 0 { FlushPriority::Now } else { FlushPriority::Gather };
            assert_eq!(sink.push(format!("{number}\n").as_bytes(), priority), Enqueued::Yes);
        }
        sink.close();
        assert_eq!(sink.push(b"late\n", FlushPriority::Now), Enqueued::Closed);
        sink.wait_written(deadline());
        let mut text = String::new();
        drop(sink);
        reader.read_to_string(&mut text).expect("the thread ends");
        assert!(text.lines().eq((0..1000).map(|number| number.to_string())));
    }

    #[test]
    fn a_pipe_that_is_not_read_holds_nobody_up_and_what_is_left_out_is_told() {
        let (sink, reader, told) = piped(64 * 1024);
        let line = [&[b'x'; 999][..], b"\n"].concat();
        let started = clock::now();
        let full = (0..1000).filter(|_| sink.push(&line, FlushPriority::Now) == Enqueued::Full).count();
        assert!(clock::since(started) < SOON && full > 500, "{full} left out");
        // Access lines leave room for the others.
        let (roomy, _unread, _) = piped(64 * 1024);
        while roomy.push(&line, FlushPriority::Gather) == Enqueued::Yes {}
        assert_eq!(roomy.push(&line, FlushPriority::Now), Enqueued::Yes);
        let taken = 1000 - full;
        let read = BufReader::new(reader).lines().take(taken).map_while(Result::ok).count();
        assert_eq!(read, taken);
        sink.push(b"one more\n", FlushPriority::Now);
        let lost: u64 = told.recv_timeout(SOON).expect("a word").expect("lines that were lost");
        assert!(lost > 0 && lost <= full as u64);
    }

    #[test]
    fn a_full_disk_is_told_once_and_left_behind() {
        let full = File::options().write(true).open("/dev/full").expect("a full device");
        let (tell, told) = mpsc::channel();
        let tell = Box::new(move |fault: WriteFault<'_>| {
            let _ = tell.send(match fault {
                WriteFault::Failed(error) => (error.kind() == io::ErrorKind::StorageFull, 0),
                WriteFault::Lost(lines) => (false, lines),
            });
        });
        let sink = Sink::open(full, 4096, Watcher { count: |_| {}, tell }).expect("a thread");
        for _ in 0..3 {
            sink.push(b"lost\n", FlushPriority::Now);
            sink.wait_written(deadline());
        }
        assert_eq!(told.recv_timeout(SOON), Ok((true, 0)));
        let (mut reader, writer) = io::pipe().expect("a pipe");
        sink.replace(File::from(std::os::fd::OwnedFd::from(writer)));
        sink.push(b"here\n", FlushPriority::Now);
        assert_eq!(told.recv_timeout(SOON), Ok((false, 3)));
        sink.close();
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the thread ends");
        assert_eq!(text, "here\n");
    }
}

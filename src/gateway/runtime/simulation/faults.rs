//! Connections whose reads and writes are short, late, or their last.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::dice::Dice;

/// How many of a thousand reads or writes are short or a little late, at any time; those are no faults.
const UNEVEN: usize = 80;
/// How many of a thousand are late by so much that somebody's patience may end, or the last, in a storm.
const LATE: usize = 4;
const LAST: usize = 12;
const LATE_BY: Duration = Duration::from_secs(20);

/// Who may be harmed by a fault: an upstream, or part of what goes there, by its name; a client by its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Upstream(&'static str),
    /// What is on its way to one replica at that moment.
    Connections(&'static str),
    /// What one replica knows and the others do not.
    Sessions(&'static str),
    /// What is told by one replica.
    Streams(&'static str),
    Client(usize),
}

/// Whether there are faults now, and when there last was one where.
#[derive(Debug)]
pub(super) struct Weather {
    dice: RefCell<Dice>,
    pub(super) is_stormy: Cell<bool>,
    harmed: RefCell<HashMap<Place, Instant>>,
}

/// What becomes of a read or write.
enum Fate {
    Whole,
    Short(usize),
    Late(Duration),
    Last,
}

impl Weather {
    pub(super) fn new(dice: Dice) -> Rc<Self> {
        Rc::new(Self { dice: RefCell::new(dice), is_stormy: Cell::new(false), harmed: RefCell::default() })
    }

    /// Below `count`, in any weather.
    pub(super) fn die(&self, count: usize) -> usize {
        self.dice.borrow_mut().below(count)
    }

    /// Something happened there for which a request may fail.
    pub(super) fn harm(&self, place: &Place) {
        self.harmed.borrow_mut().insert(place.clone(), Instant::now());
    }

    /// Whether something did since then.
    pub(super) fn has_harmed(&self, place: &Place, since: Instant) -> bool {
        self.harmed.borrow().get(place).is_some_and(|at| *at >= since)
    }

    /// In a storm, so many times out of a thousand.
    pub(super) fn strikes(&self, place: &Place, times: usize) -> bool {
        let strikes = self.is_stormy.get() && self.dice.borrow_mut().one_of_1000(times);
        if strikes {
            self.harm(place);
        }
        strikes
    }

    fn fate(&self, place: &Place) -> Fate {
        if self.strikes(place, LAST) {
            return Fate::Last;
        }
        if self.strikes(place, LATE) {
            return Fate::Late(LATE_BY);
        }
        let mut dice = self.dice.borrow_mut();
        match dice.below(1000) {
            0..UNEVEN => Fate::Short(1 + dice.below(40)),
            other if other < 2 * UNEVEN => Fate::Late(dice.pause(30)),
            _ => Fate::Whole,
        }
    }
}

/// A connection in that weather.
pub(super) struct FaultyStream {
    inner: TcpStream,
    weather: Rc<Weather>,
    place: Place,
    read: Pause,
    write: Pause,
    is_over: bool,
    harm: Rc<ConnectionHarm>,
}

/// The fate of a connection so far.
#[derive(Debug, Default)]
pub(super) struct ConnectionHarm {
    is_cut: Cell<bool>,
    /// Reads and writes that were late by so much that somebody's patience may have ended.
    late: Cell<usize>,
}

impl ConnectionHarm {
    /// True if words on it may never have arrived, however patient the other side is.
    pub(super) fn is_lost(&self) -> bool {
        self.is_cut.get() || self.late.get() > 1
    }
}

/// What is waited for, and whether it was.
#[derive(Default)]
struct Pause {
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl FaultyStream {
    pub(super) fn new(inner: TcpStream, weather: &Rc<Weather>, place: Place) -> Self {
        // Else the system waits for as long as a hand takes, which is no time here.
        inner.set_nodelay(true).expect("a TCP connection");
        let (read, write) = (Pause::default(), Pause::default());
        let (weather, harm) = (Rc::clone(weather), Rc::default());
        Self { inner, weather, place, read, write, is_over: false, harm }
    }

    pub(super) fn harm(&self) -> Rc<ConnectionHarm> {
        Rc::clone(&self.harm)
    }

    /// How many bytes may be moved now, of that many.
    fn poll_fate(&mut self, cx: &mut Context<'_>, is_read: bool, whole: usize) -> Poll<io::Result<usize>> {
        if self.is_over {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let pause = if is_read { &mut self.read } else { &mut self.write };
        if let Some(timer) = &mut pause.timer {
            ready!(timer.as_mut().poll(cx));
            *pause = Pause { timer: None, is_over: true };
        }
        if std::mem::take(&mut pause.is_over) {
            return Poll::Ready(Ok(whole));
        }
        match self.weather.fate(&self.place) {
            Fate::Whole => Poll::Ready(Ok(whole)),
            Fate::Short(count) => Poll::Ready(Ok(count.min(whole))),
            Fate::Late(by) => {
                self.harm.late.set(self.harm.late.get() + usize::from(by == LATE_BY));
                let timer = pause.timer.insert(Box::pin(sleep(by)));
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Ok(whole))
            }
            Fate::Last => {
                self.is_over = true;
                self.harm.is_cut.set(true);
                // Half of them are told by a reset, the others by an end.
                if whole.is_multiple_of(2) {
                    let _ = socket2::SockRef::from(&self.inner).set_linger(Some(Duration::ZERO));
                }
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }
}

impl AsyncRead for FaultyStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.read.timer.is_none() && !this.is_over {
            ready!(this.inner.poll_read_ready(cx))?;
        }
        let count = ready!(this.poll_fate(cx, true, buf.remaining()))?;
        let mut part = buf.take(count);
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        let filled = part.filled().len();
        // What stands there was written by the read.
        let bytes = part.filled().to_vec();
        buf.put_slice(&bytes[..filled]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FaultyStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(this.poll_fate(cx, false, bytes.len()))?;
        Pin::new(&mut this.inner).poll_write(cx, &bytes[..count.min(bytes.len())])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

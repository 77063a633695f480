//! The load: connections that make calls, and the pace at which calls become due.
//!
//! In open loop a call is counted by the moment it was due, in closed loop by the moment its reply came; either way
//! only inside the measured window. A connection that fails is opened again after a pause, so a dead server costs
//! errors and no spinning. What is unanswered `PATIENCE` after the window is counted as such.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::calls::{Call, FIRST_ID, Plan, check, check_message};
use crate::inbox::Inbox;
use crate::tally::{Fault, Tally};
use crate::tls::{Stream, Tls};
use crate::{Options, http1};

const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a stream is read at once, if there is as much.
const READ_BYTES: usize = 64 * 1024;
/// One large reply in so many is read in full.
const FULL_CHECK_EVERY: u64 = 64;
const PAUSE_AFTER_FAULT: Duration = Duration::from_millis(10);

/// Makes the load and returns what came of it.
pub(crate) async fn run(plan: Plan, options: &Options) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let window = start + options.warmup..start + options.warmup + options.duration;
    let load = Rc::new(Load {
        plan,
        window: window.clone(),
        pace: if options.rate == 0 { Pace::Closed } else { Pace::Open },
        due: RefCell::default(),
        due_or_over: Notify::new(),
        over: Cell::new(false),
        next_turn: Cell::new(0),
        in_flight: RefCell::new(vec![None; options.connections]),
        tally: RefCell::new(Tally::new()?),
    });
    let connections: Vec<_> = (0..options.connections)
        .map(|index| {
            let load = Rc::clone(&load);
            tokio::task::spawn_local(async move { load.drive(index).await })
        })
        .collect();
    let announcements = tokio::task::spawn_local(announce(window.clone()));
    if options.rate > 0 {
        load.make_due(options.rate).await?;
    }
    announcements.await?;
    load.over.set(true);
    load.due_or_over.notify_waiters();
    let all_done = async {
        for connection in connections {
            connection.await.ok();
        }
    };
    tokio::time::timeout(PATIENCE, all_done).await.ok();
    load.count_unanswered();
    Ok(load.tally.replace(Tally::new()?))
}

async fn announce(window: Range<Instant>) {
    tokio::time::sleep_until(window.start.into()).await;
    println!("measuring");
    tokio::time::sleep_until(window.end.into()).await;
    println!("measured");
}

struct Load {
    plan: Plan,
    /// What is measured.
    window: Range<Instant>,
    pace: Pace,
    /// Open loop: when the waiting calls were due.
    due: RefCell<VecDeque<Instant>>,
    due_or_over: Notify,
    over: Cell<bool>,
    /// How many calls were begun.
    next_turn: Cell<u64>,
    /// For each connection, when the call it is busy with was due.
    in_flight: RefCell<Vec<Option<Instant>>>,
    tally: RefCell<Tally>,
}

enum Pace {
    Closed,
    Open,
}

impl Load {
    /// One connection, from the first call to the last.
    async fn drive(&self, index: usize) {
        let mut connection = None;
        while let Some(due) = self.next_due().await {
            self.in_flight.borrow_mut()[index] = Some(due);
            let outcome = self.call(&mut connection).await;
            self.in_flight.borrow_mut()[index] = None;
            if let Err(fault) = outcome {
                // Who read a whole refusal keeps the connection, as clients do.
                if !fault.is_refusal() {
                    connection = None;
                }
                self.tally.borrow_mut().failed(fault);
                tokio::time::sleep(PAUSE_AFTER_FAULT).await;
                continue;
            }
            let now = Instant::now();
            let counts_by = if matches!(self.pace, Pace::Open) { due } else { now };
            if self.window.contains(&counts_by) {
                self.tally.borrow_mut().answered(now - due, now >= self.window.end);
            }
        }
    }

    async fn next_due(&self) -> Option<Instant> {
        if matches!(self.pace, Pace::Closed) {
            return (!self.over.get()).then(Instant::now);
        }
        loop {
            if let Some(due) = self.due.borrow_mut().pop_front() {
                return Some(due);
            }
            if self.over.get() {
                return None;
            }
            self.due_or_over.notified().await;
        }
    }

    async fn call(&self, slot: &mut Option<Connection>) -> Result<(), Fault> {
        if self.plan.handshakes_only {
            let stream = Stream::connect(self.plan.address, self.plan.tls.as_ref()).await?;
            return stream.close().await.map_err(|_| Fault::Handshake);
        }
        let connection = match slot {
            Some(connection) => connection,
            None => slot.insert(Connection::open(&self.plan).await?),
        };
        let turn = self.next_turn.replace(self.next_turn.get() + 1);
        let id = if self.plan.same_id { FIRST_ID } else { FIRST_ID + turn };
        let calls = &self.plan.calls;
        let call = &calls[usize::try_from(turn).unwrap_or_default() % calls.len()];
        let glance = !turn.is_multiple_of(FULL_CHECK_EVERY);
        if self.plan.events > 0 {
            return connection.exchange_stream(call, id, self.plan.events).await;
        }
        connection.exchange(call, id, |reply| check(reply, id, glance)).await
    }

    /// Makes calls due at this rate until the window ends. The kernel's timer wakes us with far finer steps than
    /// the runtime's milliseconds; what fell due while we were late is made up for, with its true time.
    async fn make_due(&self, rate_per_s: u32) -> anyhow::Result<()> {
        let interval = Duration::from_secs(1) / rate_per_s;
        #[expect(deprecated, reason = "its safe successor does not exist; an OwnedFd cannot change under it")]
        let timer = AsyncFd::new(periodic_timer(interval)?)?;
        let mut due = Instant::now();
        while due < self.window.end {
            let mut ready = timer.readable().await?;
            let mut expirations = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?)) {
                Ok(read) => read?,
                Err(_would_block) => continue,
            };
            for _ in 0..u64::from_ne_bytes(expirations) {
                due += interval;
                self.due.borrow_mut().push_back(due);
                self.due_or_over.notify_one();
            }
        }
        Ok(())
    }

    fn count_unanswered(&self) {
        let in_flight = self.in_flight.take();
        let left = self.due.take().into_iter().chain(in_flight.into_iter().flatten());
        for _ in left.filter(|due| *due < self.window.end) {
            self.tally.borrow_mut().failed(Fault::Unanswered);
        }
    }
}

fn periodic_timer(interval: Duration) -> std::io::Result<OwnedFd> {
    let step = Timespec {
        tv_sec: i64::try_from(interval.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: interval.subsec_nanos().into(),
    };
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: step, it_value: step })?;
    Ok(timer)
}

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Legacy: the session's header line.
    pub(crate) session: Vec<u8>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Connection {
    async fn open(plan: &Plan) -> Result<Self, Fault> {
        let mut connection = Self::connect(plan.address, plan.tls.as_ref()).await?;
        if plan.opens_sessions {
            connection.initialize(&plan.opening).await?;
        }
        Ok(connection)
    }

    pub(crate) async fn connect(address: SocketAddr, tls: Option<&Tls>) -> Result<Self, Fault> {
        let stream = Stream::connect(address, tls).await?;
        Ok(Self { stream, session: Vec::new(), input: Vec::with_capacity(16 * 1024), output: Vec::new() })
    }

    /// Opens a legacy session.
    pub(crate) async fn initialize(&mut self, [initialize, initialized]: &[Call; 2]) -> Result<(), Fault> {
        let session = |reply: &http1::Message<'_>| {
            check(reply, FIRST_ID, false)?;
            let id = reply.header("mcp-session-id");
            Ok(id.map(|id| [b"Mcp-Session-Id: ", id, b"\r\n"].concat()).unwrap_or_default())
        };
        self.session = self.exchange(initialize, FIRST_ID, session).await?;
        let accepted = |reply: &http1::Message<'_>| match reply.start_line().get(9..12) {
            Some(b"202") => Ok(()),
            _ => Err(Fault::Malformed),
        };
        self.exchange(initialized, FIRST_ID, accepted).await
    }

    /// Sends `call`, whose reply must be a stream of so many `events`, the last of them the result.
    async fn exchange_stream(&mut self, call: &Call, id: u64, events: u64) -> Result<(), Fault> {
        self.output.clear();
        call.write(id, &self.session, &mut self.output);
        self.stream.write_all(&self.output).await.map_err(|_| Fault::Closed)?;
        let mut inbox = Inbox::default();
        inbox.framed.reserve(READ_BYTES);
        let (mut seen, mut last) = (0, Vec::new());
        while !inbox.has_ended {
            if self.stream.read_buf(&mut inbox.framed).await.map_err(|_| Fault::Closed)? == 0 {
                return Err(Fault::Closed);
            }
            while let Some(event) = inbox.next_event()? {
                seen += 1;
                last = event;
            }
        }
        if seen == events { check_message(&last, id) } else { Err(Fault::Malformed) }
    }

    /// Sends `call` and hands the reply to `read`.
    pub(crate) async fn exchange<T>(
        &mut self,
        call: &Call,
        id: u64,
        read: impl Fn(&http1::Message<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.output.clear();
        call.write(id, &self.session, &mut self.output);
        self.stream.write_all(&self.output).await.map_err(|_| Fault::Closed)?;
        loop {
            if self.stream.read_buf(&mut self.input).await.map_err(|_| Fault::Closed)? == 0 {
                return Err(Fault::Closed);
            }
            if let Some(reply) = http1::parse(&self.input).map_err(|_| Fault::Malformed)? {
                let outcome = read(&reply);
                let length = reply.length;
                self.input.drain(..length);
                return outcome;
            }
        }
    }
}

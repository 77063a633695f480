//! The silence of the client of a call, and the signs of life that break it: a load balancer closes connections
//! that are quiet for long, and the result of the call would be lost.
//!
//! A wait for an upstream notes here that the time has come, by a timer that it has anyway. The holder of the client's
//! connection looks here whenever the call has nothing for it, and begins the reply ([`crate::line::relay`] has its body).
//!
//! The timer of such waits is kept here from one call of a connection to the next: one that stays set costs nothing, while
//! one of its own would cost each call as much as its message.
//!
//! Invariant: nothing is due before the request was sent: until then a refusal has its own status.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::{Poll, ready};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use http::HeaderValue;
use parking_lot::Mutex;
use protocol::media::Media;

use crate::clock::{self, RecurringDeadline};

/// The upstream has the request, or is sent it.
const SENT: u8 = 1;
/// The client has heard nothing for long.
const LONG: u8 = 2;
/// The client waits for more than the answer.
const EVENTS: u8 = 4;
/// The client has the head of a reply: of JSON, or of events.
const BEGUN_JSON: u8 = 8;
const BEGUN_EVENTS: u8 = 16;
/// The reply is for a page.
const PAGE: u8 = 32;

/// The interval of looks at whether a request was sent.
const SENT_INTERVAL: Duration = Duration::from_millis(100);

/// The silence of one call. Any thread may note something.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// The longest that it may be. Zero: as long as the call.
    interval_ms: AtomicU32,
    stage: AtomicU8,
    /// Whose page the reply is for, where a browser asks.
    origin: Mutex<Option<HeaderValue>>,
    /// The timer of whoever waits, while nobody does, and the thread that wakes them by it.
    timer: Mutex<Option<(ThreadId, RecurringDeadline)>>,
}

impl Silence {
    /// A call begins, whose silence may be as long as this.
    pub(crate) fn start(&self, interval: Duration) {
        let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
        self.interval_ms.store(interval_ms, Ordering::Relaxed);
        self.stage.store(0, Ordering::Relaxed);
    }

    /// The longest that it may be; zero: as long as the call.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.load(Ordering::Relaxed).into())
    }

    /// The page that the reply is for is of this origin.
    pub(crate) fn note_origin(&self, origin: &HeaderValue) {
        *self.origin.lock() = Some(origin.clone());
        self.stage.fetch_or(PAGE, Ordering::Relaxed);
    }

    /// Of an earlier call, it is none of this one.
    pub(crate) fn take_origin(&self) -> Option<HeaderValue> {
        let origin = self.origin.lock().take();
        origin.filter(|_| self.stage.load(Ordering::Relaxed) & PAGE != 0)
    }

    /// The request is on its way to the upstream.
    pub(crate) fn mark_sent(&self) {
        self.stage.fetch_or(SENT, Ordering::Relaxed);
    }

    /// As [`mark_sent`](Self::mark_sent), of a request that began at `start`. When that has lasted for long; at `deadline`
    /// at the latest.
    pub(crate) fn sent(&self, start: Instant, deadline: Instant) -> Instant {
        self.mark_sent();
        self.long_after(start, deadline)
    }

    /// The client wants to hear of the call before its answer.
    pub(crate) fn mark_events(&self) {
        self.stage.fetch_or(EVENTS, Ordering::Relaxed);
    }

    /// The client has heard nothing for long. False: the request was not sent yet.
    pub(crate) fn note(&self) -> bool {
        self.stage.fetch_or(LONG, Ordering::Relaxed) & SENT != 0
    }

    /// True if the client is to be given something, and has nothing yet.
    pub(crate) fn is_due(&self) -> bool {
        self.stage.load(Ordering::Relaxed) & (SENT | LONG | BEGUN_JSON | BEGUN_EVENTS) == SENT | LONG
    }

    /// The client is given the head of a reply now. Of which media type.
    pub(crate) fn begin(&self) -> Media {
        let (begun, media) = if self.stage.load(Ordering::Relaxed) & EVENTS == 0 {
            (BEGUN_JSON, Media::Json)
        } else {
            (BEGUN_EVENTS, Media::Sse)
        };
        self.stage.fetch_or(begun, Ordering::Relaxed);
        media
    }

    /// The kind of reply whose head the client has.
    pub(crate) fn begun(&self) -> Option<Media> {
        match self.stage.load(Ordering::Relaxed) & (BEGUN_JSON | BEGUN_EVENTS) {
            0 => None,
            BEGUN_JSON => Some(Media::Json),
            _ => Some(Media::Sse),
        }
    }

    /// A timer for a wait of the call: a new one where that of the client's connection is in use, or another thread's.
    pub(crate) fn take_timer(&self) -> RecurringDeadline {
        let kept = self.timer.lock().take();
        kept.filter(|(thread, _)| *thread == thread::current().id())
            .map(|(_, timer)| timer)
            .unwrap_or_default()
    }

    /// Keeps a timer for the next wait.
    pub(crate) fn keep_timer(&self, timer: RecurringDeadline) {
        *self.timer.lock() = Some((thread::current().id(), timer));
    }

    /// When what began at `start` has lasted for long; at `deadline` at the latest.
    fn long_after(&self, start: Instant, deadline: Instant) -> Instant {
        let interval = self.interval();
        if interval.is_zero() { deadline } else { deadline.min(start + interval) }
    }

    /// As [`long_after`](Self::long_after), of what has so much time until its deadline.
    fn long_before(&self, deadline: Instant, patience: Duration) -> Instant {
        deadline.checked_sub(patience).map_or(deadline, |start| self.long_after(start, deadline))
    }
}

/// Awaits `future` until `deadline`, which lets it have this patience from the beginning; `None`: it is too late. One that
/// is ready at once costs no timer.
pub(crate) async fn until<F: Future>(
    silence: Option<&Silence>,
    deadline: Instant,
    patience: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    match (future.as_mut().now_or_never(), silence) {
        (Some(output), _) => Some(output),
        (None, None) => clock::until(deadline, future).await,
        (None, Some(silence)) => wait(silence, deadline, patience, future).await,
    }
}

/// As [`until`], of what is hardly ever ready at once.
pub(crate) async fn wait<F: Future>(
    silence: &Silence,
    deadline: Instant,
    patience: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let (mut timer, mut until) = (silence.take_timer(), silence.long_before(deadline, patience));
    let output = poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            ready!(timer.poll(cx, until));
            if until >= deadline {
                return Poll::Ready(None);
            }
            // The future is asked once more: it may have something to say of that.
            until = if silence.note() { deadline } else { deadline.min(clock::now() + SENT_INTERVAL) };
        }
    })
    .await;
    silence.keep_timer(timer);
    output
}

/// Awaits `future`, which began at `start` and ends by itself.
pub(crate) async fn noted<F: Future>(silence: &Silence, start: Instant, future: F) -> F::Output {
    if silence.interval().is_zero() {
        return future.await;
    }
    let patience = Duration::from_hours(48);
    let mut future = pin!(future);
    match wait(silence, start + patience, patience, future.as_mut()).await {
        Some(output) => output,
        None => future.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_due_before_the_request_was_sent() {
        let silence = Silence::default();
        silence.start(Duration::from_secs(1));
        assert!(!silence.note() && !silence.is_due());
        silence.mark_sent();
        assert!(silence.note() && silence.is_due() && silence.begun().is_none());
        assert_eq!(silence.begin(), Media::Json);
        assert!(!silence.is_due() && silence.begun() == Some(Media::Json));
        silence.start(Duration::ZERO);
        silence.mark_sent();
        assert!(!silence.is_due() && silence.begun().is_none());
        silence.mark_events();
        assert_eq!((silence.begin(), silence.begun()), (Media::Sse, Some(Media::Sse)));
    }

    #[test]
    fn what_lasts_for_long_has_its_time_from_the_beginning() {
        let (silence, start) = (Silence::default(), clock::now());
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        assert_eq!(silence.long_before(start + minute, minute), start + minute);
        silence.start(second);
        assert_eq!(silence.long_before(start + minute, minute), start + second);
        assert_eq!(silence.long_after(start, start + second / 2), start + second / 2);
    }

    #[tokio::test]
    async fn a_silence_is_noted_and_the_wait_goes_on() {
        let silence = Silence::default();
        silence.start(Duration::from_millis(20));
        let (start, patience) = (clock::now(), Duration::from_millis(200));
        let noted = poll_fn(|_| if silence.is_due() { Poll::Ready(()) } else { Poll::Pending });
        let waited = wait(&silence, start + patience, patience, noted);
        let sent = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            silence.mark_sent();
        };
        assert_eq!(tokio::join!(waited, sent).0, Some(()));
        assert!(clock::since(start) >= Duration::from_millis(50));
        let never =
            wait(&silence, clock::now() + Duration::from_millis(5), patience, std::future::pending::<()>());
        assert_eq!(never.await, None);
    }

    #[tokio::test]
    async fn a_timer_serves_one_wait_after_the_other_and_none_within_another() {
        let silence = Silence::default();
        let patience = Duration::from_mins(1);
        let late = |after_ms| {
            let deadline = clock::now() + Duration::from_millis(after_ms);
            let waited = wait(&silence, deadline, patience, std::future::pending::<()>());
            async move { (waited.await, clock::now() >= deadline) }
        };
        for after_ms in [5, 10, 3] {
            assert_eq!(late(after_ms).await, (None, true), "{after_ms}");
        }
        let far = clock::now() + patience;
        assert_eq!(wait(&silence, far, patience, late(5)).await, Some((None, true)));
        assert_eq!(wait(&silence, far, patience, async { 1 }).await, Some(1));
        assert_eq!(late(5).await, (None, true));
    }
}

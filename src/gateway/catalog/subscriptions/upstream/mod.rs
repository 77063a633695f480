//! The gateway's own streams to upstreams, two for each that anybody listens to, or, of the legacy era, one
//! (`watch`). They run on the control thread.
//!
//! What is new goes into a stream of its own once the one that grows carries much (`standing`). Until then a stream that is
//! to carry more is replaced: the new one is acknowledged before the old one is closed, and the old
//! one is read a little longer, because what it was told before the new one began is still on its way. A stream that
//! is lost is opened again with growing pauses; then everybody is told what may have changed meanwhile. An upstream
//! that offers no subscriptions is asked again once a minute. One that refuses a stream for what is in it is asked for less
//! (`trials`).

use std::cell::{Cell, RefCell};
use std::future::{Future as _, pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::time::sleep_until;

use self::bisection::Bisection;
use self::standing::{StandingStream, StreamRole};
use self::stream::{SubscribeError, SubscriptionStream};
use self::thread::Thread;
use self::trials::{Trial, Trials};
use crate::clock;
use crate::context::state::State;
use crate::tables::subscriptions::feed::{Feed, FeedFilter, Lane, Need};
use crate::tables::subscriptions::inbox::HeldNotice;
use crate::upstream::changes::ChangedList;
use crate::upstream::exchange::UpstreamClient;
use net::jitter::{doubled, jittered};
use protocol::error::UpstreamError;
use protocol::subscription::{Acknowledged, Heard, hear};

mod bisection;
mod promised;
mod standing;
mod stream;
mod thread;
mod trials;
mod watch;

/// How long a stream is kept that nobody wants.
const LINGER: Duration = Duration::from_secs(5);
/// How long a stream may carry more than is wanted.
const UNWANTED_KEPT: Duration = Duration::from_secs(30);
/// How long the old stream is read after a new one was acknowledged.
const OVERLAP: Duration = Duration::from_millis(500);
/// So many streams are read beside the one that may grow; while there are more, none is opened.
const KEPT_MAX: usize = 12;
/// New wishes within this time share one new stream.
const GROWTH_INTERVAL: Duration = Duration::from_millis(100);
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stream that lived this long shows that the upstream is well.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// How often an upstream is asked that refuses everything.
const REFUSED_INTERVAL: Duration = Duration::from_mins(1);
/// So many messages about resources and tasks, each counted again for every KiB and for so many clients that are told, are
/// read of one stream in this time; then its upstream has to wait.
const BURST_INTERVAL: Duration = Duration::from_millis(100);
const BURST_MAX: usize = 200;
const BURST_CLIENTS: usize = 50;

/// Opens and closes streams as clients come and go, until the process ends.
pub(crate) async fn run(state: Arc<State>, client: UpstreamClient) {
    let thread = Rc::new(Thread { state, client, scratch: RefCell::default(), next_id: Cell::new(0) });
    loop {
        for feed in thread.state.hub.take_new() {
            let of_feed = Rc::clone(&thread);
            thread.client.tasks.spawn(async move { of_feed.serve(feed).await });
        }
        thread.state.hub.opened.notified().await;
    }
}

struct Carrier {
    thread: Rc<Thread>,
    feed: Arc<Feed>,
    lane: Lane,
    current: Option<SubscriptionStream>,
    kept: Vec<StandingStream>,
    opening: Option<PendingStream>,
    /// Something that was promised could not be heard for a while.
    has_gap: bool,
    failures: u32,
    /// No stream is opened before.
    not_before: Instant,
    /// When an upstream that refused everything is asked again.
    ask_again_at: Instant,
    unused_since: Option<Instant>,
    unwanted_since: Option<Instant>,
    burst: (Instant, usize),
    /// Somebody may have come or left.
    is_changed: bool,
    /// A stream is being opened because the one before it carries as much as one is to carry.
    is_next: bool,
    /// The upstream refused such a one: until then the last one grows.
    one_stream_until: Instant,
    /// The names that wait to be tried, after some were refused.
    bisection: Bisection,
    trials: Trials,
}

struct PendingStream {
    ask: FeedFilter,
    trial: Trial,
    opened: LocalBoxFuture<'static, Result<(SubscriptionStream, Acknowledged), SubscribeError>>,
}

#[expect(clippy::large_enum_variant, reason = "it lives for one step")]
enum Step {
    Look,
    Opened(Result<(SubscriptionStream, Acknowledged), SubscribeError>),
    Current(Result<Bytes, UpstreamError>),
    Kept(usize, Result<Bytes, UpstreamError>),
}

enum StreamEnd {
    Gracefully,
    Lost(UpstreamError),
}

impl Carrier {
    fn new(thread: &Rc<Thread>, feed: &Arc<Feed>, lane: Lane) -> Self {
        let now = clock::now();
        Self {
            thread: Rc::clone(thread),
            feed: Arc::clone(feed),
            lane,
            current: None,
            kept: Vec::new(),
            opening: None,
            has_gap: false,
            failures: 0,
            not_before: now,
            ask_again_at: now,
            unused_since: None,
            unwanted_since: None,
            burst: (now, 0),
            is_changed: false,
            is_next: false,
            one_stream_until: now,
            bisection: Bisection::default(),
            trials: Trials::new(now),
        }
    }

    async fn run(mut self) {
        let is_lazy = self.feed.upstream.is_lazy();
        let mut starts = self.feed.upstream.starts().filter(|_| is_lazy).map(|starts| starts.own());
        loop {
            let now = clock::now();
            let mut wake = self.arrange(now);
            let mut consider = |at: Option<Instant>| wake = [wake, at].into_iter().flatten().min();
            if self.lane == Lane::Lists {
                consider(self.feed.release(now));
            }
            self.kept.iter().for_each(|kept| consider(kept.until()));
            let is_paused = self.burst.1 >= BURST_MAX && now < self.burst.0 + BURST_INTERVAL;
            consider(is_paused.then(|| self.burst.0 + BURST_INTERVAL));
            let Self { feed, lane, current, kept, opening, .. } = &mut self;
            let step = tokio::select! {
                () = feed.changed(*lane) => Step::Look,
                () = watch::changed(starts.as_mut()) => Step::Look,
                opened = opened(opening) => Step::Opened(opened),
                heard = next_of(current.as_mut()), if !is_paused => Step::Current(heard),
                (index, heard) = next_of_kept(kept), if !is_paused => Step::Kept(index, heard),
                () = until(wake) => Step::Look,
            };
            self.take(step);
        }
    }

    /// Opens and closes what is due. Returns when to look again.
    fn arrange(&mut self, now: Instant) -> Option<Instant> {
        self.end_replaced(now);
        if std::mem::take(&mut self.is_changed) {
            self.part_with_unwanted(now);
        }
        let need = self.feed.need(self.lane);
        if !need.is_wanted {
            self.opening = None;
            self.forget_trials();
            let close_at = *self.unused_since.get_or_insert(now) + LINGER;
            if close_at > now {
                let is_open = self.current.is_some() || !self.kept.is_empty();
                return is_open.then_some(close_at);
            }
            self.current = None;
            self.kept.clear();
            self.feed.forget(self.lane);
            (self.has_gap, self.failures, self.not_before) = (false, 0, now);
            return None;
        }
        self.unused_since = None;
        // It tells of no changes of lists; by a resource that somebody subscribes to it is used.
        if self.lane == Lane::Lists && self.feed.upstream.rests() {
            return None;
        }
        if self.opening.is_some() || self.kept.len() >= KEPT_MAX {
            return None;
        }
        let shrink_at = self.shrink_at(need, now);
        let due_at = match &self.current {
            _ if need.has_pending => None,
            Some(_) => Some(shrink_at),
            None if need.has_carried => None,
            None => Some(Some(self.ask_again_at)),
        };
        if let Some(at) = due_at
            && at.is_none_or(|at| at > now)
        {
            return at;
        }
        if self.not_before > now {
            return Some(self.not_before);
        }
        if let Some(at) = self.failed_again_at(need, now) {
            return Some(at);
        }
        self.not_before = now + GROWTH_INTERVAL;
        self.unwanted_since = None;
        if need.has_newcomers {
            self.complete_stream(now);
        }
        self.open();
        None
    }

    fn shrink_at(&mut self, need: Need, now: Instant) -> Option<Instant> {
        if !need.has_unwanted {
            self.unwanted_since = None;
            return None;
        }
        Some(*self.unwanted_since.get_or_insert(now) + UNWANTED_KEPT)
    }

    fn open(&mut self) {
        let (ask, trial) = self.next_ask();
        if ask.is_empty() {
            return;
        }
        let thread = Rc::clone(&self.thread);
        let id = thread.next_id.get() + 1;
        thread.next_id.set(id);
        let (feed, asked) = (Arc::clone(&self.feed), ask.clone());
        let opened = async move {
            let Thread { state, client, scratch, .. } = &*thread;
            stream::open(state, client, scratch, &feed, &asked, id).await
        };
        self.opening = Some(PendingStream { ask, trial, opened: opened.boxed_local() });
    }

    fn next_ask(&mut self) -> (FeedFilter, Trial) {
        // What was refused is asked again when nothing else is left, and lists whenever the upstream comes back.
        let is_all_refused = self.current.is_none() && self.feed.ask(self.lane).is_empty();
        if is_all_refused || (self.current.is_none() && self.lane == Lane::Lists) {
            self.feed.ask_everything(self.lane);
        }
        match self.lane {
            Lane::Lists => (self.feed.ask(self.lane), Trial::Group(Vec::new())),
            Lane::Names => self.next_trial(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Look => self.is_changed = true,
            Step::Opened(opened) => self.opened(opened),
            Step::Current(heard) => {
                let id = self.current.as_ref().map(|stream| stream.id.clone()).unwrap_or_default();
                if let Err(ended) = self.hear(heard, &id) {
                    self.lost(&ended);
                }
            }
            Step::Kept(index, heard) => {
                let id = self.kept.get(index).map(|kept| kept.stream.id.clone()).unwrap_or_default();
                if let Err(ended) = self.hear(heard, &id) {
                    self.lost_kept(index, &ended);
                }
            }
        }
    }

    fn opened(&mut self, opened: Result<(SubscriptionStream, Acknowledged), SubscribeError>) {
        let now = clock::now();
        let Some(PendingStream { ask, trial, .. }) = self.opening.take() else { return };
        let upstream = Arc::clone(&self.feed.upstream);
        let is_next = std::mem::take(&mut self.is_next);
        match opened {
            Ok((stream, acknowledged)) => {
                let is_beside = matches!(trial, Trial::Alone(_)) && self.current.is_some();
                if is_beside && acknowledged.is_empty() {
                    self.feed.settle(&ask, &acknowledged, false, now);
                    return;
                }
                if is_beside && !self.begin_stream(now) {
                    return;
                }
                let has_gap = std::mem::take(&mut self.has_gap);
                if let Some(old) = self.current.replace(stream) {
                    self.kept.push(StandingStream { stream: old, role: StreamRole::Replaced(now + OVERLAP) });
                }
                let changed = self.feed.settle(&ask, &acknowledged, has_gap, now);
                for index in changed.indexes() {
                    self.thread.state.hub.list_doubted(&upstream, ChangedList::ALL[index]);
                }
                self.trial_accepted(now);
                tracing::debug!(upstream = upstream.config.name, lane = ?self.lane, has_gap, "listening");
            }
            Err(SubscribeError::Refused | SubscribeError::Rejected)
                if is_next && self.resume_last_stream() =>
            {
                self.one_stream_until = now + REFUSED_INTERVAL;
                self.forget_trials();
            }
            Err(SubscribeError::Rejected) if self.lane == Lane::Names => {
                tracing::debug!(
                    upstream = upstream.config.name,
                    names = ask.names(),
                    "refused a subscription"
                );
                self.trial_refused(&ask, trial, now);
            }
            Err(SubscribeError::Refused | SubscribeError::Rejected) => {
                let until = now + REFUSED_INTERVAL;
                self.forget_trials();
                let is_partial = self.feed.refuse(self.lane, until);
                if !is_partial && self.current.is_none() {
                    self.ask_again_at = until;
                }
                tracing::debug!(upstream = upstream.config.name, lane = ?self.lane, "offers no such subscription");
            }
            Err(SubscribeError::Failed(error)) => {
                self.is_next = is_next;
                if self.failures == 0 {
                    tracing::warn!(
                        upstream = upstream.config.name,
                        error = upstream.fault_of(&error, upstream.config.response_timeout).to_string(),
                        "cannot listen to this upstream"
                    );
                }
                self.trial_failed(trial, &error, now);
            }
        }
    }

    fn lost(&mut self, ended: &StreamEnd) {
        let Some(stream) = self.current.take() else { return };
        self.has_gap = true;
        // A name that is tried alone would take the place of all that was carried.
        self.opening = match self.opening.take() {
            Some(PendingStream { trial: Trial::Alone(suspect), .. }) => {
                self.trials.alone = Some(suspect);
                None
            }
            opening => opening,
        };
        self.log_loss(&stream, ended);
        self.back_off(clock::now());
    }

    fn log_loss(&mut self, stream: &SubscriptionStream, ended: &StreamEnd) {
        if clock::since(stream.since) >= STEADY_AFTER {
            self.failures = 0;
        }
        let upstream = &self.feed.upstream;
        if upstream.rests() {
            return;
        }
        upstream.series.subscription_gaps.inc();
        match ended {
            StreamEnd::Gracefully => {
                tracing::debug!(upstream = upstream.config.name, "upstream ended a subscription");
            }
            StreamEnd::Lost(error) => {
                tracing::warn!(
                    upstream = upstream.config.name,
                    error = upstream.fault_of(error, upstream.config.response_timeout).to_string(),
                    "lost a subscription, opening it again"
                );
            }
        }
    }

    fn back_off(&mut self, now: Instant) {
        let pause = doubled(PAUSE_MIN, self.failures, PAUSE_MAX);
        self.failures += 1;
        self.not_before = now + jittered(pause, 0.5..1.0);
    }

    fn hear(&mut self, heard: Result<Bytes, UpstreamError>, id: &str) -> Result<(), StreamEnd> {
        let message = heard.map_err(StreamEnd::Lost)?;
        let Thread { state, scratch, .. } = &*self.thread;
        let depth_max = state.snapshot.load().limits.json_depth_max;
        let heard = hear(&mut scratch.borrow_mut(), &message, id, depth_max);
        let held = |notice| HeldNotice::new(notice, state.buffered.open(self.feed.upstream.payer()));
        let mut told = 0;
        match heard.map_err(|_| StreamEnd::Lost(UpstreamError::Nonsense))? {
            Heard::ListChanged(index) => state.hub.list_changed(&self.feed.upstream, ChangedList::ALL[index]),
            Heard::Updated(notice) => told = self.feed.resource_changed(&held(notice)),
            Heard::Task(notice) => told = self.feed.task_changed(&held(notice)),
            Heard::Ended => return Err(StreamEnd::Gracefully),
            Heard::Refused(_) => return Err(StreamEnd::Lost(UpstreamError::Reset)),
            Heard::Acknowledged(_) | Heard::Other => {}
        }
        let now = clock::now();
        if now >= self.burst.0 + BURST_INTERVAL {
            self.burst = (now, 0);
        }
        // Changes of lists cost next to nothing, and the last one must not come late.
        if self.lane == Lane::Names {
            self.burst.1 += 1 + message.len() / 1024 + told / BURST_CLIENTS;
        }
        Ok(())
    }
}

async fn opened(
    opening: &mut Option<PendingStream>,
) -> Result<(SubscriptionStream, Acknowledged), SubscribeError> {
    match opening {
        Some(opening) => (&mut opening.opened).await,
        None => pending().await,
    }
}

async fn next_of(stream: Option<&mut SubscriptionStream>) -> Result<Bytes, UpstreamError> {
    match stream {
        Some(stream) => stream.next().await,
        None => pending().await,
    }
}

/// The next message of any of them, with its index.
async fn next_of_kept(kept: &mut [StandingStream]) -> (usize, Result<Bytes, UpstreamError>) {
    poll_fn(|cx| {
        for (index, kept) in kept.iter_mut().enumerate() {
            if let Poll::Ready(heard) = pin!(kept.stream.next()).poll(cx) {
                return Poll::Ready((index, heard));
            }
        }
        Poll::Pending
    })
    .await
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant.into()).await,
        None => pending().await,
    }
}

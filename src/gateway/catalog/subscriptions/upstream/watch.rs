//! The stream of an upstream that speaks the legacy era alone: the answer to a GET in the gateway's own session, the
//! one in which its lists are fetched. What it says of them goes to everybody who listens.
//!
//! Meanwhile, what the upstream tells other sessions of its lists is passed on as well: some servers tell of a change
//! only in the session that caused it.
//!
//! While it stands, lists of kinds that the upstream promised to tell of are watched, and so may be kept. Only notices
//! about lists are heard here; of the session's other messages, requests are answered and the rest is nobody's.
//!
//! Invariant: from before the stream is missed until it stands again, no list is watched.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::promised::ListCapabilities;
use super::{LINGER, PAUSE_MAX, PAUSE_MIN, STEADY_AFTER, Thread};
use crate::catalog::own_session::own_session;
use crate::clock;
use crate::session::{SessionId, UpstreamSession};
use crate::tables::subscriptions::feed::{Feed, Lane};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::Upstream;
use crate::upstream::ask::{AskRequest, SessionHeaders};
use crate::upstream::changes::ChangedList;
use crate::upstream::get_stream::{self, GetResult, Messages};
use crate::upstream::initialize::InitializeOffer;
use net::jitter::{doubled, jittered};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::UpstreamError;
use protocol::sse::Event;
use protocol::translation::question::unasked_answer;
use protocol::version::{Era, Eras, LegacyVersion};

/// The session that is listened to.
const VERSION: LegacyVersion = LegacyVersion::NEWEST;
/// How often an upstream is asked that has no such stream.
const REFUSED_INTERVAL: Duration = Duration::from_mins(5);
/// Answers to the upstream that are on their way at once; of more, the last are not given.
const ANSWERING_MAX: usize = 8;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of what an upstream says to an answer.
const REMARK_BYTES_MAX: usize = 64 * 1024;

/// Holds the stream whenever somebody wants to hear of lists and there is no better way.
pub(super) async fn run(thread: &Rc<Thread>, feed: &Arc<Feed>) {
    loop {
        until(thread, feed, true).await;
        let mut watch = ResourceWatch::new(thread, feed);
        tokio::select! {
            never = watch.hold() => match never {},
            never = pass_on(thread, feed) => match never {},
            () = over(thread, feed) => {}
        }
    }
}

/// Tells everybody what sessions of others were told.
async fn pass_on(thread: &Thread, feed: &Feed) -> Infallible {
    feed.upstream.changes.forget_overheard();
    loop {
        for index in feed.upstream.changes.overheard().await.indexes() {
            let changed = ChangedList::ALL[index];
            let told = feed.upstream.changes.take_told(changed);
            thread.state.hub.tell_others(&feed.upstream, changed, &told);
        }
    }
}

/// Waits until the stream is due, or is not.
async fn until(thread: &Thread, feed: &Feed, is_due: bool) {
    loop {
        // Asked for before the look, so that what happens in between is not missed.
        let learned = feed.upstream.facts.changed();
        let mut starts = feed.upstream.starts().map(|starts| starts.own());
        let is_wanted = feed.need(Lane::Lists).is_wanted && thread.is_current(&feed.upstream);
        let is_legacy_only = || feed.upstream.eras().is_some_and(|eras| eras == Eras::only(Era::Legacy));
        // A program that rests tells of no changes.
        if (is_wanted && is_legacy_only() && !feed.upstream.rests()) == is_due {
            return;
        }
        tokio::select! {
            () = learned => {}
            () = changed(starts.as_mut()) => {}
            () = feed.lists_wanted.notified() => {}
        }
    }
}

/// Completes with the next start or end of a process of the gateway's own.
pub(super) async fn changed(starts: Option<&mut watch::Receiver<bool>>) {
    let Some(starts) = starts else { return pending().await };
    // A watch that is gone does not change.
    if starts.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// Waits until the stream has not been due for a while.
async fn over(thread: &Thread, feed: &Feed) {
    loop {
        until(thread, feed, false).await;
        sleep(LINGER).await;
        if timeout(Duration::ZERO, until(thread, feed, false)).await.is_ok() {
            return;
        }
    }
}

struct ResourceWatch {
    thread: Rc<Thread>,
    feed: Arc<Feed>,
    /// The id of the last event.
    after: Option<Bytes>,
    retry: Duration,
    failures: u32,
    /// The upstream may have said something that was not heard.
    has_gap: bool,
    /// It has a stream: a refusal passes.
    was_open: bool,
    /// Counts, by its holders, answers on their way.
    answering: Rc<()>,
}

enum WatchEnd {
    Broken,
    /// There is none to be had in the session, until that ends.
    Refused(CancellationToken),
}

/// While it lives, the stream stands.
struct StandingStreamGauge<'u> {
    upstream: &'u Upstream,
    _counted: GaugeGuard,
}

impl Drop for StandingStreamGauge<'_> {
    fn drop(&mut self) {
        self.upstream.changes.unwatch();
    }
}

impl ResourceWatch {
    fn new(thread: &Rc<Thread>, feed: &Arc<Feed>) -> Self {
        Self {
            thread: Rc::clone(thread),
            feed: Arc::clone(feed),
            after: None,
            retry: PAUSE_MIN,
            failures: 0,
            has_gap: false,
            was_open: false,
            answering: Rc::default(),
        }
    }

    /// Opens the stream, again and again while somebody listens: it may take a place that others want.
    async fn hold(&mut self) -> Infallible {
        loop {
            until(&self.thread, &self.feed, true).await;
            match self.hear_session().await {
                WatchEnd::Broken => {
                    let pause = doubled(self.retry, self.failures, PAUSE_MAX);
                    self.failures += 1;
                    sleep(jittered(pause, 0.5..1.0).max(self.retry)).await;
                }
                WatchEnd::Refused(session_ended) => {
                    tracing::debug!(upstream = self.feed.upstream.config.name, "tells of no changes");
                    tokio::select! {
                        () = session_ended.cancelled() => {}
                        () = sleep(REFUSED_INTERVAL) => {}
                    }
                }
            }
        }
    }

    /// Hears what the upstream says in the session that there is.
    async fn hear_session(&mut self) -> WatchEnd {
        let upstream = Arc::clone(&self.feed.upstream);
        let deadline = clock::now() + upstream.config.list_timeout;
        let session = {
            let thread = Rc::clone(&self.thread);
            let limits = thread.limits();
            let own = (SessionId::own(VERSION), InitializeOffer::own(VERSION));
            own_session(&thread.asker(&limits), &thread.state.sessions, &upstream, own, deadline).await
        };
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                self.log(&error);
                self.has_gap = true;
                return WatchEnd::Broken;
            }
        };
        // While it is held, the session is in use.
        if session.id.is_none() {
            return WatchEnd::Refused(session.ended.clone());
        }
        let ended = session.ended.clone();
        let over = tokio::select! {
            over = self.hear_stream(&upstream, &session) => Some(over),
            () = ended.cancelled() => None,
        };
        over.unwrap_or_else(|| {
            (self.after, self.has_gap) = (None, true);
            WatchEnd::Broken
        })
    }

    async fn hear_stream(&mut self, upstream: &Upstream, session: &Arc<UpstreamSession>) -> WatchEnd {
        let thread = Rc::clone(&self.thread);
        let named = session.named();
        let after = self.after.as_ref();
        let reply = match get_stream::open(&thread.client, upstream, named.clone(), after).await {
            GetResult::Stream(reply) => *reply,
            GetResult::Refused => return WatchEnd::Refused(session.ended.clone()),
            GetResult::Failed(error) => {
                self.log(&error.unwrap_or(UpstreamError::Nonsense));
                self.has_gap = true;
                return WatchEnd::Broken;
            }
            GetResult::Doubtful => return self.doubt(upstream, session).await,
        };
        let standing = StandingStreamGauge {
            upstream,
            _counted: GaugeGuard::new(&upstream.series.subscription_streams),
        };
        tracing::debug!(upstream = upstream.config.name, has_gap = self.has_gap, "hearing of changes");
        self.was_open = true;
        let since = clock::now();
        let messages = Messages::new(
            reply,
            thread.limits().reply_bytes_max,
            thread.state.buffered.open(upstream.payer()),
        );
        let ended = self.read(upstream, &named, messages).await;
        drop(standing);
        if clock::since(since) >= STEADY_AFTER {
            self.failures = 0;
        }
        match ended {
            // The upstream will go on where it stopped.
            Ok(()) if self.after.is_some() => self.failures = 0,
            Ok(()) => self.lost(),
            // Its program has ended, as nobody used it.
            Err(_) if upstream.rests() => self.has_gap = true,
            Err(error) => {
                self.log(&error);
                self.lost();
            }
        }
        WatchEnd::Broken
    }

    /// The upstream either forgot the session or has no streams.
    async fn doubt(&mut self, upstream: &Upstream, session: &Arc<UpstreamSession>) -> WatchEnd {
        let limits = self.thread.limits();
        let is_known =
            get_stream::is_session_known(&self.thread.asker(&limits), upstream, session.named()).await;
        if is_known == Some(true) && !self.was_open {
            return WatchEnd::Refused(session.ended.clone());
        }
        if is_known == Some(false) {
            let sessions = &self.thread.state.sessions;
            sessions.lose(SessionId::own(VERSION), &upstream.session_key, session);
        }
        if is_known.is_some() {
            // It may be the event that it does not know.
            self.after = None;
        }
        self.has_gap = true;
        WatchEnd::Broken
    }

    async fn read(
        &mut self,
        upstream: &Upstream,
        session: &SessionHeaders<'_>,
        mut messages: Messages,
    ) -> Result<(), UpstreamError> {
        loop {
            let learned = upstream.facts.changed();
            let ListCapabilities { had, told } = self.lists(upstream);
            upstream.changes.watch(told);
            if std::mem::take(&mut self.has_gap) {
                for changed in ChangedList::ALL.into_iter().filter(|changed| had.has(*changed as usize)) {
                    self.thread.state.hub.list_doubted(upstream, changed);
                }
            }
            let mut learned = pin!(learned);
            loop {
                let event = tokio::select! {
                    event = messages.next() => event?,
                    () = &mut learned => break,
                };
                let Some(event) = event else { return Ok(()) };
                self.take(upstream, session, event);
            }
        }
    }

    fn take(&mut self, upstream: &Upstream, session: &SessionHeaders<'_>, event: Event) {
        self.retry = get_stream::retry(&event).unwrap_or(self.retry);
        let id = get_stream::id(&event);
        let message = get_stream::message(event).filter(|message| !message.is_empty());
        if let Some(message) = message {
            self.hear(upstream, session, &message);
        }
        // An empty id takes the one before back.
        if let Some(id) = id {
            self.after = Some(id).filter(|id| !id.is_empty());
        }
    }

    fn hear(&self, upstream: &Upstream, session: &SessionHeaders<'_>, message: &Bytes) {
        let depth_max = self.thread.limits().json_depth_max;
        let envelope = Envelope::parse(&mut self.thread.scratch.borrow_mut(), message, depth_max);
        let Ok(envelope) = envelope else { return };
        let is = |name: &str| envelope.method.as_ref().is_some_and(|method| method.equals(message, name));
        match envelope.kind {
            MessageKind::Notification => {
                for changed in ChangedList::ALL.into_iter().filter(|changed| is(changed.method())) {
                    self.thread.state.hub.list_changed(upstream, changed);
                }
            }
            MessageKind::Request => {
                let id = envelope.id.clone().and_then(|id| message.get(id)).unwrap_or_default();
                self.answer(session, id, is("ping"));
            }
            MessageKind::Response => {}
        }
    }

    /// Answers a request in a task of its own.
    fn answer(&self, session: &SessionHeaders<'_>, id: &[u8], is_ping: bool) {
        if Rc::strong_count(&self.answering) > ANSWERING_MAX {
            return;
        }
        let question = AskRequest {
            headers: session.to_map(),
            body: unasked_answer(id, is_ping),
            is_safe_to_repeat: true,
            replica: session.replica,
            bytes_max: REMARK_BYTES_MAX,
            deadline: clock::now() + ANSWER_TIMEOUT,
        };
        let (thread, upstream) = (Rc::clone(&self.thread), Arc::clone(&self.feed.upstream));
        let turn = Rc::clone(&self.answering);
        self.thread.client.tasks.spawn(async move {
            let limits = thread.limits();
            if let Err(error) = thread.asker(&limits).ask(&upstream, question).await {
                tracing::debug!(upstream = upstream.config.name, %error, "an answer to an upstream failed");
            }
            drop(turn);
        });
    }

    fn lists(&self, upstream: &Upstream) -> ListCapabilities {
        let known = upstream.facts.known();
        let Some(introduction) = known.legacy.introduction() else { return ListCapabilities::default() };
        let depth_max = self.thread.limits().json_depth_max;
        ListCapabilities::of(&introduction.result, &mut self.thread.scratch.borrow_mut(), depth_max)
    }

    fn lost(&mut self) {
        self.has_gap = true;
        self.feed.upstream.series.subscription_gaps.inc();
    }

    fn log(&self, error: &UpstreamError) {
        let name = &self.feed.upstream.config.name;
        if self.failures == 0 {
            tracing::warn!(upstream = name, error = error.fault(), "cannot hear of changes, trying again");
        } else {
            tracing::debug!(upstream = name, error = error.fault(), "cannot hear of changes");
        }
    }
}

//! The stream on which an upstream speaks to a session unasked: the answer to a GET, held open by a task of the worker
//! that opened it, and opened again when it breaks.
//!
//! There is one for each upstream session that needs it: its client holds a stream of its own, takes requests of
//! servers, or subscribed to resources. It stands before the first call of the session goes out, because some servers
//! drop what they have to say where there is no stream to say it on.
//!
//! Invariant: a stream keeps no session from being idle. It holds its upstream session only while an event is handed on.

mod events;
mod lost;

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::events::EventsEnd;
pub(crate) use self::lost::{announce_updates, come_back};
use crate::access::limit::shares::Share;
use crate::clock;
use crate::context::in_session::InSession;
use crate::context::worker::{View, Worker};
use crate::session::outbox::SessionOutbox;
use crate::session::stream_state::StreamState;
use crate::session::{Session, UpstreamSession};
use crate::upstream::ask::SessionHeaders;
use crate::upstream::exchange::Reply;
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::headers::ShownHeaders;
use crate::upstream::{ReplicaKey, Upstream};
use net::jitter::jittered;
use protocol::error::UpstreamError;

/// How long a call waits for the stream to stand.
const STANDING_PATIENCE: Duration = Duration::from_secs(1);
/// When a broken stream is opened again, unless the upstream says.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause of one that cannot be opened.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stream that lived this long shows that the upstream is well.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// How long an upstream is kept waiting by a client that has as much to read as may wait. Then the client counts as one
/// that does not read.
const ROOM_PATIENCE: Duration = Duration::from_secs(3);

/// Opens the stream of this upstream session unless it is open. `after`: the id of the last event that the client has
/// seen; the upstream repeats what came later.
pub(crate) fn ensure(worker: &Rc<Worker>, session: &InSession, after: Option<Bytes>) {
    let InSession { upstream_session, .. } = session;
    let Some(id) = upstream_session.id.clone() else { return };
    let stream = &upstream_session.stream;
    if !stream.claim() {
        if let Some(after) = after {
            stream.resume_after(after);
        }
        return;
    }
    let Some(place) = worker.state.sessions.place_for_stream(session.session.owner().payer()) else {
        worker.state.metrics.sessions.upstream_streams_refused.inc();
        stream.release();
        return;
    };
    let listening = UpstreamStream {
        worker: Rc::clone(worker),
        upstream: Arc::clone(&session.upstream),
        upstream_session: Arc::downgrade(upstream_session),
        id,
        version: upstream_session.version.as_str(),
        replica: upstream_session.replica,
        shown: Arc::clone(&upstream_session.shown),
        ended: upstream_session.ended.clone(),
        claim: Claim { stream: Arc::clone(stream), is_held: true },
        session: session.session.clone(),
        outbox: Arc::clone(&session.outbox),
        after,
        retry: RETRY,
        failures: 0,
        was_open: false,
        _place: place,
    };
    worker.client.tasks.spawn(listening.run());
}

/// Returns when a call may go out: where a stream is needed it stands, or cannot be had soon.
pub(crate) async fn stand(worker: &Rc<Worker>, session: &InSession) {
    let InSession { upstream_session, .. } = session;
    if upstream_session.id.is_none() || upstream_session.stream.is_settled() {
        return;
    }
    if is_needed(worker, session) {
        ensure(worker, session, None);
        // It is as good as it gets.
        let _ = timeout(STANDING_PATIENCE, upstream_session.stream.settled()).await;
    }
}

fn is_needed(worker: &Worker, session: &InSession) -> bool {
    takes_requests(&session.session.grant.capabilities) || is_awaited(worker, session)
}

/// Whether the client waits for what the upstream says, calls or not.
fn is_awaited(worker: &Worker, session: &InSession) -> bool {
    let key = &session.upstream.session_key;
    session.outbox.has_client() || worker.state.sessions.is_subscribed(session.session.grant.id, key)
}

/// Whether servers may ask a client with these capabilities. What merely looks like it costs no more than a stream.
fn takes_requests(capabilities: &str) -> bool {
    [r#""sampling""#, r#""elicitation""#, r#""roots""#].iter().any(|name| capabilities.contains(name))
}

struct Claim {
    stream: Arc<StreamState>,
    is_held: bool,
}

impl Claim {
    fn give_up(&mut self) {
        if std::mem::take(&mut self.is_held) && !self.stream.is_refused() {
            self.stream.release();
        }
    }

    /// Takes it back. False if another has it by now.
    fn take_back(&mut self) -> bool {
        self.is_held = self.stream.claim();
        self.is_held
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// One stream, through all its connections.
struct UpstreamStream {
    worker: Rc<Worker>,
    upstream: Arc<Upstream>,
    upstream_session: Weak<UpstreamSession>,
    id: HeaderValue,
    version: &'static str,
    replica: Option<ReplicaKey>,
    shown: Arc<ShownHeaders>,
    ended: CancellationToken,
    claim: Claim,
    session: Session,
    outbox: Arc<SessionOutbox>,
    /// The id of the last event.
    after: Option<Bytes>,
    retry: Duration,
    failures: u32,
    was_open: bool,
    _place: Share,
}

enum StreamOver {
    Done,
    Lost,
}

enum StreamAttempt {
    Stream(Box<Reply>),
    Refused,
    /// The upstream knows the session, but not the event to go on after.
    UnknownEvent,
    Lost,
    Failed(Option<UpstreamError>),
}

impl UpstreamStream {
    async fn run(mut self) {
        let (worker, ended) = (Rc::clone(&self.worker), self.ended.clone());
        let over = tokio::select! {
            () = ended.cancelled() => StreamOver::Done,
            () = worker.state.drain.closing() => StreamOver::Done,
            over = self.listen() => over,
        };
        if matches!(over, StreamOver::Lost) {
            Box::pin(lost::take(self)).await;
        }
    }

    async fn listen(&mut self) -> StreamOver {
        loop {
            // While the stream is only read, nothing of its opening is held.
            match Box::pin(self.open()).await {
                StreamAttempt::Stream(reply) => {
                    self.was_open = true;
                    let since = clock::now();
                    let ended = self.read(*reply).await;
                    if clock::since(since) >= STEADY_AFTER {
                        self.failures = 0;
                    }
                    match ended {
                        EventsEnd::Resumed(after) => {
                            self.after = Some(after);
                            continue;
                        }
                        EventsEnd::Closed => {}
                        EventsEnd::Failed(error) => {
                            tracing::debug!(upstream = self.upstream.config.name, %error, "a stream broke");
                        }
                        EventsEnd::Unknown => return StreamOver::Done,
                    }
                }
                StreamAttempt::Refused => {
                    self.claim.stream.refuse();
                    return StreamOver::Done;
                }
                StreamAttempt::UnknownEvent => {
                    // What came after it cannot be had, but what comes from now on can.
                    self.after = None;
                    continue;
                }
                StreamAttempt::Lost => return StreamOver::Lost,
                StreamAttempt::Failed(error) => {
                    let name = &self.upstream.config.name;
                    tracing::debug!(upstream = name, ?error, "a stream cannot be opened");
                }
            }
            self.claim.stream.settle();
            if !self.is_needed() {
                self.claim.give_up();
                // Who came to need it just before found it taken.
                if !self.is_needed() || !self.claim.take_back() {
                    return StreamOver::Done;
                }
                self.claim.stream.settle();
            }
            let pause = self.retry.saturating_mul(1 << self.failures.min(8)).min(PAUSE_MAX).max(self.retry);
            self.failures += 1;
            tokio::select! {
                () = sleep(jittered(pause, 1.0..1.25)) => {}
                after = self.claim.stream.resumed() => self.after = Some(after),
            }
        }
    }

    /// Asks for the stream. Whoever waits for it is let go when it stands, or after a moment.
    async fn open(&self) -> StreamAttempt {
        let mut opening = Box::pin(self.get());
        let opened = if let Ok(opened) = timeout(STANDING_PATIENCE, &mut opening).await {
            opened
        } else {
            self.claim.stream.settle();
            opening.await
        };
        if matches!(opened, StreamAttempt::Stream(_)) {
            self.claim.stream.settle();
        }
        opened
    }

    async fn get(&self) -> StreamAttempt {
        let (version, replica, shown) = (Some(self.version), self.replica, self.shown.get());
        let session = SessionHeaders { id: Some(&self.id), version, replica, shown };
        let (client, after) = (&self.worker.client, self.after.as_ref());
        let opened = get_stream::open(client, &self.upstream, session.clone(), after).await;
        match opened {
            get_stream::GetResult::Stream(reply) => StreamAttempt::Stream(reply),
            get_stream::GetResult::Refused => StreamAttempt::Refused,
            get_stream::GetResult::Failed(error) => StreamAttempt::Failed(error),
            get_stream::GetResult::Doubtful => {
                let view = self.worker.view();
                let asker = self.worker.asker(&view, self.session.owner().payer());
                match get_stream::is_session_known(&asker, &self.upstream, session).await {
                    Some(false) => StreamAttempt::Lost,
                    Some(true) if self.after.is_some() => StreamAttempt::UnknownEvent,
                    Some(true) if !self.was_open => StreamAttempt::Refused,
                    _ => StreamAttempt::Failed(None),
                }
            }
        }
    }

    async fn read(&mut self, reply: Reply) -> EventsEnd {
        let bytes_max = self.worker.limits().reply_bytes_max;
        let mut messages =
            Messages::new(reply, bytes_max, self.worker.state.buffered.open(self.session.owner().payer()));
        let stream = Arc::clone(&self.claim.stream);
        loop {
            let event = tokio::select! {
                event = messages.next() => event,
                after = stream.resumed() => return EventsEnd::Resumed(after),
            };
            match event {
                Ok(Some(event)) => {
                    self.failures = 0;
                    self.retry = get_stream::retry(&event).unwrap_or(self.retry);
                    wait_for_room(&self.outbox).await;
                    let view = self.worker.view();
                    let Some(session) = self.in_session(&view) else { return EventsEnd::Unknown };
                    match events::hand_on(&self.worker, &session, event).await {
                        Ok(id) => self.after = id.or(self.after.take()),
                        Err(error) => return EventsEnd::Failed(error),
                    }
                }
                Ok(None) => return EventsEnd::Closed,
                Err(error) => return EventsEnd::Failed(error),
            }
        }
    }

    fn is_needed(&self) -> bool {
        let view = self.worker.view();
        self.in_session(&view).is_some_and(|session| is_needed(&self.worker, &session))
    }

    /// Where its messages belong now. `None`: nowhere any more.
    fn in_session(&self, view: &View) -> Option<InSession> {
        let upstream_session = self.upstream_session.upgrade()?;
        in_session(view, &self.upstream, &self.session, &self.outbox, upstream_session)
    }
}

/// The place of an upstream's session in the configuration of now, which may have changed since it was opened.
fn in_session(
    view: &View,
    upstream: &Upstream,
    session: &Session,
    outbox: &Arc<SessionOutbox>,
    upstream_session: Arc<UpstreamSession>,
) -> Option<InSession> {
    let upstreams = &view.snapshot.upstreams;
    let endpoint = view.endpoints.iter().find(|endpoint| *endpoint.config.name == *session.grant.endpoint)?;
    let key = &upstream.session_key;
    let is_it = |slot: &usize| upstreams.get(*slot).is_some_and(|member| member.session_key == *key);
    let member = endpoint.members.iter().position(is_it)?;
    let upstream = Arc::clone(upstreams.get(*endpoint.members.get(member)?)?);
    Some(InSession {
        upstream,
        upstream_session,
        session: session.clone(),
        outbox: Arc::clone(outbox),
        endpoint: Rc::clone(endpoint),
        member,
    })
}

/// Lets a client that reads catch up: an upstream may say more at once than may wait.
async fn wait_for_room(outbox: &SessionOutbox) {
    // One that does not catch up loses its stream.
    let _ = timeout(ROOM_PATIENCE, outbox.room()).await;
}

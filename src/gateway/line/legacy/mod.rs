//! The gateway's legacy sessions with upstreams, as calls use them: opened when first needed, by one caller for all
//! who wait; told what the gateway does not do; closed when nobody needs them.
//!
//! A client's session has one of its own with each upstream, so that what a server keeps for one client is never
//! seen by another. It is opened with what the client said of itself, so that a server may ask what the client can
//! answer. Upstreams that give no session id keep nothing: one opening in the gateway's own name serves everybody.

pub(crate) mod answers;
pub(crate) mod cancellation;
pub(crate) mod client_stream;
pub(crate) mod detached;
pub(crate) mod messages;
pub(crate) mod notification_routing;
pub(crate) mod pending_answers;
pub(crate) mod upstream_stream;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;

use crate::clock;
use crate::context::worker::{View, Worker};
use crate::session::{NoState, Session, SessionId, SessionOwner, UpstreamSession, UpstreamSessionError};
use crate::upstream::ask::AskRequest;
use crate::upstream::closing::LeftSession;
use crate::upstream::initialize::{self, InitializeError, InitializeOffer};
use crate::upstream::{LateWord, Upstream};
use protocol::error::{ClientError, Error, GatewayError, PolicyError, UpstreamError};
use protocol::initialize::Initialize;
use protocol::json::quote;
use protocol::level::Level;
use protocol::version::LegacyVersion;

/// How long an upstream may take over a message whose answer nobody waits for.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many subscriptions an upstream is told of at once.
const SUBSCRIBING_MAX: usize = 4;
/// What it may answer to one.
const MESSAGE_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// For whom an upstream session is opened.
#[derive(Clone, Debug)]
pub(crate) enum SessionHolder {
    /// With what its client has shown of the headers that are handed on.
    Client(Session, Option<Arc<HeaderMap>>),
    /// All clients that speak this version, with upstreams that keep no sessions.
    All(LegacyVersion),
}

impl SessionHolder {
    /// The client's session, or one of the gateway's own.
    fn id(&self) -> SessionId {
        match self {
            Self::Client(session, _) => session.grant.id,
            Self::All(version) => SessionId::shared(*version),
        }
    }

    fn expires_s(&self) -> u64 {
        match self {
            Self::Client(session, _) => session.grant.expires_s,
            Self::All(_) => u64::MAX,
        }
    }

    fn owner(&self) -> SessionOwner<'_> {
        match self {
            Self::Client(session, _) => session.owner(),
            Self::All(_) => SessionOwner::gateway(self.id(), self.expires_s()),
        }
    }

    /// What upstreams are offered first.
    fn version(&self) -> LegacyVersion {
        match self {
            Self::Client(session, _) => session.grant.version,
            Self::All(version) => *version,
        }
    }

    fn offer(&self) -> InitializeOffer<'_> {
        match self {
            Self::All(version) => InitializeOffer::own(*version),
            Self::Client(Session { grant, .. }, shown) => InitializeOffer {
                initialize: Initialize {
                    version: grant.version,
                    capabilities: &grant.capabilities,
                    client_name: &grant.client.name,
                    client_title: &grant.client.title,
                    client_version: &grant.client.version,
                },
                principal: &grant.principal,
                shown: shown.clone(),
            },
        }
    }
}

/// The holder's session with an upstream. An opening that has begun goes on even if nobody waits for it any more, so
/// that no upstream is left with a session that the gateway forgot. `until`: the end of the time of a call that has waited
/// for something else already; without it, an opening has as long as any call.
pub(crate) async fn upstream_session(
    worker: &Rc<Worker>,
    view: &Rc<View>,
    upstream: &Arc<Upstream>,
    holder: &SessionHolder,
    until: Option<Instant>,
) -> Result<Arc<UpstreamSession>, Error> {
    let key = &upstream.session_key;
    if upstream.is_one_for_all() {
        let shared = SessionHolder::All(holder.version());
        let opened = worker.state.sessions.opened(shared.id(), key);
        let opened = match opened {
            Some(opened) => opened,
            None => open_apart(worker, view, upstream, &shared, until).await?,
        };
        if opened.id.is_none() {
            return Ok(opened);
        }
        // It keeps sessions by now: this one is nobody's.
        upstream.is_sessionless.store(false, Ordering::Relaxed);
        forget(worker, view, upstream, &shared, &opened);
    }
    if let Some(opened) = worker.state.sessions.opened(holder.id(), key) {
        return Ok(opened);
    }
    let opened = open_apart(worker, view, upstream, holder, until).await?;
    if opened.id.is_none() && upstream.is_one_for_all() {
        // From the next call on, one serves all. This call has one that ends with nobody.
        worker.state.sessions.lose(holder.id(), key, &opened);
        return Ok(Arc::new(UpstreamSession::new(None, opened.version)));
    }
    Ok(opened)
}

/// Forgets a session that its upstream does not know, and counts that.
pub(crate) fn lose(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: &SessionHolder,
    lost: &Arc<UpstreamSession>,
) {
    if forget(worker, view, upstream, holder, lost) {
        upstream.series.sessions_lost.inc();
    }
}

/// Forgets a session that is of no use, and tells its upstream, in case it knows it. False, and nothing is done, if
/// that was done already.
fn forget(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: &SessionHolder,
    lost: &Arc<UpstreamSession>,
) -> bool {
    let sessions = &worker.state.sessions;
    let holders = [holder.id(), SessionId::shared(holder.version())];
    let was_held = holders.map(|holder| sessions.lose(holder, &upstream.session_key, lost));
    let was_held = was_held.contains(&true);
    if was_held {
        ask_to_forget(worker, view, vec![((&*upstream.session_key).into(), Arc::clone(lost))]);
    }
    was_held
}

/// Ends a client's session: its id does not open again.
pub(crate) async fn end(worker: &Rc<Worker>, view: &View, session: &Session) {
    let closed = worker.state.sessions.end(session.grant.id, session.grant.expires_s);
    worker.state.sessions.kept().await;
    close(worker, view, closed);
}

async fn open_apart(
    worker: &Rc<Worker>,
    view: &Rc<View>,
    upstream: &Arc<Upstream>,
    holder: &SessionHolder,
    until: Option<Instant>,
) -> Result<Arc<UpstreamSession>, Error> {
    // Whoever has to wait for another's opening does so at the cost of its own time.
    let deadline = until.unwrap_or_else(|| clock::now() + upstream.config.response_timeout);
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (worker_of_task, view, upstream) = (Rc::clone(worker), Rc::clone(view), Arc::clone(upstream));
    let holder = holder.clone();
    worker.client.tasks.spawn(async move {
        let is_wanted = || !sender.is_closed();
        let opened = open(&worker_of_task, &view, &upstream, &holder, deadline, is_wanted).await;
        // The caller may have left.
        let _ = sender.send(opened);
    });
    receiver.await.unwrap_or(Err(UpstreamError::Reset.before_call().into()))
}

async fn open(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: &SessionHolder,
    deadline: Instant,
    is_wanted: impl Fn() -> bool,
) -> Result<Arc<UpstreamSession>, Error> {
    let sessions = &worker.state.sessions;
    let told_level = Cell::new(None);
    let told_uris = Cell::new(Vec::new());
    let open = async || {
        if !is_wanted() || clock::now() >= deadline {
            return Err(UpstreamError::TimedOut.before_call());
        }
        let found = sessions.find(holder.id(), &upstream.session_key).await;
        if let Some(opened) = found.usable {
            return Ok(opened);
        }
        let asker = worker.asker(view, holder.owner().payer());
        let opened = initialize::open(&asker, upstream, holder.offer(), deadline).await;
        if matches!(opened, Err(InitializeError::Refused { .. })) {
            upstream.facts.doubt();
        }
        let opened = opened.map_err(UpstreamError::from)?;
        upstream.is_sessionless.store(opened.id.is_none(), Ordering::Relaxed);
        upstream.series.sessions_opened.inc();
        let shown = opened.shown;
        let opened =
            UpstreamSession::new(opened.id, opened.version).at(opened.replica).showing(shown.as_ref());
        let place = (holder.id(), holder.expires_s());
        if let Some(other) = sessions.put(place, &upstream.session_key, &found, &opened).await {
            ask_to_forget(worker, view, vec![((&*upstream.session_key).into(), Arc::new(opened))]);
            return Ok(other);
        }
        told_level.set(sessions.level(holder.id()));
        if let Some(level) = told_level.get() {
            set_level(worker, view, upstream, &opened, level).await;
        }
        let uris = sessions.subscribed(holder.id(), &upstream.session_key);
        let subscribe = async |uri: Box<str>| subscribe(worker, view, upstream, &opened, &uri).await;
        stream::iter(uris.clone()).for_each_concurrent(SUBSCRIBING_MAX, subscribe).await;
        told_uris.set(uris);
        Ok(opened)
    };
    let opened = sessions.upstream_session(holder.owner(), &upstream.session_key, open).await;
    // Whoever set the level meanwhile did not see this session.
    if let (Ok(opened), Some(level)) = (&opened, sessions.level(holder.id()))
        && told_level.get() != Some(level)
    {
        set_level(worker, view, upstream, opened, level).await;
    }
    if let (Ok(opened), SessionHolder::Client(session, _)) = (&opened, holder) {
        // Nobody told of what changed while there was no session.
        upstream_stream::announce_updates(worker, view, upstream, session, opened, told_uris.take());
    }
    // A session is used only once a restart would know of it.
    sessions.kept().await;
    opened.map_err(|error| match error {
        UpstreamSessionError::Failed(error) => Error::Upstream(error),
        UpstreamSessionError::NoState(none) => no_state(none),
    })
}

pub(crate) fn no_state(none: NoState) -> Error {
    match none {
        NoState::TooMany => GatewayError::Sessions.into(),
        NoState::TooManyOfPrincipal => PolicyError::Sessions.into(),
        NoState::Ended => ClientError::SessionGone.into(),
    }
}

/// Tells an upstream the log level of a session. One that refuses logs as it likes.
pub(crate) async fn set_level(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    session: &UpstreamSession,
    level: Level,
) {
    let level = quote(level.as_str());
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":"trunkline-level","method":"logging/setLevel","params":{{"level":{level}}}}}"#
    );
    tell(worker, view, upstream, session, message.into()).await;
}

/// Tells an upstream again what the client wants to be told of.
async fn subscribe(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    session: &UpstreamSession,
    uri: &str,
) {
    let uri = quote(uri);
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":"trunkline-subscribe","method":"resources/subscribe","params":{{"uri":{uri}}}}}"#
    );
    tell(worker, view, upstream, session, message.into()).await;
}

async fn tell(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    session: &UpstreamSession,
    message: Bytes,
) {
    let question = AskRequest {
        headers: session.named().to_map(),
        body: message,
        is_safe_to_repeat: true,
        replica: session.replica,
        bytes_max: MESSAGE_ANSWER_BYTES_MAX,
        deadline: clock::now() + MESSAGE_TIMEOUT,
    };
    // As many as sessions are opened.
    if let Err(error) = worker.asker(view, upstream.payer()).ask(upstream, question).await {
        tracing::debug!(upstream = upstream.config.name, %error, "a message to an upstream failed");
    }
}

/// Ends sessions with upstreams, and the calls that upstreams have left behind which are configured otherwise by now.
pub(crate) fn close(worker: &Rc<Worker>, view: &View, mut closed: Vec<(Box<str>, Arc<UpstreamSession>)>) {
    let retired = &worker.state.retired;
    closed.retain(|(_, session)| !retired.tell(&worker.client, session.id.as_ref(), LateWord::SessionEnded));
    ask_to_forget(worker, view, closed);
}

/// Each upstream is asked to forget its own.
fn ask_to_forget(worker: &Rc<Worker>, view: &View, closed: Vec<(Box<str>, Arc<UpstreamSession>)>) {
    let known = |key: &str| view.snapshot.upstreams.iter().find(|upstream| *upstream.session_key == *key);
    let left = closed
        .into_iter()
        .filter_map(|(key, session)| LeftSession::new(Arc::clone(known(&key)?), &session.named()));
    worker.client.close_sessions(left);
}

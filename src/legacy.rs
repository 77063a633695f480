//! The gateway's legacy sessions with upstreams, as calls use them: opened when first needed, by one caller for all
//! who wait; told what the gateway does not do; closed when nobody needs them.
//!
//! A client's session has one of its own with each upstream, so that what a server keeps for one client is never
//! seen by another. Upstreams that give no session id keep nothing, and one opening serves everybody. The gateway
//! declares no client capabilities and opens no GET streams: a server has nobody to ask.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;

use crate::protocol::error::{ClientError, Error, GatewayError, UpstreamError};
use crate::protocol::json::quote;
use crate::protocol::version::LegacyVersion;
use crate::session::level::Level;
use crate::session::{OpenError, Session, SessionId, UpstreamSession};
use crate::upstream::Upstream;
use crate::upstream::ask::{Question, legacy_headers};
use crate::upstream::initialize::{self, NotOpened};
use crate::worker::{View, Worker};

/// How long an upstream may take over a message that nobody waits for.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many such messages of one worker may be under way.
const TELLING_MAX: usize = 256;
/// How many sessions one worker closes at once.
const CLOSING_MAX: usize = 16;
/// What it may answer to one.
const MESSAGE_ANSWER_BYTES_MAX: usize = 64 * 1024;

/// For whom an upstream session is opened.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The client's session, or one of the gateway's own.
    pub id: SessionId,
    /// When it ends at the latest.
    pub expires_s: u64,
    /// What upstreams are offered.
    pub version: LegacyVersion,
}

impl Holder {
    /// All clients that speak `version`, with upstreams that keep no sessions.
    fn shared(version: LegacyVersion) -> Self {
        Self { id: SessionId::shared(version), expires_s: u64::MAX, version }
    }
}

impl From<&Session> for Holder {
    fn from(session: &Session) -> Self {
        let grant = &session.grant;
        Self { id: grant.id, expires_s: grant.expires_s, version: grant.version }
    }
}

/// A reply's place: the upstream it comes from and the session it belongs to.
#[derive(Clone, Debug)]
pub struct InSession {
    /// The upstream that replies.
    pub upstream: Arc<Upstream>,
    /// The gateway's session with it.
    pub upstream_session: Arc<UpstreamSession>,
    /// What the client speaks.
    pub client_version: LegacyVersion,
}

/// The holder's session with an upstream. An opening that has begun goes on even if nobody waits for it any more, so
/// that no upstream is left with a session that the gateway forgot.
pub async fn upstream_session(
    worker: &Rc<Worker>,
    view: &Rc<View>,
    upstream: &Arc<Upstream>,
    holder: Holder,
) -> Result<Arc<UpstreamSession>, Error> {
    let key = &upstream.session_key;
    if upstream.is_sessionless.load(Ordering::Relaxed) {
        let shared = Holder::shared(holder.version);
        let opened = worker.state.sessions.opened(shared.id, key);
        let opened = match opened {
            Some(opened) => opened,
            None => open_apart(worker, view, upstream, shared).await?,
        };
        if opened.id.is_none() {
            return Ok(opened);
        }
        // It keeps sessions by now: this one is nobody's.
        upstream.is_sessionless.store(false, Ordering::Relaxed);
        lose(worker, view, upstream, shared, &opened);
    }
    if let Some(opened) = worker.state.sessions.opened(holder.id, key) {
        return Ok(opened);
    }
    let opened = open_apart(worker, view, upstream, holder).await?;
    if opened.id.is_none() {
        // From the next call on, one serves all.
        worker.state.sessions.lose(holder.id, key, &opened);
    }
    Ok(opened)
}

/// Forgets a session that its upstream does not know, and tells the upstream, in case it does.
pub fn lose(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: Holder,
    lost: &Arc<UpstreamSession>,
) {
    worker.state.sessions.lose(holder.id, &upstream.session_key, lost);
    worker.state.sessions.lose(SessionId::shared(holder.version), &upstream.session_key, lost);
    close(worker, view, vec![(upstream.session_key.clone(), Arc::clone(lost))]);
}

/// Opens a session in a task of its own.
async fn open_apart(
    worker: &Rc<Worker>,
    view: &Rc<View>,
    upstream: &Arc<Upstream>,
    holder: Holder,
) -> Result<Arc<UpstreamSession>, Error> {
    // Whoever has to wait for another's opening does so at the cost of its own time.
    let deadline = Instant::now() + upstream.config.reply_timeout;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (worker_of_task, view, upstream) = (Rc::clone(worker), Rc::clone(view), Arc::clone(upstream));
    worker.client.tasks.spawn(async move {
        let is_wanted = || !sender.is_closed();
        let opened = open(&worker_of_task, &view, &upstream, holder, deadline, is_wanted).await;
        // The caller may have left.
        let _ = sender.send(opened);
    });
    receiver.await.unwrap_or(Err(UpstreamError::Reset.into()))
}

async fn open(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    holder: Holder,
    deadline: Instant,
    is_wanted: impl Fn() -> bool,
) -> Result<Arc<UpstreamSession>, Error> {
    let sessions = &worker.state.sessions;
    let open = async || {
        if !is_wanted() || Instant::now() >= deadline {
            return Err(UpstreamError::TimedOut);
        }
        let asker = worker.asker(view);
        let opened = initialize::open(&asker, upstream, holder.version, deadline).await;
        if matches!(opened, Err(NotOpened::Refused { .. })) {
            upstream.facts.doubt();
        }
        let opened = opened.map_err(UpstreamError::from)?;
        upstream.is_sessionless.store(opened.id.is_none(), Ordering::Relaxed);
        upstream.series.sessions_opened.inc();
        let opened = UpstreamSession { id: opened.id, version: opened.version };
        if let Some(level) = sessions.level(holder.id) {
            set_level(worker, view, upstream, &opened, level).await;
        }
        Ok(opened)
    };
    let opened = sessions.upstream_session(holder.id, holder.expires_s, &upstream.session_key, open).await;
    // A session is used only once a restart would know of it.
    sessions.kept().await;
    opened.map_err(|error| match error {
        OpenError::Failed(error) => Error::Upstream(error),
        OpenError::TooMany => GatewayError::Sessions.into(),
        OpenError::Ended => ClientError::SessionGone.into(),
    })
}

/// Tells an upstream the log level of a session. One that refuses logs as it likes.
pub async fn set_level(
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

/// Answers a request of an upstream's: a ping is answered, and nobody here takes anything else.
pub fn answer_request(worker: &Rc<Worker>, session: &InSession, id: &[u8], is_ping: bool) {
    let id = String::from_utf8_lossy(id);
    let message = if is_ping {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    } else {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"this client takes no requests"}}}}"#
        )
    };
    tell_later(worker, Arc::clone(&session.upstream), Arc::clone(&session.upstream_session), message.into());
}

/// Sends an upstream a message whose answer nobody waits for. Of too many at once the last are dropped: they must not
/// take the connections of calls.
pub fn tell_later(
    worker: &Rc<Worker>,
    upstream: Arc<Upstream>,
    session: Arc<UpstreamSession>,
    message: Bytes,
) {
    if Rc::strong_count(&worker.telling) > TELLING_MAX {
        tracing::debug!(upstream = upstream.config.name, "too many messages wait to be told; one is dropped");
        return;
    }
    let (teller, turn) = (Rc::clone(worker), Rc::clone(&worker.telling));
    worker.client.tasks.spawn(async move {
        let view = teller.view();
        tell(&teller, &view, &upstream, &session, message).await;
        drop(turn);
    });
}

async fn tell(
    worker: &Rc<Worker>,
    view: &View,
    upstream: &Upstream,
    session: &UpstreamSession,
    message: Bytes,
) {
    let question = Question {
        headers: legacy_headers(session.version.as_str(), session.id.as_ref()),
        body: message,
        is_safe_to_repeat: true,
        bytes_max: MESSAGE_ANSWER_BYTES_MAX,
        deadline: Instant::now() + MESSAGE_TIMEOUT,
    };
    if let Err(error) = worker.asker(view).ask(upstream, question).await {
        tracing::debug!(upstream = upstream.config.name, %error, "a message to an upstream failed");
    }
}

/// Ends sessions with upstreams, a few at a time: each upstream is asked to forget its own.
pub fn close(worker: &Rc<Worker>, view: &View, closed: Vec<(Box<str>, Arc<UpstreamSession>)>) {
    let known = |key: &str| view.snapshot.upstreams.iter().find(|upstream| *upstream.session_key == *key);
    let closing: Vec<_> = closed
        .into_iter()
        .filter_map(|(key, session)| Some((Arc::clone(known(&key)?), session.id.clone()?, session.version)))
        .collect();
    if closing.is_empty() {
        return;
    }
    let owner = Rc::clone(worker);
    worker.client.tasks.spawn(async move {
        let view = owner.view();
        let close = async |(upstream, id, version): (Arc<Upstream>, HeaderValue, LegacyVersion)| {
            let deadline = Instant::now() + MESSAGE_TIMEOUT;
            let asker = owner.asker(&view);
            if let Err(error) = asker.close_session(&upstream, version.as_str(), &id, deadline).await {
                tracing::debug!(upstream = upstream.config.name, %error, "a session was not closed");
            }
        };
        stream::iter(closing).for_each_concurrent(CLOSING_MAX, close).await;
    });
}

//! Opening a legacy session with an upstream: `initialize`, then `notifications/initialized`.
//!
//! Upstreams are shown the client that a session is for: its name and what it can do. The gateway's own sessions are
//! opened in its own name, and declare nothing.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::ask::{AskReply, AskRequest, Asker, SessionHeaders};
use super::closing::{LeftSession, OfferedSession};
use super::exchange::{Reply, UpstreamClient};
use super::request::RequestAttributes;
use super::revisions::{self, RefusedRevisions};
use super::{ReplicaKey, Upstream};
use protocol::ambiguity::is_ambiguous_introduction;
use protocol::error::{NotOpened, UpstreamError};
use protocol::initialize::{self, INITIALIZED, Initialize};
use protocol::json::{Document, Value};
use protocol::version::LegacyVersion;

/// A longer session id is refused: every request would carry it.
const SESSION_ID_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct InitializedSession {
    /// Its id; upstreams without sessions give none.
    pub id: Option<HeaderValue>,
    /// The version the upstream chose.
    pub version: LegacyVersion,
    /// The result object of `initialize`.
    pub result: Bytes,
    /// The replica that opened it.
    pub replica: Option<ReplicaKey>,
    /// The headers that are handed on, as it was shown them.
    pub shown: Option<Arc<HeaderMap>>,
}

/// What an upstream is told about whom a session is for.
#[derive(Clone, Debug)]
pub(crate) struct InitializeOffer<'a> {
    pub initialize: Initialize<'a>,
    /// The client's principal; empty where nobody asked, and for the gateway itself.
    pub principal: &'a str,
    /// The headers that are handed on, as the client has shown them.
    pub shown: Option<Arc<HeaderMap>>,
}

/// Why no session was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitializeError {
    /// The exchange failed, or its answer makes no sense.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The upstream refused `initialize`, or what follows it.
    #[error("the server refused to initialize: HTTP {}, {fault}", .status.as_u16())]
    Refused { status: StatusCode, fault: UpstreamError, instead: Option<LegacyVersion> },
}

impl From<InitializeError> for UpstreamError {
    /// What a call fails with that needed the session.
    fn from(not_opened: InitializeError) -> Self {
        match not_opened {
            InitializeError::Upstream(error) => error.before_call(),
            InitializeError::Refused {
                status: status @ (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE),
                ..
            } => Self::Busy { status, retry_after_s: None },
            InitializeError::Refused { fault, .. } => fault.before_call(),
        }
    }
}

impl InitializedSession {
    /// As requests name it.
    pub(crate) fn named(&self) -> SessionHeaders<'_> {
        let (id, shown) = (self.id.as_ref(), self.shown.clone());
        SessionHeaders { id, version: Some(self.version.as_str()), replica: self.replica, shown }
    }
}

impl InitializeOffer<'static> {
    /// For a session of the gateway's own.
    pub(crate) fn own(version: LegacyVersion) -> Self {
        Self { initialize: Initialize::own(version), principal: "", shown: None }
    }
}

/// Opens a session, of another revision than the one that is offered where the upstream refuses that ([`revisions`]).
/// A session whose replica leaves the upstream before it is open is opened at another, once.
/// Where it fails after the upstream has opened it, or is dropped, it is closed there.
pub(crate) async fn open(
    asker: &Asker<'_>,
    upstream: &Upstream,
    mut offer: InitializeOffer<'_>,
    deadline: Instant,
) -> Result<InitializedSession, InitializeError> {
    let wanted = offer.initialize.version;
    let mut refused = RefusedRevisions::default();
    let mut may_reopen = !upstream.has_local_sessions();
    let opens_own = upstream.opens_own_sessions();
    let mut is_bridged = opens_own && is_left_to_bridge(asker, upstream, &offer);
    let mut is_trial = opens_own && !is_bridged;
    if !is_bridged {
        offer.initialize.version = upstream.facts.revisions.offer(wanted);
    }
    loop {
        let offered = offer.initialize.version;
        let opened = open_as_offered(asker, upstream, &offer, is_bridged, deadline).await;
        match opened {
            Err(InitializeError::Refused { instead: Some(instead), .. })
                if refused.may_offer(offered, instead) =>
            {
                offer.initialize.version = instead;
            }
            // The program opens no session for this client, as it turns out, or its answer takes longer than the client waits.
            Err(ref error)
                if is_trial && (is_other_era(error) || is_left_to_bridge(asker, upstream, &offer)) =>
            {
                (is_trial, is_bridged) = (false, true);
                offer.initialize.version = wanted;
            }
            // Its replica has left the upstream meanwhile, and nobody has used the session yet.
            Err(InitializeError::Upstream(UpstreamError::SessionLost)) if std::mem::take(&mut may_reopen) => {
            }
            Ok(opened) => {
                // The bridge takes any, which says nothing of the program.
                if !is_bridged {
                    upstream.facts.revisions.learn(wanted, offered);
                }
                return Ok(opened);
            }
            Err(error) => return Err(error),
        }
    }
}

/// True if the program opened no session for a client that introduces itself like this one, and is not asked for another yet.
fn is_left_to_bridge(asker: &Asker<'_>, upstream: &Upstream, offer: &InitializeOffer<'_>) -> bool {
    let (initialize, depth_max) = (|| offer.initialize.request("1"), asker.limits.json_depth_max);
    upstream.children().is_some_and(|children| children.is_bridged_for(initialize, depth_max))
}

fn is_other_era(error: &InitializeError) -> bool {
    *error == InitializeError::Upstream(UpstreamError::OtherEra)
}

async fn open_as_offered(
    asker: &Asker<'_>,
    upstream: &Upstream,
    offer: &InitializeOffer<'_>,
    is_bridged: bool,
    deadline: Instant,
) -> Result<InitializedSession, InitializeError> {
    let body = offer.initialize.request("1");
    // A session that nobody hears of is the upstream's to forget, so asking again does harm it.
    let principal = RequestAttributes::principal(offer.principal).filter(|_| upstream.is_child());
    let headers = offer.shown.as_deref().cloned().unwrap_or_default();
    let question_of_all = question(asker, (headers, None), body, deadline);
    let shown = offer.shown.clone();
    let opens = Arc::new(OfferedSession { upstream: Arc::clone(&upstream.current), shown, is_bridged });
    let attributes = RequestAttributes { principal, opens: Some(opens), ..RequestAttributes::default() };
    let begun = asker.begin(attributes, upstream, question_of_all).await?;
    let mut unfinished = UnclaimedSession::new(asker, upstream, &begun.reply, offer);
    let answer = asker.finish(upstream, begun).await?;
    let opened = read(asker, upstream, &answer, offer)?;
    unfinished.agree_on(opened.version);
    if opened.id.as_ref().is_some_and(|id| id.len() > SESSION_ID_BYTES_MAX) {
        return Err(UpstreamError::Nonsense.into());
    }
    let initialized =
        question(asker, (opened.named().to_map(), opened.replica), INITIALIZED.to_owned(), deadline);
    let accepted = asker.ask(upstream, initialized).await?;
    if !accepted.status.is_success() {
        let fault = accepted.fields.fault(accepted.status);
        return Err(InitializeError::Refused { status: accepted.status, fault, instead: None });
    }
    unfinished.finish();
    Ok(opened)
}

/// A session that an upstream has opened and that nobody uses yet. Dropped, it is closed there, by a task of its own:
/// whoever opens it may be out of time, or gone.
struct UnclaimedSession<'a> {
    client: &'a UpstreamClient,
    session: Option<LeftSession>,
}

impl<'a> UnclaimedSession<'a> {
    /// `reply` is to `initialize`. Its rest may never come.
    fn new(asker: &Asker<'a>, upstream: &Upstream, reply: &Reply, offer: &InitializeOffer<'_>) -> Self {
        let id = reply.head.fields.kept_session_id().filter(|_| reply.head.status.is_success());
        // The upstream may choose another revision than the one that is offered.
        let (version, shown) = (None, offer.shown.clone());
        let named = SessionHeaders { id: id.as_ref(), version, replica: reply.replica, shown };
        let session = upstream.current.get().and_then(|upstream| LeftSession::new(upstream, &named));
        Self { client: asker.client, session }
    }

    /// The upstream has said which version it speaks.
    fn agree_on(&mut self, version: LegacyVersion) {
        if let Some(session) = &mut self.session {
            session.agree_on(version);
        }
    }

    /// It is open.
    fn finish(mut self) {
        self.session = None;
    }
}

impl Drop for UnclaimedSession<'_> {
    fn drop(&mut self) {
        self.client.close_sessions(self.session.take());
    }
}

fn question(
    asker: &Asker<'_>,
    (headers, replica): (HeaderMap, Option<ReplicaKey>),
    body: String,
    deadline: Instant,
) -> AskRequest {
    AskRequest {
        headers,
        body: body.into(),
        is_safe_to_repeat: false,
        replica,
        bytes_max: asker.limits.reply_bytes_max,
        deadline,
    }
}

fn read(
    asker: &Asker<'_>,
    upstream: &Upstream,
    answer: &AskReply,
    offer: &InitializeOffer<'_>,
) -> Result<InitializedSession, InitializeError> {
    let mut scratch = asker.scratch.borrow_mut();
    let root = scratch.index(&answer.body, asker.limits.json_depth_max).ok().map(Document::root);
    let result = root.and_then(|root| root.get("result"));
    let (true, Some(result)) = (answer.status.is_success(), result) else {
        let error = root.and_then(|root| root.get("error"));
        return Err(refusal(upstream, answer, error, offer.initialize.version));
    };
    if is_ambiguous_introduction(result) {
        return Err(UpstreamError::Nonsense.into());
    }
    let version = initialize::version(result).ok_or_else(|| unknown_revision(upstream, result))?;
    let id = answer.fields.kept_session_id();
    let replica = answer.replica.filter(|_| id.is_some());
    let (result, shown) = (answer.body.slice(result.span()), offer.shown.clone());
    Ok(InitializedSession { id, version, result, replica, shown })
}

/// What an answer is that names no revision of the legacy era.
#[cold]
fn unknown_revision(upstream: &Upstream, result: Value<'_>) -> UpstreamError {
    result.text_of("protocolVersion").map_or(UpstreamError::Nonsense, |revision| {
        UpstreamError::NotOpened(NotOpened::chosen(&upstream.access.masked(&revision)).into())
    })
}

/// What an answer is without a result.
fn refusal(
    upstream: &Upstream,
    answer: &AskReply,
    error: Option<Value<'_>>,
    offered: LegacyVersion,
) -> InitializeError {
    let status = answer.status;
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        return InitializeError::Refused { status, fault: upstream.access.refusal(), instead: None };
    }
    let code = error.and_then(|error| error.get("code")?.as_integer());
    match (error, code) {
        (Some(error), Some(code)) => {
            // Clients are told of it, too.
            let message = upstream.access.masked(&error.text_of("message").unwrap_or_default());
            InitializeError::Refused {
                status,
                fault: UpstreamError::NotOpened(NotOpened::refused(code, &message).into()),
                instead: revisions::instead_of(offered, code, error),
            }
        }
        _ if status.is_success() => answer.fields.fault(status).into(),
        _ => InitializeError::Refused { status, fault: answer.fields.fault(status), instead: None },
    }
}

#[cfg(test)]
mod tests;

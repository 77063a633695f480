//! One request within a session of a legacy server, and what comes of it: its answer, and what the server says before.
//!
//! A stream that ends before the answer is asked for where it stopped, as its client would have to (2025-11-25
//! Transports, "Resumability and Redelivery"). What the messages mean is the caller's business.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, StatusCode};
use tokio::time::{sleep, timeout};

use super::position::{ResumeResult, StreamPosition};
use crate::telemetry::trace::Trail;
use crate::upstream::ask::{Asker, SessionHeaders, legacy_headers};
use crate::upstream::body::collect;
use crate::upstream::exchange::{Client, Reply, RequestBody, SendOptions};
use crate::upstream::get_stream::{self, Messages};
use crate::upstream::initialize;
use crate::upstream::pool::{self, ConnectionLease};
use crate::upstream::{ReplicaKey, ReplicaSelection, Upstream};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{Error, UpstreamError};
use protocol::json::Document;
use protocol::media::{Media, media_of};
use protocol::splice::Segments;

/// How much of a failed reply is read to see whether it is an error of JSON-RPC.
const FAILED_BYTES_MAX: usize = 64 * 1024;
/// How long the end of a stream is waited for after its answer.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// A session with a legacy server, as requests name it.
#[derive(Clone, Debug)]
pub(crate) struct SessionName {
    /// Its id; `None` for a server that gives none.
    pub id: Option<HeaderValue>,
    pub version: &'static str,
    pub replica: Option<ReplicaKey>,
}

/// A request to the server, ready to be posted.
#[derive(Debug)]
pub(crate) struct BridgedRequest {
    pub message: Segments,
    /// The literal of its id.
    pub id: Box<str>,
    pub headers: HeaderMap,
    /// Where it is noted where it went, if it is traced.
    pub trail: Option<Arc<Trail>>,
    pub is_safe_to_repeat: bool,
    /// When the head of the reply is too late, and the whole of one that is no stream.
    pub deadline: Instant,
}

/// What came of a request.
pub(crate) enum ReplyStart {
    /// Its answer.
    Answer(Bytes),
    /// The server may say something before it answers.
    Stream(Box<ResponseReader>),
    /// The server does not know the session: the request was not executed.
    SessionLost,
}

#[derive(Debug)]
pub(crate) enum StreamItem {
    /// A message; the answer, if `is_answer`.
    Message { message: Bytes, is_answer: bool },
    /// Nothing but that it is still there.
    Nothing,
}

/// A stream on which a request is answered.
pub(crate) struct ResponseReader {
    client: Client,
    upstream: Arc<Upstream>,
    session: SessionName,
    id: Box<str>,
    messages: Messages,
    lease: Option<ConnectionLease>,
    at: StreamPosition,
    /// The stream is asked for again.
    resuming: Option<LocalBoxFuture<'static, ResumeResult>>,
}

impl From<&initialize::InitializedSession> for SessionName {
    fn from(opened: &initialize::InitializedSession) -> Self {
        Self { id: opened.id.clone(), version: opened.version.as_str(), replica: opened.replica }
    }
}

impl SessionName {
    pub(crate) fn named(&self) -> SessionHeaders<'_> {
        SessionHeaders { id: self.id.as_ref(), version: self.version, replica: self.replica }
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        legacy_headers(self.version, self.id.as_ref())
    }
}

pub(crate) async fn post(
    client: &Client,
    upstream: &Arc<Upstream>,
    session: &SessionName,
    posted: BridgedRequest,
) -> Result<ReplyStart, UpstreamError> {
    let BridgedRequest { message, id, headers, trail, is_safe_to_repeat, deadline } = posted;
    let mut request = Request::new(RequestBody::from(message));
    *request.method_mut() = HttpMethod::POST;
    *request.headers_mut() = headers;
    request.headers_mut().extend(session.headers());
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    if let Some(trail) = trail {
        request.extensions_mut().insert(trail);
    }
    let delivery = SendOptions { is_safe_to_repeat, aim: session.replica.into(), asked: None };
    let reply = match client.send_as_it_is(upstream, request, delivery, Instant::now(), deadline).await {
        Err(UpstreamError::SessionLost) => return Ok(ReplyStart::SessionLost),
        reply => reply?,
    };
    if is_stream(&reply) {
        let limits = client.pipes.shared.limits();
        let messages = Messages::new(reply.body, limits.message_bytes_max, &limits.budget);
        return Ok(ReplyStart::Stream(Box::new(ResponseReader {
            client: client.clone(),
            upstream: Arc::clone(upstream),
            session: session.clone(),
            id,
            messages,
            lease: reply.lease,
            at: StreamPosition::default(),
            resuming: None,
        })));
    }
    match answer(client, upstream, session, (reply, &id), deadline).await {
        Ok(answer) => Ok(ReplyStart::Answer(answer)),
        Err(UpstreamError::SessionLost) => Ok(ReplyStart::SessionLost),
        Err(error) => Err(error),
    }
}

/// Whether the answer comes as an event.
pub(crate) fn is_stream(reply: &Reply) -> bool {
    reply.head.status.is_success() && media_of(&reply.head.headers) == Media::Sse
}

/// The answer to the request with this id, a literal, in a reply that is no stream.
pub(crate) async fn answer(
    client: &Client,
    upstream: &Upstream,
    session: &SessionName,
    (reply, id): (Reply, &str),
    deadline: Instant,
) -> Result<Bytes, UpstreamError> {
    let status = reply.head.status;
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        return Err(UpstreamError::Credentials);
    }
    let media = media_of(&reply.head.headers);
    let retry_after_s =
        reply.head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let whole = whole(client, upstream, (reply, id), deadline).await;
    let whole = if status.is_success() { whole? } else { whole.unwrap_or_default() };
    let is_lost =
        status == StatusCode::NOT_FOUND && session.id.is_some() && !is_about_request(client, &whole);
    if media == Media::Json && !is_lost && is_answer(client, &whole, id) {
        return Ok(whole);
    }
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            UpstreamError::Busy { status, retry_after_s }
        }
        StatusCode::NOT_FOUND => UpstreamError::SessionLost,
        // Either that, or it does not like this request.
        StatusCode::BAD_REQUEST if is_known(client, upstream, session).await == Some(false) => {
            UpstreamError::SessionLost
        }
        _ => UpstreamError::Nonsense,
    })
}

impl ResponseReader {
    /// What the server says next. May be dropped and called again, but not after the answer or an error.
    pub(crate) async fn next(&mut self) -> Result<StreamItem, UpstreamError> {
        loop {
            if let Some(resuming) = &mut self.resuming {
                let opened = resuming.await;
                self.take(opened)?;
                continue;
            }
            let event = match self.messages.next().await {
                Ok(Some(event)) => event,
                // Whoever takes what is too long never gets to its end.
                Err(error @ UpstreamError::TooLarge) => return Err(error),
                Ok(None) | Err(_) => {
                    self.resume()?;
                    continue;
                }
            };
            let Some(message) = self.at.take(event) else { return Ok(StreamItem::Nothing) };
            let is_answer = is_answer(&self.client, &message, &self.id);
            return Ok(StreamItem::Message { message, is_answer });
        }
    }

    /// The answer was heard: the connection can be used again once its stream has ended.
    pub(crate) fn finish(mut self) {
        let Some(lease) = self.lease.take() else { return };
        let mut messages = self.messages;
        match messages.next().now_or_never() {
            Some(Ok(None)) => lease.give_back(Instant::now()),
            Some(Err(_)) => {}
            _ => self.client.pipes.run(async move {
                let end = async {
                    while messages.next().await?.is_some() {}
                    Ok::<_, UpstreamError>(())
                };
                if let Ok(Ok(())) = timeout(END_PATIENCE, end).await {
                    lease.give_back(Instant::now());
                }
            }),
        }
    }

    /// Asks for the rest of the stream.
    fn resume(&mut self) -> Result<(), UpstreamError> {
        let Some(pause) = self.at.pause_before_rest() else {
            pool::note_error(self.lease.as_mut(), &UpstreamError::Reset);
            return Err(UpstreamError::Reset);
        };
        self.lease = None;
        let (client, upstream) = (self.client.clone(), Arc::clone(&self.upstream));
        let (session, at) = (self.session.clone(), self.at.clone());
        let opening = async move {
            sleep(pause).await;
            at.open(&client, &upstream, &session).await
        };
        self.resuming = Some(opening.boxed_local());
        Ok(())
    }

    fn take(&mut self, opened: ResumeResult) -> Result<(), UpstreamError> {
        self.resuming = None;
        match opened {
            ResumeResult::Stream(reply) => {
                let limits = self.client.pipes.shared.limits();
                self.messages = Messages::new(reply.body, limits.message_bytes_max, &limits.budget);
                self.lease = reply.lease;
                self.at.stand();
                Ok(())
            }
            ResumeResult::Failed => self.resume(),
            ResumeResult::Refused | ResumeResult::UnknownEvent => Err(UpstreamError::Reset),
        }
    }
}

/// Whether `message` is a response with this id.
pub(crate) fn is_answer(client: &Client, message: &Bytes, id: &str) -> bool {
    let depth_max = client.pipes.shared.limits().json_depth_max;
    let envelope = Envelope::parse(&mut client.pipes.scratch.borrow_mut(), message, depth_max);
    envelope.is_ok_and(|envelope| {
        envelope.kind == MessageKind::Response
            && envelope.id.and_then(|id| message.get(id)).is_some_and(|found| found == id.as_bytes())
    })
}

/// Whether what came with 404 speaks of a method, tool, prompt or resource: all else says that the session is gone.
fn is_about_request(client: &Client, answer: &Bytes) -> bool {
    let depth_max = client.pipes.shared.limits().json_depth_max;
    let mut scratch = client.pipes.scratch.borrow_mut();
    let root = scratch.index(answer, depth_max).map(Document::root).ok();
    let code = root.and_then(|root| root.get("error")?.get("code")?.as_integer());
    matches!(code, Some(-32601 | -32602 | -32002))
}

/// What the gateway asks in its own name goes this way.
pub(crate) async fn with_asker<T>(client: &Client, ask: impl AsyncFnOnce(Asker<'_>) -> T) -> T {
    let limits = client.pipes.shared.limits();
    let limits = Arc::clone(&limits);
    let (all, budget) = (&limits.all, &limits.budget);
    ask(Asker { client, scratch: &client.pipes.scratch, limits: all, budget, aim: ReplicaSelection::Any })
        .await
}

/// Whether the server knows the session; `None` if it does not say.
pub(crate) async fn is_known(client: &Client, upstream: &Upstream, session: &SessionName) -> Option<bool> {
    let is_known = with_asker(client, async |asker: Asker<'_>| {
        get_stream::is_session_known(&asker, upstream, session.named()).await
    });
    is_known.await
}

async fn whole(
    client: &Client,
    upstream: &Upstream,
    (reply, id): (Reply, &str),
    deadline: Instant,
) -> Result<Bytes, UpstreamError> {
    let Reply { head, mut body, mut lease, .. } = reply;
    let (bytes_max, budget) = {
        let limits = client.pipes.shared.limits();
        let bytes_max = if head.status.is_success() { limits.message_bytes_max } else { FAILED_BYTES_MAX };
        (bytes_max, Arc::clone(&limits.budget))
    };
    match collect(&mut body, bytes_max, deadline, &budget).await {
        Ok((whole, _)) => {
            if head.status.is_success() && !is_answer(client, &whole, id) {
                // The connection is out of step.
                upstream.series.mismatched.inc();
                pool::note_error(lease.as_mut(), &UpstreamError::Nonsense);
                return Err(UpstreamError::Nonsense);
            }
            if head.status.is_server_error()
                && media_of(&head.headers) == Media::Json
                && let Some(lease) = &mut lease
            {
                // An error of JSON-RPC is an answer, whatever its status.
                let is_busy = head.status == StatusCode::SERVICE_UNAVAILABLE;
                lease.in_flight.decide(is_busy || is_answer(client, &whole, id));
            }
            pool::give_back(lease, Instant::now());
            Ok(whole)
        }
        Err(Error::Upstream(error)) => {
            pool::note_error(lease.as_mut(), &error);
            Err(error)
        }
        Err(_) => Err(UpstreamError::TooManyConnections),
    }
}

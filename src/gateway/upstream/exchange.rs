//! One request to an upstream and the head of its reply.
//!
//! A request is sent again only where that is safe: it never left the gateway, or repeating it does no harm
//! and the connection it was written to had been waiting idle, which is how servers that close idle
//! connections look. Everything else is reported with what is known about its outcome.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use tokio::time::timeout_at;

use super::balance::NotChosen;
use super::bridge;
use super::fresh_id::{self, FreshId, RestoringBody};
use super::health::breaker::{Pass, RequestFault};
use super::incoming::Incoming;
use super::mux;
use super::mux::host::{Host, Limits};
use super::pool::{ConnectionLease, ConnectionPools, ReplicaRequest};
use super::sending::Sending;
use super::{ReplicaKey, ReplicaSelection, Transport, Upstream};
use crate::telemetry::calls::Asked;
use crate::telemetry::trace::Trail;
use net::tasks::Tasks;
use protocol::error::{Error, UpstreamError};
use protocol::json::Scratch;
use protocol::media::{Media, media_of};
use protocol::splice::Segments;

/// A large message is handed to its connection in pieces, which bounds what is copied ahead of the socket.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Having waited less for a reply says nothing of a replica.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
const JSON: &[u8] = b"application/json";

/// Marks a request that somebody else ends if its reply takes too long to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerDeadline;

/// Marks what is not asked for an answer, as a notification or the end of a session: that it is taken in late, or not at all,
/// says nothing of how a replica answers calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FireAndForget;

/// Marks a request whose reply is a stream that is held open for long. It has a connection of its own, which whoever
/// sends it has to bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DedicatedConnection;

/// What came back. The connection is leased until the body was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub head: http::response::Parts,
    pub body: Incoming,
    /// To be given back after a clean end; `None` where no connection belongs to the reply alone.
    pub lease: Option<ConnectionLease>,
    pub replica: Option<ReplicaKey>,
}

impl Reply {
    /// Whether it is a success, and consists of server-sent events.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.status.is_success() && media_of(&self.head.headers) == Media::Sse
    }
}

/// A thread's way to its upstreams.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub pools: Rc<ConnectionPools>,
    pub tasks: Tasks,
    /// Open connections of this thread, idle ones included.
    pub open: Rc<Cell<usize>>,
    /// How many this thread may have.
    pub open_max: usize,
    /// Where connections run that many calls share.
    pub host: Rc<Host>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// Executing it twice does no harm.
    pub is_safe_to_repeat: bool,
    /// Which replica it is for.
    pub aim: ReplicaSelection,
    pub asked: Option<Asked>,
}

/// Where a request has to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    /// The replica that it must reach.
    pub replica: ReplicaKey,
    /// The request target, where it is not the replica's own.
    pub target: Option<&'a Uri>,
}

impl Client {
    /// The bounds in force.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.host.shared.limits())
    }

    /// Reads JSON in this thread's memory for it, as deep as it may be nested.
    pub(crate) fn read_json<T>(&self, read: impl FnOnce((&mut Scratch, usize)) -> T) -> T {
        let depth_max = self.host.shared.limits().json_depth_max;
        read((&mut self.host.scratch.borrow_mut(), depth_max))
    }

    /// Sends `request`, which needs a method but neither target nor `Host`, at `now` and waits until `deadline` for the head of
    /// the reply.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        request: Request<RequestBody>,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let result = match bridge::crossing(upstream, &request, delivery.aim) {
            None => self.send_as_it_is(upstream, request, delivery, now, deadline).await,
            Some(era) => Box::pin(bridge::send(self, upstream, era, request, deadline)).await,
        };
        let reason = result.as_ref().err().map(|error| Error::from(error.clone()).outcome().reason);
        upstream.durations.observe(delivery.asked, reason, now.elapsed().as_secs_f64());
        result
    }

    /// As [`Client::send`], in the era that the request is written in.
    pub(super) async fn send_as_it_is(
        &self,
        upstream: &Upstream,
        request: Request<RequestBody>,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        match &upstream.transport {
            Transport::Http(streams) if streams.is_spoken() => {
                let exchange = Box::pin(mux::exchange::send(self, upstream, &**streams, request, deadline));
                timeout_at(deadline.into(), exchange).await.unwrap_or(Err(UpstreamError::TimedOut))
            }
            Transport::Http(_) => {
                let clock = RequestClock { now, deadline };
                if upstream.access.has_tokens() {
                    Box::pin(self.attempt_with_token(upstream, (delivery, None), request, clock)).await
                } else {
                    self.attempt(upstream, (delivery, None), request, clock).await
                }
            }
            Transport::Stdio(children) => {
                let exchange = Box::pin(mux::exchange::send(self, upstream, children, request, deadline));
                timeout_at(deadline.into(), exchange).await.unwrap_or(Err(UpstreamError::TimedOut))
            }
        }
    }

    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        to: Destination<'_>,
        request: Request<RequestBody>,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let delivery =
            SendOptions { is_safe_to_repeat: false, aim: ReplicaSelection::Session(to.replica), asked: None };
        let clock = RequestClock { now: Instant::now(), deadline };
        Box::pin(self.attempt_with_token(upstream, (delivery, to.target), request, clock)).await
    }

    pub(super) async fn attempt(
        &self,
        upstream: &Upstream,
        (SendOptions { is_safe_to_repeat, aim, .. }, target): (SendOptions, Option<&Uri>),
        mut request: Request<RequestBody>,
        clock: RequestClock,
    ) -> Result<Reply, UpstreamError> {
        let is_stream = request.extensions().get::<DedicatedConnection>().is_some();
        let may_be_late = is_stream || request.extensions().get::<FireAndForget>().is_some();
        let trail = Trail::of(&request);
        // Where there is no choice, this is known even if there is no connection to be had.
        if let (Some(trail), [only]) = (&trail, upstream.replicas.load().as_slice()) {
            trail.goes_to(&only.host, only.port);
        }
        let mut may_repeat = is_safe_to_repeat;
        let head_deadline = if is_stream || request.extensions().get::<CallerDeadline>().is_some() {
            clock.deadline
        } else {
            clock.deadline.min(clock.now + upstream.config.first_byte_timeout)
        };
        let mut fresh_id = None;
        self.pools.earn(upstream);
        loop {
            let (mut lease, is_pooled) = self.lease(upstream, aim, is_stream, clock).await?;
            address(&mut request, &lease);
            if let Some(trail) = &trail {
                let replica = lease.in_flight.replica();
                trail.goes_to(&replica.host, replica.port);
            }
            upstream.access.show(request.headers_mut());
            if let Some(target) = target {
                target.clone_into(request.uri_mut());
            }
            let copy = (is_pooled && may_repeat).then(|| copy(&request));
            let received_before = lease.connection.received_bytes.get();
            let sent = lease.connection.sender.try_send_request(request);
            let mut error = match timeout_at(head_deadline.into(), sent).await {
                Ok(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    lease.respect_keep_alive(&head.headers);
                    judge(&mut lease.in_flight, &head);
                    if let Some(trail) = &trail {
                        trail.is_answered(head.status);
                    }
                    let replica = Some(lease.in_flight.key());
                    let body = match fresh_id {
                        None => Incoming::Http(body),
                        Some(id) => {
                            Incoming::Restored(Box::new(RestoringBody::new(Incoming::Http(body), id)))
                        }
                    };
                    return Ok(Reply { head, body, lease: Some(lease), replica });
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    if !may_be_late && clock.was_patient(upstream) {
                        lease.in_flight.fail(RequestFault::TimedOut);
                    }
                    return Err(UpstreamError::TimedOut);
                }
            };
            let unsent = error.take_message();
            let error = error.into_error();
            tracing::debug!(upstream = upstream.config.name, %error, is_pooled, "exchange failed");
            let is_silent = lease.connection.received_bytes.get() == received_before;
            // A connection that had been idle may have been closed for that.
            if !is_pooled || !is_silent {
                lease.in_flight.fail(RequestFault::Broken);
            }
            request = match (unsent, copy) {
                (Some(request), _) if is_pooled => request,
                (Some(_), _) => return Err(UpstreamError::Unreachable),
                (None, Some(mut copy)) if is_silent => {
                    may_repeat = false;
                    if !self.pools.spend(upstream) {
                        upstream.series.retries_refused.inc();
                        return Err(UpstreamError::Reset);
                    }
                    fresh_id = renew(&mut copy);
                    copy
                }
                _ if upstream.access.was_refused(&upstream.config.name, &error) => {
                    return Err(UpstreamError::Unreachable);
                }
                _ if error.is_parse() => return Err(UpstreamError::Nonsense),
                _ => return Err(UpstreamError::Reset),
            };
            upstream.series.retries.inc();
            if let Some(trail) = &trail {
                trail.goes_again();
            }
        }
    }

    /// A connection to the replica that a request goes to, and whether it had been idle. Where there is none to be had,
    /// nothing was sent: another replica is tried.
    async fn lease(
        &self,
        upstream: &Upstream,
        aim: ReplicaSelection,
        is_stream: bool,
        clock: RequestClock,
    ) -> Result<(ConnectionLease, bool), UpstreamError> {
        let mut tried = Vec::new();
        let mut failed = UpstreamError::Unreachable;
        loop {
            let (replica, pass) = {
                let set = upstream.replicas.load();
                let random = if set.len() > 1 { self.pools.random() } else { 0 };
                let chosen = Upstream::choose(&set, (aim, &tried), random, clock.now);
                let (replica, pass) = match chosen {
                    Ok(chosen) => chosen,
                    Err(NotChosen::AllTried) => return Err(failed),
                    Err(NotChosen::Gone) => return Err(UpstreamError::SessionLost),
                    // What was tried says more than what was not.
                    Err(NotChosen::Unfit { .. }) if !tried.is_empty() => return Err(failed),
                    Err(NotChosen::Unfit { retry_after_ms }) => {
                        let retry_after_s = u32::try_from(retry_after_ms.div_ceil(1000)).unwrap_or(u32::MAX);
                        return Err(UpstreamError::OutOfOrder { retry_after_s: retry_after_s.max(1) });
                    }
                };
                let is_reusable = !is_stream && pass != Pass::Aside;
                if is_reusable && let Some(lease) = self.pools.take(upstream, replica, pass, clock.now) {
                    return Ok((lease, true));
                }
                (Arc::clone(replica), pass)
            };
            tried.push(replica.key);
            let is_counted = !is_stream && pass != Pass::Aside;
            let mut in_flight = ReplicaRequest::begin(Rc::new(Arc::clone(&replica)), pass, is_counted);
            let place = self.pools.place(upstream, is_counted).ok_or(UpstreamError::TooManyConnections)?;
            let connecting = Box::pin(self.connect(upstream, &replica, is_stream));
            match timeout_at(clock.deadline.into(), connecting).await {
                Ok(Ok(connection)) => {
                    return Ok((self.pools.lease(upstream, connection, place, in_flight), false));
                }
                Ok(Err(error @ UpstreamError::TooManyConnections)) => return Err(error),
                Ok(Err(error)) => {
                    in_flight.fail(RequestFault::Broken);
                    failed = error;
                }
                Err(_) => {
                    if clock.was_patient(upstream) {
                        in_flight.fail(RequestFault::Broken);
                    }
                    return Err(UpstreamError::TimedOut);
                }
            }
        }
    }
}

/// When a request began, and when the head of its reply must be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestClock {
    pub(super) now: Instant,
    pub(super) deadline: Instant,
}

impl RequestClock {
    /// For what begins only now.
    pub(super) fn starting_now(self) -> Self {
        Self { now: Instant::now(), ..self }
    }

    /// Whether it was waited long enough to say something of the replica: of a list, only the last page may have had
    /// little time.
    fn was_patient(self, upstream: &Upstream) -> bool {
        self.now.elapsed() >= PATIENCE_MIN.min(upstream.config.first_byte_timeout)
    }
}

/// What the head of a reply says of its replica. The rest says the end of the reply.
fn judge(in_flight: &mut ReplicaRequest, head: &http::response::Parts) {
    let media = head.headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let is_json = media.get(..JSON.len()).is_some_and(|start| start.eq_ignore_ascii_case(JSON));
    match head.status {
        // Busy, not broken.
        StatusCode::SERVICE_UNAVAILABLE => in_flight.succeed(),
        // Some servers send errors of JSON-RPC like this.
        status if status.is_server_error() && is_json => in_flight.postpone(),
        status if status.is_server_error() => in_flight.fail(RequestFault::Broken),
        status if status.is_success() && is_json => {}
        _ => in_flight.succeed(),
    }
}

fn address(request: &mut Request<RequestBody>, lease: &ConnectionLease) {
    let replica = lease.in_flight.replica();
    *request.uri_mut() = replica.target.clone();
    request.headers_mut().insert(header::HOST, replica.authority.clone());
}

/// Gives a request that is sent again another id, if it has one.
fn renew(request: &mut Request<RequestBody>) -> Option<FreshId> {
    let (message, id) = fresh_id::replace(&request.body().message)?;
    request.body_mut().message = message;
    Some(id)
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(request.body().clone());
    request.method().clone_into(copy.method_mut());
    request.headers().clone_into(copy.headers_mut());
    copy
}

/// A message on its way up: pieces of known total length.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody {
    /// The message.
    pub message: Segments,
    /// Told how far it has come, where somebody must not overtake it.
    pub sending: Option<Arc<Sending>>,
}

impl RequestBody {
    /// The request that posts it with these headers, and takes any kind of reply.
    pub(crate) fn posted(self, mut headers: HeaderMap) -> Request<Self> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let mut request = Request::new(self);
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        request
    }
}

impl From<Segments> for RequestBody {
    fn from(message: Segments) -> Self {
        Self { message, sending: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.message.pop_at_most(FRAME_BYTES_MAX);
        if let Some(sending) = &self.sending
            && self.message.is_empty()
        {
            sending.mark_written();
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.len())
    }
}
